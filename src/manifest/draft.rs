//! Walks a parsed document: checks every key against the field table and every value, without combining them.

use super::check::{Checker, unknown_key};
use super::document::{Content, Key, Node};
use super::fault::{Faults, shown};
use super::field::{Field, Kind};
use super::pattern::MetricPattern;
use super::program::ProgramIdentity;
use super::table::{field, sections};
use crate::record::{Digest, Table, Value};
use std::collections::{BTreeMap, BTreeSet};

/// A metric that no pattern may define.
const WALL_TIME: &str = "wall_time";

/// Most parameters, and most entries of each list of the grid. More would be too many to combine.
const MOST_ENTRIES: usize = 100;

/// One value given in the manifest.
pub(super) struct Item {
    /// `None` if it is faulty, so that no follow-up faults are reported.
    pub(super) value: Option<Value>,
    /// Its byte offset.
    pub(super) at: usize,
}

/// A key given in the manifest, with its values.
pub(super) struct Given {
    /// Dotted name.
    pub(super) name: String,
    pub(super) field: &'static Field,
    /// Byte offset of the key.
    pub(super) at: usize,
    /// Never empty.
    pub(super) items: Vec<Item>,
    /// Whether it was written as a list.
    pub(super) listed: bool,
    /// Repeated values: position and text.
    twice: Vec<(usize, String)>,
}

/// An entry of `grid.include` or `grid.exclude`, or a group of `grid.zip`.
pub(super) struct Entry {
    pub(super) at: usize,
    /// Indices in [`Draft::given`].
    pub(super) given: Vec<usize>,
}

/// The texts of the command and of the files, each with its byte offset.
pub(super) struct ProgramText {
    pub(super) command: Vec<(String, usize)>,
    pub(super) files: Vec<(String, usize)>,
    pub(super) identity: ProgramIdentity,
    /// Patterns by metric name, as parsed by [`MetricPattern`].
    pub(super) metrics: Table,
}

/// A checked document, before its values are combined.
#[derive(Default)]
pub(super) struct Draft {
    /// Every key with its values, including those of entries.
    pub(super) given: Vec<Given>,
    /// Indices of the keys outside the grid's entries.
    pub(super) base: Vec<usize>,
    pub(super) zip: Vec<Entry>,
    pub(super) include: Vec<Entry>,
    pub(super) exclude: Vec<Entry>,
    pub(super) program: Option<ProgramText>,
    /// Byte offsets of the tables' headers.
    pub(super) sections: BTreeMap<&'static str, usize>,
    /// Whether the grid's shape is too faulty to be expanded.
    pub(super) shapeless: bool,
    /// Unknown keys and the keys in unknown tables. A placeholder that ends in such a name is not reported again.
    pub(super) unknown: BTreeSet<String>,
}

impl Draft {
    fn add_unknown(&mut self, node: &Node) {
        if let Content::Table(members) = &node.content {
            self.unknown.extend(members.iter().map(|(key, _)| key.text.clone()));
        }
    }

    /// Returns the index of a key outside the grid's entries.
    pub(super) fn base_of(&self, name: &str) -> Option<usize> {
        self.base.iter().copied().find(|place| self.given[*place].name == name)
    }

    /// Returns the first value of a key outside the grid's entries, and its position.
    pub(super) fn single(&self, name: &str) -> Option<(&Value, usize)> {
        let item = self.given[self.base_of(name)?].items.first()?;
        Some((item.value.as_ref()?, item.at))
    }
}

/// Most bytes of a metric's name.
const MOST_NAME_BYTES: usize = 256;

/// Converts a node to a value, whatever its meaning.
fn plain(node: &Node) -> Value {
    match &node.content {
        Content::Bool(value) => Value::Bool(*value),
        Content::Int(number) => Value::Int(number.and_then(|number| i64::try_from(number).ok()).unwrap_or(i64::MAX)),
        Content::Float(number) => Value::Float(*number),
        Content::Text(text) => text.as_str().into(),
        Content::Date => "a date".into(),
        Content::List(items) => Value::List(items.iter().map(plain).collect()),
        Content::Table(entries) => {
            Value::Table(entries.iter().map(|(key, node)| (key.text.clone(), plain(node))).collect())
        }
    }
}

/// Walks the document and adds what is wrong to `faults`.
pub(super) fn read(root: &Node, text: &str, faults: &mut Faults) -> Draft {
    let Content::Table(entries) = &root.content else { return Draft::default() };
    let program = entries.iter().any(|(key, _)| key.text == "program");
    let mut reader =
        Reader { check: Checker { text, program }, faults, draft: Draft::default(), meant: BTreeSet::new() };
    let mut grid = None;
    for (key, node) in entries {
        let section = sections().into_iter().find(|section| *section == key.text);
        match (section, &node.content) {
            (None, _) => reader.base(key.text.clone(), key, node),
            // `repeats` is the only name that can be a key or a table.
            (Some("repeats"), content) if !matches!(content, Content::Table(_)) => {
                reader.base(key.text.clone(), key, node);
            }
            (Some(section), Content::Table(inner)) => {
                reader.draft.sections.insert(section, node.span.start);
                match section {
                    "grid" => grid = Some(inner),
                    "program" => reader.program(inner, node),
                    "params" if inner.len() > MOST_ENTRIES => {
                        let found = inner.len();
                        let message = format!("[params] has {found} parameters (at most {MOST_ENTRIES} are allowed)");
                        reader.faults.add(node.span.start, message);
                        reader.draft.shapeless = true;
                    }
                    _ => inner.iter().for_each(|(key, node)| reader.base(format!("{section}.{}", key.text), key, node)),
                }
            }
            (Some(section), _) => {
                reader.draft.sections.insert(section, key.span.start);
                let found = reader.check.found(node);
                reader.faults.add(node.span.start, format!("`{section}` is {found} (it must be a table, [{section}])"));
                let inner =
                    super::table::FIELDS.iter().filter(|field| field.section() == section && field.is_of_cell());
                reader.meant.extend(inner.map(|field| field.key));
            }
        }
    }
    if let (Some(at), false) = (reader.draft.sections.get("params"), program) {
        reader
            .faults
            .add(*at, "[params] has no effect without [program] (remove it, or add the program that takes it)");
    }
    reader.place_meant();
    if let Some(grid) = grid {
        reader.grid(grid);
    }
    reader.without_doubles();
    reader.draft
}

struct Reader<'a> {
    check: Checker<'a>,
    faults: &'a mut Faults,
    draft: Draft,
    /// Keys that a misspelt key probably meant; they are not reported as missing.
    meant: BTreeSet<&'static str>,
}

impl Reader<'_> {
    fn base(&mut self, name: String, key: &Key, node: &Node) {
        if let Some(given) = self.given(name, key, node, false) {
            self.draft.base.push(self.draft.given.len());
            self.draft.given.push(given);
        }
    }

    /// Reads a key with its values; `None` if it is not a valid field here.
    fn given(&mut self, name: String, key: &Key, node: &Node, in_entry: bool) -> Option<Given> {
        let at = key.span.start;
        let Some(field) = field(&name).filter(|field| field.is_writable() && !matches!(field.kind, Kind::Grid(_)))
        else {
            let (message, meant) = unknown_key(&name);
            self.faults.add(at, message);
            self.meant.extend(meant);
            self.draft.add_unknown(node);
            return None;
        };
        if let Some(parameter) = name.strip_prefix("params.")
            && !is_parameter(parameter)
        {
            let parameter = shown(parameter);
            self.faults
                .add(at, format!("the parameter name `{parameter}` is not allowed (use letters, digits, `_` and `-`)"));
            return None;
        }
        if in_entry && !field.axis {
            self.faults.add(at, format!("{name} holds for the whole manifest (name only keys that can be a list)"));
            return None;
        }
        let mut twice = Vec::new();
        let (items, listed) = match &node.content {
            Content::List(nodes) if field.axis => {
                if nodes.is_empty() {
                    self.faults.add(node.span.start, format!("{name} is an empty list (give at least one value)"));
                }
                (self.axis(&name, field, nodes, &mut twice), true)
            }
            Content::List(_) if !matches!(field.kind, Kind::Texts | Kind::Binds | Kind::Counts { .. }) => {
                self.faults.add(
                    node.span.start,
                    format!("{name} is a list (it holds for the whole manifest: give one value)"),
                );
                (Vec::new(), false)
            }
            _ => (vec![self.item(&name, field, node)], false),
        };
        let items = if items.is_empty() { vec![Item { value: None, at: node.span.start }] } else { items };
        // Repetitions on an axis outside entries are reported later, because a zip may allow them.
        if in_entry {
            told_twice(&name, &std::mem::take(&mut twice), self.faults);
        }
        Some(Given { name, field, at, items, listed, twice })
    }

    fn item(&mut self, name: &str, field: &Field, node: &Node) -> Item {
        let at = node.span.start;
        let value = self.check.scalar(name, field.kind, node).map_err(|message| self.faults.add(at, message)).ok();
        Item { value, at }
    }

    /// Reports repeated values of axes that no zip varies together with others.
    fn without_doubles(&mut self) {
        let zipped = |place: &usize| self.draft.zip.iter().any(|group| group.given.contains(place));
        for place in self.draft.base.iter().filter(|place| !zipped(place)) {
            let given = &self.draft.given[*place];
            told_twice(&given.name, &given.twice, self.faults);
        }
    }

    fn axis(&mut self, name: &str, field: &Field, nodes: &[Node], twice: &mut Vec<(usize, String)>) -> Vec<Item> {
        let mut seen = BTreeSet::<Digest>::new();
        let mut items = Vec::with_capacity(nodes.len());
        for node in nodes {
            let item = self.item(name, field, node);
            if let Some(value) = &item.value
                && !seen.insert(value.digest())
            {
                twice.push((item.at, self.check.found(node)));
            }
            items.push(item);
        }
        items
    }

    /// Adds faulty values for keys that a misspelt key probably meant.
    fn place_meant(&mut self) {
        for key in std::mem::take(&mut self.meant) {
            if let (Some(field), None) = (field(key), self.draft.base_of(key)) {
                let items = vec![Item { value: None, at: 0 }];
                self.draft.base.push(self.draft.given.len());
                let name = key.to_owned();
                self.draft.given.push(Given { name, field, at: 0, items, listed: false, twice: Vec::new() });
            }
        }
    }

    fn program(&mut self, entries: &[(Key, Node)], table: &Node) {
        let mut program = ProgramText {
            command: Vec::new(),
            files: Vec::new(),
            identity: ProgramIdentity::default(),
            metrics: Table::new(),
        };
        let (mut named, mut alone) = (false, None);
        for (key, node) in entries {
            match key.text.as_str() {
                "command" => {
                    named = true;
                    match self.check.texts("program.command", node) {
                        Ok(texts) if texts.first().is_none_or(|(text, _)| text.trim().is_empty()) => {
                            self.faults
                                .add(node.span.start, "program.command is empty (its first item is the program)");
                        }
                        Ok(texts) => {
                            program.command =
                                texts.into_iter().map(|(text, node)| (text.to_owned(), node.span.start)).collect();
                        }
                        Err((at, message)) => self.faults.add(at, message),
                    }
                }
                "files" => match self.check.texts("program.files", node) {
                    Ok(texts) => {
                        for (text, node) in texts {
                            if text.is_empty() {
                                self.faults.add(node.span.start, "program.files names an empty path (remove it)");
                            } else if program.files.iter().any(|(file, _)| file == text) {
                                let file = shown(text);
                                self.faults
                                    .add(node.span.start, format!("program.files names `{file}` twice (remove one)"));
                            } else {
                                program.files.push((text.to_owned(), node.span.start));
                            }
                        }
                    }
                    Err((at, message)) => self.faults.add(at, message),
                },
                "identity" => {
                    match self.check.scalar("program.identity", Kind::Choice(&ProgramIdentity::NAMES), node) {
                        Ok(value) => {
                            let identity = value.as_str().and_then(ProgramIdentity::named).unwrap_or_default();
                            program.identity = identity;
                            alone = Some(node.span.start).filter(|_| identity == ProgramIdentity::Files);
                        }
                        Err(message) => self.faults.add(node.span.start, message),
                    }
                }
                "metrics" => program.metrics = self.metrics(node),
                other => {
                    let (message, meant) = unknown_key(&format!("program.{other}"));
                    self.faults.add(key.span.start, message);
                    self.draft.add_unknown(node);
                    named |= meant == Some("program.command");
                }
            }
        }
        if !named {
            self.faults
                .add(table.span.start, "program.command is missing (give the program and its arguments as a list)");
        }
        if let (Some(at), true) = (alone, program.files.is_empty()) {
            let text = "program.identity is 'files', but program.files names none (list the files of the program)";
            self.faults.add(at, text);
        }
        self.draft.program = Some(program);
    }

    fn metrics(&mut self, node: &Node) -> Table {
        let mut metrics = Table::new();
        let Content::Table(entries) = &node.content else {
            let found = self.check.found(node);
            let message = format!("program.metrics is {found} (it must be a table of patterns by the metrics' names)");
            self.faults.add(node.span.start, message);
            return metrics;
        };
        for (key, node) in entries {
            let name = format!("program.metrics.{}", shown(&key.text));
            if key.text.is_empty() || key.text.len() > MOST_NAME_BYTES {
                let message = format!("{name} is not a metric's name (it must have 1 to {MOST_NAME_BYTES} bytes)");
                self.faults.add(key.span.start, message);
                continue;
            }
            if key.text == WALL_TIME {
                let message = format!(
                    "{name} is measured by ledger, from the start of the program to its end (give the metric another name)"
                );
                self.faults.add(key.span.start, message);
                continue;
            }
            let value = plain(node);
            match MetricPattern::read(&key.text, &value) {
                Ok(_) => drop(metrics.insert(key.text.clone(), value)),
                Err((member, message)) => {
                    let at = match &node.content {
                        Content::Table(inner) => inner.iter().find(|(key, _)| Some(key.text.as_str()) == member),
                        _ => None,
                    };
                    let at = at.map_or(node.span.start, |(_, node)| node.span.start);
                    self.faults.add(at, format!("{name} {message}"));
                }
            }
        }
        metrics
    }

    fn grid(&mut self, entries: &[(Key, Node)]) {
        for (key, node) in entries {
            let expected = match key.text.as_str() {
                "zip" => "a list of lists of keys, such as [[\"seed\", \"training.learning_rate\"]]",
                "include" | "exclude" => "a list of tables, such as [{ model.name = \"softmax\" }]",
                other => {
                    self.faults.add(key.span.start, unknown_key(&format!("grid.{other}")).0);
                    self.draft.shapeless = true;
                    continue;
                }
            };
            let Content::List(items) = &node.content else {
                let found = self.check.found(node);
                self.faults.add(node.span.start, format!("grid.{} is {found} (it must be {expected})", key.text));
                self.draft.shapeless = true;
                continue;
            };
            if items.len() > MOST_ENTRIES {
                let (key, found) = (&key.text, items.len());
                let message = format!("grid.{key} has {found} entries (at most {MOST_ENTRIES} are allowed: use lists)");
                self.faults.add(node.span.start, message);
                self.draft.shapeless = true;
                continue;
            }
            for item in items {
                match (key.text.as_str(), &item.content) {
                    ("zip", Content::List(names)) => self.zip(names, item),
                    (list @ ("include" | "exclude"), Content::Table(_)) => {
                        let Some(entry) = self.entry(list, item) else { continue };
                        let entries = if list == "include" { &mut self.draft.include } else { &mut self.draft.exclude };
                        entries.push(entry);
                    }
                    _ => {
                        let found = self.check.found(item);
                        self.faults
                            .add(item.span.start, format!("grid.{} holds {found} (it must be {expected})", key.text));
                        self.draft.shapeless = true;
                    }
                }
            }
        }
    }

    fn zip(&mut self, names: &[Node], node: &Node) {
        let mut places: Vec<usize> = Vec::new();
        let mut whole = true;
        for name_node in names {
            match self.zipped(name_node, &places) {
                Ok(place) => places.push(place),
                Err(message) => {
                    self.faults.add(name_node.span.start, message);
                    whole = false;
                }
            }
        }
        if whole && places.len() < 2 {
            self.faults.add(node.span.start, "grid.zip has a group of fewer than two axes (name at least two)");
            whole = false;
        }
        let lengths: Vec<_> = places.iter().map(|place| self.draft.given[*place].items.len()).collect();
        if whole && lengths.iter().any(|length| *length != lengths[0]) {
            let each: Vec<_> = places
                .iter()
                .map(|place| format!("{} has {}", self.draft.given[*place].name, self.draft.given[*place].items.len()))
                .collect();
            self.faults.add(
                node.span.start,
                format!("the axes of a zip need equally many values, but {} (give each as many)", each.join(", ")),
            );
            whole = false;
        }
        if whole {
            self.zipped_twice(&places);
        }
        self.draft.shapeless |= !whole;
        self.draft.zip.push(Entry { at: node.span.start, given: places });
    }

    /// Reports equal combinations of values on axes that vary together.
    fn zipped_twice(&mut self, places: &[usize]) {
        let given: Vec<&Given> = places.iter().map(|place| &self.draft.given[*place]).collect();
        let Some(first) = given.first() else { return };
        let mut seen = BTreeMap::<Vec<Digest>, usize>::new();
        for (number, item) in first.items.iter().enumerate() {
            let values = given.iter().map(|given| given.items[number].value.as_ref().map(Value::digest));
            let Some(values) = values.collect::<Option<Vec<Digest>>>() else { continue };
            match seen.get(&values) {
                None => drop(seen.insert(values, number + 1)),
                Some(before) => {
                    let names: Vec<&str> = given.iter().map(|given| given.name.as_str()).collect();
                    let (names, number) = (names.join(" and "), number + 1);
                    let message =
                        format!("{names} have the same values in places {before} and {number} (remove one of each)");
                    self.faults.add(item.at, message);
                }
            }
        }
    }

    fn zipped(&self, node: &Node, group: &[usize]) -> Result<usize, String> {
        let Content::Text(name) = &node.content else {
            return Err(format!("grid.zip names {} (it must be a key, as text)", self.check.found(node)));
        };
        let Some(place) = self.draft.base_of(name) else {
            return Err(match field(name).filter(|field| field.is_writable()) {
                None => unknown_key(name).0,
                Some(field) if !field.axis => {
                    format!("grid.zip names {}, which cannot be a list (remove it)", shown(name))
                }
                Some(_) => {
                    format!(
                        "grid.zip names {}, which this manifest does not give (give it a list of values)",
                        shown(name)
                    )
                }
            });
        };
        if !self.draft.given[place].listed {
            Err(format!("grid.zip names {}, which has one value (give it a list of values)", shown(name)))
        } else if group.contains(&place) || self.draft.zip.iter().any(|entry| entry.given.contains(&place)) {
            Err(format!("grid.zip names {} twice (an axis belongs to one group)", shown(name)))
        } else {
            Ok(place)
        }
    }

    /// Reads an entry of `include` or `exclude`; its keys are dotted or nested.
    fn entry(&mut self, list: &str, node: &Node) -> Option<Entry> {
        let mut leaves = Vec::new();
        flatten("", node, &mut leaves);
        if leaves.is_empty() {
            self.faults.add(node.span.start, format!("grid.{list} has an empty entry (name at least one key)"));
            self.draft.shapeless = true;
            return None;
        }
        let mut places = Vec::new();
        for (name, key, value) in leaves {
            if places.iter().any(|place: &usize| self.draft.given[*place].name == name) {
                self.faults.add(key.span.start, format!("{} is named twice in one entry (remove one)", shown(&name)));
            } else if let Some(given) = self.given(name, key, value, true) {
                places.push(self.draft.given.len());
                self.draft.given.push(given);
            } else {
                self.draft.shapeless = true;
            }
        }
        Some(Entry { at: node.span.start, given: places })
    }
}

fn told_twice(name: &str, twice: &[(usize, String)], faults: &mut Faults) {
    for (at, found) in twice {
        faults.add(*at, format!("{name} has the value {found} twice (remove one)"));
    }
}

fn flatten<'n>(prefix: &str, node: &'n Node, leaves: &mut Vec<(String, &'n Key, &'n Node)>) {
    let Content::Table(entries) = &node.content else { return };
    for (key, value) in entries {
        let name = if prefix.is_empty() { key.text.clone() } else { format!("{prefix}.{}", key.text) };
        match &value.content {
            Content::Table(inner) if !inner.is_empty() && field(&name).is_none() => flatten(&name, value, leaves),
            _ => leaves.push((name, key, value)),
        }
    }
}

fn is_parameter(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 100
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}
