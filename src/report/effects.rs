//! The output of `effects`: a few lines for each term, a table of the terms, and a document.

use super::contrast::{difference, p_value, percent_of, points, ratio};
use super::document::table_of;
use super::fields::{field_text, short_names};
use super::left_out::{left_out_lines, left_out_value};
use super::number::{count, duration, significant};
use super::ranking::probability;
use super::table::columns;
use crate::analysis::{Contrast, Effects, Factor, Inner, Interaction, MainEffect, ModelScale, Relation, Share};
use crate::record::{Direction, LeftOut, MetricKind, Table, Value, first_of};
use std::collections::{BTreeMap, BTreeSet};

/// The effects on one metric of one model, and the attempts that they come from.
#[derive(Clone, Debug)]
pub struct Effected {
    /// The model.
    pub model: String,
    /// The metric.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// Direction of improvement; `None` for a user-defined metric.
    pub direction: Option<Direction>,
    /// Whether the metric is an outcome or measured, which decides what one observation is.
    pub kind: MetricKind,
    /// Names of the blocking factors: `seed` or `machine`, then `version`. Empty without blocks.
    pub blocks: Vec<String>,
    /// Number of attempts behind the observations.
    pub attempts: usize,
    /// The axes.
    pub factors: Vec<Factor>,
    /// The effects of the axes.
    pub effects: Effects,
    /// Axes that cannot be separated from others.
    pub confounded: Vec<Confounded>,
    /// Reasons why the effects may mislead, as sentences.
    pub warnings: Vec<String>,
    /// Effects that are not tested, with the reason, as sentences.
    pub notes: Vec<String>,
    /// Number of attempts left out, by reason.
    pub left_out: BTreeMap<LeftOut, u64>,
}

/// An axis whose effect cannot be separated from that of another axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Confounded {
    /// The axis.
    pub field: String,
    /// The other one. `None` if no single axis is the reason.
    pub with: Option<String>,
    /// How the levels of the first axis depend on those of the other. `None` if no single axis is the reason.
    pub relation: Option<Relation>,
    /// The remedy in words, and the command that applies it, if there is one.
    pub separation: (&'static str, Option<String>),
    /// Command that estimates the effect of the other axis without this one, if there is one.
    pub alone: Option<String>,
}

impl Confounded {
    fn sentence(&self) -> String {
        let field = &self.field;
        match (self.relation, &self.with) {
            (Some(Relation::Equal), Some(with)) => {
                format!("`{field}` equals `{with}`: each value of one occurs with one value of the other only")
            }
            (Some(Relation::Nested), Some(with)) => {
                format!(
                    "`{field}` is nested in `{with}`: each value of `{field}` occurs with one value of `{with}` only"
                )
            }
            _ => format!(
                "`{field}` follows from the other axes or from the blocks: too few of their combinations were run"
            ),
        }
    }
}

/// Most pairs of confounded axes that are printed.
const CONFOUNDED: usize = 6;
/// Most confounding axes named for one axis.
const INSEPARABLE: usize = 3;
/// Smallest printed share of the variance that belongs to no single term.
const OVERLAP: f64 = 0.05;

/// Why an axis is not tested if different machines ran its values.
const DIFFERENT_MACHINES: &str = ": its values ran on different machines, each with several attempts";

impl Effected {
    fn names(&self) -> Vec<String> {
        short_names(&self.factors.iter().map(|factor| factor.name.clone()).collect::<Vec<_>>())
    }

    /// Returns the axes that cannot be separated, and the share of the variance that they explain only jointly.
    fn shared(&self) -> Option<(Vec<String>, f64)> {
        let share = self.effects.shared.filter(|share| *share >= 5e-4)?;
        let names = self.names();
        let axes = self.effects.main.iter().filter(|effect| effect.contrast.is_none());
        Some((axes.map(|effect| names[effect.factor].clone()).collect(), share))
    }

    fn amount(&self, value: f64) -> String {
        match self.unit.as_str() {
            "" => significant(value),
            "s" if value < 0.0 => format!("-{}", duration(-value)),
            "s" => duration(value),
            unit => format!("{} {unit}", significant(value)),
        }
    }

    /// Formats a contrast as a ratio, `1.11× (1.06 to 1.16)`, or as an absolute difference, `4.1 points (2.0 to 6.2)`.
    /// A difference comes with the word for its sign; a ratio with an empty one.
    fn size(&self, contrast: &Contrast) -> (String, &'static str) {
        if self.effects.scale == ModelScale::Log {
            return (ratio(contrast.ratio(), contrast.ratio_interval()), "");
        }
        let (sign, word) = if contrast.difference < 0.0 { (-1.0, "lower") } else { (1.0, "higher") };
        let ends = contrast.interval().map(|(low, high)| if sign < 0.0 { (-high, -low) } else { (low, high) });
        let size = sign * contrast.difference;
        let text = match percent_of(&self.metric, &self.unit) {
            Some(factor) => points(size, ends, factor),
            None => difference(size, ends, &self.unit),
        };
        (text, word)
    }

    /// Compares the metric at level `at` with level `other` in a sentence.
    fn beside(&self, contrast: &Contrast, at: &str, other: &str) -> String {
        let metric = &self.metric;
        match self.size(contrast) {
            (ratio, "") => format!("{metric} at {at} is {ratio} that at {other}"),
            (size, word) => format!("{metric} at {at} is {word} than at {other} by {size}"),
        }
    }

    /// Whether the compared values of an axis were chosen by their means: the highest and the lowest of several.
    fn chooses(&self, effect: &MainEffect) -> bool {
        let factor = &self.factors[effect.factor];
        !factor.is_ordered() && factor.levels.len() > 2
    }

    /// Returns the lines about the effect of an axis, the result first.
    fn main_lines(&self, effect: &MainEffect, names: &[String]) -> Vec<String> {
        let factor = &self.factors[effect.factor];
        let (name, metric) = (&names[effect.factor], &self.metric);
        let Some(contrast) = effect.contrast else {
            return vec![format!("{name}: {}", self.inseparable(&factor.name))];
        };
        let level = |at: usize| field_text(&factor.name, Some(&factor.levels[at]));
        let (from, to) = effect.between;
        let is_chosen = self.chooses(effect);
        let ends = if is_chosen {
            self.beside(&contrast, &format!("{} (highest)", level(to)), &format!("{} (lowest)", level(from)))
        } else {
            self.beside(&contrast, &level(to), &level(from))
        };
        let explained = format!("{:.1}% of the variance", 100.0 * effect.share.eta_squared);
        let tested = match (effect.share.corrected, self.effects.residual_degrees) {
            (None, _) if factor.is_of_machines => {
                format!("not tested{DIFFERENT_MACHINES}; {explained}")
            }
            (Some(p), _) => format!("{}, {explained}", p_value(p)),
            (None, 0) => format!("not tested: no residual degrees of freedom; {explained}"),
            (None, _) => format!("not tested: the residuals do not scatter; {explained}"),
        };
        if let Some(p) = effect.share.corrected.filter(|_| effect.share.is_significant() == Some(false)) {
            return vec![format!("{name}: no significant effect on {metric} ({})", p_value(p)), ends];
        }
        if let Some(inner) = &effect.inner {
            return self.inner_lines(name, factor, inner).into_iter().chain([tested]).collect();
        }
        let better = match self.direction {
            _ if is_chosen || factor.is_of_machines || contrast.difference == 0.0 => "",
            None => "",
            Some(way) if (way == Direction::Minimize) == (contrast.difference < 0.0) => "better",
            Some(_) => "worse",
        };
        if better.is_empty() {
            return vec![format!("{name}: {ends}"), tested];
        }
        let size = match self.size(&contrast) {
            (ratio, "") => format!("{ratio} that at {}", level(from)),
            (size, word) => format!("{word} by {size}"),
        };
        vec![format!("{name}: {} is {better} than {}: {metric} is {size}", level(to), level(from)), tested]
    }

    /// Returns a caveat if the effect depends on another axis and not all combinations of the two were run.
    /// Its mean over all levels of the other axis is then not observed.
    fn incomplete(&self, effect: &MainEffect, names: &[String]) -> Option<String> {
        let is_partial = |one: &&Interaction| {
            let (a, b) = one.factors;
            (a == effect.factor || b == effect.factor)
                && one.share.is_significant() == Some(true)
                && one.at.iter().any(Option::is_none)
        };
        let (a, b) = self.effects.interactions.iter().find(is_partial)?.factors;
        let other = &names[if a == effect.factor { b } else { a }];
        effect.contrast?;
        Some(format!("this depends on {other}, and not all combinations were run (see {} × {})", names[a], names[b]))
    }

    /// Returns the lines about an extreme between the first and the last level.
    fn inner_lines(&self, name: &str, factor: &Factor, inner: &Inner) -> Vec<String> {
        let level = |at: usize| field_text(&factor.name, Some(&factor.levels[at]));
        let ends = [level(0), level(factor.levels.len() - 1)];
        let mut said = "";
        let mut sides = Vec::new();
        for (contrast, end) in inner.ends.iter().zip(&ends) {
            sides.push(match self.size(contrast) {
                (ratio, "") => format!("{ratio} at {end}"),
                (size, word) if word == said => format!("by {size} at {end}"),
                (size, word) => {
                    said = word;
                    format!("{word} by {size} at {end}")
                }
            });
        }
        let at = level(inner.level);
        let mut lines =
            vec![format!("{name}: {} is {} at {at}", self.metric, inner.extreme.name()), sides.join(" and ")];
        let alike = inner.ends.iter().zip(&ends).filter(|(contrast, _)| contrast.is_apart() == Some(false));
        let alike: Vec<&str> = alike.map(|(_, end)| end.as_str()).collect();
        if !alike.is_empty() {
            lines.push(format!("no significant difference between {at} and {}", alike.join(" or ")));
        }
        lines
    }

    /// Returns the lines about the interaction of two axes, the result first.
    fn interaction_lines(&self, effect: &Interaction, names: &[String]) -> Vec<String> {
        let (first, second) = effect.factors;
        let (a, b) = (&names[first], &names[second]);
        let explained = format!("{:.1}% of the variance", 100.0 * effect.share.eta_squared);
        let Some(p) = effect.share.corrected else {
            let explained = (effect.share.degrees > 0).then_some(explained);
            let is_of_machines = |at: usize| self.factors[at].is_of_machines;
            let why = if is_of_machines(first) || is_of_machines(second) { DIFFERENT_MACHINES } else { "" };
            return [format!("{a} × {b}: not tested{why}")].into_iter().chain(explained).collect();
        };
        if effect.share.is_significant() != Some(true) {
            return vec![format!("{a} × {b}: no significant interaction ({})", p_value(p))];
        }
        let mut lines = vec![format!("{a} × {b}: the effect of {a} depends on {b}")];
        let between = self.effects.main.iter().find(|effect| effect.factor == first).map(|effect| effect.between);
        let of_level = self.factors[second].levels.iter().zip(&effect.at);
        let mut changes: Vec<(&Value, Contrast)> =
            of_level.filter_map(|(level, contrast)| Some((level, (*contrast)?))).collect();
        changes.sort_by(|x, y| x.1.difference.total_cmp(&y.1.difference));
        match (changes.first(), changes.last(), between) {
            (Some(least), Some(most), Some((from, to))) if changes.len() > 1 => {
                let level = |at: usize| field_text(&self.factors[first].name, Some(&self.factors[first].levels[at]));
                let said = |(at, contrast): &(&Value, Contrast)| {
                    format!(
                        "where {b} is {}: {}",
                        field_text(&self.factors[second].name, Some(at)),
                        self.beside(contrast, &level(to), &level(from))
                    )
                };
                lines.extend([said(least), said(most)]);
            }
            _ => lines.push("the combinations that were run do not say how".to_owned()),
        }
        lines.push(format!("{}, {explained}", p_value(p)));
        lines
    }

    /// Describes the observations and the number of attempts.
    fn observations(&self) -> String {
        let attempts = count(self.attempts, "attempt");
        match self.kind {
            MetricKind::Measured if self.attempts == self.effects.n => attempts,
            MetricKind::Measured => {
                let n = count(self.effects.n, "observation");
                format!("{n} (attempts of one configuration and round are averaged) of {attempts}")
            }
            MetricKind::Outcome if self.attempts == self.effects.n => {
                format!("{attempts}, one per configuration and seed")
            }
            MetricKind::Outcome => {
                format!("{} (attempts of one seed are averaged) of {attempts}", count(self.effects.n, "observation"))
            }
        }
    }

    /// Says from which axes this one cannot be separated.
    pub(super) fn inseparable(&self, axis: &str) -> String {
        let other = |one: &Confounded| match (one.field == axis, &one.with) {
            (true, with) => with.clone(),
            (false, Some(with)) if with == axis => Some(one.field.clone()),
            (false, _) => None,
        };
        let others: BTreeSet<String> = self.confounded.iter().filter_map(other).collect();
        if others.is_empty() {
            return "cannot be separated from the other axes: too few of their combinations were run".to_owned();
        }
        let named = others.iter().map(|name| format!("`{name}`"));
        format!("cannot be separated from {}", first_of(named, INSEPARABLE))
    }

    /// Returns a sentence for each confounded axis.
    pub(super) fn confounded_sentences(&self) -> impl Iterator<Item = String> {
        self.confounded.iter().map(Confounded::sentence)
    }

    /// Returns the effect of the strongest axis as a sentence.
    pub(super) fn strongest(&self) -> Option<String> {
        let names = self.names();
        self.effects.main.first().map(|effect| self.main_lines(effect, &names).join("; "))
    }
}

/// Joins the plurals of the blocking factors: `seeds and versions`.
fn plural(blocks: &[String]) -> String {
    blocks.iter().map(|name| format!("{name}s")).collect::<Vec<_>>().join(" and ")
}

/// Returns the effects as text: a few lines each, and a table of the terms.
pub fn effects_text(found: &Effected) -> String {
    let names = found.names();
    let effects = &found.effects;
    let mean = match effects.geometric_mean {
        Some(mean) => format!("geometric mean {}", found.amount(mean)),
        None => format!("mean {}", found.amount(effects.mean)),
    };
    let mut text = format!(
        "{} of {}: {mean}, {}, {} scale\n",
        found.metric,
        found.model,
        found.observations(),
        effects.scale.name()
    );
    found.warnings.iter().for_each(|warning| text.push_str(&format!("warning: {warning}\n")));
    text.push('\n');
    let main = effects.main.iter().map(|effect| {
        let lines = found.main_lines(effect, &names);
        lines.into_iter().chain(found.incomplete(effect, &names)).collect::<Vec<_>>()
    });
    // Interactions without degrees of freedom cannot be tested. Large grids have many, so they are only counted.
    let (empty, interactions): (Vec<&Interaction>, Vec<&Interaction>) =
        effects.interactions.iter().partition(|effect| effect.share.degrees == 0);
    let both = interactions.iter().map(|effect| found.interaction_lines(effect, &names));
    main.chain(both).for_each(|lines| text.push_str(&format!("{}\n", lines.join("\n    "))));
    // A confounded axis has no test of its own.
    let row = |name: String, share: &Share, is_tested: bool| {
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), significant);
        vec![
            name,
            share.degrees.to_string(),
            // Without degrees of freedom, a share of 0% would wrongly mean that the term has no effect.
            if share.degrees > 0 { format!("{:.1}%", 100.0 * share.eta_squared) } else { "-".to_owned() },
            number(share.partial_eta_squared.filter(|_| share.degrees > 0)),
            number(share.f.filter(|_| is_tested)),
            share.corrected.filter(|_| is_tested).map_or_else(|| "-".to_owned(), probability),
        ]
    };
    let main =
        effects.main.iter().map(|effect| row(names[effect.factor].clone(), &effect.share, effect.contrast.is_some()));
    let pair = |effect: &Interaction| format!("{} × {}", names[effect.factors.0], names[effect.factors.1]);
    let both = interactions.iter().map(|effect| row(pair(effect), &effect.share, true));
    let unexplained = format!("{:.1}%", 100.0 * effects.unexplained);
    let residual = ["residual".to_owned(), effects.residual_degrees.to_string(), unexplained];
    let residual = residual.into_iter().chain(["-"; 3].map(str::to_owned)).collect();
    text.push('\n');
    text.push_str(&columns(
        &["TERM", ">DF", ">OF VARIANCE", ">PARTIAL ETA2", ">F", ">P"],
        main.chain(both).chain([residual]),
    ));
    // The intervals that are shown: an extreme inside of an axis is shown if the effect is significant.
    let has_inner = |effect: &MainEffect| effect.inner.is_some() && effect.share.is_significant() != Some(false);
    let is_chosen = |effect: &&MainEffect| effect.contrast.is_some() && (has_inner(effect) || found.chooses(effect));
    let chosen: Vec<&str> = effects.main.iter().filter(is_chosen).map(|effect| names[effect.factor].as_str()).collect();
    text.push_str(&format!(
        "type II ANOVA, {} scale; P with Holm's correction, 95% intervals without it{}\n",
        effects.scale.name(),
        if chosen.is_empty() {
            String::new()
        } else {
            format!(" (of {}: with Bonferroni's, for all pairs of values)", chosen.join(", "))
        }
    ));
    if !empty.is_empty() {
        let pairs = first_of(empty.into_iter().map(pair), 1);
        text.push_str(&format!("not tested, since too few of their combinations were run: {pairs}\n"));
    }
    if let Some(share) = effects.blocks {
        text.push_str(&format!(
            "{} are blocks: all effects are within {} ({:.1}% of the variance is between them)\n",
            plural(&found.blocks),
            plural(&found.blocks),
            100.0 * share
        ));
    }
    for one in found.confounded.iter().take(CONFOUNDED) {
        let (what, command) = &one.separation;
        text.push_str(&format!("confounded: {}\n", one.sentence()));
        match command {
            Some(command) => text.push_str(&format!("    {what}: {command}\n")),
            None => text.push_str(&format!("    {what}\n")),
        }
        if let Some(alone) = &one.alone {
            text.push_str(&format!("    the effect of the other axis with all that is nested in it: {alone}\n"));
        }
    }
    if let Some(more) = found.confounded.len().checked_sub(CONFOUNDED).filter(|more| *more > 0) {
        let what = "--json lists all; `--where` with fewer experiments, or `--axes`, makes them fewer";
        text.push_str(&format!("confounded: {} ({what})\n", count(more, "more pair")));
    }
    let blocks = if found.blocks.is_empty() { String::new() } else { format!(" and {}", plural(&found.blocks)) };
    if let Some(shared) = found.shared() {
        text.push_str(&format!(
            "{:.1}% of the variance is shared by {}: the attempts do not say which of them explains it\n",
            100.0 * shared.1,
            shared.0.join(", ")
        ));
    }
    if effects.overlap() {
        text.push_str(&format!(
            "the shares sum to more than 100%: the axes{blocks} occur in unequal combinations, and explain some of the variance twice\n"
        ));
    } else if let Some(rest) = effects.of_no_term().filter(|rest| *rest >= OVERLAP) {
        text.push_str(&format!(
            "{:.1}% of the variance cannot be assigned to one term: the axes{blocks} occur in unequal combinations\n",
            100.0 * rest
        ));
    }
    found.notes.iter().for_each(|note| text.push_str(&format!("note: {note}\n")));
    text.push_str(&left_out_lines(&found.left_out, &found.metric, &found.model));
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

/// Returns a contrast with its interval: a difference on the linear scale, a ratio on the log scale.
fn contrast_members(contrast: &Contrast, scale: ModelScale) -> Table {
    let mut table = Table::new();
    let mut put = |name: &str, value: f64| drop(table.insert(name.to_owned(), value.into()));
    if scale == ModelScale::Log {
        put("ratio", contrast.ratio());
        if let Some((low, high)) = contrast.ratio_interval() {
            put("ratio_low", low);
            put("ratio_high", high);
        }
    } else {
        put("difference", contrast.difference);
        if let Some(half) = contrast.half_width {
            put("half_width", half);
        }
    }
    table
}

fn main_value(found: &Effected, effect: &MainEffect, names: &[String]) -> Value {
    let factor = &found.factors[effect.factor];
    let scale = found.effects.scale;
    let mut table = share_members(&effect.share);
    let level = |(at, level): (usize, &Value)| {
        let mut one = table_of([("value", level.clone()), ("mean", effect.means[at].into())]);
        one.extend(effect.adjusted.as_ref().map(|adjusted| ("adjusted_mean".to_owned(), adjusted[at].into())));
        Value::Table(one)
    };
    table.extend(table_of([
        ("field", factor.name.as_str().into()),
        ("levels", Value::List(factor.levels.iter().enumerate().map(level).collect())),
        ("from", factor.levels[effect.between.0].clone()),
        ("to", factor.levels[effect.between.1].clone()),
        ("sentence", found.main_lines(effect, names).join("; ").into()),
    ]));
    table.extend(effect.contrast.iter().flat_map(|contrast| contrast_members(contrast, scale)));
    if let (Some(adjusted), ModelScale::Linear) = (&effect.adjusted, scale) {
        table.insert("base".to_owned(), adjusted[effect.between.0].into());
    }
    table.extend(effect.best.map(|best| ("best_level".to_owned(), factor.levels[best].clone())));
    if let Some(inner) = &effect.inner {
        let ends = [0, factor.levels.len() - 1].into_iter().zip(&inner.ends).map(|(at, contrast)| {
            let mut end = contrast_members(contrast, scale);
            end.insert("value".to_owned(), factor.levels[at].clone());
            end.extend(contrast.is_apart().map(|is| ("is_significant".to_owned(), is.into())));
            Value::Table(end)
        });
        let inner = table_of([
            ("is", inner.extreme.name().into()),
            ("value", factor.levels[inner.level].clone()),
            ("ends", Value::List(ends.collect())),
        ]);
        table.insert("inner_extreme".to_owned(), Value::Table(inner));
    }
    Value::Table(table)
}

fn confounded_value(one: &Confounded) -> Value {
    let (what, command) = &one.separation;
    let mut table = table_of([
        ("field", one.field.as_str().into()),
        ("sentence", one.sentence().into()),
        ("separation", (*what).into()),
    ]);
    table.extend(one.with.iter().map(|with| ("with".to_owned(), with.as_str().into())));
    table.extend(one.relation.map(|relation| ("relation".to_owned(), relation.name().into())));
    table.extend(command.iter().map(|command| ("command".to_owned(), command.as_str().into())));
    table.extend(one.alone.iter().map(|command| ("outer_command".to_owned(), command.as_str().into())));
    Value::Table(table)
}

/// Returns the effects as a document's members.
pub fn effects_value(found: &Effected) -> Table {
    let names = found.names();
    let interactions = found.effects.interactions.iter().map(|effect| {
        let (first, second) = effect.factors;
        let mut table = share_members(&effect.share);
        table.extend(table_of([
            ("fields", vec![found.factors[first].name.as_str(), &found.factors[second].name].into()),
            ("sentence", found.interaction_lines(effect, &names).join("; ").into()),
        ]));
        let of_level = found.factors[second].levels.iter().zip(&effect.at);
        let at = of_level.filter_map(|(level, contrast)| {
            let mut one = contrast_members(contrast.as_ref()?, found.effects.scale);
            one.insert("value".to_owned(), level.clone());
            Some(Value::Table(one))
        });
        table.insert("at".to_owned(), Value::List(at.collect()));
        Value::Table(table)
    });
    let mut members = table_of([
        ("model", found.model.as_str().into()),
        ("metric", found.metric.as_str().into()),
        ("unit", found.unit.as_str().into()),
        ("kind", found.kind.name().into()),
        ("scale", found.effects.scale.name().into()),
        ("attempts", found.attempts.into()),
        ("observations", found.effects.n.into()),
        ("mean", found.effects.mean.into()),
        ("residual_degrees", found.effects.residual_degrees.into()),
        ("unexplained", found.effects.unexplained.into()),
        ("main", Value::List(found.effects.main.iter().map(|effect| main_value(found, effect, &names)).collect())),
        ("interactions", Value::List(interactions.collect())),
        ("confounded", Value::List(found.confounded.iter().map(confounded_value).collect())),
        ("notes", [found.warnings.as_slice(), &found.notes].concat().into()),
        ("left_out", left_out_value(&found.left_out)),
    ]);
    members.extend(found.effects.geometric_mean.map(|mean| ("geometric_mean".to_owned(), mean.into())));
    if let Some(share) = found.effects.blocks {
        let blocks = table_of([("of", found.blocks.clone().into()), ("share", share.into())]);
        members.insert("blocks".to_owned(), Value::Table(blocks));
        if let [block] = &found.blocks[..] {
            members.insert(format!("{block}_blocks"), share.into());
        }
    }
    members.extend(found.shared().map(|(_, share)| ("shared".to_owned(), share.into())));
    members.extend(found.direction.map(|way| ("direction".to_owned(), way.name().into())));
    members
}
