//! Tables of other people that are imported again, corrected: what replaces what, and what is refused.

use crate::foreign::{data, terascope};
use crate::sandbox::Sandbox;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

const TABLE: &str = "net,batch,joules,acc\na,8,5,0.7\na,16,4,0.6\na,32,0,0.5\na,8,7,0.7\n";
const MAP: &str = "date = 2024-05-31\ndevice = \"V100\"\nname = \"mine\"\n[fields]\nmodel.name = \"{net}\"\n\
    training.batch_size = \"{batch}\"\n[metrics]\nenergy = { value = \"{joules}\", unit = \"kJ\" }\n";

/// A ledger with a table that was imported by a map with the wrong unit, and the map that corrects it.
fn imported() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("t.csv", TABLE);
    sandbox.write("m1.toml", MAP);
    sandbox.write("m2.toml", MAP.replace("\"kJ\"", "\"J\""));
    sandbox.run(&["import", "table", "t.csv", "--map", "m1.toml"]).expect(0);
    sandbox
}

/// The means of energy and how many attempts each is over, the best first.
fn best(sandbox: &Sandbox) -> Vec<(f64, i64)> {
    let best = sandbox.json(&["best", "--model", "a", "--metric", "energy"], 0);
    let places = best["places"].as_array().unwrap().iter();
    places.map(|place| (place["mean"].as_f64().unwrap(), place["n"].as_i64().unwrap())).collect()
}

fn visible(sandbox: &Sandbox) -> usize {
    sandbox.json(&["ls"], 0)["attempts"].as_array().unwrap().len()
}

#[test]
fn a_corrected_map_replaces_what_an_earlier_one_made_of_the_same_rows() {
    let sandbox = imported();
    let import = |map: &str| sandbox.json(&["import", "table", "t.csv", "--map", map], 0);
    assert_eq!(best(&sandbox), [(4e3, 1), (6e3, 2)]);
    assert_eq!(import("m1.toml")["replaced"], 0, "the same map is nothing new");
    let said = sandbox.run(&["import", "table", "t.csv", "--map", "m2.toml"]).expect(0);
    let told = "replaces 3 rows of an earlier import of the same content (hidden; to count them again, import t.csv with the earlier map)\n";
    assert!(said.ends_with(told), "{said}");
    assert_eq!(
        (best(&sandbox), visible(&sandbox)),
        (vec![(4.0, 1), (6.0, 2)], 4),
        "no row counts twice; that of 0 J is the same in both units"
    );
    // The log says which import replaced them.
    let hidden = sandbox.json(&["ls", "--hidden"], 0);
    let visible_ids: BTreeSet<String> = ids(&sandbox.json(&["ls"], 0));
    let replaced = ids(&hidden).difference(&visible_ids).next().unwrap().clone();
    let shown = sandbox.run(&["show", &replaced]).expect(0);
    assert!(shown.contains("replaced by an import of t.csv by m2.toml"), "{shown}");
    assert_eq!(import("m2.toml")["replaced"], 0);
    // Whoever goes back to the first map has its rows again.
    let back = import("m1.toml");
    assert_eq!(
        (&back["replaced"], &back["restored"], best(&sandbox)),
        (&3.into(), &3.into(), vec![(4e3, 1), (6e3, 2)])
    );
    let said = sandbox.run(&["hide", "--undo", "--import", "t.csv"]).expect(0);
    insta::assert_snapshot!(said, @"
    0 attempts are shown again, 4 not hidden
    still hidden, since a later import of the same rows counts: 3 attempts (`ledger hide --undo ATTEMPT` shows one again)
    ");
    assert_eq!((best(&sandbox), visible(&sandbox)), (vec![(4e3, 1), (6e3, 2)], 4), "no row counts twice");
    // Both maps' rows count on request.
    let both = sandbox.json(&["import", "table", "t.csv", "--map", "m2.toml", "--keep-earlier"], 0);
    assert_eq!((&both["replaced"], &both["restored"], visible(&sandbox)), (&0.into(), &3.into(), 7));
    sandbox.json(&["verify"], 0);
}

fn ids(listing: &Value) -> BTreeSet<String> {
    let attempts = listing["attempts"].as_array().unwrap().iter();
    attempts.map(|attempt| attempt["attempt"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn rows_that_a_map_leaves_out_and_rows_that_were_hidden_by_hand_stay_as_they_are() {
    let sandbox = imported();
    sandbox.write("m3.toml", format!("where = \"batch == 16\"\n{}", MAP.replace("\"kJ\"", "\"J\"")));
    assert_eq!(sandbox.json(&["import", "table", "t.csv", "--map", "m3.toml"], 0)["replaced"], 1);
    assert_eq!(best(&sandbox), [(4.0, 1), (6e3, 2)]);
    sandbox.run(&["hide", "--where", "batch_size == 8"]).expect(0);
    let again = sandbox.json(&["import", "table", "t.csv", "--map", "m1.toml"], 0);
    assert_eq!((&again["restored"], &again["hidden_before"]), (&1.into(), &2.into()));
    let said = sandbox.run(&["import", "table", "t.csv", "--map", "m1.toml"]).expect(0);
    assert!(said.contains("2 known rows were hidden before, and not counted now (`ledger ls --hidden`"), "{said}");
    assert_eq!(best(&sandbox), [(4e3, 1)], "what a person has hidden does not come back by the same map");
    // Nor by another map, nor as another view of the same rows.
    let said = sandbox.run(&["import", "table", "t.csv", "--map", "m2.toml"]).expect(0);
    let told = "2 new rows stay hidden, since an earlier result of the same row was hidden by hand (`ledger hide --undo ID` counts one)\n";
    assert!(said.contains(told), "{said}");
    assert_eq!(best(&sandbox), [(4.0, 1)]);
    // Another view of the same rows may count beside the first.
    sandbox.write("view.toml", MAP.replace("energy = { value = \"{joules}\", unit = \"kJ\" }", "accuracy = \"{acc}\""));
    let kept = sandbox.json(&["import", "table", "t.csv", "--map", "view.toml", "--keep-earlier"], 0);
    assert_eq!((&kept["replaced"], &kept["kept_hidden"], visible(&sandbox)), (&0.into(), &2.into(), 2 + 2));
    // Who shows a row again has it by each later map.
    sandbox.run(&["hide", "--undo", "--where", "batch_size == 8 and accuracy == 0.7"]).expect(0);
    let again = sandbox.json(&["import", "table", "t.csv", "--map", "m2.toml"], 0);
    assert_eq!((&again["kept_hidden"], visible(&sandbox)), (&0.into(), 2 + 2));
}

#[test]
fn a_corrected_version_of_a_file_says_which_rows_count_twice_and_replaces_them_on_request() {
    let sandbox = imported();
    let table = fs::read_to_string(sandbox.path("t.csv")).unwrap();
    let row = table.lines().nth(1).unwrap();
    sandbox.write("t.csv", format!("{table}{}\n", row.replacen("8,", "99,", 1)));
    let import =
        |map: &str, more: &[&str]| sandbox.run(&[["import", "table", "t.csv", "--map", map].as_slice(), more].concat());
    // The same map: rows are known, and the row that was added is new.
    assert!(!import("m1.toml", &[]).err.contains("warning"), "nothing counts twice");
    let said = import("m2.toml", &[]);
    assert!(
        said.err.contains("3 rows of an earlier version of t.csv count beside this version (--replace"),
        "{}",
        said.err
    );
    let replaced = sandbox.json(&["import", "table", "t.csv", "--map", "m2.toml", "--replace"], 0);
    assert_eq!((&replaced["replaced"], &replaced["beside_earlier_versions"]), (&3.into(), &0.into()));
    assert_eq!(best(&sandbox), [(4.0, 1), (5.0, 1), (6.0, 2)], "each row once");
    assert!(!import("m2.toml", &[]).err.contains("warning"));
}

#[test]
fn many_attempts_are_hidden_by_a_condition_or_by_the_file_that_they_came_from() {
    let sandbox = imported();
    sandbox.write("other.csv", "net,batch,joules,acc\na,64,1,0.1\n");
    sandbox.run(&["import", "table", "other.csv", "--map", "m1.toml"]).expect(0);
    let hide = |arguments: &[&str]| sandbox.run(&[&["hide"], arguments].concat());
    insta::assert_snapshot!(hide(&["--where", "batch_size in [8, 16]"]).expect(0), @"3 attempts are hidden");
    insta::assert_snapshot!(hide(&["--where", "batch_size <= 32"]).expect(0), @"1 attempt is hidden, 3 hidden already");
    assert_eq!(best(&sandbox), [(1e3, 1)]);
    insta::assert_snapshot!(hide(&["--import", "t.csv", "--where", "batch_size == 8", "--undo"]).expect(0), @"2 attempts are shown again");
    insta::assert_snapshot!(hide(&["--undo", "--import", "t.csv"]).expect(0), @"2 attempts are shown again, 2 not hidden");
    assert_eq!(visible(&sandbox), 5);
    // By its name, and by its digest, where the file is not at hand or has changed.
    fs::write(sandbox.path("t.csv"), TABLE.replace("0.7", "0.8")).unwrap();
    let said = hide(&["--import", "t.csv"]).complaint(1);
    let digest = said.rsplit(", ").next().unwrap().trim().trim_end_matches(')').to_owned();
    assert!(said.contains("files of that name had other content: name one by its digest"), "{said}");
    insta::assert_snapshot!(hide(&["--import", &digest]).expect(0), @"4 attempts are hidden");
    fs::remove_file(sandbox.path("t.csv")).unwrap();
    let found = sandbox.json(&["hide", "--undo", "--import", "t.csv"], 0);
    assert_eq!((found["attempts"].as_array().unwrap().len(), &found["hidden"]), (4, &false.into()));
    assert!(hide(&["--import", "none.csv"]).complaint(1).contains("no attempt was imported from `none.csv`"));
    assert!(hide(&["--where", "batch_sise == 8"]).complaint(2).contains("did you mean `training.batch_size`?"));
    hide(&["--where", "batch_size == 7"]).complaint(1);
    hide(&["latest", "--where", "batch_size == 8"]).complaint(2);
    hide(&[]).complaint(2);
    // What was hidden with its run comes back with it alone.
    let run = sandbox.json(&["ls"], 0)["attempts"][0]["run"].as_str().unwrap().to_owned();
    hide(&[&run]).expect(0);
    let said = hide(&["--undo", "--where", "batch_size > 0"]).expect(0);
    assert!(said.contains("hidden with their runs: ") && said.contains("`ledger hide --undo RUN`"), "{said}");
    sandbox.json(&["verify"], 0);
}

#[test]
fn a_front_takes_the_direction_of_the_recorded_objective() {
    let sandbox = Sandbox::new();
    sandbox.write("t.csv", TABLE);
    let objective = "objective.metric = \"score\"\nobjective.direction = \"maximize\"\n[metrics]\nscore = \"{acc}\"\n";
    sandbox.write("m.toml", MAP.replace("[metrics]\n", objective).replace("\"kJ\"", "\"J\""));
    sandbox.run(&["import", "table", "t.csv", "--map", "m.toml"]).expect(0);
    let front = |metrics: &str| {
        let found = sandbox.json(&["pareto", "--model", "a", "--metrics", metrics], 0);
        let points = found["points"].as_array().unwrap().iter();
        points.map(|point| point["config"]["training.batch_size"].as_i64().unwrap()).collect::<BTreeSet<_>>()
    };
    assert_eq!(front("energy,score"), [8, 16].into(), "16 takes less energy, 8 scores more");
    assert_eq!(front("energy,score:minimize"), [16].into(), "what is stated counts more");
    let complaint = sandbox.run(&["pareto", "--model", "a", "--metrics", "energy,scores"]).complaint(2);
    assert!(complaint.contains("`scores` is not a known metric"), "{complaint}");
}

#[test]
fn an_energy_of_0_wins_nothing_though_no_time_is_mapped() {
    let sandbox = imported();
    let said = sandbox.run(&["best", "--model", "a", "--metric", "energy"]);
    assert_eq!(best(&sandbox).len(), 2, "the row of 0 J is set apart: {said:?}");
    let tainted = &sandbox.json(&["import", "table", "t.csv", "--map", "m2.toml"], 0)["taints"];
    assert_eq!(tainted["`energy` (column `joules`) is 0 J, but every run draws power"], 1, "{tainted}");
}

#[test]
fn rows_of_another_device_are_told_from_those_of_the_map_by_an_argument() {
    let sandbox = imported();
    sandbox.write("a100.csv", TABLE.replace(",5,", ",3,"));
    let import = ["import", "table", "a100.csv", "--map", "m1.toml"];
    let said = sandbox.run(&import);
    let told = "note: 1 new row repeats runs of `t.csv` (if this file describes another device, import it again with --device NAME)";
    assert!(said.err.contains(told), "{}", said.err);
    assert_eq!(best(&sandbox)[1].1, 3, "one run with the rows of the V100");
    let named = sandbox.run(&[&import[..], &["--device", "A100"]].concat());
    assert!(named.err.is_empty() && named.code == Some(0), "{named:?}");
    assert_eq!(best(&sandbox).iter().map(|(_, n)| *n).collect::<Vec<_>>(), [1, 1, 2, 2]);
    let asked = ["best", "--model", "a", "--metric", "energy", "--group-by", "batch_size"];
    let averaged = "warning: rows average over different devices (`device` in --group-by keeps them apart)";
    assert!(sandbox.run(&asked).err.contains(averaged));
    let apart = [&asked[..5], &["--group-by", "batch_size,device"]].concat();
    assert!(!sandbox.run(&apart).err.contains(averaged));
    sandbox.run(&[&import[..], &["--device", ""]].concat()).complaint(2);
}

#[test]
fn files_that_are_no_tables_and_maps_with_faults_are_refused_with_the_reason() {
    let sandbox = imported();
    sandbox.write("t.csv.gz", b"\x1f\x8b\x08\0\0\0\0\0");
    let said = sandbox.run(&["import", "table", "t.csv.gz", "--map", "m1.toml"]).complaint(2);
    assert!(
        said.contains("cannot read `t.csv.gz`: it is compressed by gzip (unpack it with `gunzip --keep`"),
        "{said}"
    );
    sandbox.write(
        "bad.toml",
        MAP.replace("unit = \"kJ\"", "unit = \"kJ\", kind = \"mesured\"").replace("batch_size", "batchsize"),
    );
    let said = sandbox.run(&["import", "table", "t.csv", "--map", "bad.toml"]).complaint(2);
    assert!(
        said.contains("bad.toml:6:10: unknown field `training.batchsize` (did you mean `training.batch_size`?"),
        "{said}"
    );
    assert!(
        said.contains("bad.toml:8:52: kind is `mesured` (it must be outcome or measured; did you mean `measured`?)"),
        "{said}"
    );
}

/// What a spreadsheet makes of the raw files: mean power of each GPU over all samples, and the mean time of its host's renders.
#[test]
fn mean_power_of_each_gpu_stands_against_its_mean_render_time() {
    let Some(sandbox) = terascope() else { return };
    let folder = data("terascope").unwrap();
    let rows = |name: &str| -> Vec<Vec<String>> {
        let text = fs::read_to_string(folder.join(name)).unwrap();
        let lines: BTreeSet<&str> = text.lines().skip(1).collect();
        lines.iter().map(|line| line.split(',').map(|cell| cell.trim_matches('"').to_owned()).collect()).collect()
    };
    let mut power: BTreeMap<String, (String, Vec<f64>)> = BTreeMap::new();
    for row in rows("gpu.csv") {
        let of = power.entry(row[2].clone()).or_insert_with(|| (row[1].clone(), Vec::new()));
        of.1.push(row[4].parse().unwrap());
    }
    // Milliseconds of the day: the data is of one.
    let moment = |text: &str| {
        let part = |from: usize, to: usize| text[from..to].parse::<f64>().unwrap();
        3600.0 * part(11, 13) + 60.0 * part(14, 16) + part(17, 23)
    };
    let mut renders: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut marks: Vec<Vec<String>> = rows("application-checkpoints.csv");
    marks.retain(|row| row[2] == "TotalRender");
    let started = marks.iter().filter(|row| row[3] == "START");
    let starts: BTreeMap<(&String, &String), f64> = started.map(|row| ((&row[1], &row[5]), moment(&row[0]))).collect();
    for row in marks.iter().filter(|row| row[3] == "STOP") {
        renders.entry(row[1].clone()).or_default().push(moment(&row[0]) - starts[&(&row[1], &row[5])]);
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.iter().map(|_| 1.0).sum::<f64>();
    let found = sandbox.json(&["correlate", "power_instant", "TotalRender", "--by", "gpu", "--readings", "all"], 0);
    assert_eq!((&found["y"]["unit"], &found["all"]["n"]), (&"s".into(), &154.into()));
    for point in found["points"].as_array().unwrap() {
        let (host, watts) = &power[point["label"].as_str().unwrap()];
        let (x, y) = (point["x"].as_f64().unwrap(), point["y"].as_f64().unwrap());
        assert!((x - mean(watts)).abs() < 1e-9 * x, "{x} {}", mean(watts));
        assert!((y - mean(&renders[host])).abs() < 1e-6, "{y} {}", mean(&renders[host]));
    }
    // Within the renders alone it is what `events` says.
    let within =
        sandbox.json(&["correlate", "TotalRender", "power_instant", "--by", "gpu", "--readings", "in-events"], 0);
    let events = sandbox.json(&["events", "latest", "--by", "gpu"], 0);
    let (one, two) =
        (within["all"]["pearson"].as_f64().unwrap(), events["correlations"][0]["pearson"].as_f64().unwrap());
    assert!((one - two).abs() < 1e-9, "{one} {two}");
    assert_eq!(within["within"], "TotalRender");
    let text = sandbox
        .run(&[
            "correlate",
            "power_instant",
            "temperature",
            "--by",
            "gpu",
            "--readings",
            "in-events",
            "--event",
            "Render",
        ])
        .expect(0);
    assert!(text.ends_with("samples within `Render` only\n"), "{text}");
    let phases = sandbox.json(&["correlate", "mean", "TotalRender", "--by", "phase"], 0);
    assert_eq!(phases["by"], "phase");
    let gpu = ["correlate", "power_instant", "TotalRender", "--by", "gpu"];
    assert!(
        sandbox
            .run(&[&gpu[..], &["--readings", "in-events", "--event", "Rendr"]].concat())
            .complaint(2)
            .contains("there are: ")
    );
    sandbox.run(&[&gpu[..], &["--event", "Render"]].concat()).complaint(2);
    sandbox.run(&["correlate", "power_instant", "TotalRendr", "--by", "gpu"]).complaint(2);
}

#[test]
fn rows_do_not_average_over_numbers_of_gpus_and_say_if_samples_are_not_alike() {
    let sandbox = Sandbox::new();
    let rows: String = [("1", "64", "8", 10), ("4", "64", "8", 39), ("1", "128", "16", 20)]
        .into_iter()
        .flat_map(|(gpus, side, batch, speed)| {
            (0..3).map(move |at| format!("{gpus},{side},{batch},{},{}\n", speed * 100 + at, 9 * speed + at))
        })
        .collect();
    sandbox.write("t.csv", format!("gpus,side,batch,speed,joules\n{rows}"));
    let map = "date = 2026-05-31\ndevice = \"V100\"\n[fields]\nmodel.name = \"a\"\nhardware.gpus = \"{gpus}\"\n\
        data.side = \"{side}\"\ntraining.batch_size = \"{batch}\"\n[metrics]\n\
        throughput = { value = \"{speed}\", unit = \"samples/s\" }\nenergy = { value = \"{joules}\", unit = \"J\" }\n";
    sandbox.write("m.toml", map);
    sandbox.run(&["import", "table", "t.csv", "--map", "m.toml"]).expect(0);
    let asked = ["best", "--model", "a", "--metric", "throughput", "--group-by", "batch_size"];
    let said = sandbox.run(&asked);
    assert!(said.err.contains("has its own row (--where 'hardware.gpus == 4' selects those of #1)\n"), "{}", said.err);
    assert!(
        said.err.contains("warning: a sample is not the same in all rows: `data.side` is 128 or 64 ("),
        "{}",
        said.err
    );
    let found = sandbox.json(&asked, 0);
    let means: Vec<f64> = found["places"].as_array().unwrap().iter().map(|one| one["mean"].as_f64().unwrap()).collect();
    assert_eq!(means, [3901.0, 2001.0, 1001.0], "and no mean of 10 and 39");
    let front = ["pareto", "--model", "a", "--metrics", "throughput,energy", "--group-by", "batch_size", "--dominated"];
    assert_eq!(sandbox.json(&front, 0)["points"].as_array().map(Vec::len), Some(3));
    let one = sandbox.run(&[asked.as_slice(), &["--where", "gpus == 1 and side == 64"]].concat());
    assert!(!one.err.contains("number of GPUs") && !one.err.contains("a sample is"), "{}", one.err);
}
