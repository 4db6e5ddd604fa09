//! `ledger tag`

use super::context::{self, Context};
use super::failure::{Failure, exit};
use crate::host::clock;
use crate::record::{Change, LogEntry, Target, Value, tag_fault};
use crate::report::{columns, table_of};

/// Name a run or an attempt; without arguments, list the names
///
/// A name works wherever an id does. If you give a name again, it moves; the log keeps its history.
///
/// Example: ledger tag latest baseline
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A run or an attempt: an id's prefix, a tag, `latest`, `latest~1`
    #[arg(requires = "name")]
    id: Option<String>,

    /// The name: letters, digits, `.`, `_` and `-`; it must not look like an id
    name: Option<String>,

    /// Remove this name
    #[arg(long, value_name = "NAME", conflicts_with = "id")]
    remove: Option<String>,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    if let Some(name) = &args.remove {
        return remove(name, context);
    }
    let (Some(id), Some(name)) = (&args.id, &args.name) else { return list(context) };
    check(name)?;
    let store = context.store();
    let target = store.read(|reader| context::resolve(reader, id))??;
    let change = Change::Tagged { name: name.clone(), target };
    store.write(|writer| writer.note(&LogEntry { unix_ms: clock::unix_ms(), change }))?;
    context.answer(
        || format!("{name} is {}\n", target.digest().prefix(8)),
        || table_of([("tag", name.as_str().into()), ("target", target.digest().to_string().into())]),
    )?;
    Ok(exit::YES)
}

fn check(name: &str) -> Result<(), Failure> {
    // Every command would parse it as an option.
    let fault = if name.starts_with('-') { Some("begins with `-`") } else { tag_fault(name) };
    match fault {
        Some(fault) => Err(Failure::new(exit::USAGE, format!("`{name}` cannot be a tag: it {fault}"))),
        None => Ok(()),
    }
}

fn remove(name: &str, context: &Context) -> Result<u8, Failure> {
    let store = context.store();
    if !store.read(|reader| Ok(reader.tags()?.contains_key(name)))? {
        return Err(Failure::new(exit::NO, format!("there is no tag `{name}` (`ledger tag` lists them)")));
    }
    let change = Change::Untagged { name: name.to_owned() };
    store.write(|writer| writer.note(&LogEntry { unix_ms: clock::unix_ms(), change }))?;
    context.answer(|| format!("{name} is removed\n"), || table_of([("removed", name.into())]))?;
    Ok(exit::YES)
}

fn list(context: &Context) -> Result<u8, Failure> {
    let tags = context.store().read(|reader| {
        let tags = reader.tags()?;
        tags.into_iter()
            .map(|(name, target)| Ok((name, target, reader.short(target.digest())?)))
            .collect::<Result<Vec<_>, _>>()
    })?;
    let kind = |target: &Target| if matches!(target, Target::Run(_)) { "run" } else { "attempt" };
    context.answer(
        || {
            let rows =
                tags.iter().map(|(name, target, short)| vec![name.clone(), kind(target).to_owned(), short.clone()]);
            columns(&["TAG", "KIND", "ID"], rows)
        },
        || {
            let items = tags.iter().map(|(name, target, _)| {
                Value::Table(table_of([
                    ("tag", name.as_str().into()),
                    ("kind", kind(target).into()),
                    ("target", target.digest().to_string().into()),
                ]))
            });
            table_of([("tags", Value::List(items.collect()))])
        },
    )?;
    Ok(exit::YES)
}
