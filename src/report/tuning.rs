//! The answer to `tune`.

use super::contrast::change;
use super::document::table_of;
use super::number::{count, percent, significant};
use super::ranking::{Ranking, best_text, best_value};
use super::table::columns;
use crate::record::{RunId, Table, Value};

/// A round of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// How many configurations were in it, the base among them.
    pub configurations: usize,
    /// How many attempts each of them has at its end, at least.
    pub attempts: usize,
    /// How many attempts were executed for it; the others were there before.
    pub executed: usize,
}

/// A configuration that is not in the last round.
#[derive(Clone, Debug, PartialEq)]
pub struct Gone {
    /// Its run, and that one's short id; none where it cannot be a run.
    pub run: Option<(RunId, String)>,
    /// In what it differs from the base.
    pub changes: Table,
    /// The round after which it went, from 1; 0 where it began none.
    pub round: usize,
    /// Why it went.
    pub why: String,
}

/// What the best configuration and the base have learned, by their means.
#[derive(Clone, Debug, PartialEq)]
pub struct Learned {
    /// The metric that tells.
    pub metric: String,
    /// Of the best configuration.
    pub best: f64,
    /// Of the base.
    pub base: f64,
}

/// What a search found.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// The configurations of the last round that are fast enough, the base among them.
    pub ranking: Ranking,
    /// The short id of the run from which it began.
    pub base: String,
    /// Which time is bounded, and by how large a share it may be above the base's.
    pub slower_at_most: Option<(String, f64)>,
    /// The limits that the fresh attempts of the first configuration miss, each with what they have.
    pub missed: Vec<String>,
    /// What the first configuration has learned beside the base; none where neither says.
    pub learned: Option<Learned>,
    /// What was searched, a line for each field.
    pub searched: Vec<String>,
    /// What was not searched, and why.
    pub not_searched: Vec<String>,
    /// The rounds.
    pub rounds: Vec<Round>,
    /// The configurations that were left behind.
    pub gone: Vec<Gone>,
}

/// What was searched and how, the configurations of the last round, and what became of the others.
pub fn tuning_text(tuning: &Tuning) -> String {
    let mut text = format!("searched from {}: {}\n", tuning.base, tuning.searched.join("; "));
    text.push_str(&not_searched_text(&tuning.not_searched));
    let rounds = (1..).zip(&tuning.rounds).map(|(number, round): (usize, _)| {
        [number, round.configurations, round.attempts, round.executed].map(|number| number.to_string()).to_vec()
    });
    text.push_str(&columns(&[">ROUND", ">CONFIGURATIONS", ">ATTEMPTS OF EACH", ">EXECUTED NOW"], rounds));
    text.push('\n');
    text.push_str(&best_text(&tuning.ranking));
    if !tuning.missed.is_empty() {
        text.push_str(&format!("not confirmed by the new attempts: #1 has {}\n", tuning.missed.join("; ")));
    } else if let Some((time, share)) = &tuning.slower_at_most {
        text.push_str(&format!("within {}% of the base's {time}\n", significant(100.0 * share)));
    }
    if let Some(Learned { metric, best, base }) = &tuning.learned {
        text.push_str(&learned_text(metric, *best, *base));
    }
    text.push_str(&gone_text(&tuning.gone));
    text
}

/// What two have learned, shares in points: `accuracy 0.8828 (0.8883 at the base, -0.55 points)`.
fn learned_text(metric: &str, best: f64, base: f64) -> String {
    let change = change(metric, "", Some(base), Some(best)).map(|text| format!(", {text}")).unwrap_or_default();
    let (best, base) = (significant(best), significant(base));
    format!("what #1 learned: {metric} {best} ({base} at the base{change})\n")
}

/// What is not searched, and what was left behind before the first round.
pub fn left_behind_text(not_searched: &[String], gone: &[Gone]) -> String {
    format!("{}{}", not_searched_text(not_searched), gone_text(gone))
}

/// The same as a document's members.
pub fn left_behind_value(not_searched: &[String], gone: &[Gone]) -> Table {
    table_of([("not_searched", not_searched.to_vec().into()), ("gone", gone_value(gone))])
}

fn not_searched_text(lines: &[String]) -> String {
    lines.iter().map(|line| format!("not searched: {line}\n")).collect()
}

fn gone_text(all: &[Gone]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let rows = all.iter().map(|gone| {
        let id = gone.run.as_ref().map_or_else(|| "-".to_owned(), |(_, short)| short.clone());
        let round = if gone.round == 0 { "-".to_owned() } else { gone.round.to_string() };
        vec![id, changes_text(&gone.changes), round, gone.why.clone()]
    });
    format!("\nleft behind\n{}", columns(&["RUN", "WITH", ">AFTER ROUND", "WHY"], rows))
}

fn gone_value(all: &[Gone]) -> Value {
    let gone = all.iter().map(|gone| {
        let mut item = table_of([
            ("changes", Value::Table(gone.changes.clone())),
            ("round", gone.round.into()),
            ("why", gone.why.as_str().into()),
        ]);
        item.extend(gone.run.as_ref().map(|(run, _)| ("run".to_owned(), run.to_string().into())));
        Value::Table(item)
    });
    Value::List(gone.collect())
}

/// What differs, by the last words of the names: `batch_size 32, precision bf16`.
fn changes_text(changes: &Table) -> String {
    let one = |(name, value): (&String, &Value)| {
        format!("{} {value}", name.rsplit_once('.').map_or(name.as_str(), |(_, last)| last))
    };
    changes.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Why one went that was slower than allowed.
pub fn too_slow(time: &str, share: f64) -> String {
    format!("{} {time}, slower than allowed", percent(share))
}

/// Why one went that was not among the better half.
pub fn behind(better: usize) -> String {
    format!("{} {} better", count(better, "candidate"), if better == 1 { "is" } else { "are" })
}

/// The same as a document.
pub fn tuning_value(tuning: &Tuning) -> Table {
    let mut members = best_value(&tuning.ranking);
    let rounds = tuning.rounds.iter().map(|round| {
        Value::Table(table_of([
            ("configurations", round.configurations.into()),
            ("attempts", round.attempts.into()),
            ("executed", round.executed.into()),
        ]))
    });
    members.insert("rounds".to_owned(), Value::List(rounds.collect()));
    members.insert("gone".to_owned(), gone_value(&tuning.gone));
    members.insert("searched".to_owned(), tuning.searched.clone().into());
    members.insert("not_searched".to_owned(), tuning.not_searched.clone().into());
    if let Some(Learned { metric, best, base }) = &tuning.learned {
        let learned =
            table_of([("metric", metric.as_str().into()), ("best", (*best).into()), ("base", (*base).into())]);
        members.insert("learned".to_owned(), Value::Table(learned));
    }
    if let Some((time, share)) = &tuning.slower_at_most {
        let bound = table_of([("time_metric", time.as_str().into()), ("share", (*share).into())]);
        members.insert("slower_at_most".to_owned(), Value::Table(bound));
    }
    if !tuning.missed.is_empty() {
        members.insert("missed".to_owned(), tuning.missed.clone().into());
    }
    members
}

/// What was searched of one field: `batch_size 16, 64, 128 (32 at the base)`.
pub fn searched_text(field: &str, values: &[Value], base: Option<&Value>) -> String {
    let name = field.rsplit_once('.').map_or(field, |(_, last)| last);
    let values: Vec<String> = values.iter().map(Value::to_string).collect();
    let base = base.map_or_else(|| "as it is".to_owned(), Value::to_string);
    format!("{name} {} ({base} at the base)", values.join(", "))
}

/// How many configurations were not drawn.
pub fn drawn_text(left: usize) -> String {
    format!("{} more (--candidates allows more)", count(left, "configuration"))
}
