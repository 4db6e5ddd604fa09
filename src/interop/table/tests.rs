use super::*;
use std::fs;
use std::path::PathBuf;

const TABLE: &str = "\
net,batch,limit_mw,minutes,power,note
a,256,150000,2,100,first
a,256,150000,2,100,first
b,8,250000,1,0,idle?
b,8,250000,1,n/a,
b,16,250000,1,much,
";
const MAP: &str = r#"
name = "toy"
date = 2024-05-31
device = "V100"

[fields]
model.name = "net-{net}"
training.batch_size = "{batch}"
training.learning_rate = 1
hardware.power_limit_w = { value = "{limit_mw}", unit = "mW", to = "W" }

[metrics]
epoch_time = { value = "{minutes}", unit = "min" }
power_mean = { value = "{power}", unit = "W" }
energy = { formula = "power_mean * epoch_time", unit = "J" }
yield = { formula = "energy / batch" }
"#;

struct Files {
    dir: tempfile::TempDir,
}

impl Files {
    fn new(table: &str, map: &str) -> Self {
        let files = Self { dir: tempfile::tempdir().unwrap() };
        fs::write(files.path("t.csv"), table).unwrap();
        fs::write(files.path("m.toml"), map).unwrap();
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn read_on(&self, device: Option<&str>) -> Result<Results, String> {
        let mut all = None;
        let mut take = |results: &mut Results| {
            all = Some(results.clone());
            Ok(())
        };
        read_results::<ImportError>(&self.path("t.csv"), &self.path("m.toml"), device, usize::MAX, &mut take)
            .map_err(|error| error.to_string())?;
        Ok(all.unwrap())
    }

    fn read(&self) -> Result<Results, String> {
        let folder = format!("{}/", self.dir.path().display());
        self.read_on(None).map_err(|error| error.replace(&folder, ""))
    }
}

#[test]
fn a_machine_column_gives_each_row_its_machine() {
    let map = MAP.replace("device = \"V100\"", "machine = \"{note}\"");
    let results = Files::new(TABLE, &map).read().unwrap();
    let machines: Vec<Vec<&str>> = results.sealed.iter().map(|one| one.attempt.sensors()).collect();
    assert_eq!(machines, [vec!["first"], vec!["first"], vec!["idle?"], vec![], vec![]]);
    let without = Files::new(TABLE, MAP).read().unwrap();
    assert_ne!(
        results.sealed[0].attempt.nonce, without.sealed[0].attempt.nonce,
        "a corrected map makes other attempts"
    );
    let wrong = MAP.replace("device = \"V100\"", "machine = \"{gpu}\"");
    let fault = Files::new(TABLE, &wrong).read().unwrap_err();
    assert!(fault.starts_with("m.toml:4:11: ") && fault.contains("`gpu`"), "{fault}");
}

#[test]
fn rows_in_pieces_are_the_rows_of_the_whole_and_those_of_a_line_stay_together() {
    let table = format!("{TABLE}c,1,1000,1,1,\n");
    let files = Files::new(&table, MAP);
    let whole = files.read().unwrap();
    let (mut pieces, mut sealed) = (Vec::new(), Vec::new());
    let mut take = |results: &mut Results| {
        assert_eq!(results.taints, whole.taints);
        pieces.push(results.sealed.len());
        sealed.append(&mut results.sealed);
        Ok(())
    };
    read_results::<ImportError>(&files.path("t.csv"), &files.path("m.toml"), None, 4, &mut take).unwrap();
    assert_eq!(sealed, whole.sealed, "rows that say the same are counted on");
    assert_eq!(pieces, [4, 2]);
}

#[test]
fn a_table_of_too_many_columns_is_refused() {
    let heads: Vec<String> = (0..10_001).map(|at| format!("c{at}")).collect();
    let table = format!("{}\n", heads.join(","));
    let refused = Files::new(&table, MAP).read().err().unwrap();
    assert_eq!(refused, "`t.csv` has 10001 columns, and 10000 are read at most (cut out those that the map names)");
}

#[test]
fn rows_become_runs_with_units_converted_and_metrics_derived() {
    let results = Files::new(TABLE, MAP).read().unwrap();
    assert_eq!(results.sealed.len(), 5);
    let first = &results.sealed[0];
    assert_eq!(first.check(), Ok(()));
    let config = first.run.config();
    assert_eq!((first.run.model(), &config["training.batch_size"]), ("net-a", &256i64.into()));
    assert_eq!(config["hardware.power_limit_w"], 150i64.into(), "whole watts stay whole");
    assert_eq!(config["training.learning_rate"], 1.0.into(), "as a manifest would have it");
    let metric = |name: &str| (first.attempt.metrics[name].value, first.attempt.metrics[name].unit.as_str());
    assert_eq!(metric("epoch_time"), (Some(120.0), "s"));
    assert_eq!(metric("energy"), (Some(12_000.0), "J"));
    assert_eq!(metric("yield"), (Some(12_000.0 / 256.0), ""));
    assert_eq!(first.attempt.started_unix_ms, 1_717_113_600_000);
    let facts = crate::record::Value::Table(first.attempt.facts.clone()).flatten();
    assert_eq!((&facts["import.file"], &facts["import.line"]), (&"t.csv".into(), &2i64.into()));
    assert_eq!(facts["import.digest"], crate::record::Digest::of(TABLE.as_bytes()).to_string().into());
    assert_eq!(facts["import.cells.note"], "first".into());
}

#[test]
fn a_row_has_its_line_in_a_table_of_a_spreadsheet() {
    let results = Files::new(&TABLE.replace('\n', "\r\n"), MAP).read().unwrap();
    let lines = results.sealed.iter().map(|sealed| sealed.attempt.facts["import"].clone());
    let lines: Vec<_> = lines.map(|import| crate::record::Value::flatten(&import)["line"].clone()).collect();
    assert_eq!(lines, [2i64, 3, 4, 5, 6].map(Into::into));
}

#[test]
fn equal_rows_are_repetitions_and_the_same_file_is_the_same_executions() {
    let results = Files::new(TABLE, MAP).read().unwrap();
    let (one, two) = (&results.sealed[0], &results.sealed[1]);
    assert_eq!(one.run.id, two.run.id);
    assert_ne!(one.attempt.nonce, two.attempt.nonce);
    // Another file with the same rows and one more has the same attempts and one more.
    let longer = format!("{TABLE}c,1,1000,1,1,new\n");
    let again = Files::new(&longer, MAP).read().unwrap();
    let nonces = |results: &Results| results.sealed.iter().map(|sealed| sealed.attempt.nonce).collect::<Vec<_>>();
    assert_eq!(nonces(&again)[..5], nonces(&results));
    let ids = |results: &Results| results.sealed.iter().map(|sealed| sealed.attempt.id()).collect::<Vec<_>>();
    assert_eq!(ids(&Files::new(TABLE, MAP).read().unwrap()), ids(&results), "wherever the file lies");
}

#[test]
fn a_corrected_map_gives_another_attempt() {
    let nonce = |map: &str| Files::new(TABLE, map).read().unwrap().sealed[0].attempt.nonce;
    assert_eq!(nonce(MAP), nonce(&format!("# a remark\n{MAP}")));
    for (old, new) in [
        ("unit = \"min\"", "unit = \"h\""),
        ("yield =", "gain ="),
        ("yield = { formula = \"energy / batch\"", "yield = { formula = \"energy / batch\", unit = \"J\""),
        ("[metrics]", "[[taint]]\nwhen = \"batch == 256\"\nreason = \"wrong\"\n[metrics]"),
    ] {
        assert!(MAP.contains(old));
        assert_ne!(nonce(MAP), nonce(&MAP.replace(old, new)), "{new}");
    }
}

#[test]
fn rows_that_cannot_be_right_are_tainted_with_the_reason() {
    let map = format!("{MAP}\n[[taint]]\nwhen = \"batch == 16\"\nreason = \"batch 16 was a mistake\"\n");
    let results = Files::new(TABLE, &map).read().unwrap();
    let taints: Vec<Vec<&str>> = results.sealed.iter().map(|sealed| sealed.attempt.taints()).collect();
    assert_eq!(taints[..2], [vec![""; 0], vec![]]);
    assert_eq!(
        taints[2],
        [
            "`energy` (`power_mean * epoch_time`) is 0 J, but `epoch_time` (column `minutes`) is above 0",
            "`power_mean` (column `power`) is 0 W, but `epoch_time` (column `minutes`) is above 0"
        ]
    );
    assert_eq!(taints[3], [""; 0], "what is missing is missing, and nothing is wrong with it");
    assert_eq!(taints[4], ["`power_mean`: `much` is no number", "batch 16 was a mistake"]);
    let reason = |at: usize, name: &str| results.sealed[at].attempt.metrics[name].reason.clone().unwrap();
    assert_eq!(reason(3, "power_mean"), "the table has no value");
    assert_eq!(reason(3, "energy"), "`power_mean` has no value");
    let huge = Files::new(&TABLE.replace("much", "1e400"), MAP).read().unwrap();
    assert_eq!(huge.sealed[4].attempt.taints(), ["`power_mean`: `1e400` is too large for a number"]);
    assert_eq!(huge.sealed[4].attempt.metric("power_mean"), None);
    assert_eq!(results.taints["batch 16 was a mistake"], 1);
    assert!(results.sealed[4].attempt.warnings[0].starts_with("tainted: "));
}

#[test]
fn two_tables_are_joined_by_their_columns() {
    let map = r#"
date = 2024-05-31
seed = "{run}"
where = "batch != 256"
[fields]
model.name = "{net}"
[metrics]
epochs = "{epochs}"
power = { value = "{joined.power}", unit = "kW", to = "W" }
time = { formula = "epochs * minutes * 60", unit = "s" }
[join]
file = "epochs.csv"
on = ["net", "batch"]
where = "target == 0.5"
"#;
    let files = Files::new(TABLE, map);
    fs::write(
        files.path("epochs.csv"),
        "net,batch,run,target,epochs,power\nb,8.0,1,0.5,3,1\nb,8,2,0.5,nan,2\nb,8,1,0.9,9,3\na,256,1,0.5,1,4\n",
    )
    .unwrap();
    let results = files.read().unwrap();
    assert_eq!((results.left_out, results.alone), (2, 1), "two rows have batch 256, one has no partner");
    let found: Vec<(u64, f64, f64)> = results
        .sealed
        .iter()
        .map(|sealed| {
            (
                sealed.run.parts.seed,
                sealed.attempt.metrics["time"].value.unwrap(),
                sealed.attempt.metrics["power"].value.unwrap(),
            )
        })
        .collect();
    assert_eq!(found.len(), 4, "two rows of the table, two of the other");
    assert_eq!(found[0], (1, 180.0, 1000.0));
    assert!(found[1].1.is_nan(), "a target that was not reached is a value, and no mean");
    assert_eq!(results.sources.len(), 2);
}

#[test]
fn fields_that_do_not_fit_are_refused_with_the_place() {
    let with = |field: &str| MAP.replace("training.learning_rate = 1", field);
    let fault = |field: &str| Files::new(TABLE, &with(field)).read().unwrap_err();
    let typed = r#"extra.power = { value = "{power}", type = "int" }"#;
    assert_eq!(
        fault(typed),
        "m.toml:9:25: `extra.power` is `much`, which is not of the type that the map names: t.csv:6"
    );
    let mixed = r#"extra.both = { value = "{net}-{batch}", type = "int" }"#;
    assert_eq!(
        fault(mixed),
        "m.toml:9:24: `extra.both` is `a-256`, which is not of the type that the map names: t.csv:2 and 4 more rows"
    );
    let united = r#"extra.net = { value = "{net}", unit = "mW", to = "W" }"#;
    assert_eq!(
        fault(united),
        "m.toml:9:23: `extra.net` is `a`, which is no number, but has a unit: t.csv:2 and 4 more rows"
    );
    let table = TABLE.replace("much", "2");
    let results = Files::new(&table, &with(typed)).read().unwrap();
    let extra = |at: usize| results.sealed[at].run.config().get("extra.power").cloned();
    assert_eq!((extra(0), extra(3)), (Some(100i64.into()), None), "what is missing stays missing");
}

#[test]
fn the_type_of_a_cell_is_independent_of_other_rows() {
    let map =
        MAP.replace("name = \"toy\"", "where = \"batch != many\"").replace("energy / batch", "energy / batch + power");
    let files = Files::new(&format!("{TABLE}c,many,1,1,1,left\n"), &map);
    let results = files.read().unwrap();
    assert_eq!(results.left_out, 1);
    assert_eq!(results.sealed[0].run.config()["training.batch_size"], 256i64.into());
    assert_eq!(
        results.sealed[0].attempt.metrics["yield"].value,
        Some(12_000.0 / 256.0 + 100.0),
        "`much` is in another row"
    );
}

#[test]
fn tables_that_cannot_be_read_are_refused_with_the_place() {
    let fault = |table: &str| Files::new(table, MAP).read().unwrap_err();
    let heads = "net,batch,limit_mw,minutes,power,note\n";
    assert_eq!(fault(""), "`t.csv` has no rows");
    assert_eq!(fault(heads), "`t.csv` has no rows");
    assert_eq!(fault("net,e,e\na,1,2\n"), "`t.csv` has two columns `e` (rename one)");
    assert_eq!(fault(&format!("{heads}a,1\n")), "t.csv:2: it has 2 fields, but the header has 6");
    assert_eq!(
        fault("net;batch\na;1\n").lines().next(),
        Some("m.toml:7:14: `t.csv` has one column, `net;batch` (separator = \";\" splits it)")
    );
    let files = Files::new(heads, MAP);
    fs::write(files.path("t.csv"), [heads.as_bytes(), b"\xff,1,1,1,1,\n"].concat()).unwrap();
    assert_eq!(files.read().unwrap_err(), "t.csv:2: it is not UTF-8 text (save the table as UTF-8)");
    let nameless = Files::new(&format!("{heads},1,1000,1,1,\n"), &MAP.replace("net-{net}", "{net}"));
    assert!(nameless.read().unwrap_err().starts_with("t.csv:2: model.name is empty"));
}

#[test]
fn faults_of_a_map_have_places() {
    let fault = |map: &str| Files::new(TABLE, map).read().unwrap_err();
    insta::assert_snapshot!(fault("nme = 1\n[fields]\nmodel.name = \"{net\"\n[metrics]\nenergy = { value = \"{power}\", unit = \"W\" }\nx = { formula = \"\" }\n"), @r#"
    m.toml:1:1: date is missing (the day on which the results were made, as 2024-05-31; or started = "{column}")
    m.toml:1:1: unknown key `nme` (did you mean `name`?)
    m.toml:3:14: `name`: `{` begins a column's name, as in "{batch_size}" (write {{ for a brace)
    m.toml:5:10: `energy` is kept in `J`, but is given in `W`
    m.toml:6:17: `formula` must be text
    "#);
    insta::assert_snapshot!(fault("date = \"soon\"\n[fields]\n[metrics]\n"), @r#"
    m.toml:1:1: [metrics] is missing (name at least one metric)
    m.toml:1:1: fields.model.name is missing (give it a name, or a column as "{column}")
    m.toml:1:8: date is not a day or a time (write it as 2024-05-31 or 2024-05-31T12:00:00Z)
    "#);
    let named = MAP.replace("date = 2024-05-31", "started = \"note\"\nseed = \"batch\"");
    insta::assert_snapshot!(fault(&named), @r#"
    m.toml:3:11: `started` is `note`, which is no moment as 2018-11-08T08:18:55.510Z (a column is written as "{note}")
    m.toml:4:8: `seed` is `batch`, which is no whole number from 0 (a column is written as "{batch}")
    "#);
    insta::assert_snapshot!(fault(&MAP.replace("{net}", "{nett}")), @r"m.toml:7:14: `t.csv` has no column `nett` (did you mean `net`? there are: net, batch, limit_mw, minutes, power, note)");
    insta::assert_snapshot!(fault(&MAP.replace("power_mean * epoch_time", "power_mean * epoch_tim")), @r"
    m.toml:15:22: metrics.energy: unknown name `epoch_tim` (did you mean `epoch_time`?)
      power_mean * epoch_tim
                   ^^^^^^^^^
    ");
    insta::assert_snapshot!(fault(&MAP.replace("\"mW\"", "\"ms\"")), @r"m.toml:10:26: unit and to measure different things");
    insta::assert_snapshot!(fault(&MAP.replace("name = \"toy\"", "where = \"net < 3\"")), @r"
    m.toml:2:9: where: `net` is text, but is compared with a number (compare it with text)
      net < 3
      ^^^^^^^
    ");
    insta::assert_snapshot!(fault(&MAP.replace("unit = \"J\"", "unit = \"J\", to = \"kWh\"")), @r"m.toml:15:10: `energy` is kept in `J`, not in `kWh` (leave out `to`)");
    insta::assert_snapshot!(fault("= 1"), @r"m.toml:1:1: this is not TOML: unquoted keys cannot be empty, expected letters, numbers, `-`, `_`");
    insta::assert_snapshot!(fault(&MAP.replace("name = \"toy\"", "seed = \"{net}\"")), @r"m.toml:2:8: the seed is `a` (it must be a whole number from 0): t.csv:2 and 4 more rows");
}

/// A map with one fault of each kind, including those that only the table shows.
const FAULTY: &str = r#"
date = 2024-05-31
seed = "{note}"
where = "batch != net"
[fields]
model.name = "{net}"
training.batchsize = 64
training.batch_size = 0.01
training.learning_rate = "{net}"
hardware.gpu = 1
[metrics]
train_tme = { value = "{minutes}", unit = "min" }
epoch_time = "{minutes}"
loss = "{nte}"
energy = { formula = "net * 2", unit = "J" }
own = { value = "{minutes}", knd = "measured", unit = "tokens/s" }
other = { value = "{minutes}", kind = "mesured" }
[[taint]]
when = "minuts < 0"
reason = "no such time"
"#;

#[test]
fn all_faults_of_a_map_are_reported_at_once_with_line_and_column() {
    insta::assert_snapshot!(Files::new(TABLE, FAULTY).read().unwrap_err(), @r#"
    m.toml:4:9: where: `batch` is a number, but `net` is text (compare fields of one type)
      batch != net
      ^^^^^^^^^^^^
    m.toml:7:10: unknown field `training.batchsize` (did you mean `training.batch_size`? `params.batchsize` is a field of your own)
    m.toml:8:23: `training.batch_size` is 0.01 (it must be a whole number from 1)
    m.toml:10:10: unknown field `hardware.gpu` (did you mean `hardware.gpus`? `params.gpu` is a field of your own)
    m.toml:12:1: unknown metric `train_tme` (did you mean `train_time`? kind = "measured" or "outcome" makes it a metric of your own)
    m.toml:13:14: `epoch_time` has no unit (add the unit that it is given in, such as unit = "s")
    m.toml:14:8: `t.csv` has no column `nte` (did you mean `net`? there are: net, batch, limit_mw, minutes, power, note)
    m.toml:15:22: metrics.energy: column `net` holds text, such as `a` (a formula takes numbers)
    m.toml:16:30: unknown key `knd` (did you mean `kind`?)
    m.toml:17:39: kind is `mesured` (it must be outcome or measured; did you mean `measured`?)
    m.toml:19:8: taint.when: unknown name `minuts` (did you mean `minutes`?)
      minuts < 0
      ^^^^^^
    "#);
    insta::assert_snapshot!(Files::new(TABLE, &FAULTY.replace("batch != net", "net != note")).read().unwrap_err(), @r#"
    m.toml:3:8: the seed is `first` (it must be a whole number from 0): t.csv:2 and 2 more rows
    m.toml:7:10: unknown field `training.batchsize` (did you mean `training.batch_size`? `params.batchsize` is a field of your own)
    m.toml:8:23: `training.batch_size` is 0.01 (it must be a whole number from 1)
    m.toml:9:26: `training.learning_rate` is a (it must be a finite number above 0): t.csv:2 and 2 more rows
    m.toml:10:10: unknown field `hardware.gpu` (did you mean `hardware.gpus`? `params.gpu` is a field of your own)
    m.toml:12:1: unknown metric `train_tme` (did you mean `train_time`? kind = "measured" or "outcome" makes it a metric of your own)
    m.toml:13:14: `epoch_time` has no unit (add the unit that it is given in, such as unit = "s")
    m.toml:14:8: `t.csv` has no column `nte` (did you mean `net`? there are: net, batch, limit_mw, minutes, power, note)
    m.toml:15:22: metrics.energy: column `net` holds text, such as `a` (a formula takes numbers)
    m.toml:16:30: unknown key `knd` (did you mean `kind`?)
    m.toml:17:39: kind is `mesured` (it must be outcome or measured; did you mean `measured`?)
    m.toml:19:8: taint.when: unknown name `minuts` (did you mean `minutes`?)
      minuts < 0
      ^^^^^^
    "#);
}

#[test]
fn standard_fields_have_the_type_that_manifests_give_them() {
    let map = MAP.replace("training.learning_rate = 1", "training.epochs = \"{minutes}\"");
    let config = |table: &str| Files::new(table, &map).read().map(|results| results.sealed[0].run.config().clone());
    // Spreadsheets write integers with a point if a cell of the column is missing.
    let config_of = config(&TABLE.replace(",2,", ",2.0,")).unwrap();
    assert_eq!(config_of["training.epochs"], 2i64.into());
    assert_eq!(
        config(&TABLE.replace(",2,", ",2.5,")).unwrap_err(),
        "m.toml:9:19: `training.epochs` is 2.5 (it must be a whole number from 1): t.csv:2 and 1 more row"
    );
    let notes = |field: &str| Files::new(TABLE, &MAP.replace("training.learning_rate", field)).read().unwrap().notes;
    assert_eq!(notes("model.depth"), ["`model.depth` is not a standard field (it is stored as a field of your own)"]);
    assert_eq!(notes("batch_size"), ["`batch_size` is not a standard field (did you mean `training.batch_size`?)"]);
    assert_eq!((notes("extra.depth"), notes("params.lr")), (vec![], vec![]));
}

#[test]
fn a_formula_over_text_is_a_fault_and_one_bad_cell_taints_its_row() {
    let map = MAP.replace("energy / batch", "power * 2");
    let results = Files::new(TABLE, &map).read().unwrap();
    assert!(results.sealed[4].attempt.taints().contains(&"`yield`: `much` is no number"), "{:?}", results.taints);
    let text = Files::new(TABLE, &MAP.replace("energy / batch", "energy / net")).read().unwrap_err();
    assert_eq!(text, "m.toml:16:21: metrics.yield: column `net` holds text, such as `a` (a formula takes numbers)");
    let text = Files::new(TABLE, &MAP.replace("energy / batch", "energy / model.name")).read().unwrap_err();
    assert_eq!(text, "m.toml:16:21: metrics.yield: field `model.name` is text (a formula takes numbers)");
    let text = Files::new(TABLE, &MAP.replace("value = \"{power}\"", "value = \"{note}\"")).read().unwrap_err();
    assert!(text.contains("metrics.power_mean: column `note` holds text, such as `first`"), "{text}");
}

#[test]
fn a_metric_may_state_its_kind() {
    let map = MAP.replace("formula = \"energy / batch\"", "formula = \"energy / batch\", kind = \"measured\"");
    let (with, without) = (Files::new(TABLE, &map).read().unwrap(), Files::new(TABLE, MAP).read().unwrap());
    let kind = |results: &Results, name: &str| results.sealed[0].attempt.metric_kind(name).name();
    assert_eq!(
        (kind(&without, "yield"), kind(&with, "yield"), kind(&with, "energy")),
        ("outcome", "measured", "measured")
    );
    assert_eq!(with.sealed[0].attempt.facts["metric_kind.yield"], "measured".into());
    assert_ne!(with.sealed[0].attempt.nonce, without.sealed[0].attempt.nonce, "it is another statement of the row");
}

#[test]
fn a_given_device_replaces_that_of_the_map() {
    let files = Files::new(TABLE, MAP);
    let device = |device: Option<&str>| {
        let results = files.read_on(device).unwrap();
        (results.sealed[0].run.parts.device.clone(), results.has_devices)
    };
    assert_eq!((device(None), device(Some("A100"))), (("V100".into(), false), ("A100".into(), true)));
    let of_rows = Files::new(TABLE, &MAP.replace("\"V100\"", "\"{note}\""));
    assert!(of_rows.read().unwrap().has_devices);
}

#[test]
fn moments_may_be_seconds_or_milliseconds() {
    let map = MAP.replace("date = 2024-05-31", "started = \"{minutes}\"");
    let started = |cell: &str| {
        let table = TABLE.replace(",1,", ",1717113600,").replace(",2,", &format!(",{cell},"));
        Files::new(&table, &map).read().map(|results| results.sealed[0].attempt.started_unix_ms)
    };
    assert_eq!(started("1717113600"), Ok(1_717_113_600_000));
    assert_eq!(started("1717113600123"), Ok(1_717_113_600_123));
    assert_eq!(
        started("20240531").unwrap_err().lines().next(),
        Some(
            "t.csv:2: `20240531` is not a time (write it as 2018-11-08T08:18:55.510Z, or as seconds or milliseconds since 1970)"
        )
    );
}
