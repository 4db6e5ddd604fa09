//! Changes fields of a recorded configuration, with the checks that apply to manifests.
//!
//! A recorded configuration contains every default. It is written as a manifest with the changes and parsed again,
//! so that invalid changes give the same messages as in a manifest.

use super::field::Role;
use super::table::FIELDS;
use super::{ManifestError, ProgramIdentity, parse};
use crate::record::{Run, Table, Value};

/// A field that the worker records and that manifests do not have.
const FOUND: &str = "data.digest";

/// It is 0 for a run on the CPU, where a manifest has only the device.
const GPUS: &str = "hardware.gpus";
/// Batch size per GPU and global batch size; a manifest may have only one of them.
const BATCHES: [&str; 2] = ["training.batch_size", "training.batch_global"];

/// Returns the configuration of a run with some fields changed. `settings` are those of one of its attempts.
///
/// # Errors
/// If no valid manifest has this configuration, with the reason.
pub fn vary(run: &Run, settings: &Table, changes: &Table) -> Result<Table, String> {
    let mut recorded = run.config().clone();
    recorded.remove(FOUND);
    if recorded.get(GPUS) == Some(&Value::Int(0)) {
        recorded.remove(GPUS);
    }
    // The batch size that is not changed follows from the other one; for a program, by default the size per GPU does.
    let has_program = run.parts.program.as_table().is_some();
    let [each, all] = BATCHES;
    let from_all = changes.contains_key(all) || has_program && !changes.contains_key(each);
    let follows = if from_all { each } else { all };
    let written = |config: &Table| {
        let has_both = BATCHES.iter().all(|key| config.contains_key(*key));
        written(run, config, settings, if has_both { follows } else { FOUND })
    };
    if read(&written(&recorded)?)? != recorded {
        return Err("its configuration was made by another version of this program".to_owned());
    }
    recorded.extend(changes.clone());
    read(&written(&recorded)?)
}

fn read(text: &str) -> Result<Table, String> {
    let manifest = parse(text, "").map_err(|error| match error {
        ManifestError::Invalid { faults } => faults.into_iter().next().map_or_else(String::new, |fault| fault.message),
        other => other.to_string(),
    })?;
    match manifest.cells.as_slice() {
        [cell] => Ok(cell.config.clone()),
        cells => Err(format!("it says {} configurations instead of one", cells.len())),
    }
}

/// Returns a manifest with the configuration, except for the field `without`.
fn written(run: &Run, config: &Table, settings: &Table, without: &str) -> Result<String, String> {
    let mut text = String::new();
    for (name, value) in config.iter().filter(|(name, _)| *name != without) {
        let field = FIELDS.iter().find(|field| field.cell == name);
        match (field, name.strip_prefix("params.")) {
            (Some(field), _) if !field.is_writable() => continue,
            (Some(field), _) => text.push_str(&format!("{} = ", field.key)),
            (None, Some(name)) => text.push_str(&format!("params.{} = ", quoted(name))),
            (None, None) => return Err(format!("`{name}` is not a field of this version")),
        }
        text.push_str(&toml(value)?);
        text.push('\n');
    }
    // Fields that are only recorded may be needed too, such as the path of the data.
    let recorded_only = FIELDS.iter().filter(|field| {
        field.is_of_cell() && field.is_writable() && matches!(field.role, Role::Setting | Role::Container)
    });
    for field in recorded_only {
        if let Some(value) = settings.get(field.cell) {
            text.push_str(&format!("{} = {}\n", field.key, toml(value)?));
        }
    }
    if let Some(program) = run.parts.program.as_table() {
        for (key, part) in [("program.command", "command"), ("program.files", "named_files")] {
            match program.get(part) {
                Some(Value::List(items)) if items.is_empty() => {}
                Some(value) => text.push_str(&format!("{key} = {}\n", toml(value)?)),
                None => {}
            }
        }
        if program.contains_key("command") {
            text.push_str(&format!("program.identity = \"{}\"\n", ProgramIdentity::recorded(program).name()));
        }
    }
    Ok(text)
}

fn toml(value: &Value) -> Result<String, String> {
    Ok(match value {
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        // `Debug` prints the shortest digits that parse to the same number.
        Value::Float(value) => format!("{value:?}"),
        Value::Str(text) => quoted(text),
        Value::List(items) => format!("[{}]", items.iter().map(toml).collect::<Result<Vec<_>, _>>()?.join(", ")),
        Value::Table(_) => return Err("a table is not a value of a field".to_owned()),
    })
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::super::load;
    use super::*;
    use crate::record::{Cell, Parts};
    use std::path::Path;

    fn run_of(config: Table, program: Value) -> Run {
        Run::new(Parts { config: config.into(), program, ..Parts::sample() })
    }

    #[test]
    fn cells_of_committed_manifests_survive_a_round_trip() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests");
        let mut seen = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|ending| ending != "toml") {
                continue;
            }
            let manifest = load(&path).unwrap();
            let program = match &manifest.program {
                Some(program) => Value::Table(
                    [
                        ("command".to_owned(), program.command.clone().into()),
                        ("named_files".to_owned(), program.files.clone().into()),
                    ]
                    .into(),
                ),
                None => "trainer".into(),
            };
            for cell in manifest.cells.iter().take(40) {
                let Cell { config, settings, .. } = cell.clone();
                let run = run_of(config.clone(), program.clone());
                assert_eq!(vary(&run, &settings, &Table::new()), Ok(config), "{}", path.display());
                seen += 1;
            }
        }
        assert!(seen > 50, "{seen}");
    }

    #[test]
    fn changes_are_checked_like_a_manifest() {
        let text = "model.name = 'softmax'\n[data]\ntrain_count = 100\n[training]\nlearning_rate = 1e-3\nepochs = 2\n";
        let cell = parse(text, "").unwrap().cells.remove(0);
        let mut config = cell.config.clone();
        config.insert(FOUND.to_owned(), "abc".into());
        config.insert(GPUS.to_owned(), Value::Int(0));
        let run = run_of(config, "trainer".into());
        let changed = |name: &str, value: Value| vary(&run, &cell.settings, &[(name.to_owned(), value)].into());
        let mut expected = cell.config.clone();
        expected.insert("training.batch_size".to_owned(), Value::Int(50));
        assert_eq!(changed("training.batch_size", Value::Int(50)), Ok(expected));
        let refused = changed("training.batch_size", Value::Int(200)).unwrap_err();
        assert_eq!(refused, "training.batch_size is 200, but data.train_count is 100 (a batch must fit into the data)");
        assert_eq!(
            changed("training.precision", "bf16".into()),
            Err("`bf16` is not available for `softmax` (use fp32)".to_owned())
        );
        assert!(changed("training.nonsense", Value::Int(1)).is_err());
        let other = run_of([("model.name".to_owned(), "softmax".into())].into(), "trainer".into());
        assert!(vary(&other, &cell.settings, &Table::new()).is_err(), "defaults are missing");
    }

    #[test]
    fn texts_are_quoted() {
        assert_eq!(quoted("a\"b\\c\n\u{1}é"), "\"a\\\"b\\\\c\\u000A\\u0001é\"");
    }
}
