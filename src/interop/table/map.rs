//! The map of a foreign table: the fields and metrics of columns, derived values, and conditions for implausible rows.
//!
//! It is a TOML file. Every fault has its line and column, including those that only the table shows.

mod rules;

use super::cell::{Kind, Template};
use crate::interop::moment::{day_unix_ns, unix_ms, unix_ns};
use crate::interop::rows::{ImportError, shown};
use crate::manifest::{Content, Faults, Field, Key, ManifestError, Node, nearest, parse_document};
use crate::record::{Digest, MetricKind, Unit};
use std::path::{Path, PathBuf};

/// The rules that turn a table into runs.
#[derive(Clone, Debug)]
pub(super) struct Map {
    pub(super) path: PathBuf,
    pub(super) digest: Digest,
    pub(super) name: String,
    pub(super) description: Option<String>,
    /// The date of the results in ms since the Unix epoch, if no column has it.
    pub(super) date_ms: Option<i64>,
    pub(super) started: Option<Placed<Template>>,
    pub(super) device: Option<Placed<Template>>,
    /// The GPU or host whose sensors measured a row.
    pub(super) machine: Option<Placed<Template>>,
    pub(super) seed: Option<Placed<Template>>,
    pub(super) separator: u8,
    pub(super) condition: Option<Placed<String>>,
    pub(super) fields: Vec<FieldRule>,
    pub(super) metrics: Vec<MetricRule>,
    pub(super) join: Option<JoinRule>,
    pub(super) taints: Vec<TaintRule>,
    /// Fields and metrics with a fault of their own. Other rules may refer to them.
    pub(super) faulty: Vec<String>,
    /// Notes on valid parts that may be mistakes.
    pub(super) notes: Vec<String>,
}

/// A part of the map, and the position of its first byte.
#[derive(Clone, Debug)]
pub(super) struct Placed<T> {
    pub(super) value: T,
    pub(super) at: usize,
}

/// The rule for a field of a run.
#[derive(Clone, Debug)]
pub(super) struct FieldRule {
    pub(super) name: String,
    pub(super) template: Template,
    pub(super) at: usize,
    pub(super) kind: Option<Kind>,
    pub(super) units: Option<(Unit, Unit)>,
    /// The field of manifests with this name.
    pub(super) standard: Option<&'static Field>,
}

/// The rule for a metric.
#[derive(Clone, Debug)]
pub(super) struct MetricRule {
    pub(super) name: String,
    pub(super) from: Origin,
    pub(super) at: usize,
    /// The unit in which it is stored.
    pub(super) unit: String,
    /// The given unit and the stored one, for the conversion.
    pub(super) units: Option<(Unit, Unit)>,
    /// Whether it is an outcome or measured, if the map states it.
    pub(super) kind: Option<MetricKind>,
}

/// The source of a metric.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Origin {
    Cell(Template),
    Formula(String),
}

/// Another table whose rows are joined with those of the first.
#[derive(Clone, Debug)]
pub(super) struct JoinRule {
    pub(super) file: String,
    pub(super) on: Vec<Placed<String>>,
    pub(super) condition: Option<Placed<String>>,
}

impl JoinRule {
    /// Returns the columns that both tables have.
    pub(super) fn columns(&self) -> Vec<String> {
        self.on.iter().map(|column| column.value.clone()).collect()
    }
}

/// The condition for an implausible row.
#[derive(Clone, Debug)]
pub(super) struct TaintRule {
    pub(super) when: Placed<String>,
    pub(super) reason: String,
}

/// A map while its faults are collected: first its own, then those that its tables show.
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
    /// If the file cannot be read, or is not TOML.
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

    /// Checks that the map has no faults of its own.
    ///
    /// # Errors
    /// All faults, with their places.
    pub(super) fn check(&mut self) -> Result<(), ImportError> {
        let faults = std::mem::take(&mut self.faults);
        self.refuse(faults)
    }

    /// Checks that there are no faults.
    ///
    /// # Errors
    /// All faults, with their places.
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

/// The required entries that a map contains, valid or not.
#[derive(Default)]
struct Named {
    model: bool,
    metric: bool,
    date: bool,
}

/// A function that handles a named value of a map.
type Each<'a, Reader> = dyn FnMut(&mut Reader, (String, &Key), &Node) + 'a;

const KEYS: &str =
    "name, description, date, started, device, machine, seed, separator, where, [fields], [metrics], [join], [[taint]]";

/// Returns the message for an unknown key: with the one that was probably meant, or else the known ones.
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
                other => {
                    let known: Vec<&str> = KEYS.split(", ").map(|key| key.trim_matches(['[', ']'])).collect();
                    self.fault(key.span.start, unknown(other, &known, &format!("known keys: {KEYS}")));
                }
            }
        }
        self.whole(&named);
        map.notes = std::mem::take(&mut self.notes);
        map
    }

    /// Reports missing required entries. Faulty ones have a fault of their own.
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
                let number = i64::try_from(*number).map_err(|_| "it is too large".to_owned());
                number.map(|number| Template::Constant(number.into()))
            }
            Content::Float(number) => Ok(Template::Constant((*number).into())),
            Content::Bool(value) => Ok(Template::Constant((*value).into())),
            _ => Err(format!("it is {} (it must be text, a number or a truth value)", node.describe())),
        };
        parsed.map_err(|message| self.fault(node.span.start, format!("`{}`: {message}", key.text))).ok()
    }

    /// Returns the template. If it names no column, it must be a value of this kind itself.
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

    /// Calls `each` with the dotted name of each key whose value is not a table, or is a table with a rule.
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
