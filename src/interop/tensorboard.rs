//! TensorBoard's folders of event files: each folder with such files is a run, named by its path.

use super::event_file::{End, FILE_VERSION, SESSION_LOG, STEP, SUMMARY, WALL_TIME, read_records};
use super::foreign::{ForeignRun, Point};
use super::protobuf::{Wire, fields};
use super::rows::ImportError;
use crate::record::{Digest, Outcome, Value, count};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const TOOL: &str = "tensorboard";
/// A part of the name of every event file.
const MARK: &str = "tfevents";
/// The prefix of the tags of hyperparameters.
const HPARAMS: &str = "_hparams_/";
/// The largest depth of folders. Deeper ones are circular links.
const DEEPEST: usize = 32;

/// Reads the runs of a folder, or of one event file. Calls `take` with each run as soon as it is read.
///
/// # Errors
/// If the folder cannot be read, or has no event file.
pub fn read_tensorboard<E: From<ImportError>>(
    path: &Path,
    take: &mut dyn FnMut(ForeignRun) -> Result<(), E>,
) -> Result<(), E> {
    let mut folders = BTreeMap::new();
    if path.is_file() {
        folders.insert(path.parent().unwrap_or(Path::new("")).to_owned(), vec![path.to_owned()]);
    } else {
        find(path, DEEPEST, &mut folders)?;
    }
    if folders.is_empty() {
        let text = format!("`{}` has no event file (their names contain `{MARK}`)", path.display());
        return Err(ImportError::Refused(text).into());
    }
    let root = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let root = if path.is_file() { root.parent().map(Path::to_owned).unwrap_or_default() } else { root };
    let experiment = root.file_name().map_or_else(|| "runs".to_owned(), |name| name.to_string_lossy().into_owned());
    let parents: BTreeMap<PathBuf, PathBuf> = inner(&folders)?;
    for (folder, files) in &folders {
        if parents.contains_key(folder) {
            continue;
        }
        let inside = parents.iter().filter(|(_, parent)| *parent == folder).map(|(inner, _)| inner);
        let name = folder.strip_prefix(path).unwrap_or(folder).to_string_lossy().into_owned();
        // TensorBoard uses this name for events of the folder itself.
        let name = if name.is_empty() || path.is_file() { ".".to_owned() } else { name };
        let mut reading = Reading::new(ForeignRun::new(TOOL, experiment.clone(), name));
        for file in files {
            reading.file(file)?;
        }
        for file in inside.flat_map(|inner| &folders[inner]) {
            reading.file(file)?;
        }
        take(reading.finish())?;
    }
    Ok(())
}

fn unreadable(path: &Path, source: std::io::Error) -> ImportError {
    ImportError::Unreadable { path: path.to_owned(), source }
}

/// Collects the event files of each folder, sorted by their names, which begin with the time.
fn find(folder: &Path, deeper: usize, found: &mut BTreeMap<PathBuf, Vec<PathBuf>>) -> Result<(), ImportError> {
    let entries = std::fs::read_dir(folder).map_err(|error| unreadable(folder, error))?;
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    for entry in entries {
        let path = entry.map_err(|error| unreadable(folder, error))?.path();
        if path.is_dir() {
            folders.push(path);
        } else if path.file_name().is_some_and(|name| name.to_string_lossy().contains(MARK)) {
            files.push(path);
        }
    }
    if !files.is_empty() {
        files.sort();
        found.insert(folder.to_owned(), files);
    }
    folders.sort();
    folders.into_iter().filter(|_| deeper > 0).try_for_each(|inner| find(&inner, deeper - 1, found))
}

/// Finds the folders that `add_hparams` of PyTorch's writer makes inside a run's folder: the only one there with
/// hyperparameters. Returns the run's folder for each.
fn inner(folders: &BTreeMap<PathBuf, Vec<PathBuf>>) -> Result<BTreeMap<PathBuf, PathBuf>, ImportError> {
    let mut with = BTreeSet::new();
    for (folder, files) in folders {
        let mut reading = Reading::new(ForeignRun::new(TOOL, String::new(), String::new()));
        // Hyperparameters are at the beginning of a small file. The files of curves are not read twice.
        for file in files.iter().filter(|file| file.metadata().is_ok_and(|data| data.len() < 1 << 20)) {
            reading.file(file)?;
        }
        if !reading.run.params.is_empty() {
            with.insert(folder.clone());
        }
    }
    let mut found: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
    for folder in &with {
        let parent = folder.parent().filter(|parent| folders.contains_key(*parent) && !with.contains(*parent));
        found.entry(parent.unwrap_or(folder).to_owned()).or_default().push(folder.clone());
    }
    let only = found.into_iter().filter_map(|(parent, inner)| match inner.as_slice() {
        [one] if *one != parent => Some((one.clone(), parent)),
        _ => None,
    });
    Ok(only.collect())
}

/// A run that is being read.
struct Reading {
    run: ForeignRun,
    /// The plugin of each tag, which only its first value names.
    plugins: BTreeMap<String, String>,
    digests: Vec<Digest>,
    replaced: usize,
}

impl Reading {
    fn new(run: ForeignRun) -> Self {
        Self { run, plugins: BTreeMap::new(), digests: Vec::new(), replaced: 0 }
    }

    fn file(&mut self, path: &Path) -> Result<(), ImportError> {
        let bytes = std::fs::read(path).map_err(|error| unreadable(path, error))?;
        let mut unread = 0;
        let (read, end) = read_records(&bytes, |record| unread += u64::from(self.event(record).is_none()));
        self.digests.push(Digest::of(&bytes[..read]));
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match end {
            End::Whole => {}
            End::Cut => self.incomplete(format!(
                "`{name}` ends within a record: it is still being written, or its writer died (import it again later)"
            )),
            End::Damaged(at) => self.incomplete(format!(
                "`{name}` is damaged at byte {at}; its {} after that are left out",
                count(bytes.len() - at, "byte")
            )),
        }
        if unread > 0 {
            *self.run.skipped.entry("unknown record".to_owned()).or_default() += unread;
        }
        Ok(())
    }

    /// Marks a run that may have more points than could be read.
    fn incomplete(&mut self, why: String) {
        self.run.outcome = Outcome::Interrupted { reason: why.clone() };
        self.run.warnings.push(why);
    }

    /// Reads an event. Returns `None` if it is not one.
    fn event(&mut self, record: &[u8]) -> Option<()> {
        let (mut unix_s, mut step, mut summaries) = (0.0, 0, Vec::new());
        let mut is_start = false;
        for (field, wire) in fields(record)? {
            match (field, wire) {
                (WALL_TIME, Wire::Double(at)) => unix_s = at,
                (STEP, Wire::Int(number)) => step = number.cast_signed(),
                (SUMMARY, Wire::Bytes(bytes)) => summaries.push(bytes),
                (SESSION_LOG, Wire::Bytes(bytes)) => is_start = fields(bytes)?.contains(&(1, Wire::Int(1))),
                // This event contains the version of the format, and the time at which the file was made.
                (FILE_VERSION, _) => self.run.started_unix_s = self.run.started_unix_s.or(Some(unix_s)),
                (4 | 9, _) => self.skip("graph"),
                (8, _) => self.skip("profile"),
                _ => {}
            }
        }
        if is_start {
            self.restart(step);
        }
        for value in summaries.into_iter().map(fields).collect::<Option<Vec<_>>>()?.into_iter().flatten() {
            if let (1, Wire::Bytes(bytes)) = value {
                self.value(bytes, unix_s, step)?;
            }
        }
        Some(())
    }

    /// Removes the points from a step on. A restarted writer replaces them, as TensorBoard shows it.
    fn restart(&mut self, step: i64) {
        for points in self.run.curves.values_mut() {
            self.replaced += points.extract_if(.., |point| point.step >= step).count();
        }
    }

    fn value(&mut self, bytes: &[u8], unix_s: f64, step: i64) -> Option<()> {
        let (mut tag, mut number, mut media, mut text) = (String::new(), None, None, None);
        for (field, wire) in fields(bytes)? {
            match (field, wire) {
                (1, Wire::Bytes(_)) => tag = wire.text()?,
                (2, Wire::Float(value)) => number = Some(f64::from(value)),
                (4, _) => media = Some("image"),
                (5, _) => media = Some("histogram"),
                (6, _) => media = Some("audio clip"),
                (8, Wire::Bytes(tensor)) => (number, text) = read_tensor(tensor)?,
                (9, Wire::Bytes(metadata)) => self.metadata(&tag, metadata)?,
                _ => {}
            }
        }
        let plugin = self.plugins.get(&tag).map(String::as_str).unwrap_or_default();
        if tag.starts_with(HPARAMS) || plugin == "hparams" {
            return Some(());
        }
        match (number, text, media, plugin) {
            (Some(value), _, None, "" | "scalars") => {
                self.run.curves.entry(tag).or_default().push(Point { step, unix_s, value });
            }
            (_, Some(text), None, "text") => drop(self.run.texts.insert(tag, text)),
            (_, _, Some(media), _) => self.skip(media),
            (_, _, None, "") => self.skip("tensor"),
            (_, _, None, plugin) => {
                let kind = plugin.strip_suffix('s').unwrap_or(plugin).to_owned();
                self.skip(&kind);
            }
        }
        Some(())
    }

    fn skip(&mut self, kind: &str) {
        *self.run.skipped.entry(kind.to_owned()).or_default() += 1;
    }

    /// Reads the metadata in the first value of a tag: its plugin, and the hyperparameters if the plugin is theirs.
    fn metadata(&mut self, tag: &str, bytes: &[u8]) -> Option<()> {
        for data in fields(bytes)?.into_iter().filter(|(field, _)| *field == 1).filter_map(|(_, wire)| wire.bytes()) {
            let (mut plugin, mut content) = (String::new(), &[][..]);
            for (field, wire) in fields(data)? {
                match field {
                    1 => plugin = wire.text()?,
                    2 => content = wire.bytes()?,
                    _ => {}
                }
            }
            if plugin == "hparams" {
                self.hparams(content)?;
            }
            self.plugins.entry(tag.to_owned()).or_insert(plugin);
        }
        Some(())
    }

    fn hparams(&mut self, content: &[u8]) -> Option<()> {
        for (field, wire) in fields(content)? {
            match field {
                // The session's start: a map from names to values.
                3 => {
                    let entries = fields(wire.bytes()?)?;
                    for entry in entries.into_iter().filter(|(field, _)| *field == 1) {
                        let (name, value) = read_hparam(entry.1.bytes()?)?;
                        self.run.params.extend(value.map(|value| (name, value)));
                    }
                }
                // The session's end: 2 is success, 3 failure, 4 running.
                4 => {
                    let of_end = fields(wire.bytes()?)?;
                    if of_end.contains(&(1, Wire::Int(3))) {
                        let reason = "TensorBoard's hyperparameters say that it failed".to_owned();
                        self.run.outcome = Outcome::Failed { reason };
                    }
                    if of_end.contains(&(1, Wire::Int(4))) {
                        let reason = "TensorBoard's hyperparameters say that it is running".to_owned();
                        self.run.outcome = Outcome::Interrupted { reason };
                    }
                }
                _ => {}
            }
        }
        Some(())
    }

    fn finish(mut self) -> ForeignRun {
        if self.replaced > 0 {
            let points = count(self.replaced, "point");
            self.run
                .warnings
                .push(format!("{points} were replaced after a restart of the writer, as TensorBoard shows it"));
        }
        let pieces: Vec<&[u8]> = self.digests.iter().map(|digest| &digest.0[..]).collect();
        self.run.digest = Digest::of_pieces("ledger tensorboard files v1", &pieces);
        // Many folders have the same name; the time at which the first file was made distinguishes them.
        let made_us = self.run.started_unix_s.map(|at| format!(" at {at:.6}")).unwrap_or_default();
        self.run.id = format!("{}/{}{made_us}", self.run.experiment, self.run.name);
        self.run
    }
}

/// Reads an entry of the hyperparameters: a name, and a `google.protobuf.Value`. The value is `None` for lists and null.
fn read_hparam(entry: &[u8]) -> Option<(String, Option<Value>)> {
    let (mut name, mut value) = (String::new(), None);
    for (field, wire) in fields(entry)? {
        if field == 1 {
            name = wire.text()?;
            continue;
        }
        for (kind, wire) in fields(wire.bytes()?)? {
            value = match (kind, wire) {
                (2, Wire::Double(number)) => Some(number.into()),
                (3, Wire::Bytes(_)) => Some(wire.text()?.into()),
                (4, Wire::Int(number)) => Some((number != 0).into()),
                _ => None,
            };
        }
    }
    Some((name, value))
}

/// Returns the number or the text of a tensor with one element.
fn read_tensor(tensor: &[u8]) -> Option<(Option<f64>, Option<String>)> {
    const FLOAT: u64 = 1;
    const DOUBLE: u64 = 2;
    let (mut kind, mut elements, mut number, mut text) = (0, 1, None, None);
    let mut content: &[u8] = &[];
    for (field, wire) in fields(tensor)? {
        match (field, wire) {
            (1, Wire::Int(number)) => kind = number,
            (2, Wire::Bytes(shape)) => elements = read_size(shape)?,
            (4, Wire::Bytes(bytes)) => content = bytes,
            (5, Wire::Float(value)) => number = Some(f64::from(value)),
            (6, Wire::Double(value)) => number = Some(value),
            // Packed numbers.
            (5 | 6, Wire::Bytes(bytes)) => content = bytes,
            (8, Wire::Bytes(_)) => text = text.or(wire.text()),
            _ => {}
        }
    }
    if let (FLOAT, Ok(bytes)) = (kind, <[u8; 4]>::try_from(content)) {
        number = Some(f64::from(f32::from_le_bytes(bytes)));
    }
    if let (DOUBLE, Ok(bytes)) = (kind, <[u8; 8]>::try_from(content)) {
        number = Some(f64::from_le_bytes(bytes));
    }
    Some((number.filter(|_| elements == 1), text))
}

/// Returns the number of elements of a `TensorShapeProto`.
fn read_size(shape: &[u8]) -> Option<u64> {
    let mut elements = 1u64;
    for dimension in fields(shape)?.into_iter().filter(|(field, _)| *field == 2).filter_map(|(_, wire)| wire.bytes()) {
        let size = fields(dimension)?.into_iter().find(|(field, _)| *field == 1);
        if let Some((_, Wire::Int(size))) = size {
            elements = elements.saturating_mul(size);
        }
    }
    Some(elements)
}

#[cfg(test)]
mod tests;
