//! Plots the energy of attempts, stacked by phase.

use super::super::figure::{Bar, Figure, FigureError, Mark, Scale, Shape, Sheet, Style, axis, padded, panel};
use super::super::number::{count, quantity, quantity_within};
use super::{full, labels, largest, optional, scaled, state_text};
use crate::analysis::Portions;
use crate::record::{AttemptId, Run};

/// Most kinds of phases with their own hatch; all others are part of the rest.
const KINDS: usize = 7;

/// An attempt and its energy by phase.
#[derive(Clone, Debug)]
pub struct EnergyOf {
    /// Its run.
    pub run: Run,
    /// The attempt.
    pub attempt: AttemptId,
    /// Reason why queries leave it out, such as `failed` or `tainted`; `None` if it counts.
    pub state: Option<&'static str>,
    /// Its energy by phase.
    pub portions: Portions,
}

/// Plots one bar for each attempt.
///
/// # Errors
/// If no attempt has a known energy.
pub fn energy_figure(attempts: &[EnergyOf]) -> Result<Figure, FigureError> {
    let mut reasons: Vec<String> = Vec::new();
    let mut tell = |reason: String| {
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    };
    let known: Vec<&EnergyOf> = attempts.iter().filter(|one| one.portions.total.is_ok()).collect();
    for one in attempts {
        if let Err(reason) = &one.portions.total {
            tell(format!("no energy of attempt {}: {reason}", one.attempt.0.prefix(8)));
        }
        for portion in &one.portions.portions {
            if let (Err(reason), true) = (&portion.energy, one.portions.total.is_ok()) {
                tell(format!("`{}` is in the rest: {reason}", portion.name));
            }
        }
    }
    if known.is_empty() {
        return Err(FigureError::Empty(reasons.join("; ")));
    }
    let mut kinds: Vec<String> = Vec::new();
    let mut beyond: Vec<String> = Vec::new();
    for portion in known.iter().flat_map(|one| &one.portions.portions).filter(|portion| portion.energy.is_ok()) {
        if kinds.contains(&portion.name) {
            continue;
        }
        if kinds.len() < KINDS {
            kinds.push(portion.name.clone());
        } else if !beyond.contains(&portion.name) {
            beyond.push(portion.name.clone());
        }
    }
    reasons.extend(beyond.iter().map(|name| {
        format!("`{name}` is in the rest: only {KINDS} kinds of phases have a hatch of their own, its energy is in the table")
    }));
    for one in &known {
        reasons.extend(one.portions.within.iter().map(|name| {
            format!("`{name}` has no portion of its own: it overlaps others (attempt {})", one.attempt.0.prefix(8))
        }));
    }
    let total = |one: &EnergyOf| one.portions.total.as_ref().map_or(0.0, |energy| energy.joules);
    let (unit, factor) = scaled("J", largest(known.iter().map(|one| total(one))));
    let runs: Vec<&Run> = known.iter().map(|one| &one.run).collect();
    let names: Vec<String> = labels(&runs, &[])
        .into_iter()
        .zip(&known)
        .map(|(label, one)| format!("{}{} {label}", one.attempt.0.prefix(8), state_text(one.state)))
        .collect();
    let mut sheet = Sheet::new(&["attempt", "run", "phase", "time_s", "energy_j", "half_width_95_j", "method"]);
    let mut bars: Vec<Vec<Bar>> = vec![Vec::new(); kinds.len() + 1];
    let mut ends = Vec::new();
    for (row, one) in known.iter().enumerate() {
        let Ok(whole) = &one.portions.total else { continue };
        let mut from = 0.0;
        let mut put = |kind: usize, joules: f64, half: Option<f64>, name: &str| {
            let to = from + joules * factor;
            let text = quantity_within(joules, "J", half);
            bars[kind].push(Bar {
                row,
                span: (from, to),
                half: None,
                name: format!("{name}: {text}, attempt {}", one.attempt.0.prefix(8)),
                run: Some(one.run.id),
            });
            from = to;
        };
        let mut rest = whole.joules;
        for (kind, name) in kinds.iter().enumerate() {
            let portion = one.portions.portions.iter().find(|portion| portion.name == *name);
            let Some(energy) = portion.and_then(|portion| portion.energy.as_ref().ok()) else { continue };
            put(kind, energy.joules, Some(energy.half_width()), name);
            rest -= energy.joules;
        }
        if rest > 0.001 * whole.joules {
            put(kinds.len(), rest, None, "rest");
        }
        if let Some(last) =
            bars.iter_mut().flatten().filter(|bar| bar.row == row).max_by(|a, b| a.span.1.total_cmp(&b.span.1))
        {
            last.half = Some(whole.half_width() * factor);
        }
        ends.extend([from, whole.joules * factor + whole.half_width() * factor]);
        let mut line = |phase: &str, time: f64, joules: Option<f64>, half: Option<f64>, method: &str| {
            let ids = [one.attempt.to_string(), one.run.id.to_string(), phase.to_owned(), full(time)];
            sheet.rows.push(ids.into_iter().chain([optional(joules), optional(half), method.to_owned()]).collect());
        };
        for portion in &one.portions.portions {
            match &portion.energy {
                Ok(energy) => line(
                    &portion.name,
                    portion.length_s,
                    Some(energy.joules),
                    Some(energy.half_width()),
                    energy.method.name(),
                ),
                Err(reason) => line(&portion.name, portion.length_s, None, None, reason),
            }
        }
        line("(whole attempt)", whole.length_s, Some(whole.joules), Some(whole.half_width()), whole.method.name());
    }
    let (_, high) = padded(ends, true);
    let mut one = panel("", axis("energy", &unit, Scale::Linear(0.0, high)), axis("", "", Scale::Names(names)));
    kinds.push("rest".to_owned());
    for (series, (label, bars)) in kinds.iter().zip(bars).enumerate().filter(|(_, (_, bars))| !bars.is_empty()) {
        let style = if label == "rest" { Style::Series(7) } else { Style::Series(series) };
        one.marks.push(Mark { label: label.clone(), style, shape: Shape::Bars(bars) });
    }
    let mut notes =
        vec!["Of all devices of an attempt, from the worker's start to its end. The line at a bar's end is the 95% interval of the whole.".to_owned()];
    notes.append(&mut reasons);
    let models: Vec<&str> = runs.iter().map(|run| run.model()).collect();
    let same = models.iter().all(|model| model == &models[0]);
    let most = known.iter().max_by(|a, b| total(a).total_cmp(&total(b)));
    Ok(Figure {
        title: if same { format!("{}: energy by phase", models[0]) } else { "energy by phase".to_owned() },
        summary: format!(
            "Energy of {} by phase. The most: {}.",
            count(known.len(), "attempt"),
            most.map_or_else(String::new, |one| format!(
                "{} of attempt {}",
                quantity(total(one), "J"),
                one.attempt.0.prefix(8)
            ))
        ),
        notes,
        key: Vec::new(),
        panels: vec![one],
        across: 1,
        sheet,
    })
}
