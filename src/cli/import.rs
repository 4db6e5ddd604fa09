//! `ledger import`

pub(super) mod earlier;
pub(super) mod packs;
mod table;
mod telemetry;
mod trackers;

use super::context::Context;
use super::failure::Failure;
use crate::interop::ImportError;
use std::path::PathBuf;

/// Import attempts from portable files, or results of other tools
///
/// Every id and digest of a portable file is recomputed first. Attempts that the ledger already holds stay
/// unchanged. `ledger unpack` takes the same files, and says whether this machine can repeat their runs.
///
/// Example: ledger import run.ledger
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    /// Files that `ledger export` or `ledger pack` wrote
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Table(table::Args),
    Telemetry(telemetry::Args),
    Tensorboard(trackers::TensorboardArgs),
    Mlflow(trackers::MlflowArgs),
    Wandb(trackers::WandbArgs),
    Trackio(trackers::TrackioArgs),
    Neptune(trackers::NeptuneArgs),
    Aim(trackers::AimArgs),
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    match &args.command {
        None => packs::run(&args.files, context),
        Some(Command::Table(args)) => table::run(args, context),
        Some(Command::Telemetry(args)) => telemetry::run(args, context),
        Some(Command::Tensorboard(args)) => trackers::tensorboard(args, context),
        Some(Command::Mlflow(args)) => trackers::mlflow(args, context),
        Some(Command::Wandb(args)) => trackers::wandb(args, context),
        Some(Command::Trackio(args)) => trackers::trackio(args, context),
        Some(Command::Neptune(args)) => trackers::neptune(args, context),
        Some(Command::Aim(args)) => trackers::aim(args, context),
    }
}

impl From<ImportError> for Failure {
    fn from(error: ImportError) -> Self {
        Self::new(super::failure::exit::USAGE, error)
    }
}
