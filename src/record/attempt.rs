//! An attempt: one execution of a run, as it is sealed.

use super::digest::digest_id;
use super::replicate::short;
use super::{Digest, Metric, Phase, RunId, SeriesSummary, Table, Value};
use std::collections::BTreeMap;
use std::fmt;

digest_id! {
    /// The id of an attempt: the hash of its sealed content.
    AttemptId
}

/// Sixteen random bytes that identify an execution before its id is known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Nonce(pub [u8; 16]);

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

const RUNNING: &str = "it is still running";

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It completed, whatever its results are.
    Finished,
    /// It could not complete.
    Failed {
        /// The reason.
        reason: String,
    },
    /// A person or a program stopped it.
    Interrupted {
        /// What stopped it.
        reason: String,
    },
}

impl Outcome {
    /// The outcome of an attempt that is shown before it is sealed. No sealed attempt has it.
    pub fn running() -> Self {
        Self::Interrupted { reason: RUNNING.to_owned() }
    }

    /// Whether it is [`running`](Self::running).
    pub fn is_running(&self) -> bool {
        self.reason() == Some(RUNNING)
    }

    /// `finished`, `failed` or `interrupted`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Failed { .. } => "failed",
            Self::Interrupted { .. } => "interrupted",
        }
    }

    /// Why it did not finish; `None` if it did.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Finished => None,
            Self::Failed { reason } | Self::Interrupted { reason } => Some(reason),
        }
    }
}

/// How the worker's process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It returned this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

/// The last output of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Tail {
    /// The end of its standard error.
    pub stderr: String,
    /// The end of its standard output.
    pub stdout: String,
    /// Its last events, as received.
    pub events: Vec<String>,
}

/// One execution of a run, sealed: it never changes again.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// The run that was executed.
    pub run: RunId,
    /// Identifies the execution: a journal that is found twice is sealed once.
    pub nonce: Nonce,
    /// The start in milliseconds since the Unix epoch, by the host's clock, which may jump. Durations do not use it.
    pub started_unix_ms: i64,
    /// The time from the worker's start to its end, by the monotonic clock; 0 if it was not measured.
    pub wall_ns: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// How the process ended; `None` if it was never started or its end was not observed.
    pub exit: Option<Exit>,
    /// The metrics, by name.
    pub metrics: BTreeMap<String, Metric>,
    /// The digests that a rerun has to reproduce: of the final weights and of the generated data.
    pub digests: BTreeMap<String, Digest>,
    /// The cell's fields that are not part of the identity.
    pub settings: Table,
    /// Other observations: host, versions, git, own cost. They are recorded and never hashed into a run's id.
    pub facts: Table,
    /// Warnings for readers of the numbers.
    pub warnings: Vec<String>,
    /// The last output, kept if the attempt did not finish.
    pub tail: Tail,
    /// The series that are stored next to this record, sorted by name.
    pub series: Vec<SeriesSummary>,
    /// The hash of the phases that are stored next to this record (see
    /// [`Phase::digest_all`](super::Phase::digest_all)).
    pub phases: Digest,
}

impl Attempt {
    /// A finished attempt with nothing recorded, for tests.
    #[doc(hidden)]
    pub fn sample() -> Self {
        Self {
            run: RunId(Digest([0; 32])),
            nonce: Nonce([0; 16]),
            started_unix_ms: 0,
            wall_ns: 0,
            outcome: Outcome::Finished,
            exit: None,
            metrics: BTreeMap::new(),
            digests: BTreeMap::new(),
            settings: Table::new(),
            facts: Table::new(),
            warnings: Vec::new(),
            tail: Tail::default(),
            series: Vec::new(),
            phases: Phase::digest_all(&[]),
        }
    }

    /// The hash of the whole content as a value.
    pub fn id(&self) -> AttemptId {
        AttemptId(Digest::of_pieces("ledger attempt v1", &[&self.to_value().digest().0]))
    }

    /// The fact that lists why the attempt's numbers are invalid.
    pub const TAINT: &str = "tainted";
    /// In the fact `import` of a row: the GPU or host that measured it.
    pub const IMPORTED_MACHINE: &str = "machine";
    /// The fact with the validity flag of the measurements: `valid` or `tainted`.
    pub const VALIDITY: &str = "validity";
    /// The fact that lists why the measurements of times, power and energy are invalid.
    pub const DISTURBED: &str = "validity.reasons";

    /// The fact with the id of the attempt that this one repeats.
    pub const RERUN_OF: &str = "rerun.of";

    /// The fact that marks an attempt as executed by a user: a hash of that user's key, the run and the settings.
    pub const EXECUTED_BY: &str = "execution.mark";

    /// The attempt that this one repeats, if it is a rerun.
    pub fn rerun_of(&self) -> Option<AttemptId> {
        self.facts.get(Self::RERUN_OF)?.as_str()?.parse().ok().map(AttemptId)
    }

    /// The fact with the round of a sweep in which the attempt was executed: `SWEEP:ROUND`.
    pub const ROUND: &str = "sweep.round";

    /// The fact with the kind of a failure.
    pub const FAILURE: &str = "failure";
    /// The kind of a failure by lack of GPU memory.
    pub const OUT_OF_MEMORY: &str = "oom";

    /// Whether it failed by lack of GPU memory.
    pub fn is_out_of_memory(&self) -> bool {
        self.facts.get(Self::FAILURE).and_then(Value::as_str) == Some(Self::OUT_OF_MEMORY)
    }

    /// A number that is equal for attempts of one round of one sweep; `None` for an attempt outside of a sweep.
    pub fn round(&self) -> Option<u64> {
        Some(short(&Digest::of(self.facts.get(Self::ROUND)?.as_str()?.as_bytes())))
    }

    /// The value of a metric, if it has one.
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.get(name).and_then(|metric| metric.value)
    }

    /// The whole content as one value, for hashing and for output.
    pub fn to_value(&self) -> Value {
        let mut table = Table::new();
        let mut put = |key: &str, value: Value| {
            table.insert(key.to_owned(), value);
        };
        put("run", self.run.to_string().into());
        put("nonce", self.nonce.to_string().into());
        put("started_unix_ms", self.started_unix_ms.into());
        put("wall_ns", self.wall_ns.into());
        put("outcome", self.outcome.name().into());
        if let Some(reason) = self.outcome.reason() {
            put("reason", reason.into());
        }
        match self.exit {
            Some(Exit::Code(code)) => put("exit_code", i64::from(code).into()),
            Some(Exit::Signal(signal)) => put("exit_signal", i64::from(signal).into()),
            None => {}
        }
        put("metrics", named(&self.metrics, metric_value));
        put("digests", named(&self.digests, |digest| digest.to_string().into()));
        put("settings", self.settings.clone().into());
        put("facts", self.facts.clone().into());
        put("warnings", self.warnings.clone().into());
        put("stderr_tail", self.tail.stderr.as_str().into());
        put("stdout_tail", self.tail.stdout.as_str().into());
        put("last_events", self.tail.events.clone().into());
        put("series", Value::List(self.series.iter().map(series_value).collect()));
        put("phases_digest", self.phases.to_string().into());
        table.into()
    }
}

fn named<T>(map: &BTreeMap<String, T>, value: impl Fn(&T) -> Value) -> Value {
    Value::Table(map.iter().map(|(key, item)| (key.clone(), value(item))).collect())
}

fn metric_value(metric: &Metric) -> Value {
    let mut table: Table = [("unit".to_owned(), metric.unit.as_str().into())].into();
    if let Some(value) = metric.value {
        table.insert("value".to_owned(), value.into());
    }
    if let Some(reason) = &metric.reason {
        table.insert("reason".to_owned(), reason.as_str().into());
    }
    if let Some(uncertainty) = metric.uncertainty {
        table.insert("uncertainty".to_owned(), uncertainty.into());
    }
    table.into()
}

fn series_value(series: &SeriesSummary) -> Value {
    Value::Table(
        [
            ("name".to_owned(), series.name.as_str().into()),
            ("unit".to_owned(), series.unit.as_str().into()),
            ("axis".to_owned(), series.axis.name().into()),
            ("len".to_owned(), series.len.into()),
            ("digest".to_owned(), series.digest.to_string().into()),
        ]
        .into(),
    )
}
