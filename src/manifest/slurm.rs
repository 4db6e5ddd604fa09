//! The keys of `[slurm]`, and site profiles, which have the same keys.
//!
//! Knows the syntax. Their meaning for Slurm is defined in `cluster`.

use super::check::{Checker, unknown_key};
use super::document::{self, Content};
use super::fault::{Faults, ManifestError};
use super::field::{Field, Kind, Preset};
use super::table::field;
use crate::record::Table;
use std::path::Path;

const WORD: Kind = Kind::Word { max: 200 };
const NAME: Kind = Kind::Text { max: 200, lines: false };
const PATH: Kind = Kind::Text { max: 4096, lines: false };

use Field as F;

/// Where and how cells run on a cluster. These keys are not part of the identity.
pub(super) const FIELDS: &[Field] = &[
    F::shape(
        "slurm.site",
        NAME,
        "profile whose keys hold where the manifest and the command line say nothing: `~/.config/ledger/sites/NAME.toml`",
    ),
    F::shape("slurm.partition", WORD, "sbatch's `--partition`"),
    F::shape("slurm.account", WORD, "sbatch's `--account`"),
    F::shape("slurm.qos", WORD, "sbatch's `--qos`"),
    F::shape("slurm.constraint", WORD, "sbatch's `--constraint`"),
    F::shape("slurm.time", WORD, "sbatch's `--time`, for a task: `2:00:00`, `1-12`, or minutes"),
    F::shape("slurm.gpus_per_task", Kind::Int { min: 0, max: 64 }, "GPUs that are asked for")
        .preset(Preset::Stated("`hardware.gpus`, else 1, and 0 where the device is the CPU")),
    F::shape("slurm.gpu_type", WORD, "the kind of GPU, as the site's `--gres` names it"),
    F::shape("slurm.cpus_per_task", Kind::Int { min: 1, max: 4096 }, "sbatch's `--cpus-per-task`"),
    F::shape("slurm.memory", WORD, "sbatch's `--mem`"),
    F::shape("slurm.array_limit", Kind::Int { min: 1, max: 100_000 }, "most tasks of an array that run at once"),
    F::shape(
        "slurm.cells_per_task",
        Kind::Int { min: 1, max: 100_000 },
        "cells that a task executes, one after the other",
    )
    .preset(Preset::Stated("1, or as many as the site's longest array makes necessary")),
    F::shape(
        "slurm.grace_s",
        Kind::Int { min: 10, max: 65_535 },
        "seconds before the time limit in which a task is told to stop",
    )
    .preset(Preset::Stated("`120`, and at most a quarter of `time`")),
    F::shape(
        "slurm.requeue",
        Kind::Flag,
        "whether Slurm may start a task again that was preempted or whose node failed",
    )
    .preset(Preset::Stated("`true`")),
    F::shape("slurm.modules", Kind::Texts, "environment modules that are loaded first"),
    F::shape("slurm.setup", Kind::Texts, "lines of shell that follow"),
    F::shape("slurm.options", Kind::Texts, "further options of sbatch, such as `--exclusive`"),
    F::shape("slurm.scratch", PATH, "folder on the node for what lives, which may name variables of the shell")
        .preset(Preset::Stated("`$SLURM_TMPDIR`, else `$TMPDIR`, else `/tmp`")),
    F::shape("slurm.container", PATH, "image of cells whose `container.image` is `host`"),
    F::shape(
        "slurm.container_command",
        PATH,
        "what starts an image on the nodes: Apptainer or Singularity, by path or by name",
    )
    .preset(Preset::Stated("`apptainer`, else `singularity`, on the nodes' PATH")),
    F::shape("slurm.spool", PATH, "folder that this host and the nodes share")
        .preset(Preset::Stated("`slurm/` in the ledger's folder")),
    F::shape("slurm.ledger", PATH, "this program on the nodes").preset(Preset::Stated("this program")),
];

/// Keys with paths on the submitting host, and whether a name without a slash is looked up on PATH.
pub const SLURM_PATHS: [(&str, bool); 4] =
    [("spool", false), ("container", false), ("ledger", true), ("container_command", true)];

/// Whether a path in a profile is absolute, because a profile has no base folder for relative paths.
fn is_rooted(key: &str, path: &str) -> bool {
    let known = SLURM_PATHS.iter().find(|(known, _)| *known == key);
    known.is_none_or(|(_, may_be_name)| path.starts_with(['/', '~']) || *may_be_name && !path.contains('/'))
}

/// Reads a site profile: the keys of `[slurm]` except `site`, at the top level of a TOML file.
///
/// # Errors
/// If the file cannot be read, or its contents are wrong (all faults are listed).
pub fn load_site(path: &Path) -> Result<Table, ManifestError> {
    let unreadable = |source| ManifestError::Site { path: path.to_owned(), source };
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    let origin = path.display().to_string();
    let mut faults = Faults::default();
    let mut table = Table::new();
    match document::parse(&text) {
        Ok(root) => {
            let check = Checker { text: &text, program: false };
            let Content::Table(entries) = &root.content else { return Ok(table) };
            for (key, node) in entries {
                let name = format!("slurm.{}", key.text);
                let known = match field(&name) {
                    Some(known) if known.key != "slurm.site" => known,
                    Some(_) => {
                        faults.add(key.span.start, "a profile names no other site (remove the key)");
                        continue;
                    }
                    None => {
                        // `site` is valid only in manifests.
                        let message = unknown_key(&name).0.replace("slurm.", "");
                        faults.add(key.span.start, message.replace("known keys: site, ", "known keys: "));
                        continue;
                    }
                };
                match check.scalar(&key.text, known.kind, node) {
                    Ok(value) if value.as_str().is_some_and(|path| !is_rooted(&key.text, path)) => {
                        let message =
                            format!("{} is `{value}`, which is not a full path (begin it with `/` or `~/`)", key.text);
                        faults.add(node.span.start, message);
                    }
                    Ok(value) => drop(table.insert(key.text.clone(), value)),
                    Err(message) => faults.add(node.span.start, message),
                }
            }
        }
        Err((span, message)) => faults.add(span.start, format!("this is not TOML: {message}")),
    }
    if faults.is_empty() { Ok(table) } else { Err(ManifestError::Invalid { faults: faults.placed(&origin, &text) }) }
}

#[cfg(test)]
mod tests {
    use super::super::{ManifestError, parse};
    use super::*;
    use crate::record::Value;

    const CELL: &str = "[model]\nname = 'softmax'\n[training]\nlearning_rate = 0.1\nepochs = 1\n";

    fn site(text: &str) -> Result<Table, ManifestError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.toml");
        std::fs::write(&path, text).unwrap();
        load_site(&path)
    }

    #[test]
    fn slurm_keys_are_not_part_of_cells() {
        let plain = parse(CELL, "m.toml").unwrap();
        let with = "[slurm]\npartition = 'gpu'\nmodules = ['cuda/12.2.2']\nrequeue = false\ngrace_s = 60\n";
        let manifest = parse(&format!("{CELL}{with}"), "m.toml").unwrap();
        assert_eq!(manifest.cells, plain.cells);
        assert!(plain.slurm.is_empty());
        let names: Vec<&str> = manifest.slurm.keys().map(String::as_str).collect();
        assert_eq!(names, ["grace_s", "modules", "partition", "requeue"]);
        assert_eq!(
            (&manifest.slurm["modules"], &manifest.slurm["grace_s"]),
            (&vec!["cuda/12.2.2"].into(), &Value::Int(60))
        );
    }

    #[test]
    fn faults_of_slurm_keys_have_positions() {
        let faults = |text: &str| parse(&format!("{CELL}[slurm]\n{text}"), "m").unwrap_err().to_string();
        assert_eq!(
            faults("partition = 'a b'\nrequeue = 'yes'\nmodules = 'cuda'\narray_limit = [1, 2]\npartitoin = 'x'"),
            "m:7:13: slurm.partition holds a blank (it must be text without blanks, 1 to 200 characters)\n\
             m:8:11: slurm.requeue is the text 'yes' (it must be true or false)\n\
             m:9:11: slurm.modules is the text 'cuda' (it must be a list of texts)\n\
             m:10:15: slurm.array_limit is a list (it holds for the whole manifest: give one value)\n\
             m:11:1: unknown key `slurm.partitoin` (did you mean `partition`?)"
        );
    }

    #[test]
    fn a_sites_profile_has_the_same_keys() {
        let table = site("account = 'def-me'\nmodules = ['gcc', 'cuda']\ntime = '1:00'\n").unwrap();
        assert_eq!(table.len(), 3);
        assert_eq!(table["account"], "def-me".into());
        let said = site("site = 'x'\nacount = 'a'\ntime = 5\n").unwrap_err().to_string();
        let lines: Vec<&str> =
            said.lines().filter_map(|line| line.split_once("s.toml:")).map(|(_, rest)| rest).collect();
        assert_eq!(
            lines,
            [
                "1:1: a profile names no other site (remove the key)",
                "2:1: unknown key `acount` (did you mean `account`?)",
                "3:8: time is 5 (it must be text without blanks, 1 to 200 characters)"
            ]
        );
        let said = site("xyzzy = 1").unwrap_err().to_string();
        assert!(said.contains("unknown key `xyzzy` (known keys: partition, account, "), "{said}");
        site("spool = '~/spool'\nledger = 'ledger'\ncontainer_command = '/opt/bin/apptainer'\n").unwrap();
        let said = site("spool = 'sp'\nledger = 'bin/ledger'\n").unwrap_err().to_string();
        assert!(
            said.contains("s.toml:1:9: spool is `sp`, which is not a full path (begin it with `/` or `~/`)"),
            "{said}"
        );
        assert!(said.contains("s.toml:2:10: ledger is `bin/ledger`, which is not a full path"), "{said}");
        assert!(site("= 1").unwrap_err().to_string().contains("this is not TOML"));
        let missing = load_site(Path::new("/no/such/site.toml")).unwrap_err();
        assert!(missing.to_string().contains("docs/slurm.md"), "{missing}");
    }
}
