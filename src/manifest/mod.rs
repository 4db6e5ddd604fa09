//! Manifests: a TOML file becomes checked cells, or a list of everything that is wrong with it.
//!
//! Knows every key, its type, default and range, and how lists of values span a grid.
//! Must not know a machine's capabilities, where results are stored, or how a cell is trained.
//! A file passes through `document` (TOML with positions), `draft` (each key checked alone),
//! `grid` and `resolve` (points become cells), and `expand` (checks of the whole grid).

mod availability;
mod bind;
mod check;
mod document;
mod draft;
mod expand;
mod fault;
mod field;
mod grid;
mod named;
mod pattern;
mod program;
mod reference;
mod resolve;
mod schema;
mod slurm;
mod standard;
mod table;
#[cfg(test)]
mod tests;
mod vary;

pub use bind::Bind;
pub use document::{Content, Key, Node, Span, parse as parse_document};
pub use fault::{Fault, Faults, ManifestError, nearest};
pub use field::{Constant, Field, Interval, Kind, Preset, Role, When};
pub use pattern::{Found, MetricPattern, PATTERNS};
pub use program::{ArgvError, Program, ProgramIdentity};
pub use reference::reference_markdown;
pub use schema::schema;
pub use slurm::{SLURM_PATHS, load_site};
pub use standard::{Standard, standard, without_table};
pub use vary::vary;

use crate::record::{Cell, Digest, Direction, KNOWN_METRICS, Table, Value, known_metric};
use draft::Draft;
use fault::shown;
use field::Preset as P;
use named::Named;
use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Greatest length of a manifest in bytes.
const MOST_BYTES: usize = 1 << 20;

/// One experiment: what to run, how often, and by which objective.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The experiment's name.
    pub name: String,
    /// The question that it answers, for people.
    pub description: Option<String>,
    /// Every point of the grid once; later axes vary faster and the seed fastest.
    pub cells: Vec<Cell>,
    /// Dotted names of the fields in which cells differ, including `seed`.
    pub axes: Vec<String>,
    /// Finished attempts that each run should have; the maximum if it depends on their confidence interval.
    pub repeats: u32,
    /// The objective, if the manifest has one.
    pub objective: Option<Objective>,
    /// The program that runs instead of the built-in trainer.
    pub program: Option<Program>,
    /// The keys of `[slurm]` without the table's name: where and how cells run on a cluster.
    pub slurm: Table,
    /// Folder to which relative paths are relative.
    pub directory: PathBuf,
    /// Digest of the file's bytes; only recorded.
    pub source: Digest,
    named: Named,
}

/// The metric that decides which run is best.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objective {
    /// Name of the metric.
    pub metric: String,
    /// Direction of improvement.
    pub direction: Direction,
}

impl Manifest {
    /// Resolves a path of the manifest relative to its folder.
    pub fn resolve_path(&self, path: &str) -> PathBuf {
        self.directory.join(path)
    }

    /// Returns the path of the cell's data, if it reads files. The cell keeps the path as written.
    pub fn data_path(&self, cell: &Cell) -> Option<PathBuf> {
        cell.text("data.path").map(|path| self.resolve_path(path))
    }

    /// Returns where a key names a file by this text, as `FILE:LINE:COLUMN`.
    /// Files of the program have the key `program`.
    pub fn place(&self, key: &'static str, text: &str) -> Option<&str> {
        self.named.get(&(key, text.to_owned())).map(String::as_str)
    }
}

/// Returns the table of all keys, in the order in which axes vary.
pub fn fields() -> &'static [Field] {
    table::FIELDS
}

/// Reads and checks a manifest file.
///
/// # Errors
/// If the file is missing, a directory, unreadable or longer than 1 MiB.
/// If its contents are wrong; then every fault is listed.
pub fn load(path: &Path) -> Result<Manifest, ManifestError> {
    let unreadable = |source: std::io::Error| match source.kind() {
        std::io::ErrorKind::NotFound => ManifestError::Missing { path: path.to_owned() },
        std::io::ErrorKind::IsADirectory => ManifestError::Directory { path: path.to_owned() },
        _ => ManifestError::Unreadable { path: path.to_owned(), source },
    };
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    let limit = u64::try_from(MOST_BYTES).unwrap_or(u64::MAX) + 1;
    file.take(limit).read_to_end(&mut bytes).map_err(unreadable)?;
    let origin = path.display().to_string();
    match String::from_utf8(bytes) {
        Ok(text) => build(&text, &origin, path),
        Err(error) if error.as_bytes().len() > MOST_BYTES => Err(ManifestError::TooLarge { origin, max: MOST_BYTES }),
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            let text = String::from_utf8_lossy(&error.as_bytes()[..valid]).into_owned();
            let mut faults = Faults::default();
            faults.add(valid, "this is not UTF-8 text (a manifest is a TOML file)");
            Err(ManifestError::Invalid { faults: faults.placed(&origin, &text) })
        }
    }
}

/// Parses and checks the text of a manifest.
/// `origin` names it in faults; its folder is the base of relative paths.
///
/// # Errors
/// If the text is longer than 1 MiB or wrong (all faults are listed).
pub fn parse(text: &str, origin: &str) -> Result<Manifest, ManifestError> {
    build(text, origin, Path::new(origin))
}

fn build(text: &str, origin: &str, path: &Path) -> Result<Manifest, ManifestError> {
    if text.len() > MOST_BYTES {
        return Err(ManifestError::TooLarge { origin: origin.to_owned(), max: MOST_BYTES });
    }
    let mut faults = Faults::default();
    let root = match text.find('\0').map_or_else(|| document::parse(text), |at| Err((at..at, "a zero byte".to_owned())))
    {
        Ok(root) => root,
        Err((span, message)) => {
            faults.add(span.start, format!("this is not TOML: {message}"));
            return Err(ManifestError::Invalid { faults: faults.placed(origin, text) });
        }
    };
    let draft = draft::read(&root, text, &mut faults);
    let objective = objective(&draft, &mut faults);
    let program = program(&draft, &mut faults);
    let shared = shared(&draft, path, objective.as_ref());
    let most = repeats(&draft, &mut faults);
    start_band(&draft, &mut faults);
    let cells =
        if draft.shapeless { Vec::new() } else { expand::cells(&draft, &shared, program.as_ref(), &mut faults) };
    if !faults.is_empty() {
        return Err(ManifestError::Invalid { faults: faults.placed(origin, text) });
    }
    let words = |key: &str| shared.get(key).and_then(Value::as_str).map(str::to_owned);
    Ok(Manifest {
        name: words("experiment.name").unwrap_or_default(),
        description: words("experiment.description"),
        axes: axes(&cells),
        cells,
        repeats: most.unwrap_or(1),
        objective,
        program,
        slurm: table_of(&draft, "slurm"),
        directory: path.parent().unwrap_or(Path::new("")).to_owned(),
        source: Digest::of(text.as_bytes()),
        named: named::named(&draft, origin, text),
    })
}

/// Returns the values of a table whose keys apply to the whole manifest, by their names in it.
fn table_of(draft: &Draft, section: &str) -> Table {
    let of_section = table::FIELDS.iter().filter(|field| field.section() == section);
    let value = |field: &Field| Some((field.key.split_once('.')?.1.to_owned(), draft.single(field.key)?.0.clone()));
    of_section.filter_map(value).collect()
}

/// Returns the settings that all cells share.
fn shared(draft: &Draft, path: &Path, objective: Option<&Objective>) -> Table {
    let mut settings = Table::new();
    // These tables change how runs are measured, so their defaults apply only if the table is present.
    let silent = |field: &Field| {
        matches!(field.section(), "protocol" | "repeats") && !draft.sections.contains_key(field.section())
    };
    let fields = table::FIELDS
        .iter()
        .filter(|field| matches!(field.role, Role::Setting | Role::Container) && !field.is_of_cell());
    for field in fields.filter(|field| !silent(field)) {
        let value = match (draft.single(field.key), field.preset) {
            (Some((value, _)), _) => value.clone(),
            (None, P::Is(constant)) => constant.into(),
            (None, _) => continue,
        };
        settings.insert(field.cell.to_owned(), value);
    }
    let stem = path.file_stem().map_or_else(|| "experiment".to_owned(), |stem| stem.to_string_lossy().into_owned());
    settings.entry("experiment.name".to_owned()).or_insert_with(|| stem.into());
    if let Some(objective) = objective {
        settings.insert("objective.direction".to_owned(), objective.direction.name().into());
    }
    if let Some(program) = draft.program.as_ref().filter(|program| !program.metrics.is_empty()) {
        settings.insert(PATTERNS.to_owned(), program.metrics.clone().into());
    }
    settings
}

/// Returns the most finished attempts that each run gets, and checks `[repeats]`.
fn repeats(draft: &Draft, faults: &mut Faults) -> Option<u32> {
    let Some(section) = draft.sections.get("repeats") else {
        return draft.single("repeats").and_then(|(value, _)| u32::try_from(value.as_int()?).ok());
    };
    match draft.single("repeats.until") {
        None if draft.base_of("repeats.until").is_none() => {
            faults.add(*section, "repeats.until is missing (give a share of the mean, such as \"2%\")");
        }
        Some((until, at)) if until.as_str().is_none_or(|text| percent(text).is_none()) => {
            faults.add(at, format!("repeats.until is {until} (it must be a share above 0%, such as \"2%\")"));
        }
        _ => {}
    }
    let bound = |key: &str, preset: u32| match draft.single(key) {
        Some((value, at)) => (value.as_int().and_then(|value| u32::try_from(value).ok()).unwrap_or(preset), at),
        None => (preset, *section),
    };
    let ((min, _), (max, at)) = (bound("repeats.min", 3), bound("repeats.max", 10));
    if max < min {
        faults.add(at, format!("repeats.max is {max}, but repeats.min is {min} (it must be at least that)"));
    }
    Some(max)
}

/// Checks the range of start temperatures: an empty range would taint all attempts.
fn start_band(draft: &Draft, faults: &mut Faults) {
    let bound = |key: &str| draft.single(key).and_then(|(value, at)| Some((value.as_int()?, at)));
    if let (Some((most, _)), Some((least, at))) = (bound("protocol.cool_to_c"), bound("protocol.min_start_c"))
        && least > most
    {
        let rule =
            format!("protocol.min_start_c is {least}, but protocol.cool_to_c is {most} (it must be at most that)");
        faults.add(at, rule);
    }
}

/// Parses a percentage such as `2%` as a share; `None` unless it is finite and positive.
pub fn percent(text: &str) -> Option<f64> {
    let share = text.strip_suffix('%')?.trim().parse::<f64>().ok()? / 100.0;
    (share.is_finite() && share > 0.0).then_some(share)
}

fn objective(draft: &Draft, faults: &mut Faults) -> Option<Objective> {
    let section = draft.sections.get("objective")?;
    let Some((metric, at)) = draft.single("objective.metric") else {
        if draft.base_of("objective.metric").is_none() {
            faults.add(*section, "objective.metric is missing (name the metric that decides)");
        }
        return None;
    };
    let metric = metric.as_str()?.to_owned();
    let direction = match draft.single("objective.direction") {
        Some((word, _)) if word.as_str() == Some("maximize") => Direction::Maximize,
        Some(_) => Direction::Minimize,
        None if draft.base_of("objective.direction").is_some() => return None,
        None => match known_metric(&metric) {
            Some(known) => known.direction,
            None => {
                let name = shown(&metric);
                let meant = nearest(&metric, KNOWN_METRICS.iter().map(|known| known.name));
                let meant = meant.map_or_else(String::new, |meant| format!("; did you mean `{meant}`?"));
                let message = format!(
                    "objective.direction is missing: the better direction of `{name}` is unknown (give minimize or maximize{meant})"
                );
                faults.add(at, message);
                return None;
            }
        },
    };
    Some(Objective { metric, direction })
}

fn program(draft: &Draft, faults: &mut Faults) -> Option<Program> {
    let text = draft.program.as_ref()?;
    let command = text.command.iter().map(|(item, _)| item.clone()).collect();
    let files = text.files.iter().map(|(file, _)| file.clone()).collect();
    match Program::new(command, files, text.identity) {
        Ok(program) => Some(program),
        Err((item, message)) => {
            faults.add(text.command.get(item).map_or(0, |(_, at)| *at), message);
            None
        }
    }
}

/// Returns the fields that do not have the same value in all cells.
fn axes(cells: &[Cell]) -> Vec<String> {
    let Some((first, rest)) = cells.split_first() else { return Vec::new() };
    let mut names = BTreeSet::new();
    for cell in rest {
        differing(&first.config, &cell.config, &mut names);
        differing(&first.settings, &cell.settings, &mut names);
    }
    let mut axes: Vec<String> = names.into_iter().map(str::to_owned).collect();
    if rest.iter().any(|cell| cell.seed != first.seed) {
        axes.push("seed".to_owned());
    }
    axes
}

/// Adds the names of values that differ or are in one table only. One pass over both, because grids can be large.
fn differing<'a>(one: &'a Table, two: &'a Table, names: &mut BTreeSet<&'a str>) {
    let (mut one, mut two) = (one.iter().peekable(), two.iter().peekable());
    loop {
        let name = match (one.peek(), two.peek()) {
            (None, None) => return,
            (Some((a, _)), Some((b, _))) => (*a).min(*b),
            (Some((name, _)), None) | (None, Some((name, _))) => *name,
        };
        let of_one = one.next_if(|(key, _)| *key == name).map(|(_, value)| value);
        let of_two = two.next_if(|(key, _)| *key == name).map(|(_, value)| value);
        if of_one != of_two {
            names.insert(name.as_str());
        }
    }
}
