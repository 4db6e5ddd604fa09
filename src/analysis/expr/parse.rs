//! Parses tokens as a condition: the grammar and the resolution of names.

use super::scan::{Token, scan};
use super::{Bare, Comparison, Condition, ExprError, Literal, Operator};
use std::collections::BTreeSet;
use std::ops::Range;

/// The most levels of parentheses and `not`.
const MOST_LEVELS: usize = 64;
const KEYWORDS: [&str; 6] = ["and", "or", "not", "in", "true", "false"];

pub(super) fn parse(text: &str, names: &[&BTreeSet<String>], bare: Bare) -> Result<Condition, ExprError> {
    let tokens = scan(text)?;
    if tokens.is_empty() {
        return Err(ExprError::new(text, 0..0, "the expression is empty (write a comparison such as `gpus <= 2`)"));
    }
    let mut parser = Parser { text, names, bare, tokens, next: 0 };
    let condition = parser.any(0)?;
    match parser.peek() {
        None => Ok(condition),
        Some(Token::Sign(")")) => Err(parser.fault("this `)` closes nothing (remove it)")),
        Some(_) => Err(parser.fault("`and` or `or` is expected here")),
    }
}

struct Parser<'a> {
    text: &'a str,
    names: &'a [&'a BTreeSet<String>],
    bare: Bare,
    tokens: Vec<(Token, Range<usize>)>,
    next: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(token, _)| token)
    }

    /// The place of the next token, or the end.
    fn place(&self) -> Range<usize> {
        self.tokens.get(self.next).map_or(self.text.len()..self.text.len(), |(_, place)| place.clone())
    }

    fn fault(&self, message: impl Into<String>) -> ExprError {
        ExprError::new(self.text, self.place(), message)
    }

    fn take(&mut self, wanted: &Token) -> bool {
        let found = self.peek() == Some(wanted);
        self.next += usize::from(found);
        found
    }

    fn keyword(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Word(found)) if found == word);
        self.next += usize::from(found);
        found
    }

    fn any(&mut self, level: usize) -> Result<Condition, ExprError> {
        let mut parts = vec![self.all(level)?];
        while self.keyword("or") {
            parts.push(self.all(level)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Condition::Any(parts) })
    }

    fn all(&mut self, level: usize) -> Result<Condition, ExprError> {
        let mut parts = vec![self.one(level)?];
        while self.keyword("and") {
            parts.push(self.one(level)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Condition::All(parts) })
    }

    fn one(&mut self, level: usize) -> Result<Condition, ExprError> {
        if level > MOST_LEVELS {
            return Err(self.fault(format!("this is nested more than {MOST_LEVELS} levels deep (write it flatter)")));
        }
        if self.keyword("not") {
            return Ok(Condition::Not(Box::new(self.one(level + 1)?)));
        }
        if self.take(&Token::Sign("(")) {
            let inner = self.any(level + 1)?;
            if !self.take(&Token::Sign(")")) {
                return Err(self.fault("`)`, `and` or `or` is expected here"));
            }
            return Ok(inner);
        }
        self.comparison().map(Condition::Compare)
    }

    fn comparison(&mut self) -> Result<Comparison, ExprError> {
        let start = self.place().start;
        let field = self.field()?;
        let operator = self.operator()?;
        let literals = match operator {
            Operator::In | Operator::NotIn => self.list()?,
            _ => {
                let place = self.place();
                let literal = match self.other_field(operator)? {
                    Some(field) => Literal::Field(field),
                    None => self.literal()?,
                };
                if operator.is_ordered() && matches!(literal, Literal::Text(_) | Literal::Bool(_)) {
                    let message = format!("{} has no order here (compare with a number, or use `==`)", literal.kind());
                    return Err(ExprError::new(self.text, place, message));
                }
                vec![literal]
            }
        };
        let end = self.next.checked_sub(1).and_then(|last| self.tokens.get(last)).map_or(start, |(_, place)| place.end);
        Ok(Comparison { field, operator, literals, place: start..end })
    }

    /// The field on the right of a comparison, if there is one.
    fn other_field(&mut self, operator: Operator) -> Result<Option<String>, ExprError> {
        let field = match self.peek() {
            Some(Token::Name(name)) => Some(resolve(name, self.names).map_err(|message| self.fault(message))?),
            Some(Token::Word(word)) if !KEYWORDS.contains(&word.as_str()) => {
                let is_name = self.names.iter().any(|names| names.contains(word));
                if operator.is_ordered() {
                    // Text has no order, so a word is a name here.
                    resolve(word, self.names).ok()
                } else {
                    (is_name && (self.bare == Bare::Field || word.contains('.'))).then(|| word.clone())
                }
            }
            _ => None,
        };
        self.next += usize::from(field.is_some());
        Ok(field)
    }

    fn field(&mut self) -> Result<String, ExprError> {
        let name = match self.peek() {
            Some(Token::Name(name)) => name.clone(),
            Some(Token::Word(word)) if !KEYWORDS.contains(&word.as_str()) => word.clone(),
            None => return Err(self.fault("a comparison is expected here, such as `gpus <= 2`")),
            Some(_) => return Err(self.fault("a name is expected here (a comparison begins with a field's name)")),
        };
        let field = resolve(&name, self.names).map_err(|message| self.fault(message))?;
        self.next += 1;
        Ok(field)
    }

    fn operator(&mut self) -> Result<Operator, ExprError> {
        let operator = match self.peek() {
            Some(Token::Sign("==")) => Operator::Equal,
            Some(Token::Sign("!=")) => Operator::Unequal,
            Some(Token::Sign("<")) => Operator::Less,
            Some(Token::Sign("<=")) => Operator::LessOrEqual,
            Some(Token::Sign(">")) => Operator::Greater,
            Some(Token::Sign(">=")) => Operator::GreaterOrEqual,
            Some(Token::Word(word)) if word == "in" => Operator::In,
            Some(Token::Word(word)) if word == "not" => {
                self.next += 1;
                if !matches!(self.peek(), Some(Token::Word(word)) if word == "in") {
                    return Err(self.fault("`in` is expected here"));
                }
                Operator::NotIn
            }
            _ => return Err(self.fault("`==`, `!=`, `<`, `<=`, `>`, `>=` or `in` is expected here")),
        };
        self.next += 1;
        Ok(operator)
    }

    fn list(&mut self) -> Result<Vec<Literal>, ExprError> {
        if !self.take(&Token::Sign("[")) {
            return Err(self.fault("`[` is expected here, as in `optimizer in [sgd, adam]`"));
        }
        let mut literals = vec![self.literal()?];
        while self.take(&Token::Sign(",")) {
            if self.peek() == Some(&Token::Sign("]")) {
                break;
            }
            let place = self.place();
            let literal = self.literal()?;
            if literal.kind() != literals[0].kind() {
                let message = format!("{} among {} (a list holds one type)", literal.kind(), literals[0].kind());
                return Err(ExprError::new(self.text, place, message));
            }
            literals.push(literal);
        }
        if !self.take(&Token::Sign("]")) {
            return Err(self.fault("`,` or `]` is expected here"));
        }
        Ok(literals)
    }

    fn literal(&mut self) -> Result<Literal, ExprError> {
        let literal = match self.peek() {
            Some(Token::Int(number)) => Literal::Int(*number),
            Some(Token::Real(number)) => Literal::Real(*number),
            Some(Token::Text(text)) => Literal::Text(text.clone()),
            Some(Token::Word(word)) => match word.as_str() {
                "true" => Literal::Bool(true),
                "false" => Literal::Bool(false),
                word if KEYWORDS.contains(&word) => return Err(self.fault("a value is expected here")),
                word if word.contains('.') && self.names.iter().any(|names| names.contains(word)) => {
                    let message = "a list holds values and no fields (put text in quotes)";
                    return Err(self.fault(message));
                }
                word => Literal::Text(word.to_owned()),
            },
            _ => return Err(self.fault("a value is expected here: a number, true, false or text")),
        };
        self.next += 1;
        Ok(literal)
    }
}

/// Returns the full name of a name.
pub(super) fn resolve(name: &str, tiers: &[&BTreeSet<String>]) -> Result<String, String> {
    if tiers.iter().any(|names| names.contains(name)) {
        return Ok(name.to_owned());
    }
    for names in tiers {
        if let Some(full) = resolve_among(name, names)? {
            return Ok(full);
        }
    }
    if name.is_empty() {
        return Err("a name is empty (remove the comma, or name a field such as `batch_size`)".to_owned());
    }
    let all: BTreeSet<&String> = tiers.iter().copied().flatten().collect();
    Err(match nearest(name, &all) {
        Some(nearest) => format!("unknown name `{name}` (did you mean `{nearest}`?)"),
        None => {
            const MOST: usize = 40;
            // Names of the first set are listed first.
            let mut seen = BTreeSet::new();
            let in_order = tiers.iter().copied().flatten().filter(|name| seen.insert(name.as_str()));
            let known: Vec<_> = in_order.take(MOST).map(String::as_str).collect();
            let more = match all.len() - known.len() {
                0 => String::new(),
                more => format!(", and {more} more"),
            };
            format!("unknown name `{name}` (known names: {}{more})", known.join(", "))
        }
    })
}

fn resolve_among(name: &str, names: &BTreeSet<String>) -> Result<Option<String>, String> {
    let ends = format!(".{name}");
    let ending: Vec<&String> = names.iter().filter(|full| full.ends_with(&ends)).collect();
    match ending.as_slice() {
        [only] => return Ok(Some((*only).clone())),
        [] => {}
        several => {
            let several: Vec<_> = several.iter().map(|full| format!("`{full}`")).collect();
            return Err(format!("`{name}` stands for several fields (write {})", several.join(" or ")));
        }
    }
    let named = format!("{name}.name");
    Ok(names.contains(&named).then_some(named))
}

/// Returns the known name, or its last component, that was probably meant.
fn nearest<'a>(name: &str, names: &BTreeSet<&'a String>) -> Option<&'a str> {
    if name.len() > 100 {
        return None;
    }
    // `batch` for `batch_size`.
    let begins = format!("{name}_");
    let longer = names.iter().filter(|full| full.rsplit('.').next().is_some_and(|ending| ending.starts_with(&begins)));
    if let Some(shortest) = longer.min_by_key(|full| full.len()) {
        return Some(shortest.as_str());
    }
    names
        .iter()
        .flat_map(|full| {
            let ending = if name.contains('.') { full } else { full.rsplit('.').next().unwrap_or(full) };
            [(strsim::damerau_levenshtein(name, ending), ending.len(), full.as_str())]
        })
        .filter(|(distance, len, _)| *distance <= (*len / 3).max(1) && distance < len)
        // Among equally near names, a whole name and one with the same first letter are preferred: `loss` to `host.os`
        // for `los`.
        .min_by_key(|(distance, _, full)| (*distance, full.contains('.'), full.chars().next() != name.chars().next()))
        .map(|(.., full)| full)
}
