//! The search space of `tune`: fields, their values, and the configurations that they span.

use crate::cli::failure::{Failure, exit};
use crate::engine::{Bound, Machine, Order};
use crate::manifest::{self, Kind, Role};
use crate::record::{Table, Value};
use crate::report::{self, Gone};
use std::collections::{BTreeMap, BTreeSet};

const POWER: &str = "hardware.power_limit_w";
const SM_CLOCK: &str = "hardware.sm_clock_mhz";
const BATCH: &str = "training.batch_size";
const PRECISION: &str = "training.precision";
const EPOCHS: &str = "training.epochs";
/// The default fields.
const USUAL: [&str; 4] = [POWER, SM_CLOCK, BATCH, PRECISION];
/// The power limits and clocks that are tried, in percent of the largest.
const PERCENT: [u32; 4] = [85, 70, 55, 40];
/// The order in which configurations are drawn if there are too many. It is fixed, so that a search can be continued.
const DRAW: Order = Order { seed: Some(1), canary_every: 0 };

/// A field and the values that are tried besides the base's.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    pub(super) field: String,
    pub(super) values: Vec<Value>,
}

/// Returns the axes, and the fields that are not searched with the reasons.
pub(super) fn find(
    asked: &[String],
    set_hardware: bool,
    base: &Bound,
    machine: &Machine,
) -> Result<(Vec<Axis>, Vec<String>), Failure> {
    let (mut axes, mut without): (Vec<Axis>, Vec<String>) = (Vec::new(), Vec::new());
    let usual = asked.is_empty();
    let texts: Vec<String> = if usual { USUAL.map(str::to_owned).to_vec() } else { asked.to_vec() };
    for text in texts {
        let (name, values) = text.split_once('=').map_or((text.as_str(), None), |(name, values)| (name, Some(values)));
        let field = full_name(name.trim(), base)?;
        if is_of_hardware(&field) && !set_hardware {
            if usual {
                without.push(format!("{field} (--set-hardware sets it during each attempt)"));
                continue;
            }
            let text = format!("--axis: `{field}` is set on the GPUs (--set-hardware allows that)");
            return Err(Failure::new(exit::USAGE, text));
        }
        if axes.iter().any(|axis| axis.field == field) {
            return Err(Failure::new(exit::USAGE, format!("--axis: `{field}` is named twice")));
        }
        let values = match values {
            Some(values) => Ok(values.split(',').map(|value| read(value.trim())).collect()),
            None => usual_values(&field, base, machine),
        };
        match values {
            Err(why) if usual => without.push(format!("{field}: {why}")),
            Err(why) => return Err(Failure::new(exit::USAGE, format!("--axis {field}: {why}"))),
            Ok(mut values) => {
                let own = base.cell.get(&field);
                let mut seen = BTreeSet::new();
                values.retain(|value| Some(value) != own && seen.insert(value.digest()));
                if values.is_empty() {
                    without.push(format!("{field}: there is no value to try except the base's"));
                } else {
                    axes.push(Axis { field, values });
                }
            }
        }
    }
    Ok((axes, without))
}

/// Whether the field is a GPU setting.
fn is_of_hardware(field: &str) -> bool {
    [POWER, SM_CLOCK, "hardware.memory_clock_mhz"].contains(&field)
}

/// Returns the full name of a field that a person named: one of the base, or one that a manifest could contain.
fn full_name(name: &str, base: &Bound) -> Result<String, Failure> {
    if name == "seed" {
        // Its last word alone would match a field of the data.
        let text = "--axis: `seed` is not an axis: its values are repetitions (`seed = [1, 2]` in a manifest; `data.seed` names that of generated data)";
        return Err(Failure::new(exit::USAGE, text));
    }
    let known: BTreeSet<String> = base.cell.config.keys().cloned().collect();
    let writable = manifest::fields().iter().filter(|field| field.axis && field.role == Role::Config);
    let others: BTreeSet<String> =
        writable.map(|field| field.key.to_owned()).filter(|key| !key.ends_with('*')).collect();
    crate::analysis::expr::full_name(name, &[&known, &others])
        .map_err(|error| Failure::new(exit::USAGE, format!("--axis: {error}")))
}

fn read(text: &str) -> Value {
    let number = || text.parse::<i64>().map(Value::Int).or_else(|_| text.parse::<f64>().map(Value::Float)).ok();
    let number = || number().filter(|value| value.as_float().is_some_and(f64::is_finite));
    let truth = || text.parse::<bool>().map(Value::Bool).ok();
    number().or_else(truth).unwrap_or_else(|| text.into())
}

/// Returns the default values of a field.
fn usual_values(field: &str, base: &Bound, machine: &Machine) -> Result<Vec<Value>, String> {
    let of_cards = || match base.gpus.as_slice() {
        [] => Err("the base uses no GPU".to_owned()),
        gpus => Ok(gpus.iter().map(|gpu| machine.allowed(gpu)).collect::<Vec<_>>()),
    };
    match field {
        POWER => {
            let limits = of_cards()?.iter().map(crate::gpu::Allowed::power_limits_mw).collect::<Result<Vec<_>, _>>()?;
            let least = limits.iter().map(|(least, _)| least.div_ceil(1000)).max().unwrap_or(0);
            let most = limits.iter().map(|(_, most)| most / 1000).min().unwrap_or(0);
            Ok(PERCENT.iter().map(|part| most * part / 100).filter(|watts| *watts >= least).map(Value::from).collect())
        }
        SM_CLOCK => {
            let clocks = of_cards()?.iter().map(crate::gpu::Allowed::sm_clocks_mhz).collect::<Result<Vec<_>, _>>()?;
            let Some((first, others)) = clocks.split_first() else { return Ok(Vec::new()) };
            let shared: Vec<u32> =
                first.iter().copied().filter(|clock| others.iter().all(|other| other.contains(clock))).collect();
            let Some(most) = shared.iter().copied().max() else { return Err("the GPUs have no such clocks".into()) };
            let nearest = |wanted: u32| shared.iter().copied().min_by_key(|clock| clock.abs_diff(wanted));
            Ok(PERCENT.iter().filter_map(|part| nearest(most * part / 100)).map(Value::from).collect())
        }
        BATCH => {
            let batch = base.cell.int(BATCH).ok_or("the base has none")?;
            if base.cell.int(EPOCHS).is_none() {
                // A number of steps means other work with another batch size, so times and energies could not be compared.
                return Err(
                    "the base does not train for a number of epochs, so another batch size changes the work".into()
                );
            }
            Ok([batch / 2, batch.saturating_mul(2), batch.saturating_mul(4)].map(Value::Int).to_vec())
        }
        PRECISION => {
            base.cell.text(PRECISION).ok_or("the base has none")?;
            let kind = manifest::fields().iter().find(|field| field.key == PRECISION).map(|field| field.kind);
            let Some(Kind::Choice(words)) = kind else { return Err("it has no list of values".into()) };
            Ok(words.iter().map(|word| Value::from(*word)).collect())
        }
        _ => Err("it needs values (such as `--axis learning_rate=0.1,0.01`)".to_owned()),
    }
}

/// Returns the configurations that the axes span, without the base, each as its changes. If there are more than `most`,
/// they are in the fixed order of [`DRAW`].
pub(super) fn candidates(axes: &[Axis], most: usize) -> Result<Vec<Table>, Failure> {
    /// The largest number of configurations.
    const MOST: usize = 100_000;
    let all = axes.iter().try_fold(1usize, |all, axis| all.checked_mul(axis.values.len() + 1));
    if all.is_none_or(|all| all > MOST) {
        let text = format!("--axis: the axes span more than {MOST} configurations (give fewer values)");
        return Err(Failure::new(exit::USAGE, text));
    }
    let mut found = vec![Table::new()];
    for axis in axes {
        let with = |changes: &Table, value: &Value| {
            let mut changes = changes.clone();
            changes.insert(axis.field.clone(), value.clone());
            changes
        };
        let more: Vec<Table> =
            found.iter().flat_map(|changes| axis.values.iter().map(move |value| with(changes, value))).collect();
        found.extend(more);
    }
    found.remove(0);
    if found.len() > most {
        DRAW.arrange(0, 0, &mut found);
    }
    Ok(found)
}

/// Configurations that cannot be bound, by the reason: their number, and the changes that they share.
#[derive(Default)]
pub(super) struct Impossible(BTreeMap<String, (usize, Table)>);

impl Impossible {
    pub(super) fn add(&mut self, why: String, changes: Table) {
        match self.0.get_mut(&why) {
            Some((count, shared)) => {
                *count += 1;
                shared.retain(|name, value| changes.get(name) == Some(value));
            }
            None => drop(self.0.insert(why, (1, changes))),
        }
    }

    /// Returns one line for each reason.
    pub(super) fn into_gone(self) -> Vec<Gone> {
        let one = |(why, (count, changes)): (String, (usize, Table))| {
            let why = if count == 1 { why } else { format!("{why} ({})", report::count(count, "configuration")) };
            Gone { run: None, changes, round: 0, why }
        };
        self.0.into_iter().map(one).collect()
    }
}

/// Describes each axis.
pub(super) fn searched(axes: &[Axis], base: &Bound) -> Vec<String> {
    axes.iter().map(|axis| report::searched_text(&axis.field, &axis.values, base.cell.get(&axis.field))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_span_every_combination_but_the_base() {
        let axis = |field: &str, values: &[i64]| Axis {
            field: field.to_owned(),
            values: values.iter().copied().map(Value::Int).collect(),
        };
        let axes = [axis("a", &[1, 2]), axis("b", &[3])];
        let found = candidates(&axes, 9).unwrap();
        let shown: Vec<String> = found.iter().map(|changes| Value::Table(changes.clone()).to_string()).collect();
        assert_eq!(shown, ["{a = 1}", "{a = 2}", "{b = 3}", "{a = 1, b = 3}", "{a = 2, b = 3}"]);
        let drawn = candidates(&axes, 2).unwrap();
        assert_eq!(drawn.len(), 5, "whoever cannot be a run is drawn in vain");
        assert_eq!(candidates(&axes, 2).unwrap(), drawn, "the same each time");
        assert!(candidates(&vec![axis("a", &[1; 9]); 6], 2).is_err());
    }

    #[test]
    fn impossible_configurations_are_reported_once_per_reason() {
        let changes = |precision: &str, batch: i64| -> Table {
            [("precision".to_owned(), precision.into()), ("batch".to_owned(), batch.into())].into()
        };
        let mut impossible = Impossible::default();
        for (precision, batch, why) in
            [("fp16", 1, "no fp16 here"), ("fp16", 2, "no fp16 here"), ("fp32", 9, "too many")]
        {
            impossible.add(why.to_owned(), changes(precision, batch));
        }
        let told: Vec<String> = impossible
            .into_gone()
            .into_iter()
            .map(|gone| format!("{}: {}", Value::Table(gone.changes), gone.why))
            .collect();
        assert_eq!(
            told,
            ["{precision = fp16}: no fp16 here (2 configurations)", "{batch = 9, precision = fp32}: too many"]
        );
    }

    #[test]
    fn values_are_parsed_as_numbers_booleans_or_texts() {
        let read: Vec<Value> = ["16", "0.1", "1e-3", "true", "bf16", "nan"].map(read).to_vec();
        assert_eq!(read, [Value::Int(16), 0.1.into(), 1e-3.into(), true.into(), "bf16".into(), "nan".into()]);
    }
}
