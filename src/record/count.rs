//! Counts and lists for sentences.

use std::fmt::Display;

/// `1 run`, `2 runs`, `2 entries`, `2 processes`.
pub fn count(n: impl Display, noun: &str) -> String {
    match n.to_string() {
        one if one == "1" => format!("1 {noun}"),
        many => format!("{many} {}", plural(noun)),
    }
}

/// `a, b and 3 more`: the first `most` of these texts, and the number of the others.
pub fn first_of(texts: impl IntoIterator<Item: Display>, most: usize) -> String {
    let mut texts = texts.into_iter();
    let first: Vec<String> = texts.by_ref().take(most).map(|text| text.to_string()).collect();
    match texts.count() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

fn plural(noun: &str) -> String {
    match noun.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{stem}ies"),
        _ if noun.ends_with(['s', 'x']) || noun.ends_with("ch") => format!("{noun}es"),
        _ => format!("{noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_and_many_have_different_words() {
        assert_eq!([count(0, "run"), count(1u64, "run"), count(2usize, "run")], ["0 runs", "1 run", "2 runs"]);
        let many = ["log entry", "key", "process", "batch", "index"].map(|noun| count(3, noun));
        assert_eq!([1, 2, 3].map(|most| first_of(["a", "b"], most)), ["a and 1 more", "a, b", "a, b"]);
        assert_eq!(many, ["3 log entries", "3 keys", "3 processes", "3 batches", "3 indexes"]);
    }
}
