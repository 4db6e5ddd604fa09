//! Positions at which a manifest names files, for messages about missing files.

use super::draft::Draft;
use super::fault::Walk;
use crate::record::Value;
use std::collections::BTreeMap;

/// Keys whose values name a file or folder.
const KEYS: [&str; 3] = ["data.path", "container.image", "container.binds"];
/// The key of the program's command and files.
const PROGRAM: &str = "program";

/// First position of each key and text, as `FILE:LINE:COLUMN`.
pub(super) type Named = BTreeMap<(&'static str, String), String>;

/// Returns all names of files in a valid draft.
pub(super) fn named(draft: &Draft, origin: &str, text: &str) -> Named {
    let mut all: Vec<(usize, &'static str, &str)> = Vec::new();
    if let Some(program) = &draft.program {
        all.extend(program.files.iter().chain(&program.command).map(|(file, at)| (*at, PROGRAM, file.as_str())));
    }
    let included = draft.include.iter().flat_map(|entry| &entry.given);
    for given in draft.base.iter().chain(included).map(|place| &draft.given[*place]) {
        let Some(key) = KEYS.into_iter().find(|key| *key == given.name) else { continue };
        for item in &given.items {
            let texts = match &item.value {
                Some(Value::List(texts)) => texts.iter().filter_map(Value::as_str).collect(),
                value => value.iter().filter_map(Value::as_str).collect::<Vec<_>>(),
            };
            all.extend(texts.into_iter().map(|text| (item.at, key, text)));
        }
    }
    all.sort_unstable();
    let mut walk = Walk::over(text);
    let mut found = Named::new();
    for (at, key, name) in all {
        let (line, column) = walk.to(at);
        found.entry((key, name.to_owned())).or_insert_with(|| format!("{origin}:{line}:{column}"));
    }
    found
}
