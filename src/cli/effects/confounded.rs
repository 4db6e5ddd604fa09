//! Axes that cannot be separated, and the commands that separate them.

use crate::analysis::{Asked, Effects, Factor, Names, Observations, Relation};
use crate::cli::selection::Selection;
use crate::record::{Direction, Part, Value, known_metric};
use crate::report::Confounded;

/// Fields that are set on GPUs, which a search does only if it is allowed to.
const SET_ON_GPUS: [&str; 3] = ["hardware.power_limit_w", "hardware.sm_clock_mhz", "hardware.memory_clock_mhz"];

/// The field that imported runs have.
pub(super) const IMPORT: &str = "program.import";

/// What is asked of which attempts: commands repeat it.
pub(super) struct Subject<'a, T> {
    pub(super) model: &'a str,
    pub(super) metric: &'a str,
    pub(super) direction: Option<Direction>,
    /// How the attempts were selected, where a command did.
    pub(super) selection: Option<&'a Selection>,
    pub(super) observed: &'a Observations<'a, T>,
    /// The names that the attempts have.
    pub(super) names: &'a Names,
}

impl<T: Asked> Subject<'_, T> {
    /// An axis whose levels go one to one with those of another axis.
    pub(super) fn equal(&self, axis: &Factor, other: &Factor) -> Confounded {
        let command = self.search(axis, other);
        let what = if command.is_some() {
            "to separate them, run the combinations that are missing"
        } else {
            "to separate them, run a manifest that lists both axes outside `grid.zip` (`ledger run MANIFEST`)"
        };
        Confounded {
            field: axis.name.clone(),
            with: Some(other.name.clone()),
            relation: Some(Relation::Equal),
            separation: (what, command),
            alone: None,
        }
    }

    /// Machines each of which ran one value of an axis only, as they must if the axis names devices.
    pub(super) fn of_machines(&self, axis: &Factor, relation: Relation, names_devices: bool) -> Confounded {
        let by_machine = || {
            let selected = self.selection?.arguments(None);
            let selected =
                selected.iter().map(|one| word(one).map(|one| format!(" {one}"))).collect::<Option<String>>()?;
            let [model, metric, axis] = [word(self.model)?, word(self.metric)?, word(&axis.name)?];
            Some(format!("ledger best --model {model} --metric {metric} --group-by {axis}{selected}"))
        };
        let separation = match names_devices {
            true if axis.is_of_machines => (
                "it is not tested, since attempts on one machine are not independent; to compare machines",
                by_machine(),
            ),
            true => ("to compare machines", by_machine()),
            false => ("to separate them, run each value of the axis on the same machines", None),
        };
        Confounded {
            field: super::MACHINE.to_owned(),
            with: Some(axis.name.clone()),
            relation: Some(relation),
            separation,
            alone: None,
        }
    }

    /// The search that executes each value of the first axis beside two of the other one, which connects all of their
    /// combinations. `None` where no search can: of imported attempts, of fields that a manifest cannot name, of a
    /// metric whose direction is unknown.
    fn search(&self, axis: &Factor, other: &Factor) -> Option<String> {
        let trials = || self.observed.observations.iter().flat_map(|one| &one.trials);
        let is_imported = trials().any(|trial| trial.field(IMPORT).is_some());
        let is_of_config = |name: &str| {
            let is_part = name.split('.').next().is_some_and(|head| head.parse::<Part>().is_ok());
            !is_part
                && trials().all(|trial| trial.field(name).is_some())
                && !SET_ON_GPUS.contains(&name)
                && name != "data.digest"
        };
        if is_imported || !is_of_config(&axis.name) || !is_of_config(&other.name) {
            return None;
        }
        let way = match (known_metric(self.metric), self.direction) {
            (Some(_), _) => String::new(),
            (None, Some(way)) => format!(" --direction {}", way.name()),
            (None, None) => return None,
        };
        let few: Vec<Value> = other.levels.iter().take(2).cloned().collect();
        let newest = trials().max_by_key(|trial| trial.started_unix_ms())?;
        let base = |name: &str| newest.field(name);
        let candidates = beside_base(&[(&axis.levels, base(&axis.name)), (&few, base(&other.name))]);
        Some(format!(
            "ledger tune --model {} --metric {}{way} --from {} --axis {} --axis {} --candidates {candidates}",
            word(self.model)?,
            word(self.metric)?,
            newest.run_id().0.prefix(8),
            word(&format!("{}={}", axis.name, listed(&axis.levels)?))?,
            word(&format!("{}={}", other.name, listed(&few)?))?,
        ))
    }

    /// Axes that have no effect of their own in the model, because another axis determines them or they follow from several.
    pub(super) fn nested(&self, factors: &[Factor], effects: &Effects) -> Vec<Confounded> {
        let mut found: Vec<Confounded> = Vec::new();
        let inseparable = effects.main.iter().filter(|effect| effect.contrast.is_none());
        let inseparable: Vec<&Factor> = inseparable.map(|effect| &factors[effect.factor]).collect();
        for (at, axis) in inseparable.iter().enumerate() {
            let others = factors.iter().filter(|other| other.name != axis.name);
            let mut related = others.filter_map(|other| Some((other, axis.relation(other)?))).peekable();
            if related.peek().is_none() {
                let what = "to separate it, run more combinations of the axes with one version of the program (`ledger run MANIFEST`)";
                let separation = (what, None);
                found.push(Confounded {
                    field: axis.name.clone(),
                    with: None,
                    relation: None,
                    separation,
                    alone: None,
                });
            }
            for (other, relation) in related {
                // Of two that have no effect of their own the pair is told once.
                let is_told = inseparable[..at].iter().any(|earlier| earlier.name == other.name);
                if is_told {
                    continue;
                }
                let (inner, outer) = if relation == Relation::Nesting { (other, *axis) } else { (*axis, other) };
                found.push(self.nested_in(inner, outer, self.without_nested(outer, factors)));
            }
        }
        found
    }

    /// An axis each of whose values occurs with one value of another axis; `alone` is the command that judges the other one without it.
    pub(super) fn nested_in(&self, inner: &Factor, outer: &Factor, alone: Option<String>) -> Confounded {
        let separation = match self.within(inner, outer) {
            Some(command) => ("its effect at one value of the other axis", Some(command)),
            None => ("to separate them, run both axes in more combinations (`ledger run MANIFEST`)", None),
        };
        let (field, with) = (inner.name.clone(), Some(outer.name.clone()));
        Confounded { field, with, relation: Some(Relation::Nested), separation, alone }
    }

    /// The command that judges an axis where the one that it is nested in has the value with the most observations.
    fn within(&self, inner: &Factor, outer: &Factor) -> Option<String> {
        let here =
            |level: usize| outer.of.iter().zip(&inner.of).filter(move |(at, _)| **at == level).map(|(_, of)| *of);
        let has_axis = |level: &usize| {
            let mut levels = here(*level);
            levels.next().is_some_and(|first| levels.any(|other| other != first))
        };
        let level = (0..outer.levels.len()).filter(has_axis).max_by_key(|level| here(*level).count())?;
        let value = match &outer.levels[level] {
            Value::Str(text) if text.contains(['"', '\\', '(']) => return None,
            Value::Str(text) => format!("\"{text}\""),
            Value::List(_) | Value::Table(_) => return None,
            value => value.to_string(),
        };
        self.effects_of(&[&inner.name], Some(&format!("{} == {value}", outer.name)))
    }

    /// The command that judges the axes without those that are nested in one of them.
    fn without_nested(&self, outer: &Factor, factors: &[Factor]) -> Option<String> {
        let kept = factors.iter().filter(|axis| axis.relation(outer) != Some(Relation::Nested));
        self.effects_of(&kept.map(|axis| axis.name.as_str()).collect::<Vec<_>>(), None)
    }

    /// The command that judges these axes, of the attempts that meet one more condition.
    fn effects_of(&self, axes: &[&str], condition: Option<&str>) -> Option<String> {
        let selected = self.selection?.arguments(condition);
        Some(format!(
            "ledger effects --model {} --metric {} --axes {}{}",
            word(self.model)?,
            word(self.metric)?,
            word(&axes.join(","))?,
            selected.iter().map(|one| word(one).map(|one| format!(" {one}"))).collect::<Option<String>>()?
        ))
    }
}

/// How many configurations a search spans beside its base: of each axis the values that are tried, and the base's own.
fn beside_base(axes: &[(&[Value], Option<Value>)]) -> usize {
    let width = |(tried, base): &(&[Value], Option<Value>)| {
        tried.len() + usize::from(base.as_ref().is_some_and(|base| !tried.contains(base)))
    };
    axes.iter().map(width).product::<usize>().saturating_sub(1)
}

/// Values as an argument lists them. `None` if one of them cannot be told from several, or from a number.
fn listed(values: &[Value]) -> Option<String> {
    let one = |value: &Value| match value {
        Value::Str(text) if text.parse::<f64>().is_ok() || text.parse::<bool>().is_ok() => None,
        Value::Str(text) if text.contains(',') || text.trim() != text || text.is_empty() => None,
        Value::List(_) | Value::Table(_) => None,
        value => Some(value.to_string()),
    };
    Some(values.iter().map(one).collect::<Option<Vec<_>>>()?.join(","))
}

/// A word of a shell's command line, in quotes where it needs them. `None` if quotes cannot hold it.
fn word(text: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.,=:/+%@".contains(c);
    // In double quotes, a shell gives these characters a meaning.
    let is_literal = |c: char| !"\"$`\\!".contains(c);
    match text.contains('\'') {
        _ if text.chars().any(char::is_control) => None,
        true => text.chars().all(is_literal).then(|| format!("\"{text}\"")),
        false if !text.is_empty() && text.chars().all(is_plain) => Some(text.to_owned()),
        false => Some(format!("'{text}'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_reads_more_than_letters() {
        assert_eq!(word("training.lr=0.1,1e-5").as_deref(), Some("training.lr=0.1,1e-5"));
        assert_eq!(word("a == \"b\"").as_deref(), Some("'a == \"b\"'"));
        assert_eq!(word("a == 'b'").as_deref(), Some("\"a == 'b'\""));
        assert_eq!([word("it's $a"), word("a\nb")], [None, None]);
        assert_eq!(word("").as_deref(), Some("''"));
    }

    #[test]
    fn a_search_takes_all_combinations_of_the_axes_but_the_base() {
        let three = [1, 2, 3].map(Value::Int);
        let beside = |other| beside_base(&[(&three, Some(Value::Int(3))), (&three[..2], Some(Value::Int(other)))]);
        assert_eq!(beside(3), 8, "the base has a third value of the other axis");
        assert_eq!(beside(2), 5);
    }

    #[test]
    fn values_are_listed_only_if_they_are_read_as_they_were() {
        assert_eq!(listed(&[1i64.into(), 0.5.into(), "sgd".into(), true.into()]).as_deref(), Some("1,0.5,sgd,true"));
        for odd in ["1", "true", "a,b", " a", ""] {
            assert_eq!(listed(&[odd.into()]), None, "{odd}");
        }
        assert_eq!(listed(&[vec!["a"].into()]), None);
    }
}
