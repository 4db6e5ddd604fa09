//! `ledger export`

mod crates;
mod foreign;
mod pack;

use super::context::Context;
use super::failure::{Failure, exit};
use clap::ValueEnum;
use std::path::PathBuf;

/// Write attempts to a portable file, or in the format of another tool
///
/// Without --to, one attempt with all its series is written to one file. `ledger import` adds it to another ledger,
/// after recomputing every id and digest.
///
/// With --to, the named attempts are written for another tool; a run means all its attempts. Without names, all
/// attempts are written except hidden ones, oldest first. `csv`, `jsonl` and `parquet` are tables, chosen by
/// --table. `mlflow` is a folder with MLflow's file store. `tensorboard` is a folder of event files, `mllog` one of
/// MLPerf logs, and `perfetto` one of traces for https://ui.perfetto.dev. `prometheus` is text that Prometheus
/// scrapes. `docs/export.md` describes each format.
///
/// Example: ledger export latest -o run.ledger
///
/// With --ro-crate, attempts become a research object: records, curves, manifests and patches, with a JSON-LD
/// description that archives read.
///
/// Example: ledger export --to parquet -o runs.parquet
///
/// Example: ledger export latest --ro-crate crate --author 'Ada Lovelace' --license https://spdx.org/licenses/CC-BY-4.0
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("selecting").args(["to", "ro_crate"]))]
pub(super) struct Args {
    /// Runs and attempts: an id's prefix, a tag, `latest`, `latest~1`
    #[arg(required_unless_present_any = ["to", "ro_crate"], value_name = "ID")]
    ids: Vec<String>,

    /// The format
    #[arg(long, value_name = "FORM")]
    to: Option<Form>,

    /// Write a research object into this folder, which must not exist yet: RO-Crate 1.1, profile Process Run Crate
    #[arg(long, value_name = "DIR", conflicts_with_all = ["to", "output"])]
    ro_crate: Option<PathBuf>,

    /// Who executed the runs, for --ro-crate
    #[arg(long, value_name = "NAME", requires = "ro_crate")]
    author: Option<String>,

    /// The licence of a research object, for --ro-crate
    #[arg(long, value_name = "URL", requires = "ro_crate", value_parser = url)]
    license: Option<String>,

    /// The rows of a table: attempts (`runs`), values of attempts, points of series, or phases [default: runs]
    #[arg(long, value_name = "TABLE", requires = "to")]
    table: Option<Rows>,

    /// Put an apostrophe before cells that a spreadsheet would evaluate: those that begin with `=`, `+`, `-`, `@`,
    /// a tab or a line break
    #[arg(long, requires = "to")]
    csv_safe: bool,

    /// Only attempts of this model
    #[arg(long, value_name = "M", requires = "selecting")]
    model: Option<String>,

    /// Only attempts whose fields and metrics match, as in `best --where`: `gpus <= 2 and accuracy >= 0.9`
    #[arg(long = "where", value_name = "EXPR", requires = "to")]
    condition: Option<String>,

    /// Include hidden attempts
    #[arg(long, requires = "selecting")]
    hidden: bool,

    /// The file or folder, which must not exist yet. Without it, csv, jsonl and prometheus go to standard output
    /// [default: the attempt's short id with `.ledger`]
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    Csv,
    Jsonl,
    Parquet,
    Mlflow,
    Tensorboard,
    Mllog,
    Perfetto,
    Prometheus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Rows {
    Runs,
    Values,
    Points,
    Phases,
}

/// Checks that a URL has a scheme. Without one, it would name a file of the object.
fn url(text: &str) -> Result<String, String> {
    let is_url = text.split_once("://").is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty());
    let help = || format!("it is not a URL (a licence that SPDX lists has the URL `https://spdx.org/licenses/{text}`)");
    if is_url { Ok(text.to_owned()) } else { Err(help()) }
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    if let Some(folder) = &args.ro_crate {
        return crates::run(args, folder, context);
    }
    if args.author.is_some() || args.license.is_some() {
        return Err(Failure::new(exit::USAGE, "--author and --license are for --ro-crate"));
    }
    match (args.to, args.ids.as_slice()) {
        (Some(form), _) => foreign::run(args, form, context),
        (None, [id]) => pack::run(id, args.output.as_deref(), context),
        (None, _) => {
            Err(Failure::new(exit::USAGE, "a portable file holds one attempt (name one, or export several with --to)"))
        }
    }
}
