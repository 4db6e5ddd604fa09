//! `ledger import table`

use crate::cli::context::{Context, say};
use crate::cli::failure::{Failure, exit};
use crate::host::clock;
use crate::interop::{Results, read_results};
use crate::record::{Table, Value};
use crate::report::{columns, count, table_of};
use crate::store::Added;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Take a table of results as runs, one for each row
///
/// A map (TOML) says which column is which field and metric, in which unit, what follows from several by a formula, which table belongs to
/// it, and which rows cannot be right: these are taken in as tainted, and `best` leaves them out. `docs/import.md` has every key. File, digest,
/// line and cells are recorded with each run. A row that the ledger holds already stays as it is.
///
/// Example: ledger import table summary_power_v100.csv --map docs/examples/zeus/energy.toml
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The table: text with a header, separated by commas or what the map says
    file: PathBuf,

    /// What its columns are
    #[arg(long, value_name = "MAP")]
    map: PathBuf,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let results = read_results(&args.file, &args.map)?;
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
    let added = context.store().import_in_batches(&results.sealed, clock::unix_ms())?;
    let models = models(&results, &added);
    context.answer(|| text(&results, &models), || value(&results, &models))?;
    Ok(if results.sealed.is_empty() { exit::NO } else { exit::YES })
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

fn text(results: &Results, models: &BTreeMap<String, Model>) -> String {
    let rows = models.iter().map(|(name, model)| {
        vec![name.clone(), model.new.to_string(), model.known.to_string(), model.tainted.to_string()]
    });
    let mut text = columns(&["MODEL", ">NEW", ">KNOWN", ">TAINTED"], rows);
    for (reason, attempts) in &results.taints {
        text.push_str(&format!("tainted: {} because {reason}\n", count(*attempts, "attempt")));
    }
    text
}

fn value(results: &Results, models: &BTreeMap<String, Model>) -> Table {
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
    let taints: Table = results.taints.iter().map(|(reason, count)| (reason.clone(), (*count).into())).collect();
    table_of([
        ("name", results.name.as_str().into()),
        ("models", Value::List(models.collect())),
        ("files", Value::List(files.collect())),
        ("left_out", results.left_out.into()),
        ("without_partner", results.alone.into()),
        ("taints", taints.into()),
    ])
}
