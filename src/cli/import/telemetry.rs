//! `ledger import telemetry`

use super::packs::state;
use crate::cli::context::Context;
use crate::cli::failure::{Failure, exit};
use crate::cli::output::say;
use crate::host::clock;
use crate::interop::{Cluster, ClusterFiles, read_cluster};
use crate::record::{Digest, Table, Value};
use crate::report::{count, table_of};
use std::path::{Path, PathBuf};

/// Import the event log and the GPU samples of a whole cluster as one attempt
///
/// Both files are CSV with a header. Event log: timestamp, hostname, eventName, eventType (START or STOP), taskId,
/// and jobId if there is one. Samples: timestamp, hostname, gpuSerial, gpuUUID, powerDrawWatt, gpuTempC,
/// gpuUtilPerc, gpuMemUtilPerc. Tasks: taskId, jobId, level. Timestamps are ISO-8601. Duplicate rows count once.
/// The command prints the ID; analyse it with `ledger events ID --by name|level|host|gpu`.
///
/// Example: ledger import telemetry --checkpoints application-checkpoints.csv --gpu gpu.csv --tasks task-x-y.csv
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The event log
    #[arg(long, value_name = "FILE")]
    checkpoints: PathBuf,

    /// The GPU samples
    #[arg(long, value_name = "FILE")]
    gpu: PathBuf,

    /// The levels of the tasks
    #[arg(long, value_name = "FILE")]
    tasks: Option<PathBuf>,

    /// The name in listings [default: the event log's folder]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Skip unreadable rows and report their number, instead of refusing the files
    #[arg(long)]
    skip_faulty: bool,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let name = args.name.clone().unwrap_or_else(|| folder(&args.checkpoints));
    let files = ClusterFiles {
        checkpoints: &args.checkpoints,
        gpu: &args.gpu,
        tasks: args.tasks.as_deref(),
        name: &name,
        skip_faulty: args.skip_faulty,
    };
    let cluster = read_cluster(&files)?;
    for warning in &cluster.sealed.attempt.warnings {
        say(&format!("note: {warning}"));
    }
    let added = context.store().write(|writer| writer.import(&cluster.sealed, clock::unix_ms()))?;
    let id = added.id().0;
    context.answer(|| text(&name, id, state(&added), &cluster), || value(id, state(&added), &cluster))?;
    Ok(exit::YES)
}

/// Returns the name of the folder that contains a file.
fn folder(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let name = path.parent().and_then(Path::file_name);
    name.map_or_else(|| "cluster".to_owned(), |name| name.to_string_lossy().into_owned())
}

fn text(name: &str, id: Digest, state: &str, cluster: &Cluster) -> String {
    let of = |name: &str| cluster.counts.get(name).copied().unwrap_or_default();
    format!(
        "{} {name}: {state}, {}, {}, {}, {}, {}\n",
        id.prefix(8),
        count(of("hosts"), "host"),
        count(of("gpus"), "GPU"),
        count(of("tasks"), "task"),
        count(of("events"), "event"),
        count(of("readings"), "reading"),
    )
}

fn value(id: Digest, state: &str, cluster: &Cluster) -> Table {
    let counts: Table = cluster.counts.iter().map(|(name, count)| ((*name).to_owned(), (*count).into())).collect();
    let files = cluster.sources.iter().map(|source| {
        Value::Table(table_of([
            ("file", source.path.display().to_string().into()),
            ("digest", source.digest.to_string().into()),
            ("rows", source.rows.into()),
        ]))
    });
    table_of([
        ("attempt", id.to_string().into()),
        ("run", cluster.sealed.run.id.to_string().into()),
        ("state", state.into()),
        ("counts", counts.into()),
        ("files", Value::List(files.collect())),
        ("warnings", cluster.sealed.attempt.warnings.clone().into()),
    ])
}
