//! `ledger import table`

use super::earlier::{Earlier, Replaced};
use crate::cli::context::{Context, say};
use crate::cli::failure::{Failure, exit};
use crate::host::{clock, secrets};
use crate::interop::{Results, read_results};
use crate::record::{Table, Value};
use crate::report::{columns, count, table_of};
use crate::store::Added;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Take a table of results as runs, one for each row
///
/// A map (TOML) says which column is which field and metric, in which unit, what follows from several by a formula, which table belongs to
/// it, and which rows cannot be right: these are taken in as tainted, and `best` leaves them out. `docs/import.md` has every key. File, digest,
/// line and cells are recorded with each run. A row that the ledger holds already stays as it is.
///
/// Of each row of a file the newest import counts: what an earlier import with another map made of the same row is hidden.
///
/// Example: ledger import table summary_power_v100.csv --map docs/examples/zeus/energy.toml
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The table: text with a header, separated by commas or what the map says
    file: PathBuf,

    /// What its columns are
    #[arg(long, value_name = "MAP")]
    map: PathBuf,

    /// What the results were measured on, in place of what the map says
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    device: Option<String>,

    /// Count what earlier imports made of the same rows beside this one
    #[arg(long)]
    keep_earlier: bool,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let mut results = read_results(&args.file, &args.map, args.device.as_deref())?;
    for note in &results.notes {
        say(&format!("note: {}: {note}", args.map.display()));
    }
    redact(&mut results);
    if results.left_out > 0 {
        say(&format!("note: {} do not meet the map's condition", count(results.left_out, "row")));
    }
    if results.alone > 0 {
        say(&format!(
            "note: {} of `{}` have no partner in the joined table",
            count(results.alone, "row"),
            args.file.display()
        ));
    }
    let store = context.store();
    let earlier = store.if_there(Earlier::read)?.unwrap_or_default();
    let source = format!("{} by {}", name_of(&args.file), name_of(&args.map));
    let now = clock::unix_ms();
    // An import that is cut off between the two is completed by the same command.
    let added = store.import_in_batches(&results.sealed, now)?;
    let found = earlier.replaced(&results, &added);
    let replaced = if args.keep_earlier { found.beside() } else { found };
    store.write_many(|writer| replaced.write(writer, &source, now))?;
    let (shared, files) = &replaced.shared;
    if *shared > 0 {
        let files: Vec<String> = files.iter().map(|file| format!("`{file}`")).collect();
        say(&format!(
            "note: {} {} runs of {} (if this file is of another device, import it again with --device NAME)",
            count(*shared, "new row"),
            if *shared == 1 { "repeats" } else { "repeat" },
            files.join(", ")
        ));
    }
    let models = models(&results, &added);
    context.answer(|| text(args, &results, &models, &replaced), || value(&results, &models, &replaced))?;
    Ok(if results.sealed.is_empty() { exit::NO } else { exit::YES })
}

/// A file without its folder.
fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Takes secrets out of the recorded cells, and warns of those that became a part of a run's identity.
fn redact(results: &mut Results) {
    let (mut rows, mut fields) = (0, BTreeSet::new());
    for sealed in &mut results.sealed {
        fields.extend(secrets::places(sealed.run.config()));
        if let Some(import) = sealed.attempt.facts.get_mut("import") {
            let clean = secrets::cleaned(import, &secrets::redacted);
            rows += usize::from(clean != *import);
            *import = clean;
        }
    }
    if rows > 0 {
        say(&format!("note: secrets were taken out of the recorded cells of {}", count(rows, "row")));
    }
    for field in fields {
        say(&format!("warning: `{field}` seems to hold a secret and is recorded as it is (leave it out of the map)"));
    }
}

/// What became of a model's rows.
#[derive(Default)]
struct Model {
    new: usize,
    known: usize,
    tainted: usize,
}

fn models(results: &Results, added: &[Added]) -> BTreeMap<String, Model> {
    let mut models: BTreeMap<String, Model> = BTreeMap::new();
    for (sealed, added) in results.sealed.iter().zip(added) {
        let model = models.entry(sealed.run.model().to_owned()).or_default();
        match added {
            Added::New(_) => model.new += 1,
            Added::Known(_) => model.known += 1,
        }
        model.tainted += usize::from(!sealed.attempt.taints().is_empty());
    }
    models
}

fn text(args: &Args, results: &Results, models: &BTreeMap<String, Model>, replaced: &Replaced) -> String {
    let rows = models.iter().map(|(name, model)| {
        vec![name.clone(), model.new.to_string(), model.known.to_string(), model.tainted.to_string()]
    });
    let mut text = columns(&["MODEL", ">NEW", ">KNOWN", ">TAINTED"], rows);
    for (reason, attempts) in &results.taints {
        text.push_str(&format!("tainted: {} because {reason}\n", count(*attempts, "attempt")));
    }
    if replaced.rows > 0 {
        let file = args.file.display();
        text.push_str(&format!(
            "replaces {} of an earlier import of {file} (hidden; to count them again, import {file} with the earlier map)\n",
            count(replaced.rows, "row")
        ));
    }
    text
}

fn value(results: &Results, models: &BTreeMap<String, Model>, replaced: &Replaced) -> Table {
    let models = models.iter().map(|(name, model)| {
        Value::Table(table_of([
            ("model", name.as_str().into()),
            ("new", model.new.into()),
            ("known", model.known.into()),
            ("tainted", model.tainted.into()),
        ]))
    });
    let files = results.sources.iter().map(|source| {
        Value::Table(table_of([
            ("file", source.path.display().to_string().into()),
            ("digest", source.digest.to_string().into()),
            ("rows", source.rows.into()),
        ]))
    });
    let (hidden, shown) = replaced.counts();
    let taints: Table = results.taints.iter().map(|(reason, count)| (reason.clone(), (*count).into())).collect();
    table_of([
        ("name", results.name.as_str().into()),
        ("models", Value::List(models.collect())),
        ("files", Value::List(files.collect())),
        ("left_out", results.left_out.into()),
        ("without_partner", results.alone.into()),
        ("taints", taints.into()),
        ("replaced", hidden.into()),
        ("restored", shown.into()),
        ("repeats_of_other_files", replaced.shared.0.into()),
        ("notes", results.notes.clone().into()),
    ])
}
