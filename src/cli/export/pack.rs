//! `ledger export ID`

use crate::cli::context::{self, Context, print, write_new};
use crate::cli::failure::{Failure, exit};
use crate::report::{bytes, table_of};
use crate::wire::encode_with;
use std::path::{Path, PathBuf};

pub(super) fn run(id: &str, output: Option<&Path>, context: &Context) -> Result<u8, Failure> {
    let (id, sealed, written) = context.store().read(|reader| {
        let found = context::resolve_attempt(reader, id)?;
        let written = found.as_ref().map_or(Ok(None), |(_, sealed)| reader.output(&sealed.attempt.facts))?;
        Ok(found.map(|(id, sealed)| (id, sealed, written)))
    })??;
    let pack = encode_with(&sealed, written.as_slice()).map_err(|error| Failure::new(exit::LEDGER, error))?;
    let path = output.map_or_else(|| PathBuf::from(format!("{}.ledger", id.0.prefix(8))), Path::to_owned);
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
