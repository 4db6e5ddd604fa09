//! The map of a foreign table: which column is which field and metric, what follows from several, and which rows cannot be right.
//!
//! A TOML file. Every fault has its line and column, those too that only the table shows.

mod rules;

use super::cell::{Kind, Template};
use crate::interop::moment::{day_unix_ns, unix_ms, unix_ns};
use crate::interop::rows::{ImportError, shown};
use crate::manifest::{Content, Faults, Field, Key, ManifestError, Node, nearest, parse_document};
use crate::record::{Digest, MetricKind, Unit};
use std::path::{Path, PathBuf};

/// What becomes of a table.
#[derive(Clone, Debug)]
pub(super) struct Map {
    pub(super) path: PathBuf,
    pub(super) digest: Digest,
    pub(super) name: String,
    pub(super) description: Option<String>,
    /// When the results were made, in milliseconds since the Unix epoch, where no column says so.
    pub(super) date_ms: Option<i64>,
    pub(super) started: Option<Placed<Template>>,
    pub(super) device: Option<Placed<Template>>,
    /// The GPU or host by whose sensors a row was measured.
    pub(super) machine: Option<Placed<Template>>,
    pub(super) seed: Option<Placed<Template>>,
    pub(super) separator: u8,
    pub(super) condition: Option<Placed<String>>,
    pub(super) fields: Vec<FieldRule>,
    pub(super) metrics: Vec<MetricRule>,
    pub(super) join: Option<JoinRule>,
    pub(super) taints: Vec<TaintRule>,
    /// Fields and metrics that have a fault of their own, so that others may name them.
    pub(super) faulty: Vec<String>,
    /// What is allowed and may be a mistake all the same.
    pub(super) notes: Vec<String>,
}

/// A part of the map and its first byte.
#[derive(Clone, Debug)]
pub(super) struct Placed<T> {
    pub(super) value: T,
    pub(super) at: usize,
}

/// How a field of a run is made.
#[derive(Clone, Debug)]
pub(super) struct FieldRule {
    pub(super) name: String,
    pub(super) template: Template,
    pub(super) at: usize,
    pub(super) kind: Option<Kind>,
    pub(super) units: Option<(Unit, Unit)>,
    /// The field of manifests that has this name.
    pub(super) standard: Option<&'static Field>,
}

/// How a metric is made.
#[derive(Clone, Debug)]
pub(super) struct MetricRule {
    pub(super) name: String,
    pub(super) from: Origin,
    pub(super) at: usize,
    /// The unit in which it is kept.
    pub(super) unit: String,
    /// From the unit that it is given in to that one.
    pub(super) units: Option<(Unit, Unit)>,
    /// Whether it is an outcome or measured, where the map says so.
    pub(super) kind: Option<MetricKind>,
}

/// Where a metric comes from.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Origin {
    Cell(Template),
    Formula(String),
}

/// Another table whose rows belong to those of the first.
#[derive(Clone, Debug)]
pub(super) struct JoinRule {
    pub(super) file: String,
    pub(super) on: Vec<Placed<String>>,
    pub(super) condition: Option<Placed<String>>,
}

impl JoinRule {
    /// The columns that both tables have.
    pub(super) fn columns(&self) -> Vec<String> {
        self.on.iter().map(|column| column.value.clone()).collect()
    }
}

/// When a row cannot be right.
#[derive(Clone, Debug)]
pub(super) struct TaintRule {
    pub(super) when: Placed<String>,
    pub(super) reason: String,
}

/// A map while its faults are found: first its own, then those that its tables show.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) map: Map,
    pub(super) faults: Faults,
    text: String,
}

impl Draft {
    /// Reads a map.
    ///
    /// # Errors
    /// A file that cannot be read, and text that is not TOML.
    pub(super) fn read(path: &Path) -> Result<Self, ImportError> {
        let unreadable = |source| ImportError::Unreadable { path: path.to_owned(), source };
        let bytes = std::fs::read(path).map_err(unreadable)?;
        let text = String::from_utf8(bytes).map_err(|_| {
            ImportError::Refused(format!("`{}` is not UTF-8 text (a map is a TOML file)", path.display()))
        })?;
        let mut reader = Reader { text: &text, faults: Faults::default(), notes: Vec::new() };
        let map = match parse_document(&text) {
            Ok(root) => reader.map(&root, path),
            Err((span, message)) => {
                reader.faults.add(span.start, format!("this is not TOML: {message}"));
                return Err(placed(reader.faults, path, &text));
            }
        };
        let Reader { faults, .. } = reader;
        Ok(Self { map, faults, text })
    }

    /// Nothing if the map has no faults of its own.
    ///
    /// # Errors
    /// All of them, with their places.
    pub(super) fn check(&mut self) -> Result<(), ImportError> {
        let faults = std::mem::take(&mut self.faults);
        self.refuse(faults)
    }

    /// Nothing if there are no faults.
    ///
    /// # Errors
    /// All of them, with their places.
    pub(super) fn refuse(&self, faults: Faults) -> Result<(), ImportError> {
        if faults.is_empty() { Ok(()) } else { Err(placed(faults, &self.map.path, &self.text)) }
    }
}

fn placed(faults: Faults, path: &Path, text: &str) -> ImportError {
    ImportError::Map(ManifestError::Invalid { faults: faults.placed(&path.display().to_string(), text) })
}

struct Reader<'a> {
    text: &'a str,
    faults: Faults,
    notes: Vec<String>,
}

/// Which of what every map has is named in one, rightly or not.
#[derive(Default)]
struct Named {
    model: bool,
    metric: bool,
    date: bool,
}

/// What is done with a named value of a map.
type Each<'a, Reader> = dyn FnMut(&mut Reader, (String, &Key), &Node) + 'a;

const KEYS: &str =
    "name, description, date, started, device, machine, seed, separator, where, [fields], [metrics], [join], [[taint]]";

/// The same as they are written.
const WORDS: [&str; 13] = [
    "name",
    "description",
    "date",
    "started",
    "device",
    "machine",
    "seed",
    "separator",
    "where",
    "fields",
    "metrics",
    "join",
    "taint",
];

/// A key that there is not: the one that was probably meant, else what there is.
fn unknown(key: &str, known: &[&str], listed: &str) -> String {
    match nearest(key, known.iter().copied()) {
        Some(meant) => format!("unknown key `{key}` (did you mean `{meant}`?)"),
        None => format!("unknown key `{key}` ({listed})"),
    }
}

impl Reader<'_> {
    fn fault(&mut self, at: usize, message: impl Into<String>) {
        self.faults.add(at, message);
    }

    fn map(&mut self, root: &Node, path: &Path) -> Map {
        let mut map = Map {
            path: path.to_owned(),
            digest: Digest::of(self.text.as_bytes()),
            name: path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default(),
            description: None,
            date_ms: None,
            started: None,
            device: None,
            machine: None,
            seed: None,
            separator: b',',
            condition: None,
            fields: Vec::new(),
            metrics: Vec::new(),
            join: None,
            taints: Vec::new(),
            faulty: Vec::new(),
            notes: Vec::new(),
        };
        let Content::Table(entries) = &root.content else { return map };
        let mut named = Named::default();
        for (key, node) in entries {
            match key.text.as_str() {
                "name" => map.name = self.word(key, node).unwrap_or_default(),
                "description" => map.description = self.word(key, node),
                "date" => {
                    named.date = true;
                    map.date_ms = self.date(node);
                }
                "started" => {
                    named.date = true;
                    let made = self.template(key, node);
                    let is_moment = |text: &str| unix_ms(text).is_some();
                    map.started = self.fixed(made, (key, node), "moment as 2018-11-08T08:18:55.510Z", is_moment);
                }
                "device" | "machine" => {
                    let named = if key.text == "device" { &mut map.device } else { &mut map.machine };
                    *named = self.template(key, node).map(|value| Placed { value, at: node.span.start });
                }
                "seed" => {
                    let made = self.template(key, node);
                    let is_seed = |text: &str| text.parse::<u64>().is_ok();
                    map.seed = self.fixed(made, (key, node), "whole number from 0", is_seed);
                }
                "separator" => map.separator = self.separator(node).unwrap_or(b','),
                "where" => map.condition = self.condition(key, node),
                "fields" => self.leaves("", node, &mut |reader, name, node| {
                    named.model |= name.0 == "model.name";
                    let called = name.0.clone();
                    match reader.field(name, node) {
                        Some(rule) => map.fields.push(rule),
                        None => map.faulty.push(called),
                    }
                }),
                "metrics" => self.leaves("", node, &mut |reader, name, node| {
                    named.metric = true;
                    let called = name.0.clone();
                    match reader.metric(name, node) {
                        Some(rule) => map.metrics.push(rule),
                        None => map.faulty.push(called),
                    }
                }),
                "join" => map.join = self.join(node),
                "taint" => map.taints = self.taints(node),
                other => self.fault(key.span.start, unknown(other, &WORDS, &format!("known keys: {KEYS}"))),
            }
        }
        self.whole(&named);
        map.notes = std::mem::take(&mut self.notes);
        map
    }

    /// What every map has. What is there and faulty has a fault of its own.
    fn whole(&mut self, named: &Named) {
        if !named.model {
            self.fault(0, "fields.model.name is missing (give it a name, or a column as \"{column}\")");
        }
        if !named.metric {
            self.fault(0, "[metrics] is missing (name at least one metric)");
        }
        if !named.date {
            self.fault(
                0,
                "date is missing (the day on which the results were made, as 2024-05-31; or started = \"{column}\")",
            );
        }
    }

    fn word(&mut self, key: &Key, node: &Node) -> Option<String> {
        match &node.content {
            Content::Text(text) if !text.trim().is_empty() => Some(text.clone()),
            _ => {
                self.fault(node.span.start, format!("`{}` must be text", key.text));
                None
            }
        }
    }

    fn condition(&mut self, key: &Key, node: &Node) -> Option<Placed<String>> {
        self.word(key, node).map(|value| Placed { value, at: node.span.start })
    }

    fn date(&mut self, node: &Node) -> Option<i64> {
        let text = match &node.content {
            Content::Text(text) => text.as_str(),
            _ => self.text.get(node.span.clone()).unwrap_or_default(),
        };
        let ns = day_unix_ns(text.as_bytes()).or_else(|| unix_ns(text.as_bytes()));
        if ns.is_none() {
            self.fault(node.span.start, "date is not a day or a time (write it as 2024-05-31 or 2024-05-31T12:00:00Z)");
        }
        Some(ns?.div_euclid(1_000_000))
    }

    fn separator(&mut self, node: &Node) -> Option<u8> {
        if let Content::Text(text) = &node.content
            && let [byte] = text.as_bytes()
        {
            return Some(*byte);
        }
        self.fault(node.span.start, "separator must be one character, such as \";\"");
        None
    }

    fn template(&mut self, key: &Key, node: &Node) -> Option<Template> {
        let parsed = match &node.content {
            Content::Text(text) => Template::parse(text),
            Content::Int(Some(number)) => {
                i64::try_from(*number).map(Template::from).map_err(|_| "it is too large".to_owned())
            }
            Content::Float(number) => Ok(Template::from(*number)),
            Content::Bool(value) => Ok(Template::from(*value)),
            _ => Err(format!("it is {} (it must be text, a number or a truth value)", node.describe())),
        };
        parsed.map_err(|message| self.fault(node.span.start, format!("`{}`: {message}", key.text))).ok()
    }

    /// The template, which, if it names no column, has to be of that kind itself.
    fn fixed(
        &mut self,
        made: Option<Template>,
        (key, node): (&Key, &Node),
        kind: &str,
        is_one: impl Fn(&str) -> bool,
    ) -> Option<Placed<Template>> {
        if let Some(Template::Constant(value)) = &made
            && !is_one(&value.to_string())
        {
            let (key, value) = (&key.text, shown(value.to_string().as_bytes()));
            let message = format!("`{key}` is `{value}`, which is no {kind} (a column is written as \"{{{value}}}\")");
            self.fault(node.span.start, message);
            return None;
        }
        made.map(|value| Placed { value, at: node.span.start })
    }

    /// Calls with each key that is no table, or a table that says how a value is made, by its dotted name.
    fn leaves(&mut self, prefix: &str, node: &Node, each: &mut Each<'_, Self>) {
        let Content::Table(entries) = &node.content else {
            self.fault(node.span.start, format!("this is {} (it must be a table)", node.describe()));
            return;
        };
        for (key, node) in entries {
            let name = if prefix.is_empty() { key.text.clone() } else { format!("{prefix}.{}", key.text) };
            let is_rule =
                |entries: &[(Key, Node)]| entries.iter().any(|(key, _)| key.text == "value" || key.text == "formula");
            match &node.content {
                Content::Table(entries) if !is_rule(entries) => self.leaves(&name, node, each),
                _ => each(self, (name, key), node),
            }
        }
    }
}
