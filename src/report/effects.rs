//! The answer to `effects`: a table of the terms, a sentence for each, and a document.

use super::document::table_of;
use super::number::{count, duration, percent_to, significant};
use super::ranking::{left_out_text, left_out_value, probability, short_names};
use super::table::columns;
use crate::analysis::{Effects, Factor, Interaction, MainEffect, Share};
use crate::record::{Direction, LeftOut, Table, Value};
use std::collections::BTreeMap;

/// What was found of a metric, and what it was found from.
#[derive(Clone, Debug)]
pub struct Effected {
    /// The model.
    pub model: String,
    /// The metric.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// Which way it is better; none for a metric of one's own.
    pub direction: Option<Direction>,
    /// The axes.
    pub factors: Vec<Factor>,
    /// What they do.
    pub effects: Effects,
    /// What is not judged, and why, as sentences.
    pub notes: Vec<String>,
    /// How many attempts do not count, and why.
    pub left_out: BTreeMap<LeftOut, u64>,
}

impl Effected {
    fn names(&self) -> Vec<String> {
        short_names(&self.factors.iter().map(|factor| factor.name.clone()).collect::<Vec<_>>())
    }

    fn amount(&self, value: f64) -> String {
        match self.unit.as_str() {
            "" => significant(value),
            "s" if value < 0.0 => format!("-{}", duration(-value)),
            "s" => duration(value),
            unit => format!("{} {unit}", significant(value)),
        }
    }

    fn main_sentence(&self, effect: &MainEffect, names: &[String]) -> String {
        let factor = &self.factors[effect.factor];
        let (from, to) = (&factor.levels[effect.between.0], &factor.levels[effect.between.1]);
        let before = effect.base;
        // Nothing is a share of zero.
        let share = |value: f64| if before == 0.0 { self.amount(value) } else { percent_to(value / before.abs(), 1) };
        let (name, metric) = (&names[effect.factor], &self.metric);
        let Some(difference) = effect.difference else {
            return format!(
                "`{name}` cannot be told from the other axes (its values occur only together with some of theirs; `--axes` chooses)"
            );
        };
        let interval = effect.half_width.map_or_else(String::new, |half| {
            format!(", 95% interval {} to {}", share(difference - half), share(difference + half))
        });
        let beside = match (before == 0.0, interval.strip_prefix(", ")) {
            (true, None) => String::new(),
            (true, Some(interval)) => format!(" ({interval})"),
            (false, _) => format!(" ({}{interval})", share(difference)),
        };
        let explained = format!("{:.1}% of the variance", 100.0 * effect.share.eta_squared);
        match effect.share.is_significant() {
            Some(false) => format!(
                "{name}: no effect on {metric} can be told from chance (from {from} to {to} {}{interval}; p {})",
                share(difference),
                effect.share.corrected.map_or_else(|| "-".to_owned(), probability),
            ),
            is_tested => {
                let verb = if difference < 0.0 { "lowers" } else { "raises" };
                let better = match self.direction {
                    None => "",
                    Some(way) if (way == Direction::Minimize) == (difference < 0.0) => ", which is better",
                    Some(_) => ", which is worse",
                };
                let p = match is_tested {
                    Some(_) => format!("p {}", effect.share.corrected.map_or_else(|| "-".to_owned(), probability)),
                    None if self.effects.residual_degrees > 0 => {
                        "not tested: nothing scatters beside the axes, so that chance cannot be judged".to_owned()
                    }
                    None => "not tested: nothing is left to tell chance by".to_owned(),
                };
                format!(
                    "{name}: from {from} to {to} {verb} {metric} by {}{beside}{better}; it explains {explained}, {p}",
                    self.amount(difference.abs()),
                )
            }
        }
    }

    fn interaction_sentence(&self, effect: &Interaction, names: &[String]) -> String {
        let (first, second) = effect.factors;
        let (a, b) = (&names[first], &names[second]);
        let p = effect.share.corrected.map_or_else(|| "not tested".to_owned(), |p| format!("p {}", probability(p)));
        if effect.share.is_significant() != Some(true) {
            return format!("{a} × {b}: that one changes what the other does cannot be told from chance ({p})");
        }
        let between = self.effects.main.iter().find(|effect| effect.factor == first).map(|effect| effect.between);
        let change = |(low, high): &(Option<f64>, Option<f64>)| Some(((*low)?, (*high)? - (*low)?));
        let of_level = self.factors[second].levels.iter().zip(&effect.at);
        let mut changes: Vec<(&Value, (f64, f64))> =
            of_level.filter_map(|(level, means)| Some((level, change(means)?))).collect();
        changes.sort_by(|x, y| x.1.1.total_cmp(&y.1.1));
        let by = |(level, (before, change)): &(&Value, (f64, f64))| {
            let share =
                if *before == 0.0 { String::new() } else { format!(" ({})", percent_to(change / before.abs(), 1)) };
            format!("by {}{share} at {b} {level}", self.amount(*change))
        };
        let said = match (changes.first(), changes.last(), between) {
            (Some(least), Some(most), Some((from, to))) if changes.len() > 1 => format!(
                "from {a} {} to {} {} changes {} and {}",
                self.factors[first].levels[from],
                self.factors[first].levels[to],
                self.metric,
                by(least),
                by(most),
            ),
            _ => "the combinations that were run are too few to say how".to_owned(),
        };
        format!(
            "{a} × {b}: what {a} does depends on {b}: {said}; {:.1}% of the variance, {p}",
            100.0 * effect.share.eta_squared
        )
    }
}

/// The effects as a table and a sentence each.
pub fn effects_text(found: &Effected) -> String {
    let names = found.names();
    let effects = &found.effects;
    let row = |name: String, share: &Share| {
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), significant);
        vec![
            name,
            share.degrees.to_string(),
            // Nothing of it is left beside the other terms: a share of 0 would say that it does nothing.
            if share.degrees > 0 { format!("{:.1}%", 100.0 * share.eta_squared) } else { "-".to_owned() },
            number(share.partial_eta_squared.filter(|_| share.degrees > 0)),
            number(share.f),
            share.corrected.map_or_else(|| "-".to_owned(), probability),
        ]
    };
    let main = effects.main.iter().map(|effect| row(names[effect.factor].clone(), &effect.share));
    let both = effects
        .interactions
        .iter()
        .map(|effect| row(format!("{} × {}", names[effect.factors.0], names[effect.factors.1]), &effect.share));
    let mut text = columns(&["TERM", ">DF", ">OF VARIANCE", ">PARTIAL ETA2", ">F", ">P"], main.chain(both));
    text.push_str(&format!(
        "{} of {}: {}, mean {}; {:.1}% of the variance is explained by no term ({} of the residuals; type II, P by Holm's correction)\n",
        found.metric,
        found.model,
        count(effects.n, "attempt"),
        found.amount(effects.mean),
        100.0 * effects.unexplained,
        count(effects.residual_degrees, "degree"),
    ));
    effects.main.iter().for_each(|effect| text.push_str(&format!("{}\n", found.main_sentence(effect, &names))));
    for effect in &effects.interactions {
        text.push_str(&format!("{}\n", found.interaction_sentence(effect, &names)));
    }
    found.notes.iter().for_each(|note| text.push_str(&format!("note: {note}\n")));
    text.push_str(&left_out_text(&found.left_out, &found.metric));
    text
}

fn share_members(share: &Share) -> Table {
    let mut table = table_of([
        ("squares", share.squares.into()),
        ("degrees", share.degrees.into()),
        ("eta_squared", share.eta_squared.into()),
    ]);
    let pairs = [
        ("partial_eta_squared", share.partial_eta_squared),
        ("f", share.f),
        ("p", share.p),
        ("p_corrected", share.corrected),
    ];
    table.extend(pairs.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into()))));
    table.extend(share.is_significant().map(|is| ("is_significant".to_owned(), is.into())));
    table
}

/// The effects as a document's members.
pub fn effects_value(found: &Effected) -> Table {
    let names = found.names();
    let main = found.effects.main.iter().map(|effect| {
        let factor = &found.factors[effect.factor];
        let mut table = share_members(&effect.share);
        let levels = factor
            .levels
            .iter()
            .zip(&effect.means)
            .map(|(level, mean)| Value::Table(table_of([("value", level.clone()), ("mean", (*mean).into())])));
        table.extend(table_of([
            ("field", factor.name.as_str().into()),
            ("levels", Value::List(levels.collect())),
            ("from", factor.levels[effect.between.0].clone()),
            ("to", factor.levels[effect.between.1].clone()),
            ("sentence", found.main_sentence(effect, &names).into()),
        ]));
        table.extend(effect.difference.map(|difference| ("difference".to_owned(), difference.into())));
        table.extend(effect.difference.map(|_| ("base".to_owned(), effect.base.into())));
        table.extend(effect.half_width.map(|half| ("half_width".to_owned(), half.into())));
        Value::Table(table)
    });
    let interactions = found.effects.interactions.iter().map(|effect| {
        let (first, second) = effect.factors;
        let mut table = share_members(&effect.share);
        table.extend(table_of([
            ("fields", vec![found.factors[first].name.as_str(), &found.factors[second].name].into()),
            ("sentence", found.interaction_sentence(effect, &names).into()),
        ]));
        Value::Table(table)
    });
    table_of([
        ("model", found.model.as_str().into()),
        ("metric", found.metric.as_str().into()),
        ("unit", found.unit.as_str().into()),
        ("attempts", found.effects.n.into()),
        ("mean", found.effects.mean.into()),
        ("residual_degrees", found.effects.residual_degrees.into()),
        ("unexplained", found.effects.unexplained.into()),
        ("main", Value::List(main.collect())),
        ("interactions", Value::List(interactions.collect())),
        ("notes", found.notes.clone().into()),
        ("left_out", left_out_value(&found.left_out)),
    ])
}
