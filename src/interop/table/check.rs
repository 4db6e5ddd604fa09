//! Checks a map against its tables: columns exist, formulas and conditions parse, and numbers are numeric.

use super::cell::{Kind, Template};
use super::map::{FieldRule, Map, Origin, Placed};
use super::sheet::Sheet;
use crate::analysis::expr::{Expr, Formula};
use crate::interop::rows::shown;
use crate::manifest::Faults;
use crate::record::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The prefix of a column of the joined table if the first table has one of the same name.
pub(super) const JOINED: &str = "joined.";

/// The table, and the joined table.
#[derive(Clone, Copy)]
pub(super) struct Tables<'a> {
    pub(super) sheet: &'a Sheet,
    pub(super) joined: Option<&'a Sheet>,
}

impl<'a> Tables<'a> {
    /// Returns the names of all columns. Those of the joined table are included with and without `joined.`.
    fn names(self) -> BTreeSet<String> {
        let mut names: BTreeSet<String> = self.sheet.heads.iter().cloned().collect();
        for head in self.joined.iter().flat_map(|joined| &joined.heads) {
            names.insert(head.clone());
            names.insert(format!("{JOINED}{head}"));
        }
        names
    }

    /// Returns the table of a column, and its index there.
    pub(super) fn find(self, column: &str) -> Option<(&'a Sheet, usize)> {
        self.sheet.find(column).map(|place| (self.sheet, place)).or_else(|| {
            let joined = self.joined?;
            Some((joined, joined.find(column.strip_prefix(JOINED).unwrap_or(column))?))
        })
    }

    /// Returns the reason why a column has no numbers, or `None` if it has.
    fn fault_of_number(self, column: &str) -> Option<String> {
        let (sheet, place) = self.find(column)?;
        let text = shown(sheet.text_of(place)?.as_bytes());
        Some(format!("column `{column}` holds text, such as `{text}`"))
    }
}

/// The parsed formulas and conditions of a map.
pub(super) struct Checked<'a> {
    /// By metric; metrics from a cell have none.
    pub(super) formulas: BTreeMap<&'a str, Formula>,
    pub(super) taints: Vec<(Expr, &'a str)>,
}

/// Adds every fault of the map that its tables show.
pub(super) fn check<'a>(map: &'a Map, tables: Tables<'_>, faults: &mut Faults) -> Checked<'a> {
    columns(map, tables, faults);
    let mut names = tables.names();
    names.extend(map.fields.iter().map(|rule| &rule.name).chain(&map.faulty).cloned());
    let mut formulas = BTreeMap::new();
    // A formula may use the metrics above it.
    for rule in &map.metrics {
        match &rule.from {
            Origin::Formula(text) => match Formula::parse(text, &names) {
                Ok(formula) => {
                    let wrong = formula.names().into_iter().filter(|name| !is_above(map, &rule.name, name));
                    for fault in wrong.filter_map(|name| fault_of_name(map, tables, name)) {
                        faults.add(rule.at, format!("metrics.{}: {fault} (a formula takes numbers)", rule.name));
                    }
                    formulas.insert(rule.name.as_str(), formula);
                }
                Err(error) => faults.add(rule.at, format!("metrics.{}: {error}", rule.name)),
            },
            Origin::Cell(Template::Column(column)) => {
                if let Some(fault) = tables.fault_of_number(column) {
                    faults.add(rule.at, format!("metrics.{}: {fault} (a metric is a number)", rule.name));
                }
            }
            Origin::Cell(_) => {}
        }
        names.insert(rule.name.clone());
    }
    let mut taints = Vec::new();
    for rule in &map.taints {
        match Expr::over_columns(&rule.when.value, &names) {
            Ok(expr) => taints.push((expr, rule.reason.as_str())),
            Err(error) => faults.add(rule.when.at, format!("taint.when: {error}")),
        }
    }
    Checked { formulas, taints }
}

/// Adds a fault for each missing column.
fn columns(map: &Map, tables: Tables<'_>, faults: &mut Faults) {
    let names = tables.names();
    let cells = map.metrics.iter().filter_map(|rule| match &rule.from {
        Origin::Cell(template) => Some((template, rule.at)),
        Origin::Formula(_) => None,
    });
    let single = [&map.started, &map.device, &map.machine, &map.seed];
    let single = single.into_iter().flatten().map(|Placed { value, at }| (value, *at));
    let templates = map.fields.iter().map(|rule| (&rule.template, rule.at)).chain(cells).chain(single);
    for (template, at) in templates {
        for column in template.columns().into_iter().filter(|column| !names.contains(*column)) {
            faults.add(at, tables.sheet.missing(column));
        }
    }
}

/// Whether a name is that of a metric above another one.
fn is_above(map: &Map, metric: &str, name: &str) -> bool {
    map.metrics.iter().take_while(|rule| rule.name != metric).any(|rule| rule.name == name)
}

/// Returns the reason why a field or a column is not numeric, or `None` if it is or may be.
fn fault_of_name(map: &Map, tables: Tables<'_>, name: &str) -> Option<String> {
    let Some(rule) = map.fields.iter().find(|rule| rule.name == name) else { return tables.fault_of_number(name) };
    is_text(rule).then(|| format!("field `{name}` is text")).or_else(|| match &rule.template {
        Template::Column(column) => tables.fault_of_number(column),
        _ => None,
    })
}

fn is_text(rule: &FieldRule) -> bool {
    match (&rule.template, rule.kind) {
        (_, Some(kind)) => matches!(kind, Kind::Text | Kind::Bool),
        (Template::Constant(value), None) => matches!(value, Value::Str(_) | Value::Bool(_)),
        (Template::Mixed(_), None) => rule.standard.is_none_or(|field| !field.is_number()),
        (Template::Column(_), None) => false,
    }
}

/// Faults of rows. A fault that occurs in several rows is reported once, with the first of them.
#[derive(Default)]
pub(super) struct Troubles {
    /// By position in the map: the fault, the first line, and the number of rows.
    found: BTreeMap<usize, (String, u64, usize)>,
}

impl Troubles {
    pub(super) fn add(&mut self, at: usize, line: u64, message: String) {
        self.found.entry(at).or_insert((message, line, 0)).2 += 1;
    }

    /// Adds each fault at its position in the map.
    pub(super) fn tell(self, sheet: &Sheet, faults: &mut Faults) {
        for (at, (message, line, rows)) in self.found {
            let more = match rows - 1 {
                0 => String::new(),
                1 => " and 1 more row".to_owned(),
                more => format!(" and {more} more rows"),
            };
            faults.add(at, format!("{message}: {}:{line}{more}", sheet.source.path.display()));
        }
    }
}
