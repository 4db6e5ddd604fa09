//! `ledger completions`, and the values that a shell completes: ids, tags, models, metrics and fields of the selected
//! ledger.

use super::context::Context;
use super::failure::{Failure, exit};
use super::given;
use super::names::fields_of;
use super::output::print;
use crate::host::environment;
use crate::report::plain;
use crate::store::{Reader, StoreError};
use clap::{Arg, Command};
use clap_complete::env::{Bash, CompleteEnv, Elvish, EnvCompleter, Fish, Powershell, Zsh};
use clap_complete::{ArgValueCompleter, CompletionCandidate, Shell};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::PathBuf;

/// The variable by which a shell asks for completions. Its value is the shell's name.
const ASKS: &str = "LEDGER_COMPLETE";
/// The number of newest attempts that are offered.
const NEWEST: usize = 200;

/// Print the completions for a shell: commands, options, and the names that the ledger holds
///
/// Example: ledger completions bash > ~/.local/share/bash-completion/completions/ledger
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The shell
    shell: Shell,
}

pub(super) fn run(args: &Args, _context: &Context) -> Result<u8, Failure> {
    let shell: &dyn EnvCompleter = match args.shell {
        Shell::Elvish => &Elvish,
        Shell::Fish => &Fish,
        Shell::PowerShell => &Powershell,
        Shell::Zsh => &Zsh,
        _ => &Bash,
    };
    let mut script = Vec::new();
    let written = shell.write_registration(ASKS, "ledger", "ledger", "ledger", &mut script);
    written.map_err(|error| Failure::new(exit::FAILED, error))?;
    print(&String::from_utf8_lossy(&script))?;
    Ok(exit::YES)
}

/// Completes the command line for a shell. Returns whether a shell asked for completions.
pub(super) fn answer(command: fn() -> Command) -> bool {
    // The scripts pass `--` first. Without it, the variable alone must not stop a normal command.
    if std::env::args_os().nth(1).is_none_or(|first| first != "--") {
        return false;
    }
    let arguments = std::env::args_os();
    let here = std::env::current_dir().ok();
    let with_names = move || completed(command());
    // A shell does not show errors.
    let asked = CompleteEnv::with_factory(with_names).var(ASKS);
    asked.try_complete(arguments, here.as_deref()).unwrap_or(true)
}

/// Adds value completion to the arguments of a command and its subcommands.
fn completed(command: Command) -> Command {
    command.mut_args(with_candidates).mut_subcommands(completed)
}

fn with_candidates(arg: Arg) -> Arg {
    if !arg.get_possible_values().is_empty() {
        return arg;
    }
    let (ask, is_list): (Ask, bool) = match arg.get_id().as_str() {
        "id" | "ids" | "a" | "b" => (ids, false),
        "model" => (models, false),
        "metric" | "metrics" => (metrics, false),
        "condition" | "group_by" | "by" | "sort" | "columns" | "x" | "y" | "axis" => (fields, true),
        _ => return arg,
    };
    arg.add(ArgValueCompleter::new(move |current: &OsStr| candidates(ask, is_list, &current.to_string_lossy())))
}

/// A function that returns names of a ledger.
type Ask = fn(&Reader<'_>) -> Result<Vec<CompletionCandidate>, StoreError>;

/// Whether a shell and a terminal accept a character unquoted. Names with other characters are not offered.
fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || "_.-~/@+:".contains(c)
}

/// Returns the names that begin with `current`; in a condition or list, with its last word.
fn candidates(ask: Ask, is_list: bool, current: &str) -> Vec<CompletionCandidate> {
    let last = current.char_indices().rfind(|(_, c)| is_list && !is_of_name(*c));
    let (before, word) = current.split_at(last.map_or(0, |(at, c)| at + c.len_utf8()));
    let found = ledger().and_then(|context| {
        let store = context.store_as_it_is();
        store.stop_waiting();
        store.if_there(ask).ok().flatten()
    });
    let fits = |candidate: &CompletionCandidate| {
        let name = candidate.get_value().to_string_lossy();
        name.starts_with(word) && !name.starts_with('-') && name.chars().all(is_of_name)
    };
    found.unwrap_or_default().into_iter().filter(fits).map(|candidate| candidate.add_prefix(before)).collect()
}

/// Returns the ledger that the command line selects. Returns `None` if it may belong to another user.
fn ledger() -> Option<Context> {
    let named = given("--ledger");
    let named = named.map(|path| match (path.strip_prefix("~/"), environment::var("HOME")) {
        (Some(rest), Some(home)) => PathBuf::from(home).join(rest),
        _ => PathBuf::from(path),
    });
    Context::new(named, false, true).ok()
}

fn ids(reader: &Reader<'_>) -> Result<Vec<CompletionCandidate>, StoreError> {
    let mut found: Vec<CompletionCandidate> =
        ["latest".to_owned()].into_iter().chain(reader.tags()?.into_keys()).map(CompletionCandidate::new).collect();
    let mut seen = BTreeSet::new();
    for row in reader.recent(0, NEWEST, false)? {
        if seen.insert(row.run) {
            found.push(CompletionCandidate::new(row.run.0.prefix(8)).help(Some(plain(&row.model).into())));
        }
    }
    Ok(found)
}

fn models(reader: &Reader<'_>) -> Result<Vec<CompletionCandidate>, StoreError> {
    // Old indexes have no list of models, and reading all attempts takes too long for a key press.
    let models = if reader.names()?.is_some() { reader.models()? } else { Vec::new() };
    Ok(models.into_iter().map(CompletionCandidate::new).collect())
}

fn metrics(reader: &Reader<'_>) -> Result<Vec<CompletionCandidate>, StoreError> {
    let metrics: BTreeSet<String> = reader.ranked_metrics()?.into_values().flatten().collect();
    Ok(metrics.into_iter().map(CompletionCandidate::new).collect())
}

fn fields(reader: &Reader<'_>) -> Result<Vec<CompletionCandidate>, StoreError> {
    let fields: BTreeSet<String> = fields_of(reader.names()?.unwrap_or_default()).into_iter().collect();
    Ok(fields.into_iter().map(CompletionCandidate::new).collect())
}
