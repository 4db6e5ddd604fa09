//! One row as one sealed attempt.

use super::cell::{self, Kind, Piece, Template, is_missing};
use super::map::{FieldRule, Map, MetricRule, Origin};
use super::sheet::{Row, Sheet};
use crate::analysis::expr::{Expr, Formula};
use crate::analysis::implausible;
use crate::interop::moment::unix_ns;
use crate::interop::rows::{ImportError, RowFault, Source, file_name};
use crate::manifest;
use crate::record::{Attempt, Digest, Metric, Nonce, Outcome, Parts, Phase, Run, Sealed, Table, Tail, Unit, Value};
use std::collections::{BTreeMap, BTreeSet};

/// What a column of the joined table is called where the first table has one of that name.
const JOINED: &str = "joined.";

/// A map that fits its tables.
pub(super) struct Maker<'a> {
    map: &'a Map,
    sheet: &'a Sheet,
    joined: Option<&'a Sheet>,
    /// By metric; those that come from a cell have none.
    formulas: BTreeMap<&'a str, Formula>,
    taints: Vec<(Expr, &'a str)>,
}

impl<'a> Maker<'a> {
    /// Checks that every column that the map names is there, and parses its formulas and conditions.
    pub(super) fn new(map: &'a Map, sheet: &'a Sheet, joined: Option<&'a Sheet>) -> Result<Self, ImportError> {
        let mut names: BTreeSet<String> = sheet.heads.iter().cloned().collect();
        for head in joined.iter().flat_map(|joined| &joined.heads) {
            names.insert(head.clone());
            names.insert(format!("{JOINED}{head}"));
        }
        let cells = map.metrics.iter().filter_map(|rule| match &rule.from {
            Origin::Cell(template) => Some(template),
            Origin::Formula(_) => None,
        });
        let templates = map.fields.iter().map(|rule| &rule.template).chain(cells);
        let templates = templates.chain(&map.started).chain(&map.device).chain(&map.seed);
        for column in templates.flat_map(Template::columns) {
            if !names.contains(column) {
                return Err(sheet.missing(column));
            }
        }
        names.extend(map.fields.iter().map(|rule| rule.name.clone()));
        let wrong = |what: &str, error| ImportError::Refused(format!("{}: {what}: {error}", map.path.display()));
        let mut formulas = BTreeMap::new();
        // A formula may use what stands above it.
        for rule in &map.metrics {
            if let Origin::Formula(text) = &rule.from {
                let formula =
                    Formula::parse(text, &names).map_err(|error| wrong(&format!("metrics.{}", rule.name), error))?;
                formulas.insert(rule.name.as_str(), formula);
            }
            names.insert(rule.name.clone());
        }
        let taints = map.taints.iter().map(|rule| {
            let expr = Expr::parse(&rule.when, &names).map_err(|error| wrong("taint.when", error))?;
            Ok((expr, rule.reason.as_str()))
        });
        Ok(Self { map, sheet, joined, formulas, taints: taints.collect::<Result<_, ImportError>>()? })
    }

    /// Makes an attempt of a row and its partner. `seen` counts rows that say the same.
    pub(super) fn make(
        &self,
        row: usize,
        partner: Option<usize>,
        seen: &mut BTreeMap<[u8; 32], u64>,
    ) -> Result<Sealed, ImportError> {
        let of = Cells {
            maker: self,
            row: &self.sheet.rows[row],
            partner: partner.and_then(|at| self.joined?.rows.get(at)),
        };
        let config = self.config(&of)?;
        if config.get("model.name").and_then(Value::as_str).is_none_or(str::is_empty) {
            return Err(
                of.refused("model.name is empty or no text (type = \"text\" makes text of a number)".to_owned())
            );
        }
        let mut taints = Vec::new();
        let metrics = self.metrics(&of, &config, &mut taints);
        let lookup = |name: &str| {
            let metric = metrics.get(name).map(|metric| metric.value.map(Value::Float));
            metric.unwrap_or_else(|| config.get(name).cloned().or_else(|| of.value(name)))
        };
        for (condition, reason) in &self.taints {
            condition.check(&lookup).map_err(|error| of.refused(format!("taint.when: {error}")))?;
            if condition.matches(&lookup) {
                taints.push((*reason).to_owned());
            }
        }
        taints.extend(implausible(&metrics).into_iter().map(|fault| fault.reason));
        let run = Run::new(Parts {
            program: Table::from([
                ("import".to_owned(), "table".into()),
                ("name".to_owned(), self.map.name.as_str().into()),
            ])
            .into(),
            container: "unknown".into(),
            cuda: "unknown".into(),
            driver: "unknown".into(),
            device: self
                .map
                .device
                .as_ref()
                .and_then(|device| of.text(device))
                .unwrap_or_else(|| "unknown".to_owned())
                .into(),
            seed: self.seed(&of)?,
            config: config.into(),
        });
        let mut settings = Table::from([("experiment.name".to_owned(), self.map.name.as_str().into())]);
        if let Some(description) = &self.map.description {
            settings.insert("experiment.description".to_owned(), description.as_str().into());
        }
        let mut facts = Table::from([("import".to_owned(), self.import(&of))]);
        if !taints.is_empty() {
            facts.insert(Attempt::TAINT.to_owned(), taints.clone().into());
        }
        let wall_s = metrics.get("wall_time").and_then(|metric| metric.value).unwrap_or(0.0);
        let attempt = Attempt {
            run: run.id,
            nonce: of.nonce(&run, (&metrics, &taints), seen),
            started_unix_ms: self.started_ms(&of)?,
            wall_ns: std::time::Duration::try_from_secs_f64(wall_s)
                .map_or(0, |wall| u64::try_from(wall.as_nanos()).unwrap_or(0)),
            outcome: Outcome::Finished,
            exit: None,
            metrics,
            digests: BTreeMap::new(),
            settings,
            facts,
            warnings: taints.iter().map(|reason| format!("tainted: {reason}")).collect(),
            tail: Tail::default(),
            series: Vec::new(),
            phases: Phase::digest_all(&[]),
        };
        Ok(Sealed { run, attempt, series: Vec::new(), phases: Vec::new() })
    }

    fn config(&self, of: &Cells<'_>) -> Result<Table, ImportError> {
        let mut config = Table::new();
        for rule in &self.map.fields {
            if let Some(value) = self.field(rule, of)? {
                config.insert(rule.name.clone(), as_manifests_have_it(&rule.name, value));
            }
        }
        Ok(config)
    }

    /// The value of a field; none where it is missing. One that does not fit would make one run of rows that differ, so it is refused.
    fn field(&self, rule: &FieldRule, of: &Cells<'_>) -> Result<Option<Value>, ImportError> {
        let Some(value) = of.made(&rule.template, rule.kind) else {
            return match of.text(&rule.template).filter(|text| !is_missing(text)) {
                Some(text) => {
                    Err(of.refused(format!("`{}`: `{text}` is not of the type that the map names", rule.name)))
                }
                None => Ok(None),
            };
        };
        let Some((from, to)) = rule.units else { return Ok(Some(value)) };
        match value.as_float() {
            Some(number) => Ok(Some(whole_again(&value, from.convert(number, to)))),
            None if value.as_str().is_some_and(is_missing) => Ok(None),
            None => Err(of.refused(format!("`{}`: `{value}` {NO_NUMBER}, but has a unit", rule.name))),
        }
    }

    fn metrics(&self, of: &Cells<'_>, config: &Table, taints: &mut Vec<String>) -> BTreeMap<String, Metric> {
        let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
        for rule in &self.map.metrics {
            let found = match (&rule.from, self.formulas.get(rule.name.as_str())) {
                (Origin::Cell(template), _) => of.number(template),
                (Origin::Formula(_), None) => Err("it has no formula".to_owned()),
                (Origin::Formula(_), Some(formula)) => {
                    let lookup = |name: &str| match metrics.get(name) {
                        Some(metric) => metric.value,
                        None => config.get(name).map_or_else(|| of.float(name), Value::as_float),
                    };
                    formula.value(&lookup).map_err(|name| format!("`{name}` has no value"))
                }
            };
            let metric = match found {
                Ok(value) => Metric::new(converted(rule, value), rule.unit.as_str()),
                Err(reason) => {
                    if reason.ends_with(NO_NUMBER) || reason.ends_with(TOO_LARGE) {
                        taints.push(format!("`{}`: {reason}", rule.name));
                    }
                    Metric::missing(rule.unit.as_str(), reason)
                }
            };
            metrics.insert(rule.name.clone(), metric);
        }
        metrics
    }

    fn seed(&self, of: &Cells<'_>) -> Result<u64, ImportError> {
        let Some(text) = self.map.seed.as_ref().and_then(|seed| of.text(seed)) else { return Ok(0) };
        text.parse().map_err(|_| of.refused(format!("the seed is `{text}` (it must be a whole number from 0)")))
    }

    fn started_ms(&self, of: &Cells<'_>) -> Result<i64, ImportError> {
        let Some(started) = &self.map.started else { return Ok(self.map.date_ms.unwrap_or_default()) };
        let Some(text) = of.text(started) else {
            return Err(
                of.refused("`started` has no value here (fill it in, or leave such rows out with `where`)".to_owned())
            );
        };
        let moment = unix_ns(text.as_bytes()).map(|ns| ns.div_euclid(1_000_000));
        moment.ok_or_else(|| of.refused(format!("`{text}` is no moment (write it as 2018-11-08T08:18:55.510Z)")))
    }

    /// Where the numbers came from.
    fn import(&self, of: &Cells<'_>) -> Value {
        let place = |source: &Source, row: &Row, heads: &[String]| {
            let cells: Table = heads.iter().cloned().zip(row.cells.iter().map(|cell| cell.as_str().into())).collect();
            Table::from([
                ("file".to_owned(), file_name(&source.path).into()),
                ("digest".to_owned(), source.digest.to_string().into()),
                ("line".to_owned(), row.line.into()),
                ("cells".to_owned(), cells.into()),
            ])
        };
        let mut import = place(&self.sheet.source, of.row, &self.sheet.heads);
        import.insert("kind".to_owned(), "table".into());
        import.insert("map".to_owned(), file_name(&self.map.path).into());
        import.insert("map_digest".to_owned(), self.map.digest.to_string().into());
        if let (Some(joined), Some(partner)) = (self.joined, of.partner) {
            import.insert("joined".to_owned(), place(&joined.source, partner, &joined.heads).into());
        }
        import.into()
    }
}

/// What a reason ends with where a cell holds something else than a number.
const NO_NUMBER: &str = "is no number";

/// And where it holds one that would become infinite.
const TOO_LARGE: &str = "is too large for a number";

fn converted(rule: &MetricRule, value: f64) -> f64 {
    rule.units.map_or(value, |(from, to): (Unit, Unit)| from.convert(value, to))
}

/// A converted number, whole where it was and still is.
fn whole_again(before: &Value, after: f64) -> Value {
    #[expect(clippy::cast_possible_truncation, reason = "compared below")]
    let whole = after as i64;
    let same = Value::Int(whole).as_float() == Some(after);
    if matches!(before, Value::Int(_)) && same { Value::Int(whole) } else { Value::Float(after) }
}

/// A field that manifests know as a real number is one here too, so that both have one identity.
fn as_manifests_have_it(name: &str, value: Value) -> Value {
    let is_real = || {
        let field = manifest::fields().iter().find(|field| field.cell == name);
        field.is_some_and(|field| matches!(field.kind, manifest::Kind::Real(_)))
    };
    match value.as_float() {
        Some(number) if matches!(value, Value::Int(_)) && is_real() => Value::Float(number),
        _ => value,
    }
}

/// What a map made of a row besides its run.
type Made<'a> = (&'a BTreeMap<String, Metric>, &'a [String]);

/// Each text ends with a zero byte, and each value has a byte before it that says whether there is one.
fn made_bytes((metrics, taints): Made<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, metric) in metrics {
        for text in [name.as_str(), metric.unit.as_str()] {
            bytes.extend_from_slice(text.as_bytes());
            bytes.push(0);
        }
        bytes.push(u8::from(metric.value.is_some()));
        bytes.extend(metric.value.map(|value| value.to_bits().to_le_bytes()).into_iter().flatten());
    }
    for taint in taints {
        bytes.push(2);
        bytes.extend_from_slice(taint.as_bytes());
        bytes.push(0);
    }
    bytes
}

/// The cells of a row and of its partner.
struct Cells<'a> {
    maker: &'a Maker<'a>,
    row: &'a Row,
    partner: Option<&'a Row>,
}

impl<'a> Cells<'a> {
    /// Sheet, row and place of a column.
    fn find(&self, column: &str) -> Option<(&'a Sheet, &'a Row, usize)> {
        let own = self.maker.sheet.find(column).map(|place| (self.maker.sheet, self.row, place));
        own.or_else(|| {
            let column = column.strip_prefix(JOINED).unwrap_or(column);
            let (joined, partner) = (self.maker.joined?, self.partner?);
            Some((joined, partner, joined.find(column)?))
        })
    }

    fn cell(&self, column: &str) -> Option<&'a str> {
        let (_, row, place) = self.find(column)?;
        row.cells.get(place).map(String::as_str)
    }

    /// A cell with its column's type.
    fn value(&self, column: &str) -> Option<Value> {
        let (sheet, row, place) = self.find(column)?;
        sheet.value(row, place)
    }

    /// The number in a cell, whatever its column's other cells hold.
    fn float(&self, column: &str) -> Option<f64> {
        self.value(column)?.as_float().or_else(|| cell::number(self.cell(column)?.trim()))
    }

    /// What a template makes of the row; none where a cell alone is missing.
    fn made(&self, template: &Template, kind: Option<Kind>) -> Option<Value> {
        match (template, kind) {
            (_, Some(kind)) => kind.value(&self.text(template)?),
            (Template::Constant(value), None) => Some(value.clone()),
            (Template::Column(column), None) => self.value(column),
            (Template::Mixed(_), None) => self.text(template).map(Value::from),
        }
    }

    fn text(&self, template: &Template) -> Option<String> {
        match template {
            Template::Constant(value) => Some(value.to_string()),
            Template::Column(column) => Some(self.cell(column)?.trim().to_owned()).filter(|text| !text.is_empty()),
            Template::Mixed(pieces) => Some(
                pieces
                    .iter()
                    .map(|piece| match piece {
                        Piece::Text(text) => text.as_str(),
                        Piece::Column(column) => self.cell(column).unwrap_or_default().trim(),
                    })
                    .collect(),
            ),
        }
    }

    /// A number, or why there is none.
    fn number(&self, template: &Template) -> Result<f64, String> {
        let text = match template {
            Template::Constant(value) => return value.as_float().ok_or_else(|| format!("`{value}` {NO_NUMBER}")),
            _ => self.text(template).unwrap_or_default(),
        };
        match cell::number(&text) {
            Some(number) => Ok(number),
            None if is_missing(&text) => Err("the table has no value".to_owned()),
            None if text.parse::<f64>().is_ok() => Err(format!("`{text}` {TOO_LARGE}")),
            None => Err(format!("`{text}` {NO_NUMBER}")),
        }
    }

    fn refused(&self, message: String) -> ImportError {
        let fault = RowFault { path: self.maker.sheet.source.path.clone(), line: self.row.line, message };
        ImportError::Rows { faults: vec![fault], count: 1 }
    }

    /// The same row of the same run is the same execution, in whichever file it stands; one that comes back in a file is another, and so is
    /// one of which a corrected map makes something else.
    fn nonce(&self, run: &Run, made: Made<'_>, seen: &mut BTreeMap<[u8; 32], u64>) -> Nonce {
        let made = made_bytes(made);
        let mut pieces: Vec<&[u8]> = vec![&run.id.0.0, &made];
        pieces.extend(self.row.cells.iter().map(String::as_bytes));
        // Where the first row ends matters, and no cell is a zero byte alone by accident: its length is hashed too.
        pieces.push(&[0]);
        pieces.extend(self.partner.iter().flat_map(|partner| &partner.cells).map(String::as_bytes));
        let content = Digest::of_pieces("ledger table row v2", &pieces).0;
        let count = seen.entry(content).or_default();
        *count += 1;
        let Digest(bytes) = Digest::of_pieces("ledger table import v1", &[&content, &count.to_le_bytes()]);
        let mut nonce = [0; 16];
        nonce.copy_from_slice(&bytes[..16]);
        Nonce(nonce)
    }
}
