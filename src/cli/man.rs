//! `ledger man`

use super::Cli;
use super::context::Context;
use super::failure::{Failure, exit};
use super::output::print;
use clap::CommandFactory;
use clap_mangen::Man;

/// Print the manual page of ledger, or of one command
///
/// Example: ledger man run | man -l -
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The command
    command: Option<String>,
}

pub(super) fn run(args: &Args, _context: &Context) -> Result<u8, Failure> {
    let mut command = Cli::command();
    command.build();
    let command = match &args.command {
        None => command,
        Some(name) => command
            .find_subcommand(name)
            .ok_or_else(|| {
                Failure::new(exit::USAGE, format!("there is no command `{name}` (`ledger help` lists them)"))
            })?
            .clone(),
    };
    let mut bytes = Vec::new();
    Man::new(command)
        .render(&mut bytes)
        .map_err(|error| Failure::new(exit::NO, format!("cannot make the manual page: {error}")))?;
    print(&String::from_utf8_lossy(&bytes))?;
    Ok(exit::YES)
}
