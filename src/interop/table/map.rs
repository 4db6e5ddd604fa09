//! The map of a foreign table: which column is which field and metric, what follows from several, and which rows cannot be right.
//!
//! A TOML file. Every fault has its line and column.

use super::cell::{Kind, Template};
use crate::interop::moment::unix_ns;
use crate::interop::rows::{ImportError, shown};
use crate::manifest::{Content, Faults, Key, ManifestError, Node, parse_document};
use crate::record::{Digest, Unit, known_metric, known_units};
use std::path::{Path, PathBuf};

/// What becomes of a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Map {
    pub(super) path: PathBuf,
    pub(super) digest: Digest,
    pub(super) name: String,
    pub(super) description: Option<String>,
    /// When the results were made, in milliseconds since the Unix epoch, where no column says so.
    pub(super) date_ms: Option<i64>,
    pub(super) started: Option<Template>,
    pub(super) device: Option<Template>,
    pub(super) seed: Option<Template>,
    pub(super) separator: u8,
    pub(super) condition: Option<String>,
    pub(super) fields: Vec<FieldRule>,
    pub(super) metrics: Vec<MetricRule>,
    pub(super) join: Option<JoinRule>,
    pub(super) taints: Vec<TaintRule>,
}

/// How a field of a run is made.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FieldRule {
    pub(super) name: String,
    pub(super) template: Template,
    pub(super) kind: Option<Kind>,
    pub(super) units: Option<(Unit, Unit)>,
}

/// How a metric is made.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MetricRule {
    pub(super) name: String,
    pub(super) from: Origin,
    /// The unit in which it is kept.
    pub(super) unit: String,
    /// From the unit that it is given in to that one.
    pub(super) units: Option<(Unit, Unit)>,
}

/// Where a metric comes from.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Origin {
    Cell(Template),
    Formula(String),
}

/// Another table whose rows belong to those of the first.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct JoinRule {
    pub(super) file: String,
    pub(super) on: Vec<String>,
    pub(super) condition: Option<String>,
}

/// When a row cannot be right.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TaintRule {
    pub(super) when: String,
    pub(super) reason: String,
}

impl Map {
    /// Reads and checks a map.
    pub(super) fn read(path: &Path) -> Result<Self, ImportError> {
        let unreadable = |source| ImportError::Unreadable { path: path.to_owned(), source };
        let bytes = std::fs::read(path).map_err(unreadable)?;
        let text = String::from_utf8(bytes).map_err(|_| {
            ImportError::Refused(format!("`{}` is not UTF-8 text (a map is a TOML file)", path.display()))
        })?;
        Self::parse(&text, path)
    }

    pub(super) fn parse(text: &str, path: &Path) -> Result<Self, ImportError> {
        let mut reader = Reader { text, faults: Faults::default() };
        let map = match parse_document(text) {
            Ok(root) => reader.map(&root, path),
            Err((span, message)) => {
                reader.faults.add(span.start, format!("this is not TOML: {message}"));
                None
            }
        };
        match map.filter(|_| reader.faults.is_empty()) {
            Some(map) => Ok(map),
            None => {
                let faults = reader.faults.placed(&path.display().to_string(), text);
                Err(ImportError::Map(ManifestError::Invalid { faults }))
            }
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    faults: Faults,
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
    "name, description, date, started, device, seed, separator, where, [fields], [metrics], [join], [[taint]]";

impl Reader<'_> {
    fn fault(&mut self, at: usize, message: impl Into<String>) {
        self.faults.add(at, message);
    }

    fn map(&mut self, root: &Node, path: &Path) -> Option<Map> {
        let mut map = Map {
            path: path.to_owned(),
            digest: Digest::of(self.text.as_bytes()),
            name: path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default(),
            description: None,
            date_ms: None,
            started: None,
            device: None,
            seed: None,
            separator: b',',
            condition: None,
            fields: Vec::new(),
            metrics: Vec::new(),
            join: None,
            taints: Vec::new(),
        };
        let Content::Table(entries) = &root.content else { return None };
        let mut named = Named::default();
        for (key, node) in entries {
            match key.text.as_str() {
                "name" => map.name = self.word(key, node)?,
                "description" => map.description = self.word(key, node),
                "date" => {
                    named.date = true;
                    map.date_ms = self.date(node);
                }
                "started" => {
                    named.date = true;
                    let made = self.template(key, node);
                    let is_moment = |text: &str| unix_ns(text.as_bytes()).is_some();
                    map.started = self.fixed(made, (key, node), "moment as 2018-11-08T08:18:55.510Z", is_moment);
                }
                "device" => map.device = self.template(key, node),
                "seed" => {
                    let made = self.template(key, node);
                    let is_seed = |text: &str| text.parse::<u64>().is_ok();
                    map.seed = self.fixed(made, (key, node), "whole number from 0", is_seed);
                }
                "separator" => map.separator = self.separator(node)?,
                "where" => map.condition = self.word(key, node),
                "fields" => self.leaves("", node, &mut |reader, name, node| {
                    named.model |= name.0 == "model.name";
                    let rule = reader.field(name, node);
                    map.fields.extend(rule);
                }),
                "metrics" => self.leaves("", node, &mut |reader, name, node| {
                    named.metric = true;
                    let rule = reader.metric(name, node);
                    map.metrics.extend(rule);
                }),
                "join" => map.join = self.join(node),
                "taint" => map.taints = self.taints(node),
                other => self.fault(key.span.start, format!("unknown key `{other}` (known keys: {KEYS})")),
            }
        }
        self.whole(&named);
        Some(map)
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

    fn date(&mut self, node: &Node) -> Option<i64> {
        let text = match &node.content {
            Content::Text(text) => text.as_str(),
            _ => self.text.get(node.span.clone()).unwrap_or_default(),
        };
        let ns = crate::interop::moment::day_unix_ns(text.as_bytes()).or_else(|| unix_ns(text.as_bytes()));
        if ns.is_none() {
            self.fault(
                node.span.start,
                "date is no day and no moment (write it as 2024-05-31 or 2024-05-31T12:00:00Z)",
            );
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
    ) -> Option<Template> {
        if let Some(Template::Constant(value)) = &made
            && !is_one(&value.to_string())
        {
            let (key, value) = (&key.text, shown(value.to_string().as_bytes()));
            let message = format!("`{key}` is `{value}`, which is no {kind} (a column is written as \"{{{value}}}\")");
            self.fault(node.span.start, message);
        }
        made
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

    fn field(&mut self, (name, key): (String, &Key), node: &Node) -> Option<FieldRule> {
        let Content::Table(entries) = &node.content else {
            let template = self.template(key, node)?;
            return Some(FieldRule { name, template, kind: None, units: None });
        };
        let (mut template, mut kind, mut unit, mut to) = (None, None, None, None);
        for (key, node) in entries {
            match key.text.as_str() {
                "value" => template = self.template(key, node),
                "type" => kind = self.kind(key, node),
                "unit" => unit = self.unit(key, node),
                "to" => to = self.unit(key, node),
                other => {
                    self.fault(key.span.start, format!("unknown key `{other}` (a field has value, type, unit and to)"))
                }
            }
        }
        let units = match (unit, to) {
            (None, None) => None,
            (Some((from, _)), Some((to, _))) if from.fits(to) => Some((from, to)),
            (Some(_), Some(_)) => {
                self.fault(node.span.start, "unit and to measure different things");
                None
            }
            _ => {
                self.fault(node.span.start, "a field is converted with both, unit and to");
                None
            }
        };
        Some(FieldRule { name, template: template?, kind, units })
    }

    fn kind(&mut self, key: &Key, node: &Node) -> Option<Kind> {
        let word = self.word(key, node)?;
        let kind = Kind::named(&word);
        if kind.is_none() {
            self.fault(node.span.start, format!("type `{word}` is unknown (there are int, real, bool and text)"));
        }
        kind
    }

    fn unit(&mut self, key: &Key, node: &Node) -> Option<(Unit, String)> {
        let Content::Text(name) = &node.content else {
            self.fault(node.span.start, format!("`{}` must be text", key.text));
            return None;
        };
        let unit = Unit::named(name);
        if unit.is_none() {
            self.fault(node.span.start, format!("unit `{name}` is unknown (known ones: {})", known_units()));
        }
        Some((unit?, name.clone()))
    }

    fn metric(&mut self, (name, key): (String, &Key), node: &Node) -> Option<MetricRule> {
        let (mut from, mut unit, mut to) = (None, None, None);
        match &node.content {
            Content::Table(entries) => {
                for (key, node) in entries {
                    match key.text.as_str() {
                        "value" => from = self.template(key, node).map(Origin::Cell),
                        "formula" => from = self.word(key, node).map(Origin::Formula),
                        "unit" => unit = Some(self.unit(key, node)?),
                        "to" => to = Some(self.unit(key, node)?),
                        other => {
                            let message = format!("unknown key `{other}` (a metric has value or formula, unit and to)");
                            self.fault(key.span.start, message);
                        }
                    }
                }
            }
            _ => from = self.template(key, node).map(Origin::Cell),
        }
        if let Some(Origin::Cell(template)) = &from
            && !template.is_one_value()
        {
            self.fault(node.span.start, format!("`{name}` must be one column, as \"{{column}}\", or a number"));
        }
        let known = known_metric(&name).and_then(|known| Some((Unit::named(known.unit)?, known.unit.to_owned())));
        let given = unit.clone().or_else(|| known.clone());
        if let (Some((to, said)), Some((own, kept))) = (&to, &known)
            && to != own
        {
            self.fault(node.span.start, format!("`{name}` is kept in `{kept}`, not in `{said}` (leave out `to`)"));
            return None;
        }
        let kept = known.or(to).or(unit);
        let (unit, units) = match (given, kept) {
            (Some((from, _)), Some((to, name))) if from.fits(to) => (name, Some((from, to))),
            (Some((_, from)), Some((_, to))) => {
                self.fault(node.span.start, format!("`{name}` is kept in `{to}`, but is given in `{from}`"));
                return None;
            }
            _ => (String::new(), None),
        };
        Some(MetricRule { name, from: from?, unit, units })
    }

    fn join(&mut self, node: &Node) -> Option<JoinRule> {
        let Content::Table(entries) = &node.content else {
            self.fault(node.span.start, "`join` must be a table, [join]");
            return None;
        };
        let (mut file, mut on, mut condition) = (None, Vec::new(), None);
        for (key, node) in entries {
            match key.text.as_str() {
                "file" => file = self.word(key, node),
                "where" => condition = self.word(key, node),
                "on" => match &node.content {
                    Content::List(items) => on = items.iter().filter_map(|item| self.word(key, item)).collect(),
                    _ => self.fault(node.span.start, "`on` must be a list of columns"),
                },
                other => self.fault(key.span.start, format!("unknown key `{other}` (join has file, on and where)")),
            }
        }
        if file.is_none() || on.is_empty() {
            self.fault(node.span.start, "join needs a file and the columns that both have: on = [\"column\"]");
        }
        Some(JoinRule { file: file?, on, condition })
    }

    fn taints(&mut self, node: &Node) -> Vec<TaintRule> {
        let Content::List(items) = &node.content else {
            self.fault(node.span.start, "`taint` must be a list of tables, [[taint]]");
            return Vec::new();
        };
        let mut rules = Vec::new();
        for item in items {
            let (mut when, mut reason) = (None, None);
            if let Content::Table(entries) = &item.content {
                for (key, node) in entries {
                    match key.text.as_str() {
                        "when" => when = self.word(key, node),
                        "reason" => reason = self.word(key, node),
                        other => {
                            self.fault(key.span.start, format!("unknown key `{other}` (a taint has when and reason)"))
                        }
                    }
                }
            }
            match (when, reason) {
                (Some(when), Some(reason)) => rules.push(TaintRule { when, reason }),
                _ => self.fault(item.span.start, "a taint needs both, when and reason"),
            }
        }
        rules
    }
}
