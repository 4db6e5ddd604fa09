//! Versions of a program, which are no axis: nobody varies them in a manifest.

use super::confounded::Subject;
use crate::analysis::{Asked, Factor, Relation, is_version};
use crate::record::{Names, Value, count};
use crate::report::Confounded;

/// The command of a program, which a manifest may vary.
const COMMAND: &str = "program.command";
/// What the factor of the versions is called.
const PROGRAM: &str = "program";

/// The fields of which a program's version consists.
pub(super) fn fields(names: &Names) -> impl Iterator<Item = &String> {
    names.identity.iter().filter(|name| is_version(name))
}

impl<T: Asked> Subject<'_, T> {
    /// The versions of the program of the observations. `None` where all have one.
    fn versions(&self) -> Option<Factor> {
        let fields: Vec<&String> = fields(self.names).collect();
        let first = self.observed.observations.iter().filter_map(|one| one.trials.first());
        let version = |trial: &T| {
            let values =
                fields.iter().map(|name| trial.field(name).map_or_else(String::new, |value| value.to_string()));
            Value::from(values.collect::<Vec<_>>().join("\n"))
        };
        Factor::new(PROGRAM, first.map(|trial| version(trial)))
    }

    /// Tells that the observations are of several versions of the program, and of which axes they may be the effect. Other commands are other
    /// programs, and an axis: each may have a version of its own.
    pub(super) fn tell_versions(&self, axes: &mut super::Axes) {
        let Some(versions) = self.versions() else { return };
        let of_command =
            |axis: &Factor| axis.name == COMMAND && axis.relation(&versions).is_some_and(|of| of != Relation::Nesting);
        if axes.judged.iter().any(of_command) {
            return;
        }
        for axis in &axes.judged {
            let Some(relation @ (Relation::Equal | Relation::Nested)) = axis.relation(&versions) else { continue };
            axes.confounded.push(Confounded {
                field: axis.name.clone(),
                with: Some(PROGRAM.to_owned()),
                relation: Some(relation),
                separation: ("to separate them, run each value of the axis with the same version of the program", None),
                alone: None,
            });
        }
        let runs = || {
            let trials = self.observed.observations.iter().filter_map(|one| one.trials.first());
            trials.zip(&versions.of).map(|(trial, level)| (trial.started_unix_ms(), trial.run_id(), *level))
        };
        let Some(newest) = runs().max() else { return };
        let before = runs().filter(|(.., other)| *other != newest.2).max();
        let ids: String = before.iter().chain([&newest]).map(|(_, run, _)| format!(" {}", run.0.prefix(8))).collect();
        let only = self
            .condition_of(&versions, newest.2)
            .map_or_else(String::new, |condition| format!("; `--where '{condition}'` selects the newest"));
        axes.notes.push(format!(
            "the attempts are of {} of the program, which are analysed together (`ledger why{ids}` shows what changed{only})",
            count(versions.levels.len(), "version"),
        ));
    }

    /// The condition that the attempts of one version meet and no others: a field of its own value.
    fn condition_of(&self, versions: &Factor, level: usize) -> Option<String> {
        let trials = || self.observed.observations.iter().filter_map(|one| one.trials.first()).zip(&versions.of);
        fields(self.names).find_map(|name| {
            let own = trials().find(|(_, of)| **of == level)?.0.field(name)?;
            let is_own = trials().all(|(trial, of)| (trial.field(name).as_ref() == Some(&own)) == (*of == level));
            let value = match &own {
                Value::Str(text) if !text.contains(['"', '\'', '\\']) => format!("\"{text}\""),
                Value::Int(number) => number.to_string(),
                _ => return None,
            };
            let is_plain = name.chars().all(|c| c.is_alphanumeric() || "_.@".contains(c));
            let name = if is_plain { name.clone() } else { format!("`{name}`") };
            (is_own && !name.contains('\'')).then(|| format!("{name} == {value}"))
        })
    }
}
