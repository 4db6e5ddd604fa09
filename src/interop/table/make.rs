//! Turns one row into one sealed attempt.

use super::cell::{self, Kind, Piece, Template, is_missing};
use super::check::{Checked, JOINED, Tables, Troubles};
use super::map::{FieldRule, Map, MetricRule, Origin, Placed};
use super::right;
use super::sheet::{Row, Sheet};
use crate::analysis::implausible;
use crate::interop::moment::unix_ms;
use crate::interop::rows::{RowFault, Source, file_name, shown};
use crate::interop::{imported_run, nonce_of};
use crate::record::{Attempt, Digest, Metric, Nonce, Outcome, Phase, Run, Sealed, Table, Tail, Unit, Value};
use std::collections::BTreeMap;

/// A map that fits its tables.
pub(super) struct Maker<'a> {
    map: &'a Map,
    tables: Tables<'a>,
    checked: Checked<'a>,
}

/// The identity of a row, before its metrics are evaluated.
pub(super) struct Named {
    config: Table,
    seed: u64,
}

/// The evaluated content of a row.
pub(super) struct Looked {
    config: Table,
    seed: u64,
    metrics: BTreeMap<String, Metric>,
    /// The reasons why it is implausible.
    pub(super) taints: Vec<String>,
    started_unix_ms: i64,
}

impl<'a> Maker<'a> {
    pub(super) fn new(map: &'a Map, tables: Tables<'a>, checked: Checked<'a>) -> Self {
        Self { map, tables, checked }
    }

    fn cells(&'a self, row: usize, partner: Option<usize>) -> Cells<'a> {
        let partner = partner.and_then(|at| self.tables.joined?.rows.get(at));
        Cells { maker: self, row: &self.tables.sheet.rows[row], partner }
    }

    /// Returns the fields and the seed of a row and its partner. Adds values that do not fit to `troubles`, because
    /// rows that differ in them would become one run.
    pub(super) fn named(&self, row: usize, partner: Option<usize>, troubles: &mut Troubles) -> Named {
        let of = self.cells(row, partner);
        let mut config = Table::new();
        for rule in &self.map.fields {
            match self.field(rule, &of) {
                Ok(Some(value)) => drop(config.insert(rule.name.clone(), value)),
                Ok(None) => {}
                Err(message) => troubles.add(rule.at, of.row.line, format!("`{}` {message}", rule.name)),
            }
        }
        let mut seed = 0;
        if let Some(Placed { value, at }) = &self.map.seed
            && let Some(text) = of.text(value).filter(|text| !is_missing(text))
        {
            match text.parse() {
                Ok(number) => seed = number,
                Err(_) => {
                    let text = shown(text.as_bytes());
                    troubles.add(*at, of.row.line, format!("the seed is `{text}` (it must be a whole number from 0)"));
                }
            }
        }
        Named { config, seed }
    }

    /// Evaluates the metrics of a row and its partner, and checks whether they are plausible.
    pub(super) fn looked(&self, (row, partner): (usize, Option<usize>)) -> Result<Looked, RowFault> {
        let of = self.cells(row, partner);
        let Named { config, seed } = self.named(row, partner, &mut Troubles::default());
        if config.get("model.name").and_then(Value::as_str).is_none_or(str::is_empty) {
            return Err(
                of.refused("model.name is empty or not text (type = \"text\" makes text of a number)".to_owned())
            );
        }
        let mut taints = Vec::new();
        let metrics = self.metrics(&of, &config, &mut taints);
        let lookup = |name: &str| {
            let metric = metrics.get(name).map(|metric| metric.value.map(Value::Float));
            metric.unwrap_or_else(|| config.get(name).cloned().or_else(|| of.value(name)))
        };
        for (condition, reason) in &self.checked.taints {
            condition.check(&lookup).map_err(|error| of.refused(format!("taint.when: {error}")))?;
            if condition.matches(&lookup) {
                taints.push((*reason).to_owned());
            }
        }
        let source = |name: &str| self.source(name);
        let numbers = || of.numbers(&config);
        taints.extend(right::Row { metrics: &metrics, source: &source, numbers: &numbers }.faults());
        // An energy of 0 is judged by the whole row.
        let others = implausible(&metrics).into_iter().filter(|fault| metrics[&fault.metric].value != Some(0.0));
        taints.extend(others.map(|fault| fault.reason));
        let started_unix_ms = self.started_ms(&of)?;
        Ok(Looked { config, seed, metrics, taints, started_unix_ms })
    }

    /// Turns a row and its partner into an attempt. `seen` counts equal rows.
    pub(super) fn make(
        &self,
        (row, partner): (usize, Option<usize>),
        seen: &mut BTreeMap<[u8; 32], u64>,
    ) -> Result<Sealed, RowFault> {
        let of = self.cells(row, partner);
        let Looked { config, seed, metrics, taints, started_unix_ms } = self.looked((row, partner))?;
        let program =
            Table::from([("import".to_owned(), "table".into()), ("name".to_owned(), self.map.name.as_str().into())]);
        let device = self.map.device.as_ref().and_then(|device| of.text(&device.value));
        let run = imported_run(config, program, device, seed);
        let mut settings = Table::from([("experiment.name".to_owned(), self.map.name.as_str().into())]);
        if let Some(description) = &self.map.description {
            settings.insert("experiment.description".to_owned(), description.as_str().into());
        }
        let mut facts = Table::from([("import".to_owned(), self.import(&of))]);
        if !taints.is_empty() {
            facts.insert(Attempt::TAINT.to_owned(), taints.clone().into());
        }
        for (name, kind) in self.kinds() {
            facts.insert(format!("{}{name}", Attempt::METRIC_KIND), kind.into());
        }
        let wall_s = metrics.get("wall_time").and_then(|metric| metric.value).unwrap_or(0.0);
        let attempt = Attempt {
            run: run.id,
            nonce: of.nonce(&run, &self.made_bytes(&of, &metrics, &taints), seen),
            started_unix_ms,
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

    /// Returns the kinds that the map states for its metrics.
    fn kinds(&self) -> impl Iterator<Item = (&str, &'static str)> {
        self.map.metrics.iter().filter_map(|rule| Some((rule.name.as_str(), rule.kind?.name())))
    }

    /// Returns the source of a metric, to follow its name in a message.
    fn source(&self, name: &str) -> String {
        match self.map.metrics.iter().find(|rule| rule.name == name).map(|rule| &rule.from) {
            Some(Origin::Cell(Template::Column(column))) => format!(" (column `{}`)", shown(column.as_bytes())),
            Some(Origin::Formula(formula)) => format!(" (`{}`)", shown(formula.as_bytes())),
            _ => String::new(),
        }
    }

    /// Returns the value of a field, or `None` if it is missing.
    fn field(&self, rule: &FieldRule, of: &Cells<'_>) -> Result<Option<Value>, String> {
        // The type of a standard field decides, rather than the type of its column.
        let typed = rule.standard.filter(|field| rule.kind.is_none() && (field.is_number() || field.is_flag()));
        let made = match typed {
            Some(_) => of.text(&rule.template).filter(|text| !is_missing(text)).map(|text| cell::plain(&text)),
            None => of.made(&rule.template, rule.kind),
        };
        let Some(value) = made else {
            return match of.text(&rule.template).filter(|text| !is_missing(text)) {
                Some(text) => {
                    Err(format!("is `{}`, which is not of the type that the map names", shown(text.as_bytes())))
                }
                None => Ok(None),
            };
        };
        let value = match (rule.units, value.as_float()) {
            (None, _) => value,
            (Some((from, to)), Some(number)) => whole_again(&value, from.convert(number, to)),
            (Some(_), None) if value.as_str().is_some_and(is_missing) => return Ok(None),
            (Some(_), None) => {
                return Err(format!("is `{}`, which {NO_NUMBER}, but has a unit", shown(value.to_string().as_bytes())));
            }
        };
        rule.standard.map_or(Ok(value.clone()), |field| field.typed(&value)).map(Some)
    }

    fn metrics(&self, of: &Cells<'_>, config: &Table, taints: &mut Vec<String>) -> BTreeMap<String, Metric> {
        let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
        for rule in &self.map.metrics {
            let found = match (&rule.from, self.checked.formulas.get(rule.name.as_str())) {
                (Origin::Cell(template), _) => of.number(template),
                (Origin::Formula(_), None) => Err("it has no formula".to_owned()),
                (Origin::Formula(_), Some(formula)) => {
                    let lookup = |name: &str| match metrics.get(name) {
                        Some(metric) => metric.value,
                        None => config.get(name).map_or_else(|| of.float(name), Value::as_float),
                    };
                    formula.value(&lookup).map_err(|name| match of.cell(name).filter(|_| !metrics.contains_key(name)) {
                        Some(text) if !is_missing(text.trim()) => {
                            format!("`{}` {NO_NUMBER}", shown(text.trim().as_bytes()))
                        }
                        _ => format!("`{name}` has no value"),
                    })
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

    fn started_ms(&self, of: &Cells<'_>) -> Result<i64, RowFault> {
        let Some(started) = &self.map.started else { return Ok(self.map.date_ms.unwrap_or_default()) };
        let Some(text) = of.text(&started.value) else {
            return Err(
                of.refused("`started` has no value here (fill it in, or leave such rows out with `where`)".to_owned())
            );
        };
        unix_ms(&text).ok_or_else(|| {
            let text = shown(text.as_bytes());
            of.refused(format!(
                "`{text}` is not a time (write it as 2018-11-08T08:18:55.510Z, or as seconds or milliseconds since 1970)"
            ))
        })
    }

    /// Returns the origin of the numbers, for the record.
    fn import(&self, of: &Cells<'_>) -> Value {
        let place = |source: &Source, row: &Row, heads: &[String]| {
            let cells: Table = heads.iter().cloned().zip(row.cells().map(Value::from)).collect();
            Table::from([
                ("file".to_owned(), file_name(&source.path).into()),
                ("digest".to_owned(), source.digest.to_string().into()),
                ("line".to_owned(), row.line.into()),
                ("cells".to_owned(), cells.into()),
            ])
        };
        let sheet = self.tables.sheet;
        let mut import = place(&sheet.source, of.row, &sheet.heads);
        import.insert("kind".to_owned(), "table".into());
        import.insert("map".to_owned(), file_name(&self.map.path).into());
        import.insert("map_digest".to_owned(), self.map.digest.to_string().into());
        let seed = self.map.seed.as_ref().and_then(|seed| of.text(&seed.value));
        if seed.is_some_and(|seed| !is_missing(&seed)) {
            import.insert("seed".to_owned(), true.into());
        }
        if let Some(machine) = self.machine(of) {
            import.insert(Attempt::IMPORTED_MACHINE.to_owned(), machine.into());
        }
        if let (Some(joined), Some(partner)) = (self.tables.joined, of.partner) {
            import.insert("joined".to_owned(), place(&joined.source, partner, &joined.heads).into());
        }
        import.into()
    }

    /// Returns the machine of a row, or `None` if neither the map nor the row has one.
    fn machine(&self, of: &Cells<'_>) -> Option<String> {
        let text = |placed: &Option<Placed<Template>>| placed.as_ref().and_then(|placed| of.text(&placed.value));
        let name = text(&self.map.machine).filter(|name| !is_missing(name))?;
        // GPU 0 of one device differs from GPU 0 of another.
        Some(text(&self.map.device).map_or_else(|| name.clone(), |device| format!("{device} {name}")))
    }

    /// Encodes the result of a row besides its run. Each text ends with a zero byte, and a byte before each optional
    /// value tells whether it is present.
    fn made_bytes(&self, of: &Cells<'_>, metrics: &BTreeMap<String, Metric>, taints: &[String]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let text = |bytes: &mut Vec<u8>, text: &str| {
            bytes.extend_from_slice(text.as_bytes());
            bytes.push(0);
        };
        for (name, metric) in metrics {
            text(&mut bytes, name);
            text(&mut bytes, &metric.unit);
            bytes.push(u8::from(metric.value.is_some()));
            bytes.extend(metric.value.map(|value| value.to_bits().to_le_bytes()).into_iter().flatten());
        }
        for taint in taints {
            bytes.push(2);
            text(&mut bytes, taint);
        }
        for (name, kind) in self.kinds() {
            bytes.push(3);
            text(&mut bytes, name);
            text(&mut bytes, kind);
        }
        if let Some(machine) = self.machine(of) {
            bytes.push(4);
            text(&mut bytes, &machine);
        }
        bytes
    }
}

/// The end of a reason if a cell is not a number.
const NO_NUMBER: &str = "is no number";

/// The end of a reason if a number would become infinite.
const TOO_LARGE: &str = "is too large for a number";

fn converted(rule: &MetricRule, value: f64) -> f64 {
    rule.units.map_or(value, |(from, to): (Unit, Unit)| from.convert(value, to))
}

/// Returns a converted number. It stays an integer if it was one and still is.
fn whole_again(before: &Value, after: f64) -> Value {
    #[expect(clippy::cast_possible_truncation, reason = "compared below")]
    let whole = after as i64;
    let same = Value::Int(whole).as_float() == Some(after);
    if matches!(before, Value::Int(_)) && same { Value::Int(whole) } else { Value::Float(after) }
}

/// The cells of a row and of its partner.
struct Cells<'a> {
    maker: &'a Maker<'a>,
    row: &'a Row,
    partner: Option<&'a Row>,
}

impl<'a> Cells<'a> {
    /// Returns sheet, row and index of a column.
    fn find(&self, column: &str) -> Option<(&'a Sheet, &'a Row, usize)> {
        let tables = self.maker.tables;
        let own = tables.sheet.find(column).map(|place| (tables.sheet, self.row, place));
        own.or_else(|| {
            let column = column.strip_prefix(JOINED).unwrap_or(column);
            let (joined, partner) = (tables.joined?, self.partner?);
            Some((joined, partner, joined.find(column)?))
        })
    }

    /// Returns the numbers of the row's fields and columns, each with its name for a sentence.
    fn numbers(&self, config: &Table) -> Vec<(String, f64)> {
        let fields = config.iter().filter_map(|(name, value)| Some((format!("`{name}`"), value.as_float()?)));
        let heads = [Some(self.maker.tables.sheet), self.maker.tables.joined]
            .into_iter()
            .flatten()
            .flat_map(|sheet| &sheet.heads);
        let columns =
            heads.filter_map(|head| Some((format!("column `{}`", shown(head.as_bytes())), self.float(head)?)));
        fields.chain(columns).collect()
    }

    fn cell(&self, column: &str) -> Option<&'a str> {
        let (_, row, place) = self.find(column)?;
        row.cell(place)
    }

    /// Returns a cell with its column's type.
    fn value(&self, column: &str) -> Option<Value> {
        let (sheet, row, place) = self.find(column)?;
        sheet.value(row, place)
    }

    /// Returns the number in a cell, whatever the column's type.
    fn float(&self, column: &str) -> Option<f64> {
        self.value(column)?.as_float().or_else(|| cell::number(self.cell(column)?.trim()))
    }

    /// Returns the value of a template for the row, or `None` if a single cell is missing.
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

    /// Returns a number, or the reason why there is none.
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

    fn refused(&self, message: String) -> RowFault {
        RowFault { path: self.maker.tables.sheet.source.path.clone(), line: self.row.line, message }
    }

    /// Returns the nonce of a row. The same row of the same run gives the same attempt in every file. A repeated row in
    /// a file gives another one, and so does a changed result after a correction of the map.
    fn nonce(&self, run: &Run, made: &[u8], seen: &mut BTreeMap<[u8; 32], u64>) -> Nonce {
        let mut pieces: Vec<&[u8]> = vec![&run.id.0.0, made];
        pieces.extend(self.row.cells().map(str::as_bytes));
        // The zero byte marks the end of the first row. A cell with this content cannot be confused with it, because
        // each piece is hashed with its length.
        pieces.push(&[0]);
        pieces.extend(self.partner.iter().flat_map(|partner| partner.cells()).map(str::as_bytes));
        let content = Digest::of_pieces("ledger table row v2", &pieces).0;
        let count = seen.entry(content).or_default();
        *count += 1;
        nonce_of("ledger table import v1", &[&content, &count.to_le_bytes()])
    }
}
