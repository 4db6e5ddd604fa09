//! Metrics in the text form that Prometheus scrapes, and that its node exporter takes from files.
//!
//! Names follow its conventions: base units as suffixes, shares from 0 to 1, and what is not a measurement as labels.

use super::Entry;
use crate::record::known_metric;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Every metric of every attempt as a gauge, and one `ledger_attempt_info` an attempt that has its fields as labels.
///
/// A metric at a size, `inference_time@32`, is the metric with the label `at`. Non-finite values are `NaN`, `+Inf` and `-Inf`.
pub fn prometheus_text(entries: &[Entry]) -> String {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    for entry in entries {
        for (name, metric) in &entry.attempt().metrics {
            let Some(value) = metric.value else { continue };
            let (plain, at) = name.split_once('@').map_or((name.as_str(), None), |(plain, at)| (plain, Some(at)));
            let (suffix, factor) = suffix(&metric.unit);
            let mut labels = ids(entry);
            labels.extend(at.map(|at| ("at".to_owned(), at.to_owned())));
            let help = known_metric(name).map_or("a metric of the program's own", |known| known.meaning);
            let family = families.entry(identifier(&format!("ledger_{plain}{suffix}"))).or_default();
            family.help = help;
            family.samples.push(sample(&labels, value * factor));
        }
        let mut labels = ids(entry);
        labels.push(("outcome".to_owned(), entry.attempt().outcome.name().to_owned()));
        labels.push(("tainted".to_owned(), (!entry.attempt().all_taints().is_empty()).to_string()));
        let taken: Vec<String> = labels.iter().map(|(name, _)| name.clone()).collect();
        for (name, value) in entry.fields() {
            let name = identifier(name);
            if !taken.contains(&name) && !labels.iter().any(|(other, _)| *other == name) {
                labels.push((name, value));
            }
        }
        let family = families.entry("ledger_attempt_info".to_owned()).or_default();
        family.help = "what an attempt is, its fields as labels";
        family.samples.push(sample(&labels, 1.0));
        let family = families.entry("ledger_attempt_start_timestamp_seconds".to_owned()).or_default();
        family.help = "when an attempt started, since the Unix epoch";
        #[expect(clippy::cast_precision_loss, reason = "milliseconds of this age are far below 2^53")]
        let started_s = entry.attempt().started_unix_ms as f64 / 1e3;
        family.samples.push(sample(&ids(entry), started_s));
    }
    families.iter().fold(String::new(), |mut text, (name, family)| {
        let help = family.help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a String does not fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        family.samples.iter().for_each(|sample| {
            let _ = writeln!(text, "{name}{sample}");
        });
        text
    })
}

#[derive(Default)]
struct Family {
    help: &'static str,
    samples: Vec<String>,
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

/// What is behind a name by the unit, and the factor to the base unit.
fn suffix(unit: &str) -> (&'static str, f64) {
    match unit {
        "s" => ("_seconds", 1.0),
        "J" => ("_joules", 1.0),
        "W" => ("_watts", 1.0),
        "B" => ("_bytes", 1.0),
        "J·s" => ("_joule_seconds", 1.0),
        "%" => ("_ratio", 0.01),
        "degC" | "°C" => ("_celsius", 1.0),
        "samples/s" => ("_samples_per_second", 1.0),
        "TFLOP/s" => ("_flops", 1e12),
        _ => ("", 1.0),
    }
}

/// Letters, digits and underscores, no digit in front.
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
