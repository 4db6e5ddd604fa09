//! Format 1 of runs and attempts, in bincode (standard configuration: little-endian, variable-length integers).

use bincode::{Decode, Encode};
use ledger_record::{
    Attempt, Axis, Digest, Exit, Metric, Nonce, Outcome, Parts, Run, RunId, SeriesSummary, Table, Tail, Value,
};
use std::collections::BTreeMap;

/// An error of encoding or decoding.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// bincode could not decode.
    #[error("{what} does not decode: {source}")]
    Decode {
        /// The decoded object.
        what: &'static str,
        /// The cause.
        source: Box<bincode::error::DecodeError>,
    },
    /// The bytes decode but are not valid.
    #[error("{what} is not well formed: {fault}")]
    Shape {
        /// The decoded object.
        what: &'static str,
        /// The error.
        fault: &'static str,
    },
    /// bincode could not encode.
    #[error("{what} does not encode: {source}")]
    Encode {
        /// The encoded object.
        what: &'static str,
        /// The cause.
        source: Box<bincode::error::EncodeError>,
    },
    /// It encodes but could not be decoded again.
    #[error("{what} is refused: it could not be read again ({source})")]
    Unreadable {
        /// The encoded object.
        what: &'static str,
        /// The error of decoding it.
        source: Box<WireError>,
    },
}

/// The largest size of a record, and the most memory that a decoder allocates.
pub(super) const LIMIT_BYTES: usize = 64 << 20;

/// The largest depth of nested tables and lists.
const MAX_DEPTH: usize = 64;

fn config() -> impl bincode::config::Config {
    bincode::config::standard().with_limit::<LIMIT_BYTES>()
}

pub(super) fn encode<T: Encode>(what: &'static str, value: &T) -> Result<Vec<u8>, WireError> {
    bincode::encode_to_vec(value, config()).map_err(|source| WireError::Encode { what, source: Box::new(source) })
}

pub(super) fn decode<T: Decode<()>>(what: &'static str, bytes: &[u8]) -> Result<T, WireError> {
    let (value, rest) = decode_first(what, bytes)?;
    if rest.is_empty() { Ok(value) } else { Err(WireError::Shape { what, fault: "bytes follow its end" }) }
}

/// Decodes a value from the start of the bytes, and returns the remaining bytes.
pub(super) fn decode_first<'a, T: Decode<()>>(what: &'static str, bytes: &'a [u8]) -> Result<(T, &'a [u8]), WireError> {
    let (value, used) = bincode::decode_from_slice(bytes, config())
        .map_err(|source| WireError::Decode { what, source: Box::new(source) })?;
    Ok((value, bytes.get(used..).unwrap_or_default()))
}

/// Returns the bytes if they can be decoded again. Decoding has limits that encoding does not check.
fn readable<T>(
    what: &'static str,
    bytes: Vec<u8>,
    read: impl FnOnce(&[u8]) -> Result<T, WireError>,
) -> Result<Vec<u8>, WireError> {
    match read(&bytes) {
        Ok(_) => Ok(bytes),
        Err(source) => Err(WireError::Unreadable { what, source: Box::new(source) }),
    }
}

/// A value as a list of tokens, so that decoding does not recurse because of its input.
#[derive(Encode, Decode)]
enum Token {
    Bool(bool),
    Int(i64),
    Float(u64),
    Str(String),
    List(u32),
    Table(u32),
}

#[derive(Encode, Decode)]
pub(super) struct ValueV1(Vec<Token>);

impl ValueV1 {
    pub(super) fn new(value: &Value) -> Self {
        fn walk(value: &Value, out: &mut Vec<Token>) {
            match value {
                Value::Bool(value) => out.push(Token::Bool(*value)),
                Value::Int(value) => out.push(Token::Int(*value)),
                Value::Float(value) => out.push(Token::Float(value.to_bits())),
                Value::Str(value) => out.push(Token::Str(value.clone())),
                Value::List(items) => {
                    out.push(Token::List(count(items.len())));
                    items.iter().for_each(|item| walk(item, out));
                }
                Value::Table(table) => {
                    out.push(Token::Table(count(table.len())));
                    for (key, value) in table {
                        out.push(Token::Str(key.clone()));
                        walk(value, out);
                    }
                }
            }
        }
        let mut tokens = Vec::new();
        walk(value, &mut tokens);
        Self(tokens)
    }

    /// The number of lists and tables that are not empty.
    fn containers(&self) -> usize {
        self.0.iter().filter(|token| matches!(token, Token::List(1..) | Token::Table(1..))).count()
    }

    pub(super) fn table(table: &Table) -> Self {
        Self::new(&Value::Table(table.clone()))
    }

    pub(super) fn into_value(self) -> Result<Value, WireError> {
        let mut tokens = self.0.into_iter();
        let value = read_value(&mut tokens, 0)?;
        if tokens.next().is_some() { Err(misshapen("tokens follow its end")) } else { Ok(value) }
    }

    pub(super) fn into_table(self) -> Result<Table, WireError> {
        match self.into_value()? {
            Value::Table(table) => Ok(table),
            _ => Err(misshapen("it is no table")),
        }
    }
}

fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

fn misshapen(fault: &'static str) -> WireError {
    WireError::Shape { what: "value", fault }
}

fn read_value(tokens: &mut std::vec::IntoIter<Token>, depth: usize) -> Result<Value, WireError> {
    if depth > MAX_DEPTH {
        return Err(misshapen("it is nested too deep"));
    }
    Ok(match tokens.next().ok_or_else(|| misshapen("it ends early"))? {
        Token::Bool(value) => Value::Bool(value),
        Token::Int(value) => Value::Int(value),
        Token::Float(bits) => Value::Float(f64::from_bits(bits)),
        Token::Str(value) => Value::Str(value),
        Token::List(len) => {
            let mut items = Vec::new();
            for _ in 0..len {
                items.push(read_value(tokens, depth + 1)?);
            }
            Value::List(items)
        }
        Token::Table(len) => {
            let mut table = Table::new();
            for _ in 0..len {
                let Some(Token::Str(key)) = tokens.next() else { return Err(misshapen("a key is missing")) };
                table.insert(key, read_value(tokens, depth + 1)?);
            }
            Value::Table(table)
        }
    })
}

#[derive(Encode, Decode)]
pub(super) struct RunV1 {
    config: ValueV1,
    program: ValueV1,
    container: ValueV1,
    cuda: ValueV1,
    driver: ValueV1,
    device: ValueV1,
    seed: u64,
}

impl RunV1 {
    pub(super) fn new(run: &Run) -> Self {
        let Parts { config, program, container, cuda, driver, device, seed } = &run.parts;
        Self {
            config: ValueV1::new(config),
            program: ValueV1::new(program),
            container: ValueV1::new(container),
            cuda: ValueV1::new(cuda),
            driver: ValueV1::new(driver),
            device: ValueV1::new(device),
            seed: *seed,
        }
    }

    pub(super) fn into_run(self) -> Result<Run, WireError> {
        Ok(Run::new(Parts {
            config: self.config.into_value()?,
            program: self.program.into_value()?,
            container: self.container.into_value()?,
            cuda: self.cuda.into_value()?,
            driver: self.driver.into_value()?,
            device: self.device.into_value()?,
            seed: self.seed,
        }))
    }
}

#[derive(Encode, Decode)]
pub(super) enum OutcomeV1 {
    Finished,
    Failed(String),
    Interrupted(String),
}

impl OutcomeV1 {
    pub(super) fn new(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Finished => Self::Finished,
            Outcome::Failed { reason } => Self::Failed(reason.clone()),
            Outcome::Interrupted { reason } => Self::Interrupted(reason.clone()),
        }
    }

    pub(super) fn into_outcome(self) -> Outcome {
        match self {
            Self::Finished => Outcome::Finished,
            Self::Failed(reason) => Outcome::Failed { reason },
            Self::Interrupted(reason) => Outcome::Interrupted { reason },
        }
    }
}

#[derive(Encode, Decode)]
pub(super) enum ExitV1 {
    Code(i32),
    Signal(i32),
}

impl ExitV1 {
    pub(super) fn new(exit: Exit) -> Self {
        match exit {
            Exit::Code(code) => Self::Code(code),
            Exit::Signal(signal) => Self::Signal(signal),
        }
    }

    pub(super) fn into_exit(self) -> Exit {
        match self {
            Self::Code(code) => Exit::Code(code),
            Self::Signal(signal) => Exit::Signal(signal),
        }
    }
}

#[derive(Encode, Decode)]
struct MetricV1 {
    name: String,
    value: Option<u64>,
    unit: String,
    reason: Option<String>,
}

#[derive(Encode, Decode)]
struct SeriesV1 {
    name: String,
    unit: String,
    axis: u8,
    len: u64,
    digest: [u8; 32],
}

#[derive(Encode, Decode)]
struct AttemptV1 {
    run: [u8; 32],
    nonce: [u8; 16],
    started_unix_ms: i64,
    wall_ns: u64,
    outcome: OutcomeV1,
    exit: Option<ExitV1>,
    metrics: Vec<MetricV1>,
    digests: Vec<(String, [u8; 32])>,
    settings: ValueV1,
    facts: ValueV1,
    warnings: Vec<String>,
    stderr_tail: String,
    stdout_tail: String,
    last_events: Vec<String>,
    series: Vec<SeriesV1>,
    phases: [u8; 32],
}

/// Fields that were added to an attempt's record after its first release. They follow the record, and only if there are
/// any, so that older records are still read and written unchanged.
#[derive(Encode, Decode)]
struct ExtensionV1 {
    /// The uncertainty of each metric, by name.
    uncertainties: Vec<(String, u64)>,
}

pub(super) fn axis_code(axis: Axis) -> u8 {
    match axis {
        Axis::Step => 0,
        Axis::TimeNs => 1,
    }
}

pub(super) fn axis_of(code: u8) -> Result<Axis, WireError> {
    match code {
        0 => Ok(Axis::Step),
        1 => Ok(Axis::TimeNs),
        _ => Err(WireError::Shape { what: "series", fault: "its axis is unknown" }),
    }
}

/// Encodes a run. Its id is not stored, since it is the hash of the stored parts.
///
/// # Errors
/// If it could not be decoded.
pub fn encode_run(run: &Run) -> Result<Vec<u8>, WireError> {
    readable("run", encode("run", &RunV1::new(run))?, decode_run)
}

/// Decodes a run and recomputes its id.
pub fn decode_run(bytes: &[u8]) -> Result<Run, WireError> {
    decode_run_if(bytes, |_| Ok(()))
}

/// As [`decode_run`], if `may` allows this many lists and tables. The smallest table takes a hundred times the memory of its bytes.
pub(super) fn decode_run_if<E: From<WireError>>(
    bytes: &[u8],
    may: impl FnOnce(usize) -> Result<(), E>,
) -> Result<Run, E> {
    let wire: RunV1 = decode("run", bytes)?;
    let RunV1 { config, program, container, cuda, driver, device, .. } = &wire;
    may([config, program, container, cuda, driver, device].into_iter().map(ValueV1::containers).sum())?;
    Ok(wire.into_run()?)
}

/// Encodes an attempt's record, without its series and phases.
///
/// # Errors
/// If it could not be decoded.
pub fn encode_attempt(attempt: &Attempt) -> Result<Vec<u8>, WireError> {
    let metrics = attempt.metrics.iter().map(|(name, metric)| MetricV1 {
        name: name.clone(),
        value: metric.value.map(f64::to_bits),
        unit: metric.unit.clone(),
        reason: metric.reason.clone(),
    });
    let series = attempt.series.iter().map(|series| SeriesV1 {
        name: series.name.clone(),
        unit: series.unit.clone(),
        axis: axis_code(series.axis),
        len: series.len,
        digest: series.digest.0,
    });
    let uncertainty = |(name, metric): (&String, &Metric)| Some((name.clone(), metric.uncertainty?.to_bits()));
    let extension = ExtensionV1 { uncertainties: attempt.metrics.iter().filter_map(uncertainty).collect() };
    let mut bytes = encode(
        "attempt",
        &AttemptV1 {
            run: attempt.run.0.0,
            nonce: attempt.nonce.0,
            started_unix_ms: attempt.started_unix_ms,
            wall_ns: attempt.wall_ns,
            outcome: OutcomeV1::new(&attempt.outcome),
            exit: attempt.exit.map(ExitV1::new),
            metrics: metrics.collect(),
            digests: attempt.digests.iter().map(|(name, digest)| (name.clone(), digest.0)).collect(),
            settings: ValueV1::table(&attempt.settings),
            facts: ValueV1::table(&attempt.facts),
            warnings: attempt.warnings.clone(),
            stderr_tail: attempt.tail.stderr.clone(),
            stdout_tail: attempt.tail.stdout.clone(),
            last_events: attempt.tail.events.clone(),
            series: series.collect(),
            phases: attempt.phases.0,
        },
    )?;
    if !extension.uncertainties.is_empty() {
        bytes.extend(encode("attempt", &extension)?);
    }
    readable("attempt", bytes, decode_attempt)
}

/// Decodes an attempt's record.
pub fn decode_attempt(bytes: &[u8]) -> Result<Attempt, WireError> {
    decode_attempt_if(bytes, |_| Ok(()))
}

/// As [`decode_attempt`], if `may` allows this many lists and tables.
pub(super) fn decode_attempt_if<E: From<WireError>>(
    bytes: &[u8],
    may: impl FnOnce(usize) -> Result<(), E>,
) -> Result<Attempt, E> {
    let (wire, rest): (AttemptV1, _) = decode_first("attempt", bytes)?;
    may(wire.settings.containers() + wire.facts.containers())?;
    Ok(attempt_of(wire, rest)?)
}

fn attempt_of(wire: AttemptV1, rest: &[u8]) -> Result<Attempt, WireError> {
    let extension = if rest.is_empty() { None } else { Some(decode::<ExtensionV1>("attempt", rest)?) };
    let series = wire.series.into_iter().map(|series| {
        Ok(SeriesSummary {
            name: series.name,
            unit: series.unit,
            axis: axis_of(series.axis)?,
            len: series.len,
            digest: Digest(series.digest),
        })
    });
    let mut metrics: BTreeMap<String, Metric> = wire
        .metrics
        .into_iter()
        .map(|m| {
            let value = m.value.map(f64::from_bits);
            (m.name, Metric { value, unit: m.unit, reason: m.reason, uncertainty: None })
        })
        .collect();
    for (name, uncertainty) in extension.map(|extension| extension.uncertainties).unwrap_or_default() {
        let of_none = WireError::Shape { what: "attempt", fault: "an uncertainty is of no metric" };
        metrics.get_mut(&name).ok_or(of_none)?.uncertainty = Some(f64::from_bits(uncertainty));
    }
    Ok(Attempt {
        run: RunId(Digest(wire.run)),
        nonce: Nonce(wire.nonce),
        started_unix_ms: wire.started_unix_ms,
        wall_ns: wire.wall_ns,
        outcome: wire.outcome.into_outcome(),
        exit: wire.exit.map(ExitV1::into_exit),
        metrics,
        digests: wire.digests.into_iter().map(|(name, digest)| (name, Digest(digest))).collect(),
        settings: wire.settings.into_table()?,
        facts: wire.facts.into_table()?,
        warnings: wire.warnings,
        tail: Tail { stderr: wire.stderr_tail, stdout: wire.stdout_tail, events: wire.last_events },
        series: series.collect::<Result<_, WireError>>()?,
        phases: Digest(wire.phases),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(metric: Metric) -> Attempt {
        Attempt {
            run: RunId(Digest::of(b"run")),
            nonce: Nonce([7; 16]),
            started_unix_ms: 1,
            wall_ns: 2,
            exit: Some(Exit::Code(0)),
            metrics: [("energy".to_owned(), metric)].into(),
            phases: Digest::of(b""),
            ..Attempt::sample()
        }
    }

    #[test]
    fn an_uncertainty_follows_the_record_and_changes_its_id() {
        let without = attempt(Metric::new(12.4e3, "J"));
        let with = attempt(Metric::within(12.4e3, 645.0, "J"));
        let (short, long) = (encode_attempt(&without).unwrap(), encode_attempt(&with).unwrap());
        assert!(long.starts_with(&short) && long.len() > short.len());
        assert_eq!(decode_attempt(&short).unwrap(), without);
        assert_eq!(decode_attempt(&long).unwrap(), with);
        assert_ne!(with.id(), without.id());
        assert!(decode_attempt(&long[..long.len() - 1]).is_err());
    }

    #[test]
    fn records_that_could_not_be_decoded_are_not_written() {
        let whole = attempt(Metric::new(1.0, "J"));
        let warning = "phase `p` 0 was stopped but never started".to_owned();
        let long = Attempt { warnings: vec![warning; 1_700_000], ..whole.clone() };
        let nested = |depth: usize| (0..depth).fold(Value::Int(1), |inner, _| Value::List(vec![inner]));
        let facts = |depth: usize| Table::from([("deep".to_owned(), nested(depth))]);
        let deep = Attempt { facts: facts(MAX_DEPTH), ..whole.clone() };
        for refused in [long, deep] {
            assert!(matches!(encode_attempt(&refused), Err(WireError::Unreadable { what: "attempt", .. })));
        }
        let kept = Attempt { facts: facts(MAX_DEPTH - 1), ..whole };
        assert_eq!(decode_attempt(&encode_attempt(&kept).unwrap()).unwrap(), kept);
    }
}
