//! What a ledger says that it holds, and what of it a fault has taken.

use crate::sandbox::{Said, Sandbox};
use ledger::record::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Rows of the tables.
pub const MERGED: usize = 100;
/// See [`MERGED`].
pub const IMPORTED: usize = 60;

/// What a ledger says that it holds; notes are asked for where they are needed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Held {
    /// Attempt to its run and how it ended.
    pub attempts: BTreeMap<String, (String, String)>,
    pub tags: BTreeMap<String, String>,
    pub hidden: BTreeSet<String>,
}

/// Nothing where there is no ledger yet.
pub fn held(sandbox: &Sandbox) -> Held {
    let listed = |words: &[&str]| {
        let said = sandbox.run(words);
        if said.code == Some(3) && said.err.contains("there is no ledger") {
            return Vec::new();
        }
        let document: serde_json::Value = serde_json::from_str(&said.expect(0)).unwrap();
        document[if words[0] == "tag" { "tags" } else { "attempts" }].as_array().unwrap().clone()
    };
    let text = |value: &serde_json::Value, name: &str| value[name].as_str().unwrap().to_owned();
    let all = listed(&["ls", "--all", "--hidden", "--json"]);
    let visible: BTreeSet<String> = listed(&["ls", "--all", "--json"]).iter().map(|one| text(one, "attempt")).collect();
    let attempts: BTreeMap<_, _> =
        all.iter().map(|one| (text(one, "attempt"), (text(one, "run"), text(one, "outcome")))).collect();
    let hidden = attempts.keys().filter(|id| !visible.contains(*id)).cloned().collect();
    let tags = listed(&["tag", "--json"]).iter().map(|one| (text(one, "tag"), text(one, "target"))).collect();
    Held { attempts, tags, hidden }
}

/// The notes on what is named.
pub fn notes(sandbox: &Sandbox, id: &str) -> Vec<String> {
    let document = sandbox.json(&["show", id], 0);
    document["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap().to_owned()).collect()
}

/// The runs of journals that are open, or that were left behind.
pub fn opened(sandbox: &Sandbox) -> BTreeSet<String> {
    let journals = sandbox.journals().into_iter().filter(|path| path.extension() == Some("journal".as_ref()));
    let run = |path: &Path| match ledger::journal::read(path).unwrap().entries.into_iter().next() {
        Some(Entry::Opened { run, .. }) => Some(run.id.0.to_string()),
        _ => None,
    };
    journals.filter_map(|path| run(&path)).collect()
}

/// What was there before and is not now, or is otherwise: of a change of that kind, whether or not it came to its end.
pub fn losses(kind: &str, words: &[&str], before: &Held, now: &Held) -> Vec<String> {
    let mut lost: Vec<String> = Vec::new();
    let is_there = |(id, one): &(&String, &(String, String))| now.attempts.get(*id) == Some(*one);
    lost.extend(before.attempts.iter().filter(|one| !is_there(one)).map(|(id, _)| format!("attempt {id}")));
    let other = |name: &&String| !(kind == "tag" && words.get(2) == Some(&name.as_str()));
    let names = before.tags.keys().chain(now.tags.keys()).filter(other);
    lost.extend(names.filter(|name| before.tags.get(*name) != now.tags.get(*name)).map(|name| format!("tag {name}")));
    if kind == "tag"
        && words.get(2).is_some_and(|name| before.tags.contains_key(*name) && !now.tags.contains_key(*name))
    {
        lost.push(format!("tag {}", words[2]));
    }
    let changed: Vec<&String> = before.hidden.symmetric_difference(&now.hidden).collect();
    if changed.len() > usize::from(kind == "hide") {
        lost.push(format!("what is hidden: {changed:?}"));
    }
    lost
}

/// What a command said is done, or left in a journal, and is not there.
pub fn broken_words(
    kind: &str,
    words: &[&str],
    said: &Said,
    opened: &BTreeSet<String>,
    before: &Held,
    now: &Held,
) -> Vec<String> {
    let runs: BTreeSet<&String> = now.attempts.values().map(|(run, _)| run).collect();
    let mut broken: Vec<String> =
        opened.iter().filter(|run| !runs.contains(run)).map(|run| format!("the journal of run {run}")).collect();
    let finished = said.err.lines().filter_map(|line| line.split_once(" toy: finished"));
    let told = finished.map(|(run, _)| run);
    broken.extend(told.filter(|told| !runs.iter().any(|run| run.starts_with(told))).map(|told| format!("run {told}")));
    if said.code != Some(0) {
        return broken;
    }
    let new = now.attempts.len() - before.attempts.len();
    let id = said.out.split_whitespace().next().unwrap_or_default();
    let is_so = match kind {
        "run" => new == 1,
        "sweep" => new == 10,
        "merge" => new == MERGED,
        "import" => new == IMPORTED,
        "hide" => now.hidden.iter().any(|hidden| hidden.starts_with(id)) != words.contains(&"--undo"),
        "tag" => now.tags.get(words[2]).is_some_and(|target| said.out.contains(&target[..8])),
        _ => true,
    };
    if !is_so {
        broken.push(format!("{words:?} said `{}`, and {new} attempts are new", said.out));
    }
    broken
}

/// Each planted loss is found.
#[test]
fn what_is_lost_is_told() {
    let attempt = |id: &str, run: &str| (id.to_owned(), (run.to_owned(), "finished".to_owned()));
    let mut before = Held::default();
    before.attempts.extend([attempt("aaaaaaaa1", "11111111"), attempt("bbbbbbbb1", "22222222")]);
    before.tags.insert("t-1".to_owned(), "aaaaaaaa1".to_owned());
    before.hidden.insert("bbbbbbbb1".to_owned());
    assert_eq!(losses("note", &[], &before, &before), [""; 0]);
    let loses = |kind: &str, words: &[&str], plant: &dyn Fn(&mut Held)| {
        let mut now = before.clone();
        plant(&mut now);
        assert_eq!(losses(kind, words, &before, &now).len(), 1, "{kind}: {now:?}");
    };
    loses("run", &[], &|now| drop(now.attempts.remove("aaaaaaaa1")));
    loses("run", &[], &|now| now.attempts.get_mut("aaaaaaaa1").unwrap().1 = "failed".to_owned());
    loses("merge", &[], &|now| now.tags.clear());
    loses("tag", &["tag", "latest", "t-2"], &|now| now.tags.clear());
    loses("tag", &["tag", "latest", "t-1"], &|now| now.tags.clear());
    loses("import", &[], &|now| now.hidden.clear());
    let said = |out: &str, err: &str, code| Said { out: out.to_owned(), err: err.to_owned(), code };
    let broken = |kind: &str, words: &[&str], said: &Said, opened: &BTreeSet<String>| {
        broken_words(kind, words, said, opened, &before, &before).len()
    };
    let none = BTreeSet::new();
    let told = said("", "33333333 toy: finished in 2 ms\n", None);
    assert_eq!(broken("sweep", &[], &told, &none), 1, "a cell of a sweep that was said to be finished");
    assert_eq!(broken("run", &[], &said("", "", None), &["44444444".to_owned()].into()), 1, "a journal");
    assert_eq!(broken("run", &[], &said("", "", None), &["11111111".to_owned()].into()), 0);
    for kind in ["run", "sweep", "merge", "import"] {
        assert_eq!(broken(kind, &[], &said("", "", Some(0)), &none), 1, "{kind}");
    }
    let tag = ["tag", "latest", "t-1"];
    assert_eq!(broken("tag", &tag, &said("t-1 is bbbbbbbb\n", "", Some(0)), &none), 1);
    assert_eq!(broken("tag", &tag, &said("t-1 is aaaaaaaa\n", "", Some(0)), &none), 0);
    assert_eq!(broken("hide", &["hide", "latest"], &said("aaaaaaaa is hidden\n", "", Some(0)), &none), 1);
    assert_eq!(broken("hide", &["hide", "b", "--undo"], &said("bbbbbbbb is shown again\n", "", Some(0)), &none), 1);
}
