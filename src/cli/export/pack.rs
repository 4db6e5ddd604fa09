//! `ledger export ID`

use crate::cli::context::{self, Context};
use crate::cli::failure::{Failure, exit};
use crate::cli::output::print;
use crate::cli::packing;
use crate::report::{bytes, table_of};
use std::path::{Path, PathBuf};

pub(super) fn run(id: &str, output: Option<&Path>, context: &Context) -> Result<u8, Failure> {
    let (id, run, to_pack, output_text) = context.store().read(|reader| {
        let (id, run, attempt) = match context::resolve_head(reader, id)? {
            Ok(found) => found,
            Err(failure) => return Ok(Err(failure)),
        };
        Ok(Ok((id, run.id, reader.to_pack(id)?, reader.output(&attempt.facts)?)))
    })??;
    let attempts: Vec<_> = to_pack.into_iter().collect();
    let path = output.map_or_else(|| PathBuf::from(format!("{}.ledger", id.0.prefix(8))), Path::to_owned);
    let format = if output_text.is_none() { 1 } else { 2 };
    let length = packing::write(&path, format, (&attempts, output_text.as_slice()), context)?;
    let text = || format!("{} {} {}\n", id.0.prefix(8), path.display(), bytes(length));
    if context.json {
        let members = table_of([
            ("attempt", id.to_string().into()),
            ("run", run.to_string().into()),
            ("file", path.display().to_string().into()),
            ("bytes", length.into()),
        ]);
        print(&crate::report::document(members))?;
    } else {
        print(&text())?;
    }
    Ok(exit::YES)
}
