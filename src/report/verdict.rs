//! Verdicts of reruns, as text and as a document.

use super::difference::{fields_value, parts_value};
use super::document::table_of;
use super::number::{count, significant};
use super::plain;
use super::ranking::probability;
use super::table::columns;
use crate::analysis::{
    Divergence, FieldDifference, Grade, Judged, PartDifference, Verdict, compared_metrics, is_computed,
};
use crate::record::{AttemptId, RunId, Sealed, Table, Value};

/// Returns the verdict, each rerun if there are several, and the tests of metrics.
pub fn verdict_text(verdict: &Verdict, original: AttemptId, sealed: &Sealed, reruns: &[(AttemptId, RunId)]) -> String {
    let named: Vec<String> = reruns.iter().map(|(id, _)| id.0.prefix(8)).collect();
    let mut text = match verdict.grade {
        Grade::Identical => format!(
            "identical: {} ({} and {}){}\n",
            compared(sealed),
            original.0.prefix(8),
            named.join(", "),
            if verdict.detail.is_empty() { String::new() } else { format!("; {}", plain(&verdict.detail)) },
        ),
        grade => format!("{}: {}\n", grade.name(), plain(&verdict.detail)),
    };
    if verdict.reruns.len() > 1 && verdict.grade != Grade::Identical {
        let rows = verdict
            .reruns
            .iter()
            .zip(&named)
            .map(|(judged, name)| vec![name.clone(), judged.grade.name().to_owned(), verdict.detail_of(judged)]);
        text.push_str(&columns(&["RERUN", "VERDICT", "WHY"], rows));
    }
    // The attempts of a drifted rerun can be compared in detail.
    let mut drifted = verdict.reruns.iter().zip(&named).filter(|(judged, _)| judged.grade == Grade::Drifted);
    if let (Grade::Drifted, Some((_, drifted))) = (verdict.grade, drifted.next()) {
        text.push_str(&format!("`ledger compare {} {drifted}` compares the two attempts\n", original.0.prefix(8)));
    }
    if !verdict.tested.is_empty() && verdict.grade != Grade::Identical {
        let rows = verdict.tested.iter().map(|one| {
            // Equal bits are within any margin without a test.
            let p = match one.p {
                Some(0.0) if one.means.0 == one.means.1 => "same".to_owned(),
                p => p.map_or_else(|| "-".to_owned(), probability),
            };
            let (before, after) = (significant(one.means.0), significant(one.means.1));
            vec![one.metric.clone(), before, after, significant(one.margin), format!("{} + {}", one.n.0, one.n.1), p]
        });
        text.push_str(&columns(&["METRIC", "BEFORE", "NOW", "MARGIN", "N", "P"], rows));
        text.push_str(
            "P below 0.05 shows that the metric is within the margin (two one-sided tests); a larger P shows nothing\n",
        );
    }
    text
}

/// Describes what was compared and is equal; kinds without any item are left out.
fn compared(sealed: &Sealed) -> String {
    let curves = sealed.series.iter().filter(|series| is_computed(series)).count();
    let all = [(curves, "curve"), (sealed.attempt.digests.len(), "digest"), (compared_metrics(sealed), "metric")];
    let mut told = all.into_iter().filter(|(number, _)| *number > 0).map(|(number, what)| count(number, what));
    let first = told.next().unwrap_or_default();
    let rest: Vec<String> = told.collect();
    if rest.is_empty() {
        format!("{first} bit for bit")
    } else {
        format!("{first} bit for bit, and {}", rest.join(" and "))
    }
}

/// Returns the verdict as a document's members.
pub fn verdict_value(
    verdict: &Verdict,
    original: AttemptId,
    reruns: &[(AttemptId, RunId)],
    parts: &[PartDifference],
    environment: &[FieldDifference],
) -> Table {
    let mut table = table_of([
        ("verdict", verdict.grade.name().into()),
        ("detail", verdict.detail.as_str().into()),
        ("original", original.to_string().into()),
        ("class", verdict.class.name().into()),
        ("tolerance", verdict.class.tolerance().into()),
        ("environment", fields_value(environment)),
        ("parts", parts_value(parts)),
    ]);
    if let Some((id, run)) = reruns.first() {
        table.insert("rerun".to_owned(), id.to_string().into());
        table.insert("run".to_owned(), run.to_string().into());
    }
    let each = verdict.reruns.iter().zip(reruns).map(|(judged, (id, _))| {
        let mut one = table_of([
            ("rerun", id.to_string().into()),
            ("verdict", judged.grade.name().into()),
            ("detail", verdict.detail_of(judged).into()),
            ("parts", judged.parts.iter().map(|part| part.name()).collect::<Vec<_>>().into()),
        ]);
        one.extend(divergence(judged));
        Value::Table(one)
    });
    table.insert("reruns".to_owned(), Value::List(each.collect()));
    let tested = verdict.tested.iter().map(|one| {
        let mut row = table_of([
            ("metric", one.metric.as_str().into()),
            ("before", one.means.0.into()),
            ("now", one.means.1.into()),
            ("n_before", one.n.0.into()),
            ("n_now", one.n.1.into()),
            ("margin", one.margin.into()),
        ]);
        row.extend(one.p.map(|p| ("p".to_owned(), Value::Float(p))));
        Value::Table(row)
    });
    table.insert("tested".to_owned(), Value::List(tested.collect()));
    table
}

fn divergence(judged: &Judged) -> Table {
    let Some(Divergence { first, phase, curves, also, digests, metrics, .. }) = &judged.divergence else {
        return Table::new();
    };
    let mut table = table_of([
        ("curves", curves.clone().into()),
        ("also", also.clone().into()),
        ("digests", digests.clone().into()),
        ("metrics", metrics.clone().into()),
    ]);
    if let Some(first) = first {
        table.insert("curve".to_owned(), first.name.as_str().into());
        table.extend(first.first_step.map(|step| ("step".to_owned(), step.into())));
    }
    table.extend(phase.as_ref().map(|phase| ("phase".to_owned(), phase.as_str().into())));
    table
}
