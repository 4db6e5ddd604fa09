//! `ledger export --to FORM`

use super::{Args, Form, Rows};
use crate::cli::context::{self, Context};
use crate::cli::draft::{Draft, unwritten};
use crate::cli::failure::{Failure, exit};
use crate::cli::output::say;
use crate::cli::selection::matching;
use crate::cluster::quoted;
use crate::host::files;
use crate::interop::{self, Encoding, Entry, MlflowFiles, PrometheusNames, TableWriter, WideColumns};
use crate::record::{AttemptId, Row, Sealed, Target};
use crate::report::{PlainWriter, count, table_of};
use crate::store::{Reader, Store, StoreError};
use crate::wire::{ToPack, visit_series};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

pub(super) fn run(args: &Args, form: Form, context: &Context) -> Result<u8, Failure> {
    let table = match form {
        Form::Csv if args.csv_safe => Some(Encoding::CsvSafe),
        Form::Csv => Some(Encoding::Csv),
        Form::Jsonl => Some(Encoding::JsonLines),
        Form::Parquet => Some(Encoding::Parquet),
        Form::Mlflow | Form::Tensorboard | Form::Mllog | Form::Perfetto | Form::Prometheus => None,
    };
    if args.table.is_some() && table.is_none() {
        return Err(Failure::new(exit::USAGE, "--table is for csv, jsonl and parquet"));
    }
    if args.csv_safe && form != Form::Csv {
        return Err(Failure::new(exit::USAGE, "--csv-safe is for csv"));
    }
    let is_text = matches!(form, Form::Csv | Form::Jsonl | Form::Prometheus);
    if args.output.is_none() && !is_text {
        return Err(Failure::new(exit::USAGE, "this format is not text (name a file or folder with -o)"));
    }
    if args.output.is_none() && context.json {
        return Err(Failure::new(exit::USAGE, "--json describes the written file (name one with -o)"));
    }
    let store = context.store();
    let mut ids = store.read(|reader| chosen(reader, args))??;
    if let Some(condition) = &args.condition {
        ids = matching(store, &ids, condition)?;
        if ids.is_empty() {
            return Err(Failure::new(exit::NO, "no selected attempt matches --where"));
        }
    }
    if ids.is_empty() {
        return Err(none(store, args)?);
    }
    match (table, args.output.as_deref()) {
        (Some(encoding), output) => to_file(output, &mut |out| write_table(store, &ids, encoding, args.table, out))?,
        (None, output) if form == Form::Prometheus => {
            to_file(output, &mut |out| {
                let mut families = PrometheusNames::default();
                each_head(store, &ids, &mut |entry| families.see(entry))?;
                let mut families = families.families();
                each_head(store, &ids, &mut |entry| families.add(entry))?;
                families.write(out).map_err(Fault::Io)
            })?;
        }
        (None, Some(folder)) => write_folder(store, &ids, form, folder)?,
        (None, None) => {}
    }
    let Some(output) = &args.output else { return Ok(exit::YES) };
    if form == Form::Mlflow {
        let hint = "MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri";
        say(&format!(
            "note: MLflow 3.13 and later read a file store only with `{hint} {}`",
            quoted(&output.display().to_string())
        ));
    }
    context.answer(
        || format!("{} {}\n", output.display(), count(ids.len(), "attempt")),
        || table_of([("path", output.display().to_string().into()), ("attempts", ids.len().into())]),
    )?;
    Ok(exit::YES)
}

/// Returns the reason why no attempt is selected.
pub(super) fn none(store: &Store, args: &Args) -> Result<Failure, StoreError> {
    let of_model = |row: &Row| args.model.as_ref().is_none_or(|model| row.model == *model);
    let asked = |reader: &Reader<'_>| Ok((reader.recent(0, usize::MAX, true)?.iter().any(of_model), reader.models()?));
    let (is_there, models) = store.read(asked)?;
    let text = match &args.model {
        Some(model) if !is_there => {
            format!("the ledger has no attempt of model `{model}` (it has: {})", models.join(", "))
        }
        Some(model) if !args.ids.is_empty() => {
            format!("no named attempt is of model `{model}`, or all that are of it are hidden (add --hidden)")
        }
        None if !is_there => "the ledger has no attempts (`ledger run MANIFEST` makes some)".to_owned(),
        _ => "all matching attempts are hidden (add --hidden)".to_owned(),
    };
    Ok(Failure::new(exit::NO, text))
}

/// Returns the selected attempts, the oldest first if they are not named one by one.
pub(super) fn chosen(reader: &Reader<'_>, args: &Args) -> Result<Result<Vec<AttemptId>, Failure>, StoreError> {
    let mut ids = Vec::new();
    if args.ids.is_empty() {
        let rows = reader.recent(0, usize::MAX, args.hidden)?;
        let wanted = rows.iter().rev().filter(|row| args.model.as_ref().is_none_or(|model| row.model == *model));
        ids.extend(wanted.map(|row| row.attempt));
        return Ok(Ok(ids));
    }
    let hidden = if args.hidden { BTreeSet::new() } else { reader.hidden()? };
    for text in &args.ids {
        match context::resolve(reader, text)? {
            Err(failure) => return Ok(Err(failure)),
            Ok(Target::Attempt(id)) => ids.push(id),
            Ok(Target::Run(run)) => {
                let mut of_run = Vec::new();
                for (id, _) in reader.attempts_of(run)?.into_iter().filter(|(id, _)| !hidden.contains(&id.0)) {
                    of_run.extend(reader.readable(id)?.map(|attempt| (attempt.started_unix_ms, id)));
                }
                of_run.sort_unstable();
                ids.extend(of_run.into_iter().map(|(_, id)| id));
            }
        }
    }
    let mut kept = Vec::new();
    for id in ids {
        let run = reader.attempt(id)?.map(|attempt| reader.run(attempt.run)).transpose()?.flatten();
        let fits = args.model.as_deref().is_none_or(|model| run.is_some_and(|run| run.model() == model));
        if fits && !kept.contains(&id) {
            kept.push(id);
        }
    }
    Ok(Ok(kept))
}

/// The number of attempts in memory at a time, in formats whose rows are independent.
const AT_A_TIME: usize = 256;

/// The error that stops an export.
pub(super) enum Fault {
    Store(StoreError),
    Io(io::Error),
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        error.downcast().map_or_else(Self::Io, Self::Store)
    }
}

/// Calls `each` with each attempt, without its series.
fn each_head(store: &Store, ids: &[AttemptId], each: &mut dyn FnMut(&Entry)) -> Result<(), Fault> {
    ids.chunks(AT_A_TIME).try_for_each(|some| {
        heads(store, some)?.iter().for_each(&mut *each);
        Ok(())
    })
}

/// Returns a few attempts without their series. Waiting writers get the ledger between two calls.
fn heads(store: &Store, ids: &[AttemptId]) -> Result<Vec<Entry>, Fault> {
    let mut entries = Vec::with_capacity(ids.len());
    store.read(|reader| {
        for id in ids {
            let Some(attempt) = reader.readable(*id)? else { continue };
            let Some(run) = reader.run(attempt.run)? else { continue };
            let sealed = Sealed { run, attempt, series: Vec::new(), phases: Vec::new() };
            entries.push(Entry { id: *id, sealed });
        }
        Ok(())
    })?;
    Ok(entries)
}

/// Calls `then` with each attempt that decodes completely: without its series, and with the data that a pack needs. The
/// ledger is closed during the call.
pub(super) fn each(
    store: &Store,
    ids: &[AttemptId],
    then: &mut dyn FnMut(&Entry, ToPack) -> Result<(), Fault>,
) -> Result<(), Fault> {
    for id in ids {
        let found = store.read(|reader| match reader.readable_to_pack(*id)? {
            Some(to_pack) => Ok(reader.phased(*id)?.zip(Some(to_pack))),
            None => Ok(None),
        })?;
        if let Some((sealed, to_pack)) = found {
            then(&Entry { id: *id, sealed }, to_pack)?;
        }
    }
    Ok(())
}

/// Calls `then` with each attempt that decodes, without its series.
fn each_phased(
    store: &Store,
    ids: &[AttemptId],
    then: &mut dyn FnMut(Entry) -> Result<(), Fault>,
) -> Result<(), Fault> {
    for id in ids {
        if let Some(sealed) = store.read(|reader| reader.phased(*id))? {
            then(Entry { id: *id, sealed })?;
        }
    }
    Ok(())
}

/// Returns a function that reads the points of an attempt's series. The ledger is closed while they are used. A series
/// that does not decode is skipped, and the command reports the attempt at its end.
pub(super) fn points_of(store: &Store, id: AttemptId) -> impl Fn(&str, &mut dyn FnMut(u64, f64)) -> io::Result<()> {
    move |name, visit| {
        let chunk = store.read(|reader| reader.readable_chunk(id, name)).map_err(io::Error::other)?;
        chunk.map_or(Ok(()), |bytes| visit_series(&bytes, visit).map_err(io::Error::other))
    }
}

fn write_table(
    store: &Store,
    ids: &[AttemptId],
    encoding: Encoding,
    rows: Option<Rows>,
    out: &mut (dyn Write + Send),
) -> Result<(), Fault> {
    let mut writer = TableWriter::new(encoding, out);
    match rows.unwrap_or(Rows::Runs) {
        Rows::Runs => {
            let mut columns = WideColumns::default();
            each_head(store, ids, &mut |entry| columns.see(entry))?;
            for some in ids.chunks(AT_A_TIME) {
                writer.append(columns.frame(&heads(store, some)?)).map_err(Fault::Io)?;
            }
        }
        Rows::Values => {
            for some in ids.chunks(AT_A_TIME) {
                writer.append(interop::long(&heads(store, some)?)).map_err(Fault::Io)?;
            }
        }
        Rows::Points => {
            writer.append(interop::no_points()).map_err(Fault::Io)?;
            each_phased(store, ids, &mut |entry| {
                interop::write_points(&entry, &points_of(store, entry.id), &mut writer).map_err(Fault::from)
            })?;
        }
        Rows::Phases => {
            writer.append(interop::no_phases()).map_err(Fault::Io)?;
            each_phased(store, ids, &mut |entry| {
                writer.append(interop::phases(&entry, &entry.sealed.phases)).map_err(Fault::Io)
            })?;
        }
    }
    writer.finish().map_err(Fault::Io)
}

/// Writes a file that must not exist yet, completely or not at all. Without a path, it writes to standard output.
fn to_file(
    path: Option<&Path>,
    content: &mut dyn FnMut(&mut (dyn Write + Send)) -> Result<(), Fault>,
) -> Result<(), Failure> {
    let Some(path) = path else {
        let mut out: Box<dyn Write + Send> = Box::new(io::BufWriter::new(io::stdout()));
        if io::stdout().is_terminal() {
            out = Box::new(PlainWriter::new(out));
        }
        return match content(&mut out).and_then(|()| out.flush().map_err(Fault::Io)) {
            // A reader that closed the pipe ends the command without an error.
            Err(Fault::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written.map_err(|fault| failed(Path::new("standard output"), fault)),
        };
    };
    let mut write = || {
        let draft = Draft::file(path).map_err(Fault::Io)?;
        let mut out = io::BufWriter::new(draft.held());
        content(&mut out)?;
        out.flush().and_then(|()| out.get_ref().sync_all()).map_err(Fault::Io)?;
        drop(out);
        draft.finish().map_err(Fault::Io)
    };
    write().map_err(|fault| failed(path, fault))
}

/// Writes files below a folder that must not exist yet: all of them, or none.
fn write_folder(store: &Store, ids: &[AttemptId], form: Form, folder: &Path) -> Result<(), Failure> {
    let begin = || {
        files::unused(folder)?;
        let draft = Draft::folder(folder)?;
        // The written files name their final path.
        let parent = draft.place().parent().map_or_else(|| Ok(PathBuf::new()), fs::canonicalize)?;
        let root = parent.join(draft.place().file_name().unwrap_or_default());
        Ok((draft, root))
    };
    let write = || {
        let (draft, root) = begin().map_err(Fault::Io)?;
        let mut long = BTreeSet::new();
        each(store, ids, &mut |entry, _| {
            long.extend(entry.long_names(form == Form::Mlflow));
            let points = points_of(store, entry.id);
            let written = match form {
                Form::Mlflow => put_run(&draft, &interop::mlflow_files(entry, &points, &root)),
                Form::Mllog => put(&draft, &interop::mllog_lines(entry, &points)).map(drop),
                Form::Perfetto => put(&draft, &interop::perfetto_trace(entry, &points)).map(drop),
                _ => put(&draft, &interop::tensorboard_file(entry, &points)).map(drop),
            };
            written.map_err(Fault::from)
        })?;
        draft.finish().map_err(Fault::Io)?;
        Ok(long)
    };
    let long: BTreeSet<String> = write().map_err(|fault| failed(folder, fault))?;
    if let Some(first) = long.first() {
        let start: String = first.chars().take(60).collect();
        let names = count(long.len(), "name");
        say(&format!("warning: a hash replaces the end of {names} too long for a file (the first: `{start}…`)"));
    }
    Ok(())
}

/// Writes a run in MLflow's format.
fn put_run(draft: &Draft, run: &MlflowFiles<'_>) -> io::Result<()> {
    run.folders.iter().try_for_each(|path| draft.make_folder(path))?;
    draft.put_shared(&run.experiment.0, run.experiment.1.as_bytes())?;
    run.files.iter().try_for_each(|file| put(draft, file).map(drop))
}

/// Writes a file into the folder. Returns its length in bytes.
pub(super) fn put(draft: &Draft, file: &interop::File<'_>) -> io::Result<u64> {
    let mut out = io::BufWriter::new(draft.begin_file(&file.path)?);
    file.write(&mut out)?;
    out.flush()?;
    Ok(out.get_ref().metadata()?.len())
}

pub(super) fn failed(path: &Path, fault: Fault) -> Failure {
    failed_with(path, fault, "choose another name with -o")
}

/// Like [`failed`], with the fix if the name is taken.
pub(super) fn failed_with(path: &Path, fault: Fault, help: &str) -> Failure {
    match fault {
        Fault::Store(error) => error.into(),
        Fault::Io(error) => unwritten(path, &error, help),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_error_inside_an_io_error_is_still_a_ledger_error() {
        let through = |error: StoreError| Fault::from(io::Error::other(error));
        let busy = StoreError::Busy { path: PathBuf::from("l"), seconds: 1 };
        assert!(matches!(through(busy), Fault::Store(StoreError::Busy { .. })));
        assert!(matches!(Fault::from(io::Error::from(io::ErrorKind::StorageFull)), Fault::Io(_)));
    }
}
