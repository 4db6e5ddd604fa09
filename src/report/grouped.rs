//! The output of `events --by`: groups of events with the sensor samples taken during them.

use super::document::table_of;
use super::events::warmup_text;
use super::number::{count, significant};
use super::table::columns;
use crate::analysis::{By, EVENT_QUANTITIES, Events, EventsRow, Mean};
use crate::record::{AttemptId, Quantity, Table, Value};

const NOTHING: &str = "-";

/// Returns the groups as text. With `nearest` it also shows the join with the nearest samples.
/// `chosen` means that the event was chosen automatically.
pub fn grouped_text(id: AttemptId, events: &Events, nearest: bool, chosen: bool) -> String {
    let (hosts, gpus, names) = events.counts;
    let mut text = format!(
        "attempt  {id}\nwith     {}, {}, {} of events\n",
        count(hosts, "host"),
        count(gpus, "GPU"),
        count(names, "name")
    );
    if let Some(event) = &events.event {
        let why = if chosen { ", which take the most time (--event names others)" } else { "" };
        text.push_str(&format!("events   {event}{why}\n"));
    }
    if events.rows.is_empty() {
        text.push_str(nothing(events));
        return text;
    }
    text.push_str(&columns(&heads(events.by, nearest), events.rows.iter().map(|row| cells(row, nearest))));
    text.push_str("TIME, samples and energy are means over events, with the samples between start and stop of each");
    text.push_str(if nearest { "; NEAREST uses the two samples nearest to start and stop\n" } else { "\n" });
    text.push_str("ENERGY is power integrated over time, with each sample held until the next\n");
    let (held_long, of) = events
        .rows
        .iter()
        .filter(|row| row.sampled == row.events)
        .fold((0, 0), |(held, of), row| (held + row.held_long, of + row.energy_j.n));
    if held_long > 0 {
        text.push_str(&format!(
            "in {held_long} of {} a sample is held for more than ten times the usual interval, so the energy is less certain\n",
            count(of, "event")
        ));
    }
    if gpus > hosts && events.by != By::Gpu {
        text.push_str("samples are per GPU; energy is the sum over all GPUs beside an event\n");
    }
    if events.rows.iter().any(|row| row.sampled < row.events) {
        text.push_str("energy is missing where events contain no sample (SAMPLED is less than EVENTS)\n");
    }
    if events.unstopped > 0 {
        let are = match events.unstopped {
            1 => "event was never stopped, and is",
            _ => "events were never stopped, and are",
        };
        text.push_str(&format!("{} {are} left out of means\n", events.unstopped));
    }
    text.push_str(&warmup_text(events.warmup_steps));
    // With one or two groups there is no correlation.
    for correlation in events.correlations.iter().filter(|one| one.pearson.is_some() || one.spearman.is_some()) {
        let shown = |value: Option<f64>| value.map_or_else(|| NOTHING.to_owned(), |value| format!("{value:+.3}"));
        text.push_str(&format!(
            "time and {}: Pearson {}, Spearman {} over {}\n",
            word(correlation.quantity),
            shown(correlation.pearson),
            shown(correlation.spearman),
            count(correlation.n, if events.by == By::Gpu { "GPU" } else { "host" }),
        ));
    }
    text
}

/// Says why there are no groups.
fn nothing(events: &Events) -> &'static str {
    let (_, gpus, names) = events.counts;
    if names == 0 {
        "it reported no phase\n"
    } else if gpus == 0 && events.by == By::Gpu {
        "no GPU has samples, so no event is beside one (--by name shows the events)\n"
    } else {
        "no event was stopped\n"
    }
}

fn word(quantity: Quantity) -> &'static str {
    match quantity {
        Quantity::PowerInstant => "power",
        Quantity::Temperature => "temperature",
        Quantity::UtilizationGpu => "GPU utilization",
        _ => "memory utilization",
    }
}

fn heads(by: By, nearest: bool) -> Vec<&'static str> {
    let mut heads = match by {
        By::Name => vec!["EVENT"],
        By::Level => vec![">LEVEL"],
        By::Host => vec!["HOST"],
        By::Gpu => vec!["GPU", "~~HOST"],
    };
    heads.extend([">EVENTS", "~>SAMPLED", ">TIME ms"]);
    for head in [">POWER W", "~>TEMP °C", "~>BUSY %", "~~>MEM %"] {
        heads.push(head);
        heads.extend(nearest.then_some("~~~>NEAREST"));
    }
    heads.push(">ENERGY J");
    heads.extend(nearest.then_some("~>OFF BY ms"));
    heads
}

fn cells(row: &EventsRow, nearest: bool) -> Vec<String> {
    let shown = |mean: Mean, factor: f64| match mean.value().map(|value| value * factor) {
        None => NOTHING.to_owned(),
        // A small value would otherwise be shown as zero.
        Some(value) if value != 0.0 && value.abs() < 0.0005 => significant(value),
        Some(value) => format!("{value:.3}"),
    };
    let mut cells = vec![if row.key.is_empty() { NOTHING.to_owned() } else { row.key.clone() }];
    cells.extend(row.gpu.as_ref().map(|(host, _)| host.clone()));
    cells.extend([row.events.to_string(), row.sampled.to_string(), shown(row.time_s, 1e3)]);
    for means in &row.means {
        cells.push(shown(means.sample, 1.0));
        cells.extend(nearest.then(|| shown(means.nearest, 1.0)));
    }
    cells.push(if row.sampled == row.events { shown(row.energy_j, 1.0) } else { NOTHING.to_owned() });
    cells.extend(nearest.then(|| shown(row.nearest_off_s, 1e3)));
    cells
}

/// Returns the groups as a document's members: every kind of mean, and its number of events.
pub fn grouped_value(id: AttemptId, events: &Events) -> Table {
    let rows = events.rows.iter().map(|row| Value::Table(row_value(row, events.by)));
    let (hosts, gpus, _) = events.counts;
    let mut members = table_of([
        ("attempt", id.to_string().into()),
        ("by", events.by.name().into()),
        ("groups", Value::List(rows.collect())),
        ("hosts", hosts.into()),
        ("gpus", gpus.into()),
        ("unstopped", events.unstopped.into()),
    ]);
    if let Some(steps) = events.warmup_steps {
        members.insert("warmup_steps_included".to_owned(), steps.into());
    }
    if let Some(event) = &events.event {
        members.insert("event".to_owned(), event.as_str().into());
    }
    if !events.correlations.is_empty() {
        let correlations = events.correlations.iter().map(|correlation| {
            let mut table = table_of([
                ("x", "time".into()),
                ("y", correlation.quantity.name().into()),
                ("n", correlation.n.into()),
            ]);
            for (name, value) in [("pearson", correlation.pearson), ("spearman", correlation.spearman)] {
                table.extend(value.map(|value| (name.to_owned(), value.into())));
            }
            Value::Table(table)
        });
        members.insert("correlations".to_owned(), Value::List(correlations.collect()));
    }
    members
}

fn row_value(row: &EventsRow, by: By) -> Table {
    let key = if by == By::Gpu { "serial" } else { by.name() };
    let mut table =
        table_of([(key, row.key.as_str().into()), ("events", row.events.into()), ("sampled", row.sampled.into())]);
    if let Some((host, uuid)) = &row.gpu {
        table.insert("host".to_owned(), host.as_str().into());
        table.insert("uuid".to_owned(), uuid.as_str().into());
    }
    let put = |table: &mut Table, name: &str, mean: Mean| {
        table.extend(mean.value().map(|value| (name.to_owned(), value.into())));
    };
    put(&mut table, "time_s", row.time_s);
    put(&mut table, "energy_j", row.energy_j);
    table.insert("held_long".to_owned(), row.held_long.into());
    put(&mut table, "nearest_off_s", row.nearest_off_s);
    for (quantity, means) in EVENT_QUANTITIES.iter().zip(&row.means) {
        let mut of_one = table_of([("unit", quantity.unit().into()), ("sample_events", means.sample.n.into())]);
        put(&mut of_one, "sample", means.sample);
        put(&mut of_one, "held", means.held);
        put(&mut of_one, "linear", means.linear);
        put(&mut of_one, "nearest", means.nearest);
        table.insert(quantity.name().to_owned(), of_one.into());
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{LengthCorrelation, QuantityMeans};
    use crate::record::Digest;

    fn row(key: &str, events: u64, sampled: u64) -> EventsRow {
        let means = |sample: Option<f64>, nearest| QuantityMeans {
            sample: Mean::of(sample),
            held: Mean::of([nearest]),
            linear: Mean::of([nearest]),
            nearest: Mean::of([nearest]),
        };
        EventsRow {
            key: key.to_owned(),
            gpu: None,
            events,
            sampled,
            time_s: Mean::of([56.695_221_4]),
            means: [
                means((sampled > 0).then_some(99.6567), 36.5575),
                means(Some(39.8), 37.1),
                means(Some(70.9), 0.05),
                means(None, 0.03),
            ],
            energy_j: Mean::of([5597.7]),
            held_long: 0,
            nearest_off_s: Mean::of([1.355_18]),
        }
    }

    fn events(by: By, rows: Vec<EventsRow>) -> Events {
        Events {
            by,
            event: None,
            rows,
            correlations: Vec::new(),
            unstopped: 0,
            counts: (154, 154, 5),
            warmup_steps: None,
        }
    }

    const ID: AttemptId = AttemptId(Digest([0xab; 32]));

    #[test]
    fn groups_are_a_table_with_an_optional_nearest_join() {
        let names = events(By::Name, vec![row("TotalRender", 831, 831), row("Saving Config", 831, 0)]);
        insta::assert_snapshot!(grouped_text(ID, &names, true, false), @r"
        attempt  abababababababababababababababababababababababababababababababab
        with     154 hosts, 154 GPUs, 5 names of events
        EVENT          EVENTS  SAMPLED    TIME ms  POWER W  NEAREST  TEMP °C  NEAREST  BUSY %  NEAREST  MEM %  NEAREST  ENERGY J  OFF BY ms
        TotalRender       831      831  56695.221   99.657   36.557   39.800   37.100  70.900    0.050      -    0.030  5597.700   1355.180
        Saving Config     831        0  56695.221        -   36.557   39.800   37.100  70.900    0.050      -    0.030         -   1355.180
        TIME, samples and energy are means over events, with the samples between start and stop of each; NEAREST uses the two samples nearest to start and stop
        ENERGY is power integrated over time, with each sample held until the next
        energy is missing where events contain no sample (SAMPLED is less than EVENTS)
        ");
        let mut gpus = events(
            By::Gpu,
            vec![EventsRow {
                gpu: Some(("host-1".to_owned(), "GPU-1".to_owned())),
                held_long: 2,
                energy_j: Mean::of([5597.7; 6]),
                ..row("0323", 6, 6)
            }],
        );
        gpus.event = Some("TotalRender".to_owned());
        gpus.unstopped = 2;
        gpus.correlations =
            vec![LengthCorrelation { quantity: Quantity::Temperature, n: 1, pearson: None, spearman: Some(0.5) }];
        insta::assert_snapshot!(grouped_text(ID, &gpus, false, true), @r"
        attempt  abababababababababababababababababababababababababababababababab
        with     154 hosts, 154 GPUs, 5 names of events
        events   TotalRender, which take the most time (--event names others)
        GPU   HOST    EVENTS  SAMPLED    TIME ms  POWER W  TEMP °C  BUSY %  MEM %  ENERGY J
        0323  host-1       6        6  56695.221   99.657   39.800  70.900      -  5597.700
        TIME, samples and energy are means over events, with the samples between start and stop of each
        ENERGY is power integrated over time, with each sample held until the next
        in 2 of 6 events a sample is held for more than ten times the usual interval, so the energy is less certain
        2 events were never stopped, and are left out of means
        time and temperature: Pearson -, Spearman +0.500 over 1 GPU
        ");
        let warmed = Events { warmup_steps: Some(3), ..events(By::Name, vec![row("step", 1, 1)]) };
        let told =
            "the first 3 logged steps are warm-up, and not left out here; `ledger show` has metrics without them\n";
        assert!(grouped_text(ID, &warmed, false, false).ends_with(told));
        assert_eq!(grouped_value(ID, &warmed)["warmup_steps_included"], 3i64.into());
        let several = Events { counts: (1, 2, 1), ..events(By::Name, vec![row("step", 1, 1)]) };
        let told = "\nsamples are per GPU; energy is the sum over all GPUs beside an event\n";
        assert!(grouped_text(ID, &several, false, false).contains(told));
        let ends = |by, counts, told: &str| {
            let text = grouped_text(ID, &Events { counts, ..events(by, vec![]) }, false, false);
            assert!(text.ends_with(told), "{text}");
        };
        ends(By::Level, (1, 1, 2), "no event was stopped\n");
        ends(By::Gpu, (1, 0, 4), "no GPU has samples, so no event is beside one (--by name shows the events)\n");
        ends(By::Gpu, (1, 1, 4), "no event was stopped\n");
        ends(By::Gpu, (1, 0, 0), "it reported no phase\n");
    }

    #[test]
    fn small_values_are_not_shown_as_zero() {
        let mut row = row("step", 1, 1);
        (row.time_s, row.energy_j) = (Mean::of([1e-8]), Mean::of([2.3e-18]));
        let text = grouped_text(ID, &events(By::Name, vec![row]), false, false);
        assert!(text.contains(" 1.000e-5 ") && text.contains(" 2.300e-18\n") && !text.contains(" 0.000"), "{text}");
    }

    #[test]
    fn a_document_leaves_out_missing_means() {
        let members = Value::Table(grouped_value(ID, &events(By::Name, vec![row("Saving Config", 831, 0)])));
        let Value::List(groups) = &members.as_table().unwrap()["groups"] else { panic!("{members}") };
        let group = groups[0].flatten();
        assert_eq!(group["name"], "Saving Config".into());
        assert!(!group.contains_key("power_instant.sample"));
        assert_eq!(
            (&group["power_instant.nearest"], &group["power_instant.sample_events"]),
            (&36.5575.into(), &0u64.into())
        );
    }
}
