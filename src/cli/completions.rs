//! `ledger completions`

use super::context::Context;
use super::failure::{Failure, exit};
use super::output::print;
use clap_complete::Shell;

/// Print the completions for a shell
///
/// Example: ledger completions bash > ~/.local/share/bash-completion/completions/ledger
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The shell
    shell: Shell,
}

pub(super) fn run(args: &Args, _context: &Context, command: &mut clap::Command) -> Result<u8, Failure> {
    let mut bytes = Vec::new();
    clap_complete::generate(args.shell, command, "ledger", &mut bytes);
    print(&String::from_utf8_lossy(&bytes))?;
    Ok(exit::YES)
}
