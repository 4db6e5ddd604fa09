//! Arithmetic over named numbers: tokens, grammar and evaluation.
//!
//! Names, places and errors are those of conditions. Sums and products are flat lists, so that only parentheses nest.

#[cfg(test)]
mod tests;

use super::ExprError;
use super::parse::resolve;
use std::collections::BTreeSet;
use std::ops::Range;

/// A checked formula, such as `energy / (epochs * 3600)`.
///
/// It has numbers, names, `+ - * / ^`, parentheses and the functions `abs`, `sqrt`, `exp`, `ln`, `log10`, `min` and
/// `max`. `^` binds closest and to the right, then the sign, then `*` and `/`. A name is a full dotted path or its last
/// components where these are unique; one that has other characters than letters, digits, `_`, `.` and `@` stands
/// between backquotes.
#[derive(Clone, Debug, PartialEq)]
pub struct Formula {
    text: String,
    root: Term,
}

#[derive(Clone, Debug, PartialEq)]
enum Term {
    Number(f64),
    Name(String),
    /// Each term, with whether it is subtracted.
    Sum(Vec<(bool, Term)>),
    /// Each factor, with whether it is a divisor.
    Product(Vec<(bool, Term)>),
    Power(Box<Term>, Box<Term>),
    Call(Function, Vec<Term>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Function {
    Abs,
    Sqrt,
    Exp,
    Ln,
    Log10,
    Min,
    Max,
}

const FUNCTIONS: [(&str, Function); 7] = [
    ("abs", Function::Abs),
    ("sqrt", Function::Sqrt),
    ("exp", Function::Exp),
    ("ln", Function::Ln),
    ("log10", Function::Log10),
    ("min", Function::Min),
    ("max", Function::Max),
];

/// The most levels of parentheses, signs and powers.
const MOST_LEVELS: usize = 64;

impl Formula {
    /// Parses a formula over the given names.
    ///
    /// # Errors
    /// The first error: a syntax error, an unknown or ambiguous name, or more than 64 levels of nesting.
    pub fn parse(text: &str, names: &BTreeSet<String>) -> Result<Self, ExprError> {
        let tokens = scan(text)?;
        if tokens.is_empty() {
            return Err(ExprError::new(text, 0..0, "the formula is empty (write one such as `power * time`)"));
        }
        let mut parser = Parser { text, names, tokens, next: 0 };
        let root = parser.sum(0)?;
        match parser.peek() {
            None => Ok(Self { text: text.to_owned(), root }),
            Some(Token::Sign(')')) => Err(parser.fault("this `)` closes nothing (remove it)")),
            Some(_) => Err(parser.fault("`+`, `-`, `*`, `/` or `^` is expected here")),
        }
    }

    /// The formula as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The full names in the formula, each once.
    pub fn names(&self) -> BTreeSet<&str> {
        let mut names = BTreeSet::new();
        self.root.visit(&mut |name| {
            names.insert(name);
        });
        names
    }

    /// Returns the formula's value. Division by zero and the like give numbers that are not finite.
    ///
    /// # Errors
    /// The first name that has no value.
    pub fn value(&self, lookup: &dyn Fn(&str) -> Option<f64>) -> Result<f64, &str> {
        self.root.value(lookup)
    }
}

impl Term {
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a str)) {
        match self {
            Self::Number(_) => {}
            Self::Name(name) => visit(name),
            Self::Sum(terms) | Self::Product(terms) => terms.iter().for_each(|(_, term)| term.visit(visit)),
            Self::Power(base, exponent) => {
                base.visit(visit);
                exponent.visit(visit);
            }
            Self::Call(_, terms) => terms.iter().for_each(|term| term.visit(visit)),
        }
    }

    fn value(&self, lookup: &dyn Fn(&str) -> Option<f64>) -> Result<f64, &str> {
        Ok(match self {
            Self::Number(number) => *number,
            Self::Name(name) => lookup(name).ok_or(name.as_str())?,
            Self::Sum(terms) => fold(terms, lookup, 0.0, |sum, value| sum + value, |sum, value| sum - value)?,
            Self::Product(terms) => {
                fold(terms, lookup, 1.0, |product, value| product * value, |all, value| all / value)?
            }
            Self::Power(base, exponent) => base.value(lookup)?.powf(exponent.value(lookup)?),
            Self::Call(function, terms) => {
                let values = terms.iter().map(|term| term.value(lookup)).collect::<Result<Vec<f64>, _>>()?;
                function.of(&values)
            }
        })
    }
}

/// Evaluates from left to right. The first value is not added to the neutral one, since 0 + -0 would be 0.
fn fold<'a>(
    terms: &'a [(bool, Term)],
    lookup: &dyn Fn(&str) -> Option<f64>,
    neutral: f64,
    plain: fn(f64, f64) -> f64,
    inverse: fn(f64, f64) -> f64,
) -> Result<f64, &'a str> {
    let mut all = None;
    for (inverted, term) in terms {
        let value = term.value(lookup)?;
        all = Some(match (all, inverted) {
            (None, false) => value,
            (None, true) => inverse(neutral, value),
            (Some(before), false) => plain(before, value),
            (Some(before), true) => inverse(before, value),
        });
    }
    Ok(all.unwrap_or(neutral))
}

impl Function {
    fn of(self, values: &[f64]) -> f64 {
        let first = values.first().copied().unwrap_or(f64::NAN);
        // A NaN stays NaN; `f64::min` would drop it.
        let choose = |better: fn(f64, f64) -> f64| {
            values.iter().copied().fold(first, |a, b| if a.is_nan() || b.is_nan() { f64::NAN } else { better(a, b) })
        };
        match self {
            Self::Abs => first.abs(),
            Self::Sqrt => first.sqrt(),
            Self::Exp => first.exp(),
            Self::Ln => first.ln(),
            Self::Log10 => first.log10(),
            Self::Min => choose(f64::min),
            Self::Max => choose(f64::max),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Number(f64),
    Name(String),
    Sign(char),
}

fn scan(text: &str) -> Result<Vec<(Token, Range<usize>)>, ExprError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(c) = text.get(at..).and_then(|rest| rest.chars().next()) {
        let rest = &text[at..];
        let (token, len) = if c.is_whitespace() {
            at += c.len_utf8();
            continue;
        } else if "+-*/^(),".contains(c) {
            (Token::Sign(c), 1)
        } else if c == '`' {
            let Some(end) = rest[1..].find('`') else {
                return Err(ExprError::new(text, at..text.len(), "this name is not closed (end it with `)"));
            };
            (Token::Name(rest[1..=end].to_owned()), end + 2)
        } else if c.is_ascii_digit() || c == '.' {
            number(text, at)?
        } else if c.is_alphabetic() || c == '_' {
            let len = rest.find(|c: char| !(c.is_alphanumeric() || "_.@".contains(c))).unwrap_or(rest.len());
            (Token::Name(rest[..len].to_owned()), len)
        } else {
            let message = format!("`{}` is not known here (remove it)", c.escape_debug());
            return Err(ExprError::new(text, at..at + c.len_utf8(), message));
        };
        tokens.push((token, at..at + len));
        at += len;
    }
    Ok(tokens)
}

fn number(text: &str, at: usize) -> Result<(Token, usize), ExprError> {
    let rest = &text[at..];
    let mut before = '0';
    let end = rest.char_indices().find(|(_, c)| {
        let sign = "+-".contains(*c) && "eE".contains(before);
        before = *c;
        !(sign || c.is_alphanumeric() || *c == '.' || *c == '_')
    });
    let len = end.map_or(rest.len(), |(place, _)| place);
    match rest[..len].replace('_', "").parse() {
        Ok(number) => Ok((Token::Number(number), len)),
        Err(_) => Err(ExprError::new(text, at..at + len, "this is not a number")),
    }
}

struct Parser<'a> {
    text: &'a str,
    names: &'a BTreeSet<String>,
    tokens: Vec<(Token, Range<usize>)>,
    next: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(token, _)| token)
    }

    fn fault(&self, message: impl Into<String>) -> ExprError {
        let end = self.text.len()..self.text.len();
        ExprError::new(self.text, self.tokens.get(self.next).map_or(end, |(_, place)| place.clone()), message)
    }

    fn take(&mut self, sign: char) -> bool {
        let found = self.peek() == Some(&Token::Sign(sign));
        self.next += usize::from(found);
        found
    }

    /// Terms between two signs; `plain` is the sign that does not invert.
    fn list(
        &mut self,
        level: usize,
        (plain, inverse): (char, char),
        part: fn(&mut Self, usize) -> Result<Term, ExprError>,
        whole: fn(Vec<(bool, Term)>) -> Term,
    ) -> Result<Term, ExprError> {
        let first = part(self, level)?;
        let mut terms = vec![(false, first)];
        loop {
            let inverted = if self.take(plain) {
                false
            } else if self.take(inverse) {
                true
            } else {
                break;
            };
            terms.push((inverted, part(self, level)?));
        }
        Ok(if terms.len() == 1 { terms.remove(0).1 } else { whole(terms) })
    }

    fn sum(&mut self, level: usize) -> Result<Term, ExprError> {
        self.list(level, ('+', '-'), Self::product, Term::Sum)
    }

    fn product(&mut self, level: usize) -> Result<Term, ExprError> {
        self.list(level, ('*', '/'), Self::signed, Term::Product)
    }

    fn signed(&mut self, level: usize) -> Result<Term, ExprError> {
        if level > MOST_LEVELS {
            return Err(self.fault(format!("this is nested more than {MOST_LEVELS} levels deep (write it flatter)")));
        }
        if self.take('-') {
            return Ok(Term::Sum(vec![(true, self.signed(level + 1)?)]));
        }
        if self.take('+') {
            return self.signed(level + 1);
        }
        let base = self.atom(level)?;
        if self.take('^') {
            return Ok(Term::Power(Box::new(base), Box::new(self.signed(level + 1)?)));
        }
        Ok(base)
    }

    fn atom(&mut self, level: usize) -> Result<Term, ExprError> {
        if self.take('(') {
            let inner = self.sum(level + 1)?;
            return if self.take(')') { Ok(inner) } else { Err(self.fault("`)` or a sign is expected here")) };
        }
        let term = match self.peek() {
            Some(Token::Number(number)) => Term::Number(*number),
            Some(Token::Name(name)) => {
                let called = self.tokens.get(self.next + 1).map(|(token, _)| token) == Some(&Token::Sign('('));
                if called {
                    return self.call(&name.clone(), level);
                }
                Term::Name(resolve(name, &[self.names]).map_err(|message| self.fault(message))?)
            }
            _ => return Err(self.fault("a number, a name or `(` is expected here")),
        };
        self.next += 1;
        Ok(term)
    }

    fn call(&mut self, name: &str, level: usize) -> Result<Term, ExprError> {
        let Some((_, function)) = FUNCTIONS.into_iter().find(|(known, _)| *known == name) else {
            let known = FUNCTIONS.map(|(known, _)| known).join(", ");
            return Err(self.fault(format!("unknown function `{name}` (there are: {known})")));
        };
        let place = self.next;
        self.next += 2;
        let mut terms = vec![self.sum(level + 1)?];
        while self.take(',') {
            terms.push(self.sum(level + 1)?);
        }
        if !self.take(')') {
            return Err(self.fault("`,`, `)` or a sign is expected here"));
        }
        if terms.len() > 1 && !matches!(function, Function::Min | Function::Max) {
            self.next = place;
            return Err(self.fault(format!("`{name}` takes one number")));
        }
        Ok(Term::Call(function, terms))
    }
}
