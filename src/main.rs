//! The `ledger` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ledger::cli::main()
}
