//! `ledger replay`

use super::context::{Context, print, say};
use super::failure::{Failure, exit};
use super::import::packs::read_pack;
use super::rerun::{self, Consent, Elsewhere, Original, bind_again, tell_packed_rerun};
use super::run::facts;
use crate::analysis::{FieldDifference, PartDifference, environment_changes, why};
use crate::engine::{Bound, Launch, surroundings};
use crate::host::clock;
use crate::record::{Sealed, Table, Value};
use crate::report::{document, environment_value, fields_text, plain, plain_lines, table_of, why_text, why_value};
use std::path::PathBuf;

/// Say what this machine would make of a packed run, and execute it with --trust
///
/// Without --trust nothing is executed, nothing is written, and no data are read where the record says: what would be another run here, and what else differs of the surroundings, is named (exit code
/// 1 if it would be another run or there is no finished attempt to repeat, 2 if it cannot be executed here). With --trust the pack is taken into the ledger and the run executed again, with a
/// verdict as of `rerun`.
///
/// Example: ledger replay run.pack
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A file that `ledger pack` or `ledger export` wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Which of several attempts: the beginning of its id or of its run's
    id: Option<String>,

    #[command(flatten)]
    consent: Consent,

    #[command(flatten)]
    elsewhere: Elsewhere,
}

/// What this machine makes of an attempt.
struct Checked {
    bound: Bound,
    parts: Vec<PartDifference>,
    changed: Vec<FieldDifference>,
    /// Where its data lie, if they were not looked at.
    unread: Option<String>,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let packed = read_pack(&args.file)?;
    let chosen: Vec<&Sealed> = packed.attempts.iter().filter(|sealed| is_meant(sealed, args.id.as_deref())).collect();
    let sealed = match chosen.as_slice() {
        [] => return Err(Failure::new(exit::NO, format!("`{}` holds no such attempt", args.file.display()))),
        [one] => *one,
        many => {
            let named = |sealed: &&Sealed| {
                let of = sealed.attempt.rerun_of().map(|of| format!(" (a rerun of {})", of.0.prefix(8)));
                format!("{}{}", sealed.attempt.id().0.prefix(8), of.unwrap_or_default())
            };
            let ids: Vec<String> = many.iter().map(named).collect();
            let text = format!("`{}` holds several attempts: {} (name one)", args.file.display(), ids.join(", "));
            return Err(Failure::new(exit::USAGE, text));
        }
    };
    let id = sealed.attempt.id();
    if !args.consent.trust {
        tell_packed_rerun(&sealed.attempt);
        return tell(sealed, &check(sealed, &args.elsewhere, &facts())?, context);
    }
    // What cannot be executed here is not taken in either.
    bind_again(sealed, &id.0.prefix(8), &args.elsewhere, true)?;
    context.store().write(|writer| {
        packed.named_sources().try_for_each(|(_, source)| writer.keep(source))?;
        writer.unite(sealed, clock::unix_ms())
    })?;
    let original: Original = context.store().read(|reader| rerun::find(reader, &id.to_string()))??;
    original.tell_rerun();
    rerun::rerun(&original, 1, None, (args.consent, &args.elsewhere), context)
}

fn is_meant(sealed: &Sealed, id: Option<&str>) -> bool {
    id.is_none_or(|id| [sealed.attempt.id().0, sealed.run.id.0].iter().any(|digest| digest.to_hex().starts_with(id)))
}

fn check(sealed: &Sealed, elsewhere: &Elsewhere, facts: &Table) -> Result<Checked, Failure> {
    let bound = bind_again(sealed, &sealed.attempt.id().0.prefix(8), elsewhere, false)?;
    let parts = why(&sealed.run, &bound.run);
    let changed = environment_changes(&sealed.attempt.facts, &surroundings(bound.image.as_ref(), facts));
    let unread = elsewhere.unnamed_data(sealed).map(str::to_owned);
    Ok(Checked { parts, changed, bound, unread })
}

/// What this machine would make of an attempt, in a line.
pub(super) fn in_short(sealed: &Sealed) -> String {
    match bind_again(sealed, &sealed.attempt.id().0.prefix(8), &Elsewhere::default(), false) {
        Err(failure) => format!("cannot be executed here: {}", plain(&failure.source.to_string())),
        Ok(bound) => match why(&sealed.run, &bound.run).as_slice() {
            [] if Elsewhere::default().unnamed_data(sealed).is_some() => {
                "is the same run here if its data are, which were not read".to_owned()
            }
            [] => "is the same run here".to_owned(),
            parts => {
                let parts: Vec<String> = parts.iter().map(|part| format!("`{}`", part.part)).collect();
                format!("would be another run here, by {}", parts.join(", "))
            }
        },
    }
}

fn tell(sealed: &Sealed, checked: &Checked, context: &Context) -> Result<u8, Failure> {
    let command = match &checked.bound.launch {
        Launch::Trainer => "the built-in trainer".to_owned(),
        Launch::Program { argv, directory } => format!("{argv:?} in `{}`", plain(&directory.display().to_string())),
    };
    let same = checked.parts.is_empty();
    if context.json {
        let mut members: Table = table_of([
            ("attempt", sealed.attempt.id().to_string().into()),
            ("run", sealed.run.id.to_string().into()),
            ("executes", command.into()),
            ("environment", environment_value(&checked.changed)),
        ]);
        members.extend(why_value(&checked.parts));
        members.insert("executed".to_owned(), Value::Bool(false));
        members.extend(checked.unread.as_deref().map(|path| ("data_not_read".to_owned(), path.into())));
        print(&document(members))?;
    } else {
        if let Some(path) = &checked.unread {
            let text = "its data are taken for what the record says, and were not read";
            say(&format!("note: {text} (--trust reads them, --data PATH names others): `{}`", plain(path)));
        }
        let mut text = if same {
            "here it is the same run\n".to_owned()
        } else {
            format!("here it would be another run:\n{}", why_text(&checked.parts, "packed", "here"))
        };
        if !checked.changed.is_empty() {
            text.push_str("changed, without making it another run:\n");
            text.push_str(&fields_text(&checked.changed, "packed", "here"));
        }
        let flags = if same { "--trust" } else { "--trust --on-current" };
        text.push_str(&format!("{flags} would execute {command}\n"));
        print(&plain_lines(&text))?;
    }
    Ok(if same { exit::YES } else { exit::NO })
}
