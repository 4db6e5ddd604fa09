//! The command line: one file per command, with its arguments, one call and one report.
//!
//! Only this module prints, reads arguments and decides exit codes.

mod attest;
mod best;
mod bounds;
mod cache;
mod calibrate;
mod check;
mod cluster;
mod collect;
mod compare;
mod completions;
mod context;
mod correlate;
mod diff;
mod doctor;
mod draft;
mod drifted;
mod effects;
mod events;
mod export;
mod failure;
mod hide;
mod import;
mod live;
mod living;
mod logs;
mod ls;
mod man;
mod merge;
mod mixes;
mod names;
mod note;
mod only;
mod output;
mod pack;
mod packing;
mod pareto;
mod picture;
mod plan;
mod plot;
mod provenance;
mod recorded;
#[cfg(test)]
mod reference;
mod replay;
mod report;
mod rerun;
mod restorer;
mod run;
mod schema;
mod selection;
mod show;
mod slurm;
mod sources;
mod status;
mod submit;
mod tag;
mod task;
mod telemetry;
mod timed_inference;
mod trainer;
mod tune;
mod ui;
mod unbound;
mod unpack;
mod verify;
mod versions;
mod watch;
mod why;
mod worker;

pub use failure::exit;

use clap::{ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use context::Context;
use failure::Failure;
use std::path::PathBuf;
use std::process::ExitCode;

/// The help heading of options that every command has.
const GLOBAL: &str = "Options of every command";

/// Runs deep-learning experiments, records them, and finds the best configuration.
///
/// A manifest (TOML) names a model, its data, its training and its hardware. Any value may be a list; `run` trains
/// every combination. Each run has an id: the hash of its configuration, program, container, CUDA and driver
/// versions, devices and seed. Its results are sealed in the ledger and never change.
#[derive(Debug, Parser)]
#[command(name = "ledger", version, arg_required_else_help = true, max_term_width = 100)]
struct Cli {
    /// The ledger's folder [default: $LEDGER_DIR, else `ledger/` here or in a folder above, else the XDG data
    /// directory]
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "PATH")]
    ledger: Option<PathBuf>,

    /// Print one JSON document instead of text
    #[arg(long, global = true, help_heading = GLOBAL)]
    json: bool,

    /// When to colour output; NO_COLOR, CLICOLOR and CLICOLOR_FORCE count too
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    color: ColorChoice,

    /// Use no pager for long answers [default on a terminal: $LEDGER_PAGER, else $PAGER, else `less`]
    #[arg(long, global = true, help_heading = GLOBAL)]
    no_pager: bool,

    #[command(subcommand)]
    command: Command,
}

/// Defines the enum of commands with their arguments, and the function that executes one.
macro_rules! commands {
    ($($(#[$($attribute:tt)*])* $name:ident => $file:ident,)*) => {
        #[derive(Debug, Subcommand)]
        enum Command {
            $($(#[$($attribute)*])* $name(Box<$file::Args>),)*
        }

        fn dispatch(command: &Command, context: &Context) -> Result<u8, Failure> {
            match command {
                $(Command::$name(args) => $file::run(args, context),)*
            }
        }
    };
}

commands! {
    Run => run,
    Submit => submit,
    Status => status,
    Collect => collect,
    Rerun => rerun,
    Ls => ls,
    Show => show,
    Logs => logs,
    Watch => live,
    Ui => ui,
    Events => events,
    Telemetry => telemetry,
    Diff => diff,
    Why => why,
    Best => best,
    Tune => tune,
    Compare => compare,
    Pareto => pareto,
    Effects => effects,
    Correlate => correlate,
    Plan => plan,
    Plot => plot,
    Report => report,
    Export => export,
    Import => import,
    Pack => pack,
    Unpack => unpack,
    Replay => replay,
    Merge => merge,
    Verify => verify,
    Attest => attest,
    Check => check,
    Tag => tag,
    Note => note,
    Hide => hide,
    Cache => cache,
    Calibrate => calibrate,
    Doctor => doctor,
    Schema => schema,
    Completions => completions,
    Man => man,
    #[command(hide = true)]
    Names => names,
    #[command(hide = true)]
    Worker => worker,
    #[command(hide = true)]
    Restorer => restorer,
    #[command(hide = true)]
    Task => task,
}

impl Command {
    /// Whether the command reads or writes the ledger, or passes its path to workers.
    fn needs_ledger(&self) -> bool {
        !matches!(
            self,
            Self::Schema(_) | Self::Completions(_) | Self::Man(_) | Self::Worker(_) | Self::Restorer(_) | Self::Task(_)
        )
    }

    /// Whether the command prints an answer for a person, which a pager may show.
    fn is_read(&self) -> bool {
        matches!(
            self,
            Self::Status(_)
                | Self::Ls(_)
                | Self::Show(_)
                | Self::Events(_)
                | Self::Telemetry(_)
                | Self::Diff(_)
                | Self::Why(_)
                | Self::Best(_)
                | Self::Compare(_)
                | Self::Pareto(_)
                | Self::Effects(_)
                | Self::Correlate(_)
                | Self::Plan(_)
                | Self::Check(_)
                | Self::Tag(_)
                | Self::Note(_)
        )
    }
}

/// Returns the value of an option before the arguments are parsed. They may be wrong or incomplete.
fn given(option: &str) -> Option<String> {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let mut words = words.flat_map(|word| match word.split_once('=') {
        Some((name, value)) if name.starts_with("--") => vec![name.to_owned(), value.to_owned()],
        _ => vec![word],
    });
    words.find(|word| word == option)?;
    // bash splits words at `=` before it asks for completions.
    words.find(|word| !word.is_empty() && word != "=")
}

/// Runs the command that the arguments name.
pub fn main() -> ExitCode {
    failure::quiet_panics();
    if completions::answer(Cli::command) {
        return ExitCode::from(exit::YES);
    }
    let parsed = Cli::command()
        .color(given("--color").and_then(|when| ColorChoice::from_str(&when, false).ok()).unwrap_or_default())
        .try_get_matches();
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            // clap prints help and versions to standard output, and errors to standard error.
            let _ = error.print();
            if !error.use_stderr() {
                return ExitCode::from(exit::YES);
            }
            // The arguments could not be parsed, so the flag is searched by name.
            if std::env::args_os().any(|argument| argument == "--json") {
                failure::tell(error.render().to_string().trim_end(), Vec::new(), exit::USAGE);
            }
            return ExitCode::from(exit::USAGE);
        }
    };
    let json = cli.json;
    output::choose_colors(cli.color);
    let context = match Context::new(cli.ledger, json, cli.command.needs_ledger()) {
        Ok(context) => context.paged(!cli.no_pager && cli.command.is_read()),
        Err(failure) => return failure.report(json),
    };
    let done = dispatch(&cli.command, &context);
    context.tell_passed_over();
    match done {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.report(json),
    }
}
