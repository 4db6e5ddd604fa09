//! `ledger rm`

use super::context::Context;
use super::failure::{Failure, exit};

/// Refused: what is sealed stays. `ledger hide` takes it out of listings and answers
///
/// Example: ledger hide latest
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A run or an attempt
    id: Option<String>,
}

pub(super) fn run(args: &Args, _context: &Context) -> Result<u8, Failure> {
    let id = args.id.as_deref().unwrap_or("ID");
    let text = format!("the ledger keeps what is sealed (`ledger hide {id}` takes it out of listings and answers)");
    Err(Failure::new(exit::USAGE, text))
}
