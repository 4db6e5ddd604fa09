//! Selection of names by whole names, prefixes, and patterns with `*` and `?`.

use crate::record::first_of;
use std::collections::BTreeSet;

/// The most names that an error lists.
const LISTED: usize = 40;

/// A pattern that matches no name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no series matches `{pattern}`{hint}")]
pub struct Unmatched {
    pattern: String,
    hint: String,
}

/// Returns the names that the patterns match, in the order of the names.
///
/// A pattern that is a name matches only that name. A pattern with `*` (any text) or `?` (any character) matches all
/// names of that form. Any other pattern matches all names that begin with it and continue with `.` or `_`.
///
/// # Errors
/// If a pattern matches no name.
pub fn select<'a>(patterns: &[String], names: &BTreeSet<&'a str>) -> Result<BTreeSet<&'a str>, Unmatched> {
    let mut chosen = BTreeSet::new();
    for pattern in patterns {
        let before = chosen.len();
        let already = names.iter().any(|name| chosen.contains(name) && means(pattern, name));
        match names.get(pattern.as_str()) {
            Some(name) => {
                chosen.insert(*name);
            }
            None => chosen.extend(names.iter().filter(|name| means(pattern, name)).copied()),
        }
        if chosen.len() == before && !already {
            return Err(Unmatched { pattern: pattern.clone(), hint: hint(pattern, names) });
        }
    }
    Ok(chosen)
}

fn means(pattern: &str, name: &str) -> bool {
    if pattern.contains(['*', '?']) {
        return has_form(pattern, name);
    }
    let rest = name.strip_prefix(pattern.trim_end_matches('.'));
    !pattern.is_empty() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '_']))
}

/// Whether a name matches a pattern with wildcards. A `*` that matches too little is extended by one character.
fn has_form(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut of) = (0, 0);
    let mut again: Option<(usize, usize)> = None;
    while of < name.len() {
        match pattern.get(at) {
            Some('*') => {
                again = Some((at + 1, of));
                at += 1;
            }
            Some(wanted) if *wanted == '?' || *wanted == name[of] => {
                at += 1;
                of += 1;
            }
            _ => match &mut again {
                Some((star, from)) => {
                    *from += 1;
                    (at, of) = (*star, *from);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|rest| *rest == '*')
}

fn hint(pattern: &str, names: &BTreeSet<&str>) -> String {
    if names.is_empty() {
        return " (there are none)".to_owned();
    }
    let distance = |name: &str| {
        let last = name.rsplit('.').next().unwrap_or(name);
        strsim::damerau_levenshtein(pattern, name).min(strsim::damerau_levenshtein(pattern, last) + 1)
    };
    let nearest = names.iter().min_by_key(|name| distance(name)).filter(|name| distance(name) <= name.len() / 2);
    let nearest = nearest.map_or_else(String::new, |name| format!("did you mean `{name}`? "));
    format!(" ({nearest}there are: {})", first_of(names, LISTED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAMES: [&str; 6] =
        ["gpu.0.power_average", "gpu.0.power_instant", "gpu.1.power_instant", "gpu.10.energy", "loss", "loss_aux"];

    fn chosen(patterns: &[&str]) -> Result<Vec<&'static str>, String> {
        let patterns: Vec<String> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        let chosen = select(&patterns, &NAMES.into_iter().collect());
        chosen.map(|names| names.into_iter().collect()).map_err(|fault| fault.to_string())
    }

    #[test]
    fn names_prefixes_and_forms() {
        assert_eq!(chosen(&["gpu.1"]), Ok(vec!["gpu.1.power_instant"]));
        assert_eq!(chosen(&["gpu.0.power"]), Ok(vec!["gpu.0.power_average", "gpu.0.power_instant"]));
        assert_eq!(chosen(&["*instant", "gpu.?.power_i*"]), Ok(vec!["gpu.0.power_instant", "gpu.1.power_instant"]));
        assert_eq!(chosen(&["loss"]), Ok(vec!["loss"]));
        assert_eq!(chosen(&["*"]).unwrap().len(), NAMES.len());
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_nearest_and_all() {
        let all = NAMES.join(", ");
        assert_eq!(
            chosen(&["loss", "gpu.0.powr_instant"]).unwrap_err(),
            format!("no series matches `gpu.0.powr_instant` (did you mean `gpu.0.power_instant`? there are: {all})")
        );
        assert!(chosen(&["energy"]).unwrap_err().contains("did you mean `gpu.10.energy`?"));
        for nothing in ["", "gpu.2", "gpu.*.loss", "zzzzzzzz", "."] {
            assert!(chosen(&[nothing]).unwrap_err().contains("there are: "), "{nothing}");
        }
    }

    proptest! {
        #[test]
        fn a_form_made_from_a_name_fits_it(name in "[a-c.]{0,12}", holes in prop::collection::vec((0..12usize, 0..3usize), 0..4)) {
            let mut pattern: Vec<char> = name.chars().collect();
            for (at, kind) in holes {
                let at = at.min(pattern.len());
                match kind {
                    0 => pattern.insert(at, '*'),
                    1 if at < pattern.len() && pattern[at] != '*' => pattern[at] = '?',
                    _ if at < pattern.len() => pattern[at] = '*',
                    _ => {}
                }
            }
            let pattern: String = pattern.into_iter().collect();
            prop_assert!(has_form(&pattern, &name), "{pattern} {name}");
        }

        #[test]
        fn without_holes_only_the_name_itself_fits(a in "[ab]{0,3}", b in "[ab]{0,3}") {
            prop_assert_eq!(has_form(&a, &b), a == b);
        }
    }
}
