//! Research objects: a folder with attempts and a description that other archives read, by RO-Crate 1.1 and the profile
//! Process Run Crate 0.5.
//!
//! Each attempt is an action: a program with a manifest, parameters and data as inputs, and a record, its curves and metrics as results.

use super::{Content, Encoding, Entry, File, ID_DIGITS, PointsOf, TableWriter, percent, write_points};
use crate::interop::moment::iso_ms;
use crate::record::{Outcome, Part, SourceText, Table, Value, count};
use crate::wire::to_json_text;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const SPECIFICATION: &str = "https://w3id.org/ro/crate/1.1";
const PROFILE: &str = "https://w3id.org/ro/wfrun/process/0.5";
/// The terms of the profile that RO-Crate's own vocabulary lacks.
const TERMS: &str = "https://w3id.org/ro/terms/workflow-run#";
const OWN_TERMS: [&str; 5] = ["ContainerImage", "SIFImage", "containerImage", "environment", "sha256"];

/// The facts that only the creator of a crate knows.
#[derive(Clone, Debug, Default)]
pub struct CrateOf {
    /// The person who executed the runs.
    pub author: Option<String>,
    /// The URL of the crate's licence.
    pub license: Option<String>,
    /// The current time, in ms since the Unix epoch.
    pub unix_ms: i64,
}

/// An attempt with its source texts.
pub struct Sourced<'a> {
    /// The attempt with its phases.
    pub entry: &'a Entry,
    /// The points of its series.
    pub points: &'a PointsOf<'a>,
    /// Writes the attempt as a pack, for `ledger import`.
    pub pack: &'a Content<'a>,
    /// The type (`manifest`, `patch` or another) and the text of each source.
    pub sources: Vec<(&'static str, SourceText)>,
}

/// A crate that is built attempt by attempt. Only the descriptions of added attempts stay in memory.
#[derive(Default)]
pub struct ResearchObject {
    about: CrateOf,
    /// The files of all attempts.
    parts: BTreeSet<PathBuf>,
    entities: BTreeMap<String, Value>,
    actions: Vec<String>,
    experiments: BTreeSet<String>,
}

impl ResearchObject {
    /// Returns an empty crate.
    pub fn new(about: CrateOf) -> Self {
        Self { about, ..Self::default() }
    }

    /// Adds an attempt. Returns the files to write that no earlier attempt had. Pass the length of each to [`sized`](Self::sized).
    pub fn add<'a>(&mut self, sourced: &Sourced<'a>) -> Vec<File<'a>> {
        let mut files = Vec::new();
        self.attempt(sourced, &mut files);
        self.experiments.insert(sourced.entry.experiment().to_owned());
        files.retain(|file| self.parts.insert(file.path.clone()));
        files
    }

    /// Records the length in bytes of a file that was written.
    pub fn sized(&mut self, path: &Path, bytes: u64) {
        if let Some(Value::Table(file)) = self.entities.get_mut(&*path.to_string_lossy()) {
            file.insert("contentSize".to_owned(), bytes.to_string().into());
        }
    }

    /// Returns the number of files.
    pub fn files(&self) -> usize {
        self.parts.len()
    }

    /// Returns the file that describes the crate.
    pub fn finish(mut self) -> File<'static> {
        self.root();
        let terms = OWN_TERMS.map(|term| (term, format!("{TERMS}{term}").into()));
        let context = Value::List(vec![format!("{SPECIFICATION}/context").into(), table(terms)]);
        let graph = Value::List(self.entities.into_values().collect());
        let document = to_json_text(&table([("@context", context), ("@graph", graph)]));
        File::of("ro-crate-metadata.json".into(), document)
    }

    /// Adds the description of an entity, and returns the reference to it.
    fn describe(&mut self, id: &str, kind: &str, fields: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
        let mut entity: Table = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        entity.insert("@id".to_owned(), id.into());
        entity.insert("@type".to_owned(), kind.into());
        self.entities.insert(id.to_owned(), entity.into());
        reference(id)
    }

    fn file(&mut self, path: &str, name: String, format: &str) -> Value {
        // Attempts may share a source, whose length is already recorded.
        if self.parts.contains(Path::new(path)) {
            return reference(path);
        }
        self.describe(path, "File", [("name", name.into()), ("encodingFormat", format.into())])
    }

    fn property(&mut self, id: &str, name: &str, value: &Value, unit: Option<&str>) -> Value {
        let value = match value {
            // Finite numbers and booleans stay JSON values; other values become text.
            Value::Float(number) if !number.is_finite() => number.to_string().into(),
            Value::List(_) | Value::Table(_) => value.to_string().into(),
            other => other.clone(),
        };
        let mut fields = vec![("name", name.into()), ("value", value)];
        fields.extend(unit.filter(|unit| !unit.is_empty()).map(|unit| ("unitText", unit.into())));
        self.describe(id, "PropertyValue", fields)
    }

    fn attempt<'a>(&mut self, sourced: &Sourced<'a>, files: &mut Vec<File<'a>>) {
        let entry = sourced.entry;
        let attempt = entry.attempt();
        let short = entry.id.0.prefix(ID_DIGITS);
        let id = format!("#attempt-{short}");
        let taints = attempt.all_taints().join("; ");
        let tainted = if taints.is_empty() { taints } else { format!("; tainted: {taints}") };
        let mut fields = vec![
            ("name", entry.title().into()),
            (
                "description",
                format!("An attempt of the run {} of `{}`{tainted}", entry.sealed.run.id, entry.experiment()).into(),
            ),
            ("identifier", entry.id.to_string().into()),
            ("startTime", moment(attempt.started_unix_ms).into()),
            ("endTime", moment(entry.ended_unix_ms()).into()),
            ("instrument", self.program(entry)),
            ("object", self.taken(sourced, &short, files)),
            ("result", self.left(sourced, &short, files)),
            ("environment", self.surroundings(entry, &short)),
        ];
        let status = if attempt.outcome == Outcome::Finished { "Completed" } else { "Failed" };
        // The profile requires a text here, not a reference.
        fields.push(("actionStatus", format!("http://schema.org/{status}ActionStatus").into()));
        fields.extend(attempt.outcome.reason().map(|reason| ("error", reason.into())));
        if let Some(author) = self.about.author.clone() {
            fields.push(("agent", self.person(&author)));
        }
        if let Some(image) = self.image(entry) {
            fields.push(("containerImage", image));
        }
        self.describe(&id, "CreateAction", fields);
        self.actions.push(id);
    }

    fn person(&mut self, name: &str) -> Value {
        self.describe(&format!("#person-{}", fragment(name)), "Person", [("name", name.into())])
    }

    /// Describes the program that executed the attempt.
    fn program(&mut self, entry: &Entry) -> Value {
        let program = entry.sealed.run.parts.value(Part::Program);
        let digest = program.digest().prefix(16);
        let field = |name: &str| program.as_table().and_then(|table| table.get(name)).cloned();
        let (name, version) = match field("command") {
            Some(command) => {
                let commit = field("git_commit").or_else(|| entry.attempt().facts.get("git.commit").cloned());
                (command.to_string(), commit.map_or(digest.clone(), |commit| commit.to_string()))
            }
            None => {
                let version = entry.attempt().facts.get("ledger.version").map_or(digest.clone(), Value::to_string);
                ("ledger's built-in trainer".to_owned(), version)
            }
        };
        let id = format!("#program-{digest}");
        let description = format!("Identified by {program}");
        let fields = [("name", name.into()), ("softwareVersion", version.into()), ("description", description.into())];
        self.describe(&id, "SoftwareApplication", fields)
    }

    /// Describes the inputs: manifest, patch, data and every field of the configuration.
    fn taken<'a>(&mut self, sourced: &Sourced<'a>, short: &str, files: &mut Vec<File<'a>>) -> Value {
        let mut all = Vec::new();
        for (kind, source) in &sourced.sources {
            let (ending, format) = match *kind {
                "manifest" => ("toml", "application/toml"),
                "patch" => ("diff", "text/x-diff"),
                _ => ("txt", "text/plain"),
            };
            let path = format!("sources/{kind}-{}.{ending}", source.key().prefix(16));
            let redacted = if source.is_redacted { " (secrets were removed)" } else { "" };
            all.push(self.file(&path, format!("{kind}{redacted}"), format));
            files.push(File::of(path.into(), source.kept.clone()));
        }
        let run = &sourced.entry.sealed.run;
        let seed = ("seed".to_owned(), Value::from(run.parts.seed.to_string()));
        let fields: Vec<(String, Value)> =
            run.config().iter().map(|(name, value)| (name.clone(), value.clone())).chain([seed]).collect();
        for (name, value) in fields {
            all.push(self.property(&format!("#field-{short}-{}", fragment(&name)), &name, &value, None));
        }
        Value::List(all)
    }

    /// Describes the results: the record, the pack, the curves, and the metrics.
    fn left<'a>(&mut self, sourced: &Sourced<'a>, short: &str, files: &mut Vec<File<'a>>) -> Value {
        let (entry, points, pack) = (sourced.entry, sourced.points, sourced.pack);
        let path = |name: &str| format!("attempts/{short}/{name}");
        let title = entry.title();
        let record = path("attempt.json");
        let mut all = vec![self.file(&record, format!("Record of {title}"), "application/json")];
        files.push(File::of(record.into(), to_json_text(&entry.attempt().to_value())));
        let packed = path("attempt.ledger");
        let name = format!("{title}, as `ledger import` takes it");
        all.push(self.file(&packed, name, "application/octet-stream"));
        files.push(File::new(packed.into(), pack));
        if !entry.attempt().series.is_empty() {
            let curves = path("points.csv");
            all.push(self.file(&curves, format!("Curves and readings of {title}"), "text/csv"));
            files.push(File::new(curves.into(), move |out| {
                let mut writer = TableWriter::new(Encoding::Csv, out);
                write_points(entry, points, &mut writer)?;
                writer.finish()
            }));
        }
        for (name, metric) in &entry.attempt().metrics {
            let Some(value) = metric.value else { continue };
            let id = format!("#metric-{short}-{}", fragment(name));
            all.push(self.property(&id, name, &value.into(), Some(&metric.unit)));
        }
        Value::List(all)
    }

    /// Describes the recorded environment variables, which have upper-case names.
    fn surroundings(&mut self, entry: &Entry, short: &str) -> Value {
        let facts = entry.attempt().facts.iter();
        let is_variable = |name: &str| name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
        // With an image, these are the variables set inside it.
        let inside = entry.attempt().facts.get("image.variables").and_then(Value::as_table);
        let inside = inside.into_iter().flatten();
        let variables: Vec<(&String, &Value)> = facts.chain(inside).filter(|(name, _)| is_variable(name)).collect();
        let describe = |(name, value): (&String, &Value)| {
            self.property(&format!("#variable-{short}-{}", fragment(name)), name, value, None)
        };
        Value::List(variables.into_iter().map(describe).collect())
    }

    fn image(&mut self, entry: &Entry) -> Option<Value> {
        let facts = &entry.attempt().facts;
        let sha256 = facts.get("image.sha256")?.as_str()?;
        let path = facts.get("image.path").and_then(Value::as_str).unwrap_or_default();
        let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let id = format!("#image-{}", sha256.get(..16)?);
        let kind = reference(&format!("{TERMS}SIFImage"));
        let fields = [("name", name.into()), ("sha256", sha256.into()), ("additionalType", kind)];
        Some(self.describe(&id, "ContainerImage", fields))
    }

    /// Describes the crate itself, and the metadata file.
    fn root(&mut self) {
        let about = self.about.clone();
        let experiments: Vec<&str> = self.experiments.iter().map(String::as_str).collect();
        let name = format!("Runs of {}", experiments.join(", "));
        let attempts = self.actions.len();
        let parts: Vec<Value> = self.parts.iter().map(|path| reference(&path.display().to_string())).collect();
        let actions: Vec<Value> = self.actions.iter().map(|id| reference(id)).collect();
        let license = match &about.license {
            Some(url) => self.describe(url, "CreativeWork", [("name", url.as_str().into())]),
            None => {
                let text = "No licence was stated: ask whoever made this crate.";
                self.describe("#license", "CreativeWork", [("name", "not stated".into()), ("description", text.into())])
            }
        };
        let profile = [("name", "Process Run Crate".into()), ("version", "0.5".into())];
        let profile = self.describe(PROFILE, "CreativeWork", profile);
        let mut fields = vec![
            ("name", name.into()),
            (
                "description",
                format!("{} of deep-learning runs with their records, curves and sources", count(attempts, "attempt"))
                    .into(),
            ),
            ("datePublished", moment(about.unix_ms).into()),
            ("license", license),
            ("conformsTo", profile),
            ("hasPart", parts.into()),
            ("mentions", actions.into()),
        ];
        if let Some(author) = &about.author {
            fields.push(("author", self.person(author)));
        }
        self.describe("./", "Dataset", fields);
        let descriptor = [("conformsTo", reference(SPECIFICATION)), ("about", reference("./"))];
        self.describe("ro-crate-metadata.json", "CreativeWork", descriptor);
    }
}

fn table<const N: usize>(pairs: [(&str, Value); N]) -> Value {
    Value::Table(pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn reference(id: &str) -> Value {
    table([("@id", id.into())])
}

/// Formats a time in ISO 8601 with a numeric offset, which the profile's validator requires.
fn moment(unix_ms: i64) -> String {
    iso_ms(unix_ms).replace('Z', "+00:00")
}

/// Encodes a text as a part of an identifier.
fn fragment(text: &str) -> String {
    percent(text, b"")
}
