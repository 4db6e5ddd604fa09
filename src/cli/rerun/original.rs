//! The attempt that a rerun repeats, and the paths on this machine that replace those in its record.

use crate::cli::context;
use crate::cli::failure::{Failure, exit};
use crate::cli::output::say;
use crate::engine::image_of;
use crate::host::user_key::UserKey;
use crate::record::{Attempt, AttemptId, Change, RunId, Sealed, Table, Target, Value};
use crate::report::plain;
use crate::store::{Reader, StoreError};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The attempt that is repeated.
pub(in crate::cli) struct Original {
    pub(in crate::cli) id: AttemptId,
    pub(in crate::cli) sealed: Sealed,
    /// All finished attempts of the run that count, including this one, without reruns and those of other ledgers.
    pub(super) earlier: Vec<Attempt>,
    /// Whether this user executed it in this ledger. Then nobody else chose the command.
    pub(super) is_own: bool,
    /// If it is a rerun itself, its original, and its verdict if it got one.
    pub(super) rerun_of: Option<(AttemptId, Option<String>)>,
}

impl Original {
    /// Reports that it is a rerun itself, if it is.
    pub(in crate::cli) fn tell_rerun(&self) {
        if let Some((of, verdict)) = &self.rerun_of {
            let verdict = verdict.as_deref().map(|verdict| format!(", with the verdict `{}`", plain(verdict)));
            let (own, of) = (self.id.0.prefix(8), of.0.prefix(8));
            say(&format!("note: {own} is itself a rerun of {of}{}", verdict.unwrap_or_default()));
        }
    }
}

/// Reports that an attempt of a pack is a rerun, if it is. A pack does not contain the verdict.
pub(in crate::cli) fn tell_packed_rerun(attempt: &Attempt) {
    if let Some(of) = attempt.rerun_of() {
        let (own, of) = (attempt.id().0.prefix(8), of.0.prefix(8));
        say(&format!("note: {own} is itself a rerun of {of}; a pack does not contain the verdict"));
    }
}

/// The attempts that the log marks as no reference for others.
struct Marks {
    /// Reruns, with their originals and verdicts.
    reruns: BTreeMap<AttemptId, (AttemptId, Option<String>)>,
    imported: BTreeSet<AttemptId>,
}

impl Marks {
    fn read(reader: &Reader<'_>) -> Result<Self, StoreError> {
        let mut marks = Self { reruns: BTreeMap::new(), imported: BTreeSet::new() };
        for entry in reader.log()? {
            match entry.change {
                Change::Verdict { original, rerun, verdict, .. } => {
                    marks.reruns.insert(rerun, (original, Some(verdict)));
                }
                Change::Imported(id) => drop(marks.imported.insert(id)),
                _ => {}
            }
        }
        Ok(marks)
    }

    /// Returns the original of a rerun. The record itself names it if the rerun was interrupted before its verdict.
    fn rerun_of(&self, id: AttemptId, attempt: &Attempt) -> Option<(AttemptId, Option<String>)> {
        let stated = || attempt.rerun_of().map(|of| (of, None));
        self.reruns.get(&id).cloned().or_else(stated)
    }

    /// Returns the attempt of a run that reruns are compared with: the first one, before those of other ledgers and
    /// reruns. With the newest one, a drifted attempt would become the reference of the next rerun.
    fn reference(&self, reader: &Reader<'_>, run: RunId) -> Result<Option<AttemptId>, StoreError> {
        let mut first = None;
        for (id, finished) in reader.attempts_of(run)? {
            let Some(attempt) = (if finished { reader.readable(id)? } else { None }) else { continue };
            // Attempts with invalid measurements come last in their group.
            let is_tainted = !attempt.taints().is_empty();
            let rank = (self.rerun_of(id, &attempt).is_some(), self.imported.contains(&id), is_tainted);
            let found = (rank, attempt.started_unix_ms, id);
            first = Some(first.map_or(found, |first| found.min(first)));
        }
        match first {
            Some((.., id)) => Ok(Some(id)),
            None => context::newest_attempt(reader, run),
        }
    }

    /// Returns the original of the newest attempt, if that is a rerun.
    fn repeated(&self, reader: &Reader<'_>, newest: AttemptId) -> Result<AttemptId, StoreError> {
        let mut id = newest;
        let mut seen = BTreeSet::from([id]);
        while let Some(attempt) = reader.readable(id)? {
            match self.rerun_of(id, &attempt) {
                Some((original, _)) if seen.insert(original) && reader.readable(original)?.is_some() => id = original,
                _ => break,
            }
        }
        Ok(id)
    }

    /// Returns the attempts of a run that serve as references. Reruns do not, nor do attempts of other ledgers if the
    /// run was executed in this one.
    fn earlier(
        &self,
        reader: &Reader<'_>,
        run: RunId,
        original: AttemptId,
        is_foreign: bool,
    ) -> Result<Vec<Attempt>, StoreError> {
        let mut found = Vec::new();
        for (id, _) in reader.attempts_of(run)? {
            let Some(attempt) = reader.readable(id)?.filter(|attempt| attempt.counts().is_ok()) else { continue };
            let is_reference = self.rerun_of(id, &attempt).is_none() && (is_foreign || !self.imported.contains(&id));
            if id == original || is_reference {
                found.push(attempt);
            }
        }
        Ok(found)
    }
}

/// Finds the attempt to repeat: a named attempt itself. For a run, or `latest`, it is the attempt that reruns are compared with.
pub(in crate::cli) fn find(reader: &Reader<'_>, text: &str) -> Result<Result<Original, Failure>, StoreError> {
    let target = match context::resolve(reader, text)? {
        Err(failure) => return Ok(Err(failure)),
        Ok(target) => target,
    };
    let marks = Marks::read(reader)?;
    let id = match target {
        Target::Run(run) => marks.reference(reader, run)?,
        Target::Attempt(id) if text.starts_with("latest") => Some(marks.repeated(reader, id)?),
        Target::Attempt(id) => Some(id),
    };
    let sealed = match id {
        Some(id) => reader.sealed(id)?.map(|sealed| (id, sealed)),
        None => None,
    };
    let Some((id, sealed)) = sealed else {
        return Ok(Err(context::no_attempt(text)));
    };
    let is_foreign = marks.imported.contains(&id);
    let earlier = marks.earlier(reader, sealed.run.id, id, is_foreign)?;
    let rerun_of = marks.rerun_of(id, &sealed.attempt);
    let is_own = !is_foreign && is_executed_by_user(&sealed);
    Ok(Ok(Original { id, sealed, earlier, is_own, rerun_of }))
}

/// Whether the attempt carries the mark of this user's key.
pub(in crate::cli) fn is_executed_by_user(sealed: &Sealed) -> bool {
    let mark = sealed.attempt.facts.get(Attempt::EXECUTED_BY).and_then(Value::as_str);
    let own = UserKey::of_user().map(|key| key.mark(sealed.run.id, &sealed.attempt.settings).to_string());
    mark.is_some() && mark == own.as_deref()
}

/// Where on this machine lies what a record names by a path of the machine that it comes from.
#[derive(Clone, Debug, Default, clap::Args)]
pub(in crate::cli) struct Elsewhere {
    /// The program's folder, instead of the recorded one
    #[arg(long = "in", value_name = "DIR")]
    directory: Option<PathBuf>,

    /// The image, instead of the recorded file
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,

    /// The data's folder or file, instead of the recorded one
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
}

const DATA: &str = "data.path";
pub(in crate::cli) const DIRECTORY: &str = "program.directory";
const IMAGE: &str = "container.image";

impl Elsewhere {
    /// Returns the path of the data in a record if no path on this machine is given for them.
    pub(in crate::cli) fn unnamed_data<'a>(&self, sealed: &'a Sealed) -> Option<&'a str> {
        let path = sealed.attempt.settings.get(DATA).and_then(Value::as_str)?;
        (self.data.is_none() && !is_program(sealed)).then_some(path)
    }

    /// Whether the program's folder is given.
    pub(in crate::cli) fn names_folder(&self) -> bool {
        self.directory.is_some()
    }

    /// Returns the same paths with the program in that folder.
    pub(in crate::cli) fn in_folder(&self, directory: &Path) -> Self {
        Self { directory: Some(directory.to_owned()), ..self.clone() }
    }

    /// Returns the settings of a record with the paths of this machine.
    ///
    /// # Errors
    /// If a needed file has no given path. This is known before anything is executed.
    pub(super) fn settings(&self, sealed: &Sealed) -> Result<Table, Failure> {
        let mut settings = sealed.attempt.settings.clone();
        let refused = |text: String| Err(Failure::new(exit::USAGE, text));
        let text = |settings: &Table, name: &str| settings.get(name).and_then(Value::as_str).map(str::to_owned);
        let is_program = is_program(sealed);
        let recorded = text(&settings, IMAGE).filter(|image| image != "host");
        if let Some(directory) = &self.directory {
            if !is_program {
                return refused("--in: the built-in trainer has no program folder (remove --in)".to_owned());
            }
            settings.insert(DIRECTORY.to_owned(), absolute(directory).display().to_string().into());
        }
        if let Some(image) = &self.image {
            if recorded.is_none() {
                return refused("--image: the run was not executed in an image (remove --image)".to_owned());
            }
            settings.insert(IMAGE.to_owned(), absolute(image).display().to_string().into());
        }
        if let Some(data) = &self.data {
            if !settings.contains_key(DATA) {
                return refused("--data: the run reads no data files (remove --data)".to_owned());
            }
            settings.insert(DATA.to_owned(), absolute(data).display().to_string().into());
        }
        let (named, flag) = ("named by the record, does not exist here", "where it lies here");
        if let Some(directory) = text(&settings, DIRECTORY).filter(|path| is_program && !Path::new(path).is_dir()) {
            return refused(match &self.directory {
                Some(given) => format!("--in: `{}` is not a folder", given.display()),
                None => format!("the program's folder `{}`, {named} (--in DIR says {flag})", plain(&directory)),
            });
        }
        if let Some(data) = text(&settings, DATA).filter(|path| !is_program && !Path::new(path).exists()) {
            return refused(match &self.data {
                Some(given) => format!("--data: `{}` is not there", given.display()),
                None => format!("the path of its data `{}`, {named} (--data PATH says {flag})", plain(&data)),
            });
        }
        let image = text(&settings, IMAGE).filter(|_| recorded.is_some());
        if let Some(image) = image.filter(|path| !path.contains("://") && !Path::new(path).exists()) {
            let wanted =
                image_of(&sealed.run.parts.container).as_str().unwrap_or_default().trim_start_matches("sha256:");
            let only = format!("SHA-256 {wanted}; an image that was built again may have another");
            return refused(match &self.image {
                Some(given) => format!("--image: `{}` is not there (expected: {only})", given.display()),
                None => format!("the image `{}`, {named} (--image FILE says {flag}: {only})", plain(&image)),
            });
        }
        Ok(settings)
    }
}

/// Whether the run's program is not the built-in trainer.
pub(in crate::cli) fn is_program(sealed: &Sealed) -> bool {
    sealed.run.parts.program.as_table().is_some_and(|program| program.contains_key("command"))
}

fn absolute(path: &Path) -> PathBuf {
    path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Parts, Run};

    fn sealed(program: Value, data: Option<&Path>) -> Sealed {
        let run = Run::new(Parts { program, ..Parts::sample() });
        let path = data.map(|path| (DATA.to_owned(), path.display().to_string().into()));
        let attempt = Attempt { run: run.id, settings: path.into_iter().collect(), ..Attempt::sample() };
        Sealed { run, attempt, series: Vec::new(), phases: Vec::new() }
    }

    #[test]
    fn data_at_another_path_are_named_and_found() {
        let dir = tempfile::tempdir().unwrap();
        let gone = dir.path().join("gone");
        let one = sealed("trainer".into(), Some(&gone));
        let refused =
            |elsewhere: &Elsewhere, sealed: &Sealed| elsewhere.settings(sealed).unwrap_err().source.to_string();
        let nowhere = Elsewhere::default();
        let said = refused(&nowhere, &one);
        assert!(
            said.contains(&format!("`{}`, named by the record, does not exist here (--data PATH", gone.display())),
            "{said}"
        );
        assert_eq!(nowhere.unnamed_data(&one), gone.to_str());
        let here = Elsewhere { data: Some(dir.path().to_owned()), ..Elsewhere::default() };
        let settings = here.settings(&one).unwrap();
        assert_eq!(settings[DATA], dir.path().canonicalize().unwrap().display().to_string().into());
        assert_eq!(here.unnamed_data(&one), None);
        let wrong = Elsewhere { data: Some(gone.clone()), ..Elsewhere::default() };
        assert!(refused(&wrong, &one).contains("is not there"));
        assert!(refused(&here, &sealed("trainer".into(), None)).contains("reads no data files"));
        // Another program locates its data itself.
        let program: Table = [("command".to_owned(), vec!["sh"].into())].into();
        let mut other = sealed(program.into(), Some(&gone));
        other.attempt.settings.insert(DIRECTORY.to_owned(), dir.path().display().to_string().into());
        assert!(nowhere.settings(&other).is_ok());
    }
}
