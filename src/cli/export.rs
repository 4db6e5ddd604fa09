//! `ledger export`

use super::context::{self, Context, print, write_new};
use super::failure::{Failure, exit};
use crate::report::{bytes, table_of};
use crate::wire::encode_pack;
use std::path::PathBuf;

/// Write an attempt with all its series into one portable file
///
/// `ledger import` takes it into another ledger, after recomputing every id and digest in it.
///
/// Example: ledger export latest -o run.ledger
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A run (its newest finished attempt) or an attempt: an id's prefix, a tag, `latest`, `latest~1`
    id: String,

    /// The file, which must not exist yet [default: the attempt's short id with `.ledger`]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let (id, sealed) = context.store().read(|reader| context::resolve_attempt(reader, &args.id))??;
    let pack = encode_pack(&sealed).map_err(|error| Failure::new(exit::LEDGER, error))?;
    let path = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{}.ledger", id.0.prefix(8))));
    write_new(&path, &pack)?;
    let text = || format!("{} {} {}\n", id.0.prefix(8), path.display(), bytes(pack.len() as u64));
    if context.json {
        let members = table_of([
            ("attempt", id.to_string().into()),
            ("run", sealed.run.id.to_string().into()),
            ("file", path.display().to_string().into()),
            ("bytes", pack.len().into()),
        ]);
        print(&crate::report::document(members))?;
    } else {
        print(&text())?;
    }
    Ok(exit::YES)
}
