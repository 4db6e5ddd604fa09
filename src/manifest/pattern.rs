//! Metrics in the standard output of a program: `[program.metrics]`.

use crate::record::{MetricKind, Table, Value};
use regex::{Captures, Match, Regex, RegexBuilder};

/// The setting of a cell with its patterns, by metric name.
pub const PATTERNS: &str = "program.metrics";
/// Named group of the value; without it, the first group is used.
const VALUE: &str = "value";
/// Named group of the position of a series' point.
const STEP: &str = "step";
/// Greatest size of a compiled pattern in memory.
const MOST_BYTES: usize = 4 << 20;

/// A metric and its pattern.
#[derive(Clone, Debug)]
pub struct MetricPattern {
    /// The metric's name.
    pub name: String,
    /// The pattern as written.
    pub pattern: String,
    /// Whether all matches form a series. Otherwise the last one is the metric's value.
    pub is_series: bool,
    /// The metric's unit; empty if dimensionless.
    pub unit: String,
    /// Whether the metric is an outcome or measured, if stated.
    pub kind: Option<MetricKind>,
    regex: Regex,
    /// Whether the pattern has a sign or a point right before its group, which then is not part of the value.
    is_led: bool,
    /// The pattern with any word as the value; `None` if that would match nearly everything.
    relaxed: Option<Regex>,
}

/// A match in a line.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The number, or the matched text if it is not a number.
    pub value: Result<f64, String>,
    /// Position in its series, if the line has one.
    pub step: Option<u64>,
    /// Why the match may not be the intended number.
    pub doubt: Option<String>,
}

impl MetricPattern {
    /// Parses the value in a manifest or a cell: a pattern, or a table.
    ///
    /// # Errors
    /// The fault and the member that has it.
    pub fn read(name: &str, value: &Value) -> Result<Self, (Option<&'static str>, String)> {
        let empty = Table::new();
        let (pattern, more) = match value {
            Value::Str(pattern) => (Some(pattern.as_str()), &empty),
            Value::Table(table) => (table.get("pattern").and_then(Value::as_str), table),
            _ => return Err((None, "is not a pattern (give a text, or a table with `pattern`)".to_owned())),
        };
        if let Some(other) = more.keys().find(|key| !MEMBERS.contains(&key.as_str())) {
            return Err((None, format!("has a member `{other}` (pattern, series, unit and kind are known)")));
        }
        let Some(pattern) = pattern else {
            return Err((None, "has no `pattern` (give a regular expression as text)".to_owned()));
        };
        let regex = RegexBuilder::new(pattern).size_limit(MOST_BYTES).build().map_err(|error| {
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
            (Some("pattern"), format!("has the pattern `{pattern}`, which is not a regular expression: {last}"))
        })?;
        if regex.capture_names().skip(1).all(|name| name == Some(STEP)) {
            let fault = format!("has the pattern `{pattern}` without a group (put parentheses around the number)");
            return Err((Some("pattern"), fault));
        }
        let flag = match more.get("series") {
            None => false,
            Some(Value::Bool(flag)) => *flag,
            Some(other) => return Err((Some("series"), format!("has series = {other} (give true or false)"))),
        };
        let unit = match more.get("unit") {
            None => "",
            Some(Value::Str(unit)) => unit,
            Some(other) => return Err((Some("unit"), format!("has unit = {other} (give a text such as \"s\")"))),
        };
        let kind = match more.get("kind") {
            None => None,
            Some(kind) => match kind.as_str().and_then(MetricKind::named) {
                Some(kind) => Some(kind),
                None => {
                    return Err((Some("kind"), format!("has kind = {kind} (give \"outcome\" or \"measured\")")));
                }
            },
        };
        let group = group_of_value(pattern);
        let is_led = group.as_ref().is_some_and(|group| pattern[..group.open].ends_with(['-', '.']));
        let relaxed = group.and_then(|group| relaxed(pattern, &group));
        let (name, pattern, unit) = (name.to_owned(), pattern.to_owned(), unit.to_owned());
        Ok(Self { name, pattern, is_series: flag, unit, kind, regex, is_led, relaxed })
    }

    /// Returns the canonical form: the pattern alone if everything else has its default.
    pub fn value(&self) -> Value {
        let pattern = Value::Str(self.pattern.clone());
        let mut more = Table::new();
        if self.is_series {
            more.insert("series".to_owned(), true.into());
        }
        if !self.unit.is_empty() {
            more.insert("unit".to_owned(), self.unit.clone().into());
        }
        more.extend(self.kind.map(|kind| ("kind".to_owned(), kind.name().into())));
        if more.is_empty() {
            return pattern;
        }
        more.insert("pattern".to_owned(), pattern);
        more.into()
    }

    /// Returns the patterns in a cell's settings.
    pub fn of(settings: &Table) -> Vec<Self> {
        let patterns = settings.get(PATTERNS).and_then(Value::as_table).into_iter().flatten();
        patterns.filter_map(|(name, value)| Self::read(name, value).ok()).collect()
    }

    /// Whether a line without a match would match with another value: `acc nan` for `acc (\d\.\d+)`.
    pub fn is_near(&self, line: &str) -> bool {
        let groups = self.relaxed.as_ref().and_then(|relaxed| relaxed.captures_iter(line).last());
        let Some(word) = groups.as_ref().and_then(|groups| self.value_of(groups)) else { return false };
        // Ordinary text has other words there.
        let word = word.as_str().to_ascii_lowercase();
        word.contains(|c: char| c.is_ascii_digit()) || ["nan", "inf", "none", "null"].iter().any(|no| word.contains(no))
    }

    /// Returns the group `value`, or the first group that is not the position.
    fn value_of<'l>(&self, groups: &Captures<'l>) -> Option<Match<'l>> {
        let first = self.regex.capture_names().skip(1).position(|name| name != Some(STEP));
        groups.name(VALUE).or_else(|| groups.get(first? + 1))
    }

    /// Returns the value of the last match in a line.
    pub fn find(&self, line: &str) -> Option<Found> {
        let mut count = 0;
        let groups = self.regex.captures_iter(line).inspect(|_| count += 1).last()?;
        let group = self.value_of(&groups)?;
        let text = &line[group.start()..group.end() + exponent(&line[group.end()..])];
        let end = group.start() + text.len();
        let before = if self.is_led { "" } else { &line[..group.start()] };
        let after = if groups.get_match().end() > end { "" } else { &line[end..] };
        let value = text.trim().parse::<f64>().map_err(|_| text.to_owned());
        let step = groups.name(STEP).and_then(|step| step.as_str().parse().ok());
        let doubt = if is_cut(before, text, after) {
            Some(format!("`{text}` is a part of a longer number"))
        } else {
            (count > 1).then(|| format!("it has {count} matches, of which the last one counts"))
        };
        Some(Found { value, step, doubt })
    }
}

/// Samples of arbitrary output. A relaxed pattern that matches one of them would match nearly everything.
const ANY_LINES: [&str; 3] = [
    "saved 3 files to out/x-1.5_2 in 2 s, 97.5% | [1/3] {'a': 0.5} (done)",
    "a b c d e f g h i j k l m n o p q r s t u v w x y z 0 1 2 3 4 5 6 7 8 9",
    "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ 0123456789.0123456789",
];

/// Byte offsets of a group: its parenthesis, and start and end of its content.
struct Group {
    open: usize,
    start: usize,
    end: usize,
}

/// Finds the group of the value; `None` if that is uncertain.
fn group_of_value(pattern: &str) -> Option<Group> {
    let named = ["(?<value>", "(?P<value>"].iter().find_map(|open| pattern.find(open));
    let (mut is_escaped, mut is_class, mut depth) = (false, false, 0_usize);
    let mut group: Option<(usize, usize)> = None;
    for (at, c) in pattern.char_indices() {
        let is_plain = !is_escaped && !is_class;
        is_escaped = !is_escaped && c == '\\';
        match c {
            '(' if is_plain && group.is_none() => {
                let rest = &pattern[at + 1..];
                let name = rest.strip_prefix("?P<").or_else(|| rest.strip_prefix("?<"));
                let name = name.and_then(|rest| rest.split_once('>')).map(|(name, _)| name);
                let is_other = name == Some(STEP) || (name.is_none() && rest.starts_with('?'));
                if named.map_or(!is_other, |named| named == at) {
                    let name = name.and_then(|_| rest.find('>')).map_or(0, |end| end + 1);
                    group = Some((at, at + 1 + name));
                    depth = 1;
                }
            }
            '(' if is_plain && group.is_some() => depth += 1,
            ')' if is_plain && group.is_some() => {
                depth -= 1;
                if depth == 0 {
                    return group.map(|(open, start)| Group { open, start, end: at });
                }
            }
            '[' if is_plain => is_class = true,
            ']' if is_class && !is_escaped => is_class = false,
            _ => {}
        }
    }
    None
}

/// Returns the pattern with any word as its value; `None` if that would match nearly everything.
fn relaxed(pattern: &str, group: &Group) -> Option<Regex> {
    if pattern.contains('|') {
        return None;
    }
    let text = format!(r"{}\S+{}", &pattern[..group.start], &pattern[group.end..]);
    let relaxed = RegexBuilder::new(&text).size_limit(MOST_BYTES).build().ok()?;
    (!ANY_LINES.iter().chain([&""]).any(|line| relaxed.is_match(line))).then_some(relaxed)
}

/// Whether a match is part of a longer number: `12.5` in `-12.5`, `1` in `1,234`.
fn is_cut(before: &str, text: &str, after: &str) -> bool {
    let has_sign = text.starts_with(['-', '+']);
    if !text.trim_start_matches(['-', '+']).starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return false;
    }
    let mut back = before.chars().rev();
    let is_before = !has_sign
        && match back.next() {
            Some(c) if c.is_ascii_digit() => true,
            Some('.') => back.next().is_some_and(|c| c.is_ascii_digit()),
            Some('-' | '\u{2212}') => back.next().is_none_or(|c| c.is_whitespace() || "=:([".contains(c)),
            _ => false,
        };
    let digits = after.bytes().skip(1).take_while(u8::is_ascii_digit).count();
    let is_short = text.len() <= 3 && !text.contains('.');
    let is_after = match after.chars().next() {
        Some(c) if c.is_ascii_digit() => true,
        Some('.') => digits > 0 && !text.contains('.'),
        Some(',' | '_') => digits == 3 && is_short && !after[4..].starts_with(char::is_alphanumeric),
        _ => false,
    };
    is_before || is_after
}

/// Returns the length of an exponent at the start of a text: `(\d+\.\d+)` matches only `1.2` in `1.2e-05`.
fn exponent(text: &str) -> usize {
    let Some(digits) = text.strip_prefix(['e', 'E']) else { return 0 };
    let digits = digits.strip_prefix(['-', '+']).unwrap_or(digits);
    let count = digits.bytes().take_while(u8::is_ascii_digit).count();
    if count == 0 { 0 } else { text.len() - digits.len() + count }
}

const MEMBERS: [&str; 4] = ["pattern", "series", "unit", "kind"];

#[cfg(test)]
mod tests {
    use super::*;

    fn table(items: &[(&str, Value)]) -> Value {
        Value::Table(items.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect())
    }

    #[test]
    fn the_last_match_counts_and_groups_select_value_and_step() {
        let plain = MetricPattern::read("accuracy", &r"acc (\d\.\d+)".into()).unwrap();
        let found = |value: f64, step| Some(Found { value: Ok(value), step, doubt: None });
        let twice = plain.find("acc 0.25 then acc 0.75").unwrap();
        assert_eq!((twice.value, twice.doubt.is_some()), (Ok(0.75), true));
        assert_eq!(plain.find("accuracy"), None);
        assert_eq!(plain.find("acc 2.5E+2x"), found(250.0, None), "an exponent belongs to its number");
        assert_eq!((plain.find("acc 1.5e"), plain.find("acc 1.5epochs")), (found(1.5, None), found(1.5, None)));
        assert!(plain.is_near("the acc nan") && !plain.is_near("accuracy"));
        for (pattern, expected) in [
            (r"^loss: ?(\d)", Some(r"^loss: ?(\S+)")),
            (r"\bloss\s*=\s*(\d+(\.\d+)?)$", Some(r"\bloss\s*=\s*(\S+)$")),
            (r"(?i)(?:val_)?loss[ (](\d[)\d])", Some(r"(?i)(?:val_)?loss[ (](\S+)")),
            (r"(\d+) loss", Some(r"(\S+) loss")),
            (r"(?<step>\d) loss (?<value>\d\S+)", Some(r"(?<step>\d) loss (?<value>\S+)")),
            (r"(?<step>\d) loss (\d\S+)", Some(r"(?<step>\d) loss (\S+)")),
            (r"aa (.)|bb (.)", None),
            (r"(.)", None),
            (r"x(.)", None),
            (r"\s\d(.)", None),
            (r"(?<step>\d+)\s+(?<value>\d+\.\d+)", None),
            (r"(?is)(\d+\.\d+)", None),
            (r"(?:accuracy )?(\d+\.\d+)", None),
            (r"(?:loss (\d+\.\d+))?", None),
        ] {
            let read = MetricPattern::read("a", &pattern.into()).unwrap();
            assert_eq!(read.relaxed.as_ref().map(Regex::as_str), expected, "{pattern}");
        }
        let beside = MetricPattern::read("loss", &r"(?<step>\d+) loss (\d+)".into()).unwrap();
        assert_eq!(beside.find("7 loss 5"), found(5.0, Some(7)), "the position is not the value");
        let pattern = r"step (?<step>\d+): loss (?<value>\S+)";
        let named =
            [("pattern", pattern.into()), ("series", true.into()), ("unit", "J".into()), ("kind", "measured".into())];
        let named = MetricPattern::read("loss", &table(&named)).unwrap();
        assert_eq!((named.is_series, named.unit.as_str(), named.kind), (true, "J", Some(MetricKind::Measured)));
        assert_eq!(named.find("step 7: loss 1.5e-3"), found(0.0015, Some(7)));
        assert_eq!(
            named.find("step 8: loss low"),
            Some(Found { value: Err("low".to_owned()), step: Some(8), doubt: None })
        );
        assert!(matches!(named.find("step 9: loss nan"), Some(Found { value: Ok(value), .. }) if value.is_nan()));
    }

    #[test]
    fn a_part_of_a_longer_number_is_doubted() {
        let doubt = |pattern: &str, line: &str| {
            MetricPattern::read("a", &pattern.into()).unwrap().find(line).unwrap().doubt.unwrap_or_default()
        };
        for (pattern, line) in [
            (r"score.*?(\d+\.\d+)", "score -12.5"),
            (r"ppl (\d+)", "ppl 1,234.5"),
            (r"big (\d+)", "big 1_000"),
            (r"acc (\d+)", "acc 0.25"),
        ] {
            assert!(doubt(pattern, line).ends_with("is a part of a longer number"), "{line}");
        }
        for (pattern, line) in [
            (r"acc-(\d+\.\d+)", "acc-0.5"),
            (r"acc (\d+\.\d+)", "acc 0.5, loss 0.25"),
            (r"acc (\d+\.\d+)", "acc 0.5."),
            (r"step (\d+)", "step 10/20"),
            (r"acc (\S+)", "acc -0.5"),
            (r"^\d+,(\d+\.\d+),", "3,0.512,128"),
            (r"lr=(\d+\.\d+)", "(lr=0.5,100)"),
            (r"resnet(\d+)", "resnet50_32x4d"),
            (r"nll: -(\d+\.\d+)", "nll: -0.5"),
            (r"v1\.(\d+)", "v1.25"),
            (r"loss (\d+)", "loss 5\u{e9}"),
            (r"loss (\d+)", "loss 5,\u{e9}\u{e9}"),
        ] {
            assert_eq!(doubt(pattern, line), "", "{line}");
        }
    }

    #[test]
    fn a_pattern_has_a_canonical_form() {
        let form = |value: Value| MetricPattern::read("a", &value).unwrap().value();
        let spelled = table(&[("pattern", "(a)".into()), ("series", false.into()), ("unit", "".into())]);
        assert_eq!(form(spelled), Value::from("(a)"));
        let series = table(&[("pattern", "(a)".into()), ("series", true.into()), ("kind", "outcome".into())]);
        assert_eq!(form(series.clone()), series);
    }

    #[test]
    fn faults_of_a_pattern_are_described() {
        let fault = |value: &Value| MetricPattern::read("a", value).unwrap_err().1;
        assert!(fault(&"acc (".into()).contains("`acc (`, which is not a regular expression: unclosed group"));
        assert!(fault(&"acc .*".into()).ends_with("(put parentheses around the number)"));
        assert!(fault(&1_i64.into()).starts_with("is not a pattern"));
        assert!(fault(&table(&[("series", true.into())])).starts_with("has no `pattern`"));
        let with = |key: &str, value: Value| fault(&table(&[("pattern", "(a)".into()), (key, value)]));
        assert_eq!(with("kind", "speed".into()), "has kind = speed (give \"outcome\" or \"measured\")");
        assert_eq!(with("series", 1_i64.into()), "has series = 1 (give true or false)");
        assert!(with("unt", "s".into()).starts_with("has a member `unt`"));
    }
}
