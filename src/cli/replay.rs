//! `ledger replay`

use super::context::Context;
use super::failure::{Failure, exit};
use super::import::packs::{read_pack, tell_restored};
use super::output::{print, say};
use super::rerun::{self, Consent, Elsewhere, Original, bind_again, is_program, tell_packed_rerun};
use super::run::facts;
use super::sources::{self, Unpacked};
use crate::analysis::{FieldDifference, PartDifference, environment_changes, why};
use crate::engine::{Bound, Launch, is_of_files, surroundings};
use crate::host::clock;
use crate::record::{Sealed, Table, Value};
use crate::report::{document, environment_value, fields_text, plain, plain_lines, table_of, why_text, why_value};
use crate::wire::{PackFile, PackedAttempt};
use std::path::{Path, PathBuf};

/// Check whether this machine can repeat a packed run, and execute it with --trust
///
/// The program's files come from the pack, in a private folder that is removed afterwards. Files at the recorded
/// path are used instead if they are unchanged, and --in names another folder. Without --trust, nothing is
/// executed, the ledger is not changed, and no data are read from recorded paths. Differences that give a different
/// run id are listed, and other differences of the environment. The exit code is 1 if the run id would differ, or
/// if there is no finished attempt to repeat. It is 2 if the run cannot be executed here. With --trust, the pack is
/// imported and the run is executed again, with a verdict as of `rerun`.
///
/// Example: ledger replay run.pack
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A file that `ledger pack` or `ledger export` wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Which of several attempts: a prefix of its id or of its run's id
    id: Option<String>,

    #[command(flatten)]
    consent: Consent,

    #[command(flatten)]
    elsewhere: Elsewhere,

    /// Write the packed program files into this new folder and keep them
    #[arg(long, value_name = "DIR", conflicts_with = "directory")]
    sources: Option<PathBuf>,
}

/// The result of binding an attempt on this machine.
struct Checked {
    bound: Bound,
    parts: Vec<PartDifference>,
    changed: Vec<FieldDifference>,
    /// The path of its data, if they were not read.
    unread: Option<String>,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let packed = read_pack(&args.file)?;
    let chosen: Vec<&PackedAttempt> =
        packed.attempts.iter().filter(|one| is_meant(&one.sealed, args.id.as_deref())).collect();
    let one = match chosen.as_slice() {
        [] => return Err(Failure::new(exit::NO, format!("`{}` holds no such attempt", args.file.display()))),
        [one] => *one,
        many => {
            let named = |PackedAttempt { sealed, .. }: &&PackedAttempt| {
                let of = sealed.attempt.rerun_of().map(|of| format!(" (a rerun of {})", of.0.prefix(8)));
                format!("{}{}", sealed.attempt.id().0.prefix(8), of.unwrap_or_default())
            };
            let ids: Vec<String> = many.iter().map(named).collect();
            let text = format!("`{}` holds several attempts: {} (name one)", args.file.display(), ids.join(", "));
            return Err(Failure::new(exit::USAGE, text));
        }
    };
    let sealed = &one.sealed;
    let id = sealed.attempt.id();
    let (elsewhere, unpacked) = place(sealed, &packed, &args.elsewhere, args.sources.as_deref())?;
    if let Some(unpacked) = unpacked.as_ref().filter(|_| args.sources.is_some()) {
        say(&format!("the packed files of its program are in `{}`", unpacked.path.display()));
    }
    if !args.consent.trust {
        tell_packed_rerun(&sealed.attempt);
        return tell(sealed, &check(sealed, &packed, &elsewhere, &facts())?, context);
    }
    // An attempt that cannot be executed here is not imported.
    bind_again(sealed, &id.0.prefix(8), &elsewhere, true)?;
    let sources = packed.named_sources();
    let added = context.store().write(|writer| {
        sources.iter().try_for_each(|(_, source)| writer.keep(source))?;
        writer.unite_packed(one, clock::unix_ms())
    })?;
    tell_restored(&[added]);
    let original: Original = context.store().read(|reader| rerun::find(reader, &id.to_string()))??;
    original.tell_rerun();
    rerun::rerun(&original, 1, None, (args.consent, &elsewhere), context)
}

fn is_meant(sealed: &Sealed, id: Option<&str>) -> bool {
    id.is_none_or(|id| [sealed.attempt.id().0, sealed.run.id.0].iter().any(|digest| digest.to_hex().starts_with(id)))
}

/// Returns the folder of the program. This is the recorded folder, if its files are there and unchanged. Otherwise the
/// packed files are written into a folder, so that the answer is the same with and without trust.
fn place(
    sealed: &Sealed,
    packed: &PackFile,
    elsewhere: &Elsewhere,
    sources: Option<&Path>,
) -> Result<(Elsewhere, Option<Unpacked>), Failure> {
    if !is_program(sealed) {
        let refused = || Failure::new(exit::USAGE, "--sources: the built-in trainer has no files (remove --sources)");
        return if sources.is_some() { Err(refused()) } else { Ok((elsewhere.clone(), None)) };
    }
    if let Some(path) = sources.filter(|path| path.symlink_metadata().is_ok()) {
        let text = format!("--sources: `{}` exists already (name a new folder)", path.display());
        return Err(Failure::new(exit::USAGE, text));
    }
    let shown = sealed.attempt.id().0.prefix(8);
    let is_there = || {
        let bound = bind_again(sealed, &shown, elsewhere, false);
        bound.is_ok_and(|bound| bound.run.parts.program == sealed.run.parts.program)
    };
    if elsewhere.names_folder() || sources.is_none() && is_there() {
        return Ok((elsewhere.clone(), None));
    }
    match Unpacked::write(sealed, packed, sources)? {
        Some(unpacked) => {
            unpacked.link_interpreter(sealed)?;
            Ok((elsewhere.in_folder(&unpacked.path), Some(unpacked)))
        }
        None if sources.is_some() => {
            Err(Failure::new(exit::NO, "--sources: the pack holds no file of the program (--in DIR names its folder)"))
        }
        None => Ok((elsewhere.clone(), None)),
    }
}

fn check(sealed: &Sealed, packed: &PackFile, elsewhere: &Elsewhere, facts: &Table) -> Result<Checked, Failure> {
    let bound = bind_again(sealed, &sealed.attempt.id().0.prefix(8), elsewhere, false)?;
    let mut parts = why(&sealed.run, &bound.run);
    sources::count_lines_here(&mut parts, &sources::of_pack(packed, &sealed.attempt.facts), &bound);
    let changed = environment_changes(&sealed.attempt.facts, &surroundings(bound.image.as_ref(), facts));
    let unread = elsewhere.unnamed_data(sealed).map(str::to_owned);
    Ok(Checked { parts, changed, bound, unread })
}

/// Describes in one line what this machine would make of an attempt.
pub(super) fn in_short(sealed: &Sealed, packed: &PackFile) -> String {
    let placed = place(sealed, packed, &Elsewhere::default(), None);
    let bound = placed.and_then(|(elsewhere, unpacked)| {
        let bound = bind_again(sealed, &sealed.attempt.id().0.prefix(8), &elsewhere, false);
        drop(unpacked);
        bound
    });
    match bound {
        Err(failure) => format!("cannot be executed here: {}", plain(&failure.source.to_string())),
        Ok(bound) => match why(&sealed.run, &bound.run).as_slice() {
            [] if Elsewhere::default().unnamed_data(sealed).is_some() => {
                "gives the same run id here if its data are unchanged (they were not read)".to_owned()
            }
            [] if !bound.notes.is_empty() => format!("gives the same run id here ({})", plain(&bound.notes.join("; "))),
            [] => match unasked(sealed) {
                Some(commit) => {
                    format!("gives the same run id here if its repository is at {commit} (git was not asked)")
                }
                None => "gives the same run id here".to_owned(),
            },
            parts => {
                let parts: Vec<String> = parts.iter().map(|part| format!("`{}`", part.part)).collect();
                format!("gives a different run id here (changed: {})", parts.join(", "))
            }
        },
    }
}

/// Returns the commit in the run identity, which is not checked without trust: a repository can name commands that git executes.
fn unasked(sealed: &Sealed) -> Option<String> {
    let commit = sealed.run.parts.program.as_table()?.get("git_commit")?.as_str()?;
    Some(format!("commit {}", plain(&commit.chars().take(12).collect::<String>())))
}

fn tell(sealed: &Sealed, checked: &Checked, context: &Context) -> Result<u8, Failure> {
    let command = match &checked.bound.launch {
        Launch::Trainer => "the built-in trainer".to_owned(),
        Launch::Attached(process) => format!("the process {}", process.pid),
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
        members.extend(unasked(sealed).map(|_| ("git_not_asked".to_owned(), Value::Bool(true))));
        members.extend(checked.unread.as_deref().map(|path| ("data_not_read".to_owned(), path.into())));
        let notes = Some(&checked.bound.notes).filter(|notes| !notes.is_empty());
        members.extend(notes.map(|notes| ("notes".to_owned(), notes.clone().into())));
        print(&document(members))?;
    } else {
        if let Some(path) = &checked.unread {
            let text = "its data were not read and are assumed to be as recorded";
            say(&format!("note: {text} (--trust reads them, --data PATH names others): `{}`", plain(path)));
        }
        checked.bound.notes.iter().for_each(|note| say(&format!("note: {note}")));
        // Files that are in no identity are not in the pack.
        let unpacked = sealed.attempt.warnings.iter().filter(|warning| is_of_files(warning));
        unpacked.for_each(|warning| say(&format!("note: not in the pack: {}", plain(warning))));
        let mut text = if same {
            match unasked(sealed) {
                Some(commit) => {
                    format!("this machine gives the same run id if its repository is at {commit} (--trust asks git)\n")
                }
                None if checked.bound.notes.is_empty() => "this machine gives the same run id\n".to_owned(),
                None => "the files give the same run id; what the notes name was not checked (--trust checks it)\n"
                    .to_owned(),
            }
        } else {
            format!("this machine gives a different run id:\n{}", why_text(&checked.parts, "packed", "here"))
        };
        if !checked.changed.is_empty() {
            text.push_str("changed, with the same run id:\n");
            text.push_str(&fields_text(&checked.changed, "packed", "here"));
        }
        let flags = if same { "--trust" } else { "--trust --on-current" };
        text.push_str(&format!("{flags} would execute {command}\n"));
        print(&plain_lines(&text))?;
    }
    Ok(if same { exit::YES } else { exit::NO })
}
