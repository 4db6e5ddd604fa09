//! `ledger names`: the names that a person can use, for pages and shells that complete them.

use super::context::Context;
use super::failure::{Failure, exit};
use crate::record::{Names, Table, Value};
use crate::report::table_of;

/// Print the models, metrics, fields and tags of the ledger
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

pub(super) fn run(_args: &Args, context: &Context) -> Result<u8, Failure> {
    let found = context.store().if_there(|reader| {
        let names = reader.names()?.unwrap_or_default();
        Ok((reader.models()?, reader.ranked_metrics()?, names, reader.tags()?))
    })?;
    let (models, metrics, names, tags) = found.unwrap_or_default();
    let fields = fields_of(names);
    let tags: Vec<String> = tags.into_keys().collect();
    let text = || {
        let kinds = [("model", &models), ("field", &fields), ("tag", &tags)];
        kinds.iter().flat_map(|(kind, names)| names.iter().map(move |name| format!("{kind} {name}\n"))).collect()
    };
    context.answer(text, || {
        let of_model = |(model, metrics): (&String, &std::collections::BTreeSet<String>)| {
            (model.clone(), Value::from(metrics.iter().cloned().collect::<Vec<_>>()))
        };
        table_of([
            ("models", models.clone().into()),
            ("metrics", Value::Table(metrics.iter().map(of_model).collect::<Table>())),
            ("fields", fields.clone().into()),
            ("tags", tags.clone().into()),
        ])
    })?;
    Ok(exit::YES)
}

/// Returns the names that conditions and groups can use.
pub(super) fn fields_of(names: Names) -> Vec<String> {
    names.identity.into_iter().chain(names.metrics).chain(names.settings).collect()
}
