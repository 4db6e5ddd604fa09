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
        let newest = runs().max();
        let before = newest.and_then(|(.., level)| runs().filter(|(.., other)| *other != level).max());
        let ids: String =
            [before, newest].iter().flatten().map(|(_, run, _)| format!(" {}", run.0.prefix(8))).collect();
        axes.notes.push(format!(
            "the attempts are of {} of the program, which are analysed together (`ledger why{ids}` shows what changed; `--where` or `ledger hide` leaves versions out)",
            count(versions.levels.len(), "version"),
        ));
    }
}
