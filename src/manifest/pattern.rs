//! Metrics that are found in the standard output of a program: `[program.metrics]`.

use crate::record::{MetricKind, Table, Value};
use regex::{Regex, RegexBuilder};

/// The setting of a cell that holds its patterns, by the metrics' names.
pub const PATTERNS: &str = "program.metrics";
/// The named group that holds the value; without it the first group does.
const VALUE: &str = "value";
/// The named group that holds the position of a series' point.
const STEP: &str = "step";
/// A compiled pattern takes no more memory.
const MOST_BYTES: usize = 4 << 20;

/// A metric, and how it is found.
#[derive(Clone, Debug)]
pub struct MetricPattern {
    /// The metric's name.
    pub name: String,
    /// The pattern as it is written.
    pub pattern: String,
    /// Whether all matches become a series, and not the last one a metric alone.
    pub is_series: bool,
    /// The metric's unit; empty for a pure number.
    pub unit: String,
    /// What decides the metric, if that is stated.
    pub kind: Option<MetricKind>,
    regex: Regex,
    /// The text that every match begins with; none if that is not known.
    begins: Option<String>,
}

/// What a pattern found in a line.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The number, or the text that is none.
    pub value: Result<f64, String>,
    /// Where it stands in its series, if the line says so.
    pub step: Option<u64>,
}

impl MetricPattern {
    /// Reads one from the value that a manifest or a cell has: the pattern alone, or a table.
    ///
    /// # Errors
    /// What is wrong with it, and in which member.
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
        if regex.captures_len() < 2 {
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
        let (name, pattern, unit, begins) = (name.to_owned(), pattern.to_owned(), unit.to_owned(), begins(pattern));
        Ok(Self { name, pattern, is_series: flag, unit, kind, regex, begins })
    }

    /// The patterns of a cell with these settings.
    pub fn of(settings: &Table) -> Vec<Self> {
        let patterns = settings.get(PATTERNS).and_then(Value::as_table).into_iter().flatten();
        patterns.filter_map(|(name, value)| Self::read(name, value).ok()).collect()
    }

    /// Whether a line that does not match begins like one that does: `acc nan` for `acc (\d\.\d+)`.
    pub fn is_near(&self, line: &str) -> bool {
        self.begins.as_deref().is_some_and(|begins| line.contains(begins))
    }

    /// What the last match in a line says.
    pub fn find(&self, line: &str) -> Option<Found> {
        let groups = self.regex.captures_iter(line).last()?;
        let group = groups.name(VALUE).or_else(|| groups.get(1))?;
        let text = &line[group.start()..group.end() + exponent(&line[group.end()..])];
        let value = text.trim().parse::<f64>().map_err(|_| text.to_owned());
        let step = groups.name(STEP).and_then(|step| step.as_str().parse().ok());
        Some(Found { value, step })
    }
}

/// What the pattern begins with before anything that may vary.
fn begins(pattern: &str) -> Option<String> {
    let text = pattern.strip_prefix('^').unwrap_or(pattern);
    let end = text.find(|c| r"\.+*?()|[]{}^$".contains(c)).unwrap_or(text.len());
    let plain = &text[..end];
    // A quantifier is of the last character.
    let is_quantified = text[end..].starts_with(['*', '?', '{']);
    let known = if is_quantified { plain.char_indices().last().map_or("", |(at, _)| &plain[..at]) } else { plain };
    (known.trim().len() > 1 && !pattern.contains('|')).then(|| known.to_owned())
}

/// The length of an exponent that a text begins with: `(\d+\.\d+)` matches `1.2` of `1.2e-05`.
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
    fn the_last_match_of_a_line_counts_and_groups_say_what_is_what() {
        let plain = MetricPattern::read("accuracy", &r"acc (\d\.\d+)".into()).unwrap();
        let found = |value: f64, step| Some(Found { value: Ok(value), step });
        assert_eq!(plain.find("acc 0.25 then acc 0.75"), found(0.75, None));
        assert_eq!(plain.find("accuracy"), None);
        assert_eq!(plain.find("acc 1.5e-3, acc 2.5E+2x"), found(250.0, None), "an exponent belongs to its number");
        assert_eq!((plain.find("acc 1.5e"), plain.find("acc 1.5epochs")), (found(1.5, None), found(1.5, None)));
        assert!(plain.is_near("the acc nan") && !plain.is_near("accuracy"));
        for (pattern, known) in [("^loss: ?(.)", Some("loss:")), ("a (.)|b (.)", None), ("(.)", None), ("x(.)", None)] {
            assert_eq!(begins(pattern).as_deref(), known, "{pattern}");
        }
        let pattern = r"step (?<step>\d+): loss (?<value>\S+)";
        let named =
            [("pattern", pattern.into()), ("series", true.into()), ("unit", "J".into()), ("kind", "measured".into())];
        let named = MetricPattern::read("loss", &table(&named)).unwrap();
        assert_eq!((named.is_series, named.unit.as_str(), named.kind), (true, "J", Some(MetricKind::Measured)));
        assert_eq!(named.find("step 7: loss 1.5e-3"), found(0.0015, Some(7)));
        assert_eq!(named.find("step 8: loss low"), Some(Found { value: Err("low".to_owned()), step: Some(8) }));
        assert!(matches!(named.find("step 9: loss nan"), Some(Found { value: Ok(value), .. }) if value.is_nan()));
    }

    #[test]
    fn what_is_wrong_is_named() {
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
