//! Metrics in Prometheus's text format, which its node exporter also reads from files.
//!
//! Names follow Prometheus's conventions: base units as suffixes, shares from 0 to 1, and labels for everything that is not measured.

use super::{Entry, distinct};
use crate::record::known_metric;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// The names of metrics. All attempts are needed before the first sample, because names that would become equal are distinguished.
#[derive(Default)]
pub struct PrometheusNames {
    sources: BTreeSet<String>,
}

impl PrometheusNames {
    /// Includes the names of an attempt.
    pub fn see(&mut self, entry: &Entry) {
        let metrics = entry.attempt().metrics.iter();
        self.sources.extend(metrics.map(|(name, metric)| source(parted(name).0, suffix(&metric.unit).0)));
    }

    /// Returns the families of samples with these names.
    pub fn families(self) -> PrometheusFamilies {
        let names = distinct(self.sources, &[INFO, STARTED], |source| {
            let (plain, suffix) = source.split_once(BETWEEN).unwrap_or((source, ""));
            let name = identifier(&format!("ledger_{plain}{suffix}"));
            (name, identifier(plain) == plain)
        });
        PrometheusFamilies { names, families: BTreeMap::new() }
    }
}

/// The samples: every metric as a gauge, and one `ledger_attempt_info` per attempt with its fields as labels.
///
/// A metric at a size, `inference_time@32`, is the metric with the label `at`. Non-finite values are `NaN`, `+Inf` and `-Inf`.
pub struct PrometheusFamilies {
    names: BTreeMap<String, String>,
    families: BTreeMap<String, Family>,
}

impl PrometheusFamilies {
    /// Adds the samples of an attempt.
    pub fn add(&mut self, entry: &Entry) {
        let families = &mut self.families;
        for (name, metric) in &entry.attempt().metrics {
            let Some(value) = metric.value else { continue };
            let (plain, at) = parted(name);
            let (suffix, based) = suffix(&metric.unit);
            let Some(family) = self.names.get(&source(plain, suffix)) else { continue };
            let mut labels = ids(entry);
            labels.extend(at.map(|at| ("at".to_owned(), at.to_owned())));
            let own = || match identifier(plain) == plain {
                true => "a metric of the program's own".to_owned(),
                false => format!("a metric of the program's own, `{plain}`"),
            };
            let family = families.entry(family.clone()).or_default();
            family.help = known_metric(name).map_or_else(own, |known| known.meaning.to_owned());
            family.push(&labels, based(value));
        }
        let mut labels = ids(entry);
        labels.push(("outcome".to_owned(), entry.attempt().outcome.name().to_owned()));
        labels.push(("tainted".to_owned(), (!entry.attempt().all_taints().is_empty()).to_string()));
        let mut fields = entry.fields();
        let taken: Vec<&str> = labels.iter().map(|(name, _)| name.as_str()).collect();
        let names = distinct(fields.keys().cloned(), &taken, |name| (identifier(name), identifier(name) == name));
        labels.extend(names.into_iter().filter_map(|(name, label)| Some((label, fields.remove(&name)?))));
        let family = families.entry(INFO.to_owned()).or_default();
        family.help = "what an attempt is, its fields as labels".to_owned();
        family.push(&labels, 1.0);
        let family = families.entry(STARTED.to_owned()).or_default();
        family.help = "when an attempt started, since the Unix epoch".to_owned();
        #[expect(clippy::cast_precision_loss, reason = "milliseconds of this age are far below 2^53")]
        let started_s = entry.attempt().started_unix_ms as f64 / 1e3;
        family.push(&ids(entry), started_s);
    }

    /// Writes the samples, grouped by name.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn write(self, out: &mut dyn io::Write) -> io::Result<()> {
        for (name, family) in self.families {
            let help = family.help.replace('\\', "\\\\").replace('\n', "\\n");
            writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge")?;
            family.samples.iter().try_for_each(|sample| writeln!(out, "{name}{sample}"))?;
        }
        Ok(())
    }
}

/// The families that are not metrics.
const INFO: &str = "ledger_attempt_info";
const STARTED: &str = "ledger_attempt_start_timestamp_seconds";
/// The separator between a name and its suffix in [`source`], which occurs in neither.
const BETWEEN: char = '\u{0}';

/// Splits the name of a metric at a size into name and size.
fn parted(name: &str) -> (&str, Option<&str>) {
    name.split_once('@').map_or((name, None), |(plain, at)| (plain, Some(at)))
}

/// Returns the key of a family of samples.
fn source(plain: &str, suffix: &str) -> String {
    format!("{plain}{BETWEEN}{suffix}")
}

#[derive(Default)]
struct Family {
    help: String,
    samples: Vec<Box<str>>,
}

impl Family {
    fn push(&mut self, labels: &[(String, String)], value: f64) {
        self.samples.push(sample(labels, value).into());
    }
}

fn ids(entry: &Entry) -> Vec<(String, String)> {
    let run = &entry.sealed.run;
    let own = |name: &str, value: String| (name.to_owned(), value);
    vec![
        own("attempt", entry.id.to_string()),
        own("run", run.id.to_string()),
        own("model", run.model().to_owned()),
        own("seed", run.parts.seed.to_string()),
    ]
}

/// Returns the suffix for a unit, and the conversion to the base unit.
fn suffix(unit: &str) -> (&'static str, fn(f64) -> f64) {
    match unit {
        "s" => ("_seconds", |value| value),
        "J" => ("_joules", |value| value),
        "W" => ("_watts", |value| value),
        "B" => ("_bytes", |value| value),
        "J·s" => ("_joule_seconds", |value| value),
        // 0.01 is not exact in binary: multiplied by it, 35% would not be 0.35.
        "%" => ("_ratio", |value| value / 100.0),
        "degC" | "°C" => ("_celsius", |value| value),
        "samples/s" => ("_samples_per_second", |value| value),
        "images/s" => ("_images_per_second", |value| value),
        "tokens/s" => ("_tokens_per_second", |value| value),
        "TFLOP/s" => ("_flops", |value| value * 1e12),
        _ => ("", |value| value),
    }
}

/// Returns an identifier of letters, digits and underscores, without a leading digit.
fn identifier(name: &str) -> String {
    let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if plain.starts_with(|c: char| c.is_ascii_digit()) { format!("_{plain}") } else { plain }
}

fn sample(labels: &[(String, String)], value: f64) -> String {
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    let number = match value {
        value if value.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        value => format!("{value:?}"),
    };
    format!("{{{}}} {number}", labels.join(","))
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
