//! What crates cannot say: who may enter which of the `ledger` package's rooms, held by scanning the source.
//!
//! The other rooms are crates of the workspace. Their `Cargo.toml` says what they depend on, and rustc holds it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms that are crates of their own, `ledger-record` and so on: folders of `src` with a `Cargo.toml`.
const MEMBERS: &[&str] = &["record", "wire", "host", "gpu", "native", "train"];

/// Room, the rooms that it may import, and the foreign crates that it alone may name. In the order of the table: each room
/// stands after all that it imports, so that no cycle can be written down.
const ROOMS: &[(&str, &[&str], &[&str])] = &[
    ("manifest", &["record"], &["toml", "regex"]),
    ("journal", &["record", "wire"], &["crc32c"]),
    ("store", &["record", "wire"], &["redb"]),
    ("analysis", &["record"], &["statrs"]),
    ("engine", &["record", "wire", "manifest", "host", "gpu", "journal", "store", "analysis"], &[]),
    (
        "interop",
        &["record", "wire", "manifest", "analysis"],
        &["csv", "parquet", "crc32c", "jiff", "ssh_key", "base64ct", "signature"],
    ),
    ("cluster", &["record", "wire", "manifest", "host", "journal", "store", "engine"], &[]),
    ("report", &["record", "wire", "analysis"], &["anstyle", "comfy_table", "indicatif", "jiff", "resvg"]),
    ("ui", &["record", "wire", "report"], &["flate2", "http_body_util", "hyper", "hyper_util", "tokio"]),
    (
        "cli",
        &[
            "record", "wire", "manifest", "host", "gpu", "journal", "store", "train", "engine", "analysis", "interop",
            "cluster", "report", "ui",
        ],
        &["anstream", "clap", "clap_complete", "clap_mangen"],
    ),
];

/// Crates that any room may name.
const SHARED: &[&str] = &["thiserror", "strsim"];

/// Members with dependencies that no code names: they turn features of other crates on.
const UNNAMED: [(&str, &str); 3] = [("native", "fastrand"), ("native", "libc"), ("native", "once_cell")];

const FORBIDDEN_NAMES: &[&str] = &["utils", "helpers", "common", "core", "manager"];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.push(path);
        }
    }
}

/// The code of a file without comments and without its inline test module.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let without_comment = |line: &str| line.split("//").next().unwrap_or_default().to_owned() + "\n";
    text.lines().map(without_comment).collect()
}

/// The identifiers that follow a prefix such as `crate::`.
fn after<'a>(code: &'a str, prefix: &str) -> Vec<&'a str> {
    let ident = |text: &'a str| {
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
        &text[..end]
    };
    let mut found = Vec::new();
    for (at, _) in code.match_indices(prefix) {
        let standing_alone = !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$' || c == ':');
        if standing_alone {
            let rest = &code[at + prefix.len()..];
            if let Some(group) = rest.strip_prefix('{') {
                let group = &group[..group.find('}').unwrap_or(group.len())];
                found.extend(group.split(',').map(|item| ident(item.trim())));
            } else {
                found.push(ident(rest));
            }
        }
    }
    found.retain(|name| !name.is_empty());
    found
}

/// The folders of `src` and their files: those of the members, or those of the rooms that are modules of `ledger`.
fn folders(members: bool) -> BTreeMap<String, Vec<PathBuf>> {
    let mut folders = BTreeMap::new();
    for entry in fs::read_dir(source()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.join("Cargo.toml").exists() == members {
            let mut found = Vec::new();
            files(&path, &mut found);
            // proptest keeps the failing cases of a member in a folder beside it.
            if !found.is_empty() {
                folders.insert(path.file_name().unwrap().to_string_lossy().into_owned(), found);
            }
        }
    }
    folders
}

fn rooms() -> BTreeMap<String, Vec<PathBuf>> {
    folders(false)
}

/// The dependencies of a package, as code names them.
fn dependencies(package: &Path) -> Vec<String> {
    let manifest = fs::read_to_string(package.join("Cargo.toml")).unwrap();
    let section = manifest.split("\n[dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
    let lines = section.lines().filter(|line| line.starts_with(char::is_alphabetic));
    lines.map(|line| line.split([' ', '=', '.']).next().unwrap().replace('-', "_")).collect()
}

/// Whether code names a crate. A module of ours may have a crate's name.
fn names(code: &str, name: &str) -> bool {
    let ours = code.contains(&format!("mod {name};"));
    let mut places = code.match_indices(name);
    !ours
        && places.any(|(at, _)| {
            let alone = !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
            alone && code[at + name.len()..].starts_with("::")
        })
}

#[test]
fn the_table_lists_every_room_after_those_that_it_imports() {
    let mut seen: Vec<&str> = MEMBERS.to_vec();
    for (room, imports, _) in ROOMS {
        for import in *imports {
            assert!(seen.contains(import), "`{room}` imports `{import}`, which stands after it");
        }
        seen.push(room);
    }
    let sorted = |names: &[&str]| {
        let mut names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        names.sort();
        names
    };
    assert_eq!(sorted(MEMBERS), folders(true).into_keys().collect::<Vec<_>>());
    assert_eq!(sorted(&seen[MEMBERS.len()..]), rooms().into_keys().collect::<Vec<_>>());
}

#[test]
fn rooms_enter_only_rooms_that_they_may() {
    let mut faults = Vec::new();
    let mut checked = 0;
    for (room, paths) in rooms() {
        let (_, imports, _) = ROOMS.iter().find(|(name, ..)| *name == room).unwrap();
        for path in paths {
            for import in after(&code(&path), "crate::") {
                checked += 1;
                if import != room && !imports.contains(&import) {
                    faults.push(format!("{} names crate::{import}", path.display()));
                }
            }
        }
    }
    assert!(checked > 50, "the scan finds only {checked} imports");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Rooms reach the members as `crate::record` and so on, so that the table above sees it.
#[test]
fn foreign_crates_are_named_in_their_rooms_alone() {
    let crates = dependencies(Path::new(env!("CARGO_MANIFEST_DIR")));
    assert!(crates.contains(&"redb".to_owned()) && crates.contains(&"ledger_record".to_owned()));
    let mut faults = Vec::new();
    for name in crates.iter().filter(|name| !SHARED.contains(&name.as_str())) {
        let owners: Vec<&str> =
            ROOMS.iter().filter(|(_, _, own)| own.contains(&name.as_str())).map(|(room, ..)| *room).collect();
        // What no room has may be of the program itself.
        let is_of_program = owners.is_empty() && names(&code(&source().join("main.rs")), name);
        let mut used = is_of_program || MEMBERS.iter().any(|member| *name == format!("ledger_{member}"));
        for (room, paths) in rooms() {
            for path in paths.iter().filter(|path| names(&code(path), name)) {
                if owners.contains(&room.as_str()) {
                    used = true;
                } else {
                    faults.push(format!("{} names {name}", path.display()));
                }
            }
        }
        if !used {
            faults.push(format!("{name} is a dependency that no room uses"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn members_use_what_they_depend_on() {
    let mut faults = Vec::new();
    for (member, paths) in folders(true) {
        let code: Vec<String> = paths.iter().map(|path| code(path)).collect();
        for name in dependencies(&source().join(&member)) {
            if !UNNAMED.contains(&(member.as_str(), name.as_str())) && !code.iter().any(|code| names(code, &name)) {
                faults.push(format!("{name} is a dependency that `{member}` does not use"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn files_are_of_a_readable_length_and_well_named() {
    let mut paths = Vec::new();
    files(&source(), &mut paths);
    for path in paths {
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= 600, "{} has {lines} lines", path.display());
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        assert!(!FORBIDDEN_NAMES.contains(&stem.as_str()), "{}", path.display());
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.starts_with("//!") || stem == "tests" || path.components().any(|part| part.as_os_str() == "tests"),
            "{} does not say what it is for",
            path.display()
        );
    }
}

/// Programs are started by their path with their arguments, one by one: what a manifest, a pack or a name holds is never read by a shell.
#[test]
fn no_shell_is_given_a_string() {
    let mut paths = Vec::new();
    files(&source(), &mut paths);
    let mut started = 0;
    for path in paths.iter().filter(|path| !path.ends_with("tests.rs")) {
        let code = code(path);
        if path.ends_with("engine/closure.rs") {
            // It recognises shells among programs, and starts nothing.
            assert!(!code.contains("Command::new("), "{} starts a program", path.display());
            continue;
        }
        started += code.matches("Command::new(").count();
        for shell in
            ["\"sh\"", "\"bash\"", "\"dash\"", "\"zsh\"", "bin/sh\"", "bin/bash\"", "bin/env\"", "libc::system"]
        {
            assert!(!code.contains(shell), "{} names {shell}", path.display());
        }
    }
    assert!(started >= 4, "the scan finds only {started} programs that are started");
}

/// Two crates of Burn's drifted after it was published; Cargo.lock holds them, and a careless `cargo update` lets them go.
#[test]
fn the_lock_file_holds_what_burn_needs() {
    let lock = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.lock")).unwrap();
    for (name, version) in [("pliron", "0.17.0"), ("pliron-derive", "0.17.0"), ("burn", "0.22.0-pre.3")] {
        let entry = format!("name = \"{name}\"\nversion = \"{version}\"\n");
        assert!(lock.contains(&entry), "{name} has to be {version} (cargo update -p {name} --precise {version})");
    }
}

/// The modules at the root of a room, each with those of them that its code names by `super::` or by the room's own path.
fn modules(room: &str) -> BTreeMap<String, Vec<String>> {
    let root = source().join(room);
    let mut found = Vec::new();
    files(&root, &mut found);
    let of = |path: &Path| {
        let inner = path.strip_prefix(&root).unwrap().with_extension("");
        inner.iter().next().unwrap().to_string_lossy().into_owned()
    };
    let mut modules: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in found.iter().filter(|path| !path.ends_with("tests.rs") && of(path) != "mod") {
        let (code, own) = (code(path), format!("crate::{room}::"));
        let above = if path.parent() == Some(&root) { after(&code, "super::") } else { Vec::new() };
        let named = above.into_iter().chain(after(&code, &own)).map(str::to_owned);
        modules.entry(of(path)).or_default().extend(named);
    }
    let names: Vec<String> = modules.keys().cloned().collect();
    modules.iter_mut().for_each(|(name, named)| named.retain(|other| other != name && names.contains(other)));
    modules
}

#[test]
fn the_modules_of_the_engine_import_each_other_in_no_circle() {
    let mut left = modules("engine");
    assert!(left.len() > 30 && left["bind"].contains(&"machine".to_owned()), "{left:?}");
    while let Some(free) = left.iter().find(|(_, named)| !named.iter().any(|name| left.contains_key(name))) {
        let free = free.0.clone();
        left.remove(&free);
    }
    assert!(left.is_empty(), "each of these imports, in the end, itself: {left:?}");
}
