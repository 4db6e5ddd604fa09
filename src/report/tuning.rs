//! The output of `tune`.

use super::contrast::change;
use super::document::table_of;
use super::number::{count, percent, significant};
use super::ranking::{Ranking, best_text, best_value};
use super::table::columns;
use crate::record::{RunId, Table, Value};

/// A round of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Number of configurations, including the base.
    pub configurations: usize,
    /// Least number of attempts that each configuration has at the end of the round.
    pub attempts: usize,
    /// Number of attempts executed for this round; the others existed before.
    pub executed: usize,
}

/// A configuration that was eliminated before the last round.
#[derive(Clone, Debug, PartialEq)]
pub struct Gone {
    /// Its run and the run's short id; `None` if it cannot be a run.
    pub run: Option<(RunId, String)>,
    /// The fields in which it differs from the base.
    pub changes: Table,
    /// The last round that it took part in, from 1; 0 if none.
    pub round: usize,
    /// Why it was eliminated.
    pub why: String,
}

/// The mean outcome of the best configuration and of the base.
#[derive(Clone, Debug, PartialEq)]
pub struct Learned {
    /// The outcome metric.
    pub metric: String,
    /// Mean of the best configuration.
    pub best: f64,
    /// Mean of the base.
    pub base: f64,
}

/// The result of a search.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// The configurations of the last round that are fast enough, including the base.
    pub ranking: Ranking,
    /// The short id of the base's run.
    pub base: String,
    /// The bounded time metric, and the largest allowed increase over the base as a share.
    pub slower_at_most: Option<(String, f64)>,
    /// The limits that new attempts of the first configuration miss, each with the measured value.
    pub missed: Vec<String>,
    /// Outcome of the first configuration and of the base; `None` if neither has one.
    pub learned: Option<Learned>,
    /// The searched fields, one line each.
    pub searched: Vec<String>,
    /// Fields that were not searched, with the reasons.
    pub not_searched: Vec<String>,
    /// The rounds.
    pub rounds: Vec<Round>,
    /// The eliminated configurations.
    pub gone: Vec<Gone>,
}

/// Returns the search space, the rounds, the ranking of the last round and the eliminated configurations as text.
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

/// Compares two outcomes; shares in points: `accuracy 0.8828 (0.8883 at the base, -0.55 points)`.
fn learned_text(metric: &str, best: f64, base: f64) -> String {
    let change = change(metric, "", Some(base), Some(best)).map(|text| format!(", {text}")).unwrap_or_default();
    let (best, base) = (significant(best), significant(base));
    format!("what #1 learned: {metric} {best} ({base} at the base{change})\n")
}

/// Returns the fields that are not searched, and configurations eliminated before the first round, as text.
pub fn left_behind_text(not_searched: &[String], gone: &[Gone]) -> String {
    format!("{}{}", not_searched_text(not_searched), gone_text(gone))
}

/// Returns both as a document's members.
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

/// Lists changes by the last component of their names: `batch_size 32, precision bf16`.
fn changes_text(changes: &Table) -> String {
    let one = |(name, value): (&String, &Value)| {
        format!("{} {value}", name.rsplit_once('.').map_or(name.as_str(), |(_, last)| last))
    };
    changes.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Returns the reason for eliminating a configuration that exceeds the time limit.
pub fn too_slow(time: &str, share: f64) -> String {
    format!("{} {time}, slower than allowed", percent(share))
}

/// Returns the reason for eliminating a configuration outside the better half.
pub fn behind(better: usize) -> String {
    format!("{} {} better", count(better, "candidate"), if better == 1 { "is" } else { "are" })
}

/// Returns the result of a search as a document's members.
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

/// Describes the searched values of a field: `batch_size 16, 64, 128 (32 at the base)`.
pub fn searched_text(field: &str, values: &[Value], base: Option<&Value>) -> String {
    let name = field.rsplit_once('.').map_or(field, |(_, last)| last);
    let values: Vec<String> = values.iter().map(Value::to_string).collect();
    let base = base.map_or_else(|| "as it is".to_owned(), Value::to_string);
    format!("{name} {} ({base} at the base)", values.join(", "))
}

/// Describes how many configurations were not drawn.
pub fn drawn_text(left: usize) -> String {
    format!("{} more (--candidates allows more)", count(left, "configuration"))
}
