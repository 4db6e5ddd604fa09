//! Other people's ledgers: real tables and real telemetry, where they lie beside the repository.

use crate::sandbox::{Sandbox, repository};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The folder of a data set. None, and a line that says so, where it is not there.
#[expect(clippy::print_stdout, reason = "whoever runs the tests learns what they leave out")]
pub fn data(name: &str) -> Option<PathBuf> {
    let places = ["../shared/data", "shared/data"].map(|place| repository(place).join(name));
    let found = places.into_iter().find(|place| place.is_dir());
    if found.is_none() {
        println!("skipped: the data set `{name}` is not at ../shared/data (it is not part of the repository)");
    }
    found
}

fn text(path: PathBuf) -> String {
    path.to_str().unwrap().to_owned()
}

/// What a spreadsheet does: columns by name, no quotes.
fn sheet(path: PathBuf) -> Vec<BTreeMap<String, String>> {
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    let heads: Vec<&str> = lines.next().unwrap().split(',').collect();
    lines
        .map(|line| heads.iter().map(|head| (*head).to_owned()).zip(line.split(',').map(str::to_owned)).collect())
        .collect()
}

fn number(row: &BTreeMap<String, String>, column: &str) -> f64 {
    row[column].parse().unwrap()
}

pub fn terascope() -> Option<Sandbox> {
    let data = data("terascope")?;
    let sandbox = Sandbox::new();
    let files = ["application-checkpoints.csv", "gpu.csv", "task-x-y.csv"].map(|name| text(data.join(name)));
    let imported =
        sandbox.json(&["import", "telemetry", "--checkpoints", &files[0], "--gpu", &files[1], "--tasks", &files[2]], 0);
    assert_eq!(imported["state"], "new");
    let counts = &imported["counts"];
    assert_eq!((counts["tasks"].as_u64(), counts["hosts"].as_u64()), (Some(831), Some(154)));
    assert_eq!(counts["duplicate_checkpoints"], 120);
    Some(sandbox)
}

/// The means of a group in the data set's own answers, by the head of the column.
fn answers(name: &str, key: &str) -> BTreeMap<String, BTreeMap<String, String>> {
    let rows = sheet(data("terascope").unwrap().join(name));
    rows.into_iter().map(|row| (row[key].clone(), row)).collect()
}

/// Compares groups with the data set's answers: each of four means of each quantity, lengths, energies and counts.
fn compare(groups: &[Value], by: &str, answers: &BTreeMap<String, BTreeMap<String, String>>) {
    assert_eq!(groups.len(), answers.len());
    for group in groups {
        let answer = &answers[group[by].as_str().unwrap()];
        let same = |found: &Value, column: &str, factor: f64| match answer[column].as_str() {
            "" => assert!(found.is_null(), "{column}"),
            expected => {
                let (found, expected) = (found.as_f64().unwrap() * factor, expected.parse::<f64>().unwrap());
                assert!((found - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{column}: {found} {expected}");
            }
        };
        for (quantity, column) in [
            ("power_instant", "powerDrawWatt"),
            ("temperature", "gpuTempC"),
            ("utilization_gpu", "gpuUtilPerc"),
            ("utilization_memory", "gpuMemUtilPerc"),
        ] {
            same(&group[quantity]["nearest"], &format!("a_{column}"), 1.0);
            same(&group[quantity]["sample"], &format!("b_sample_{column}"), 1.0);
            same(&group[quantity]["held"], &format!("b_step_{column}"), 1.0);
            same(&group[quantity]["linear"], &format!("b_linear_{column}"), 1.0);
        }
        same(&group["time_s"], "ms", 1e3);
        same(&group["energy_j"], "energy_step_J", 1.0);
        same(&group["nearest_off_s"], "near_err_ms", 1e3);
        same(&group["events"], "n", 1.0);
        same(&group["sampled"], "n_with_samples", 1.0);
    }
}

#[test]
fn a_cluster_answers_by_event_level_and_gpu() {
    let Some(sandbox) = terascope() else { return };
    let names = sandbox.json(&["events", "latest", "--by", "name", "--join", "nearest"], 0);
    compare(names["groups"].as_array().unwrap(), "name", &answers("subset831_Q1.csv", "eventName"));
    let levels = sandbox.json(&["events", "latest", "--by", "level"], 0);
    assert_eq!(levels["event"], "TotalRender");
    compare(levels["groups"].as_array().unwrap(), "level", &answers("subset831_Q2.csv", "level"));
    let total = sandbox.run(&["events", "latest", "--join", "nearest"]).expect(0);
    let total = total.lines().find(|line| line.starts_with("TotalRender")).unwrap();
    let cells: Vec<&str> = total.split_whitespace().collect();
    assert_eq!(cells[3..6], ["56695.221", "99.657", "36.558"], "{total}");
}

#[test]
fn gpus_of_a_cluster_stand_against_their_mean_render_time() {
    let Some(sandbox) = terascope() else { return };
    let gpus = sandbox.json(&["events", "latest", "--by", "gpu"], 0);
    let groups = gpus["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 154);
    let times: Vec<f64> = groups.iter().map(|group| group["time_s"].as_f64().unwrap()).collect();
    assert!(times.is_sorted_by(|a, b| a >= b), "the slowest first");
    assert!(groups.iter().all(|group| group["serial"].as_str().unwrap().starts_with("03")), "leading zeros are kept");
    let events: u64 = groups.iter().map(|group| group["events"].as_u64().unwrap()).sum();
    assert_eq!(events, 831);
    // Pearson's coefficient by its definition.
    let power: Vec<f64> = groups.iter().map(|group| group["power_instant"]["sample"].as_f64().unwrap()).collect();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / 154.0;
    let covariance = |a: &[f64], b: &[f64]| {
        let (mean_a, mean_b) = (mean(a), mean(b));
        a.iter().zip(b).map(|(a, b)| (a - mean_a) * (b - mean_b)).sum::<f64>()
    };
    let expected = covariance(&times, &power) / (covariance(&times, &times) * covariance(&power, &power)).sqrt();
    let found = gpus["correlations"][0]["pearson"].as_f64().unwrap();
    assert!((found - expected).abs() < 1e-9, "{found} {expected}");
    let hosts = sandbox.json(&["events", "latest", "--by", "host", "--event", "Render"], 0);
    assert_eq!(hosts["groups"].as_array().unwrap().len(), 154);
    assert!(sandbox.run(&["events", "latest", "--event", "Rendr"]).complaint(2).contains("there are: Render, "));
}

#[test]
fn the_same_files_are_taken_in_once_and_are_sound() {
    let Some(sandbox) = terascope() else { return };
    let data = data("terascope").unwrap();
    let (checkpoints, gpu) = (text(data.join("application-checkpoints.csv")), text(data.join("gpu.csv")));
    let arguments = ["import", "telemetry", "--checkpoints", &checkpoints, "--gpu", &gpu];
    let tasks = text(data.join("task-x-y.csv"));
    let again = sandbox.json(&[&arguments[..], &["--tasks", &tasks]].concat(), 0);
    assert_eq!(again["state"], "known");
    sandbox.json(&["verify"], 0);
    assert!(sandbox.run(&["rerun", "latest"]).complaint(1).contains("no program to execute again"));
    // Without levels it is another import, and levels cannot be asked for.
    assert_eq!(sandbox.json(&arguments, 0)["state"], "new");
    let ls = sandbox.json(&["ls"], 0);
    let asked =
        ls["attempts"].as_array().unwrap().iter().map(|attempt| {
            sandbox.run(&["events", attempt["attempt"].as_str().unwrap(), "--by", "level"]).code.unwrap()
        });
    let mut asked: Vec<i32> = asked.collect();
    asked.sort_unstable();
    assert_eq!(asked, [0, 2]);
}

/// The best configuration of each workload by what a spreadsheet makes of the table.
#[test]
fn best_of_an_imported_table_is_what_a_spreadsheet_gives() {
    let Some(data) = data("zeus") else { return };
    let sandbox = Sandbox::new();
    let table = text(data.join("summary_power_v100.csv"));
    let map = text(repository("docs/examples/zeus/energy.toml"));
    let imported = sandbox.json(&["import", "table", &table, "--map", &map], 0);
    assert_eq!(imported["models"].as_array().unwrap().len(), 6);
    let rows = sheet(data.join("summary_power_v100.csv"));
    for model in imported["models"].as_array().unwrap() {
        let model = model["model"].as_str().unwrap();
        let of = rows.iter().filter(|row| format!("{}/{}", row["dataset"], row["network"]) == model);
        let (energy, row) = of
            .map(|row| (number(row, "average_power") * number(row, "time_per_epoch"), row))
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .unwrap();
        let best = &sandbox.json(&["best", "--model", model, "--metric", "energy", "--top", "1"], 0)["places"][0];
        assert_eq!(best["mean"].as_f64(), Some(energy), "{model}");
        assert_eq!(best["config"]["training.batch_size"].to_string(), row["batch_size"]);
        assert_eq!(best["config"]["hardware.power_limit_w"].to_string(), row["power_limit"]);
    }
    let best = &sandbox.json(&["best", "--model", "imagenet/resnet50", "--metric", "energy"], 0)["places"][0];
    assert!((best["mean"].as_f64().unwrap() - 599_874.45).abs() < 0.005);
    assert_eq!(
        (&best["config"]["training.batch_size"], &best["config"]["hardware.power_limit_w"]),
        (&256.into(), &150.into())
    );
    assert_eq!(sandbox.json(&["import", "table", &table, "--map", &map], 0)["models"][0]["new"], 0);
    sandbox.json(&["verify"], 0);
}

/// As MLflow 3 writes an experiment: columns and moments are its own.
const MLFLOW: &str = "\
run_id,experiment_id,status,artifact_uri,start_time,end_time,metrics.loss,metrics.energy_kwh,metrics.accuracy,params.model,params.seed,params.batch_size,params.lr,tags.mlflow.runName
d1,1,RUNNING,/a,2026-11-20 13:00:11.284+00:00,,,,,resnet50,1,256,0.1,a
c1,1,FAILED,/a,2026-11-20 13:00:11.216+00:00,2026-11-20 13:00:11.260+00:00,,,,resnet50,1,128,0.1,b
b1,1,FINISHED,/a,2026-11-20 13:00:11.120+00:00,2026-11-20 13:00:11.191+00:00,0.5,0.002,0.72,resnet50,2,64,0.1,c
a1,1,FINISHED,/a,2026-11-20 13:00:11.024+00:00,2026-11-20 13:00:11.091+00:00,0.5,0.004,0.71,resnet50,1,64,0.1,d
";

#[test]
fn runs_of_mlflow_are_taken_in_by_the_map_of_the_examples() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("runs.csv"), MLFLOW).unwrap();
    let map = text(repository("docs/examples/mlflow.toml"));
    let import = ["import", "table", "runs.csv", "--map", &map];
    assert_eq!(sandbox.json(&import, 0)["models"][0]["new"], 2);
    let best = &sandbox.json(&["best", "--model", "resnet50", "--metric", "energy"], 0)["places"][0];
    assert_eq!((best["mean"].as_f64(), best["n"].as_i64()), (Some(10_800.0), Some(2)));
    assert_eq!(best["config"]["training.batch_size"], 64);
    assert_eq!(sandbox.json(&["ls"], 0)["attempts"][0]["started_unix_ms"], 1_795_179_611_120_i64);
    // A row without a moment would be of 1970.
    fs::write(sandbox.path("runs.csv"), MLFLOW.replace("2026-11-20 13:00:11.120+00:00", "")).unwrap();
    let said = sandbox.run(&import).complaint(2);
    assert!(said.contains("runs.csv:4: `started` has no value here"), "{said}");
}

#[test]
fn what_nvidia_smi_wrote_becomes_samples_by_the_script_of_the_examples() {
    let sandbox = Sandbox::new();
    let smi = "timestamp, index, power.draw [W], temperature.gpu, utilization.gpu [%], utilization.memory [%]\r\n\
        2026/11/20 12:00:00.000, 0, 100.00 W, 45, 37 %, 12 %\r\n\
        2026/11/20 12:00:01.000, 0, 300.00 W, 46, 99 %, [N/A]\r\n\
        2026/11/20 12:00:02.000, 0, 300.00 W, 46, 99 %, [N/A]\r\n";
    fs::write(sandbox.path("smi.csv"), smi).unwrap();
    let script = text(repository("docs/examples/nvidia-smi.awk"));
    let awk = |file: &str| {
        let words = ["-v", "host=h", "-v", "zone=+01:00", "-f", &script, file];
        Command::new("awk").args(words).current_dir(sandbox.path("")).output().unwrap()
    };
    let made = awk("smi.csv");
    assert!(made.status.success(), "{made:?}");
    fs::write(sandbox.path("gpu.csv"), made.stdout).unwrap();
    let log = "timestamp,hostname,eventName,eventType,taskId\n\
        2026-11-20T11:00:00.000Z,h,train,START,1\n2026-11-20T11:00:02.000Z,h,train,STOP,1\n";
    fs::write(sandbox.path("log.csv"), log).unwrap();
    let import = ["import", "telemetry", "--checkpoints", "log.csv", "--gpu", "gpu.csv"];
    let counts = &sandbox.json(&import, 0)["counts"];
    assert_eq!((&counts["gpus"], &counts["readings"], &counts["missing_values"]), (&1.into(), &3.into(), &2.into()));
    // 100 W held for a second, and 300 W for another.
    let found = &sandbox.json(&["events", "latest"], 0)["groups"][0];
    assert_eq!(found["energy_j"].as_f64(), Some(400.0), "{found}");
    fs::write(sandbox.path("bare.csv"), smi.split_once('\n').unwrap().1).unwrap();
    let refused = awk("bare.csv");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("names no timestamp"), "{refused:?}");
    assert_eq!(refused.status.code(), Some(1));
}

/// Energy to target: every row of one table with every row of the other, means over seeds, none where a seed did not get there.
#[test]
fn energy_to_target_joins_two_tables() {
    let Some(data) = data("zeus") else { return };
    let sandbox = Sandbox::new();
    let table = text(data.join("summary_power_v100.csv"));
    sandbox.run(&["import", "table", &table, "--map", &text(repository("docs/examples/zeus/target.toml"))]).expect(0);
    let (power, train) = (sheet(data.join("summary_power_v100.csv")), sheet(data.join("summary_train.csv")));
    for (dataset, network, target) in [
        ("imagenet", "resnet50", "0.65"),
        ("cifar100", "shufflenetv2", "0.6"),
        ("librispeech", "deepspeech2", "40"),
        ("movielens-1m", "ncf", "0.41"),
        ("squad", "bert_base_uncased", "84.0"),
        ("sentiment140", "bert_base_uncased", "0.84"),
    ] {
        let mut best = (f64::INFINITY, BTreeMap::new());
        for row in power.iter().filter(|row| row["dataset"] == dataset && row["network"] == network) {
            let on = ["dataset", "network", "batch_size", "optimizer"];
            let epochs: Vec<f64> = train
                .iter()
                .filter(|other| {
                    other["target_metric"] == target && on.iter().all(|column| other[*column] == row[*column])
                })
                .map(|other| number(other, "target_epoch"))
                .collect();
            let energies =
                epochs.iter().map(|epochs| epochs * number(row, "time_per_epoch") * number(row, "average_power"));
            let mean = energies.sum::<f64>() / f64::from(u32::try_from(epochs.len()).unwrap());
            if mean < best.0 {
                best = (mean, row.clone());
            }
        }
        let model = format!("{dataset}/{network}");
        let asked =
            ["best", "--model", &model, "--metric", "energy_to_target", "--direction", "minimize", "--top", "1"];
        let found = &sandbox.json(&asked, 0)["places"][0];
        let mean = found["mean"].as_f64().unwrap();
        assert!((mean - best.0).abs() <= 1e-12 * best.0, "{model}: {mean} {}", best.0);
        assert_eq!(found["config"]["training.batch_size"].to_string(), best.1["batch_size"], "{model}");
        assert_eq!(found["config"]["hardware.power_limit_w"].to_string(), best.1["power_limit"], "{model}");
    }
}

#[test]
fn tainted_rows_are_kept_and_left_out_of_answers() {
    let sandbox = Sandbox::new();
    sandbox.write("t.csv", "net,power,seconds\na,100,10\na,0,9\nb,5,-1\n");
    sandbox.write(
        "m.toml",
        "date = 2024-05-31\nname = \"mine\"\n[fields]\nmodel.name = \"m\"\nnet = \"{net}\"\npower = \"{power}\"\nhardware.power_limit_w = 250\n\
         [metrics]\npower_mean = { value = \"{power}\", unit = \"W\" }\nepoch_time = { value = \"{seconds}\", unit = \"s\" }\n\
         energy = { formula = \"power_mean * epoch_time\", unit = \"J\" }\n",
    );
    let imported = sandbox.run(&["import", "table", "t.csv", "--map", "m.toml"]).expect(0);
    insta::assert_snapshot!(imported, @r"
    MODEL  NEW  KNOWN  TAINTED
    m        3      0        2
    tainted: 1 attempt because `energy` (`power_mean * epoch_time`) is 0 J, but `epoch_time` (column `seconds`) is above 0
    tainted: 1 attempt because `energy` is negative
    tainted: 1 attempt because `epoch_time` is negative
    tainted: 1 attempt because `power_mean` (column `power`) is 0 W, but `epoch_time` (column `seconds`) is above 0
    ");
    for metric in ["energy", "epoch_time", "power_mean"] {
        let best = sandbox.json(&["best", "--model", "m", "--metric", metric], 0);
        assert_eq!(best["places"].as_array().unwrap().len(), 1, "{metric}");
        assert_eq!(best["places"][0]["config"]["net"], "a");
    }
    assert_eq!(sandbox.json(&["ls"], 0)["attempts"].as_array().unwrap().len(), 3, "nothing is lost");
    // There is nothing to trust, though a power limit is recorded.
    let best = sandbox.json(&["best", "--model", "m", "--metric", "energy"], 0);
    let said = sandbox.run(&["rerun", best["places"][0]["run"].as_str().unwrap()]).complaint(1);
    assert!(said.contains("there is no program to execute again"), "{said}");
    sandbox.json(&["verify"], 0);
    // Hiding one and showing it again does not bring it into the ranking.
    let id = sandbox.json(&["ls"], 0)["attempts"].as_array().unwrap().iter().find_map(|attempt| {
        let show = sandbox.json(&["show", attempt["attempt"].as_str().unwrap()], 0);
        show["attempts"][0]["facts"].get("tainted").map(|_| attempt["attempt"].as_str().unwrap().to_owned())
    });
    let id = id.unwrap();
    sandbox.run(&["hide", &id]).expect(0);
    sandbox.run(&["hide", "--undo", &id]).expect(0);
    sandbox.json(&["verify"], 0);
    assert_eq!(sandbox.json(&["best", "--model", "m", "--metric", "energy"], 0)["places"].as_array().unwrap().len(), 1);
    insta::assert_snapshot!(sandbox.run(&["import", "table", "t.csv", "--map", "none.toml"]).complaint(2), @r"error: cannot read `none.toml`: No such file or directory (os error 2)");
}

/// A ledger with one attempt that is sound, and one that is tainted.
fn small() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("t.csv", "net,power,seconds\na,100,10\nb,0,9\n");
    sandbox.write(
        "m.toml",
        "date = 2024-05-31\nname = \"mine\"\n[fields]\nmodel.name = \"{net}\"\n[metrics]\n\
         power_mean = { value = \"{power}\", unit = \"W\" }\nepoch_time = { value = \"{seconds}\", unit = \"s\" }\n",
    );
    sandbox.run(&["import", "table", "t.csv", "--map", "m.toml"]).expect(0);
    sandbox
}

#[test]
fn text_goes_to_standard_output_and_says_what_is_tainted() {
    let sandbox = small();
    let csv = sandbox.run(&["export", "--to", "csv", "--model", "b"]).expect(0);
    let rows: Vec<&str> = csv.lines().collect();
    assert_eq!(rows.len(), 2);
    assert!(rows[0].starts_with("attempt,run,group,model,seed,started,outcome,reason,tainted,"), "{}", rows[0]);
    assert!(rows[0].ends_with(",epoch_time [s],power_mean [W]"), "{}", rows[0]);
    assert!(
        rows[1].contains(",b,0,2024-05-31T00:00:00.000Z,finished,,\"`power_mean` (column `power`) is 0 W, but"),
        "{}",
        rows[1]
    );
    assert!(rows[1].ends_with(",9.0,0.0"), "{}", rows[1]);
    let jsonl = sandbox.run(&["export", "--to", "jsonl"]).expect(0);
    let rows: Vec<Value> = jsonl.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let tainted = |model: &str| rows.iter().find(|row| row["model"] == model).unwrap().get("tainted").is_some();
    assert_eq!((rows.len(), rows[0]["seed"].as_str(), tainted("a"), tainted("b")), (2, Some("0"), false, true));
    let fast = sandbox.run(&["export", "--to", "csv", "--where", "epoch_time < 10"]).expect(0);
    assert_eq!(fast.lines().skip(1).collect::<Vec<_>>(), csv.lines().skip(1).collect::<Vec<_>>());
    assert!(sandbox.run(&["export", "--to", "csv", "--where", "epoch_tim < 10"]).complaint(2).contains("epoch_time"));
    sandbox.run(&["export", "--to", "csv", "--where", "epoch_time > 10"]).complaint(1);
    let values = sandbox.run(&["export", "--to", "csv", "--table", "values"]).expect(0);
    assert!(values.contains(",metric,epoch_time,10.0,,s,,\n"), "{values}");
    let prometheus = sandbox.run(&["export", "--to", "prometheus"]).expect(0);
    assert!(prometheus.contains("# TYPE ledger_power_mean_watts gauge\n"), "{prometheus}");
}

#[test]
fn what_a_table_says_moves_no_cursor_and_what_it_does_not_say_is_no_zero() {
    let sandbox = Sandbox::new();
    sandbox.write("t.csv", "net,power,word\na,100,\"x\u{1b}[2K\u{1b}[1Gbest: fake\"\na,50,\"y\nz\"\n");
    sandbox.write(
        "m.toml",
        "date = 2024-05-31\n[fields]\nmodel.name = \"{net}\"\nword = \"{word}\"\n[metrics]\npower_mean = { value = \"{power}\", unit = \"W\" }\n\"loss\\u001B[2K\" = \"{power}\"\n",
    );
    sandbox.run(&["import", "table", "t.csv", "--map", "m.toml"]).expect(0);
    for arguments in [
        &["best", "--model", "a", "--metric", "power_mean"][..],
        &["pareto", "--model", "a", "--metrics", "power_mean,loss\u{1b}[2K:minimize", "--dominated"],
        &["plot", "pareto", "--model", "a", "--metrics", "power_mean,loss\u{1b}[2K:minimize"],
        &["plot", "distribution", "--model", "a", "--metric", "power_mean"],
        &["compare", "latest", "latest~1", "--all"],
        &["show", "latest~1"],
        &["show", "latest"],
        &["diff", "latest", "latest~1"],
    ] {
        let said = sandbox.run(arguments);
        assert!(
            !said.out.contains('\u{1b}') && !said.err.contains('\u{1b}'),
            "{arguments:?}: {}{}",
            said.out,
            said.err
        );
        assert!(
            matches!(said.code, Some(0 | 1)) && !said.out.lines().any(|line| line.starts_with('z')),
            "{arguments:?}: {said:?}"
        );
    }
    // Nobody measured how long a row took.
    let listed = sandbox.run(&["ls"]).expect(0);
    assert!(listed.contains("finished (imported)     -\n") && !listed.contains("µs"), "{listed}");
    assert!(sandbox.json(&["ls"], 0)["attempts"][0].get("wall_time_s").is_none());
    assert!(sandbox.run(&["show", "latest"]).expect(0).contains("UTC, its time is not known\n"));
    assert!(sandbox.run(&["telemetry", "latest"]).out.contains(", its time is not known\n"));
    sandbox.run(&["report", "--all", "-o", "site"]).expect(0);
    let page = fs::read_dir(sandbox.path("site/runs")).unwrap().next().unwrap().unwrap().path();
    assert!(fs::read_to_string(page).unwrap().contains("UTC, its time is not known."));
}

#[test]
fn a_reader_that_goes_away_ends_an_export_quietly() {
    let Some(sandbox) = terascope() else { return };
    let mut child = sandbox.start(&["export", "--to", "csv", "--table", "points"]);
    // Many times what a pipe holds is left unread.
    let mut first = [0; 8];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut first).unwrap();
    drop(child.stdout.take());
    let said = Sandbox::finish(child);
    assert_eq!((&first, said.code, said.err.as_str()), (b"attempt,", Some(0), ""));
}

#[test]
fn other_forms_go_to_files_that_do_not_exist_yet() {
    let sandbox = small();
    for (form, path, begins) in [("parquet", "runs.parquet", "PAR1"), ("csv", "runs.csv", "attempt,")] {
        let told = sandbox.json(&["export", "--to", form, "-o", path], 0);
        assert_eq!((told["path"].as_str(), told["attempts"].as_u64()), (Some(path), Some(2)));
        assert!(fs::read(sandbox.path(path)).unwrap().starts_with(begins.as_bytes()));
        assert!(sandbox.run(&["export", "--to", form, "-o", path]).complaint(2).contains("File exists"), "{form}");
    }
    for (form, files) in [("mllog", 2), ("perfetto", 2), ("tensorboard", 1), ("mlflow", 1)] {
        sandbox.run(&["export", "--to", form, "-o", form]).expect(0);
        assert_eq!(fs::read_dir(sandbox.path(form)).unwrap().count(), files, "{form}: one experiment, two attempts");
        sandbox.run(&["export", "--to", form, "-o", form]).complaint(2);
    }
    insta::assert_snapshot!(sandbox.run(&["export", "--to", "parquet"]).complaint(2), @r"error: this format is not text (name a file or folder with -o)");
    insta::assert_snapshot!(sandbox.run(&["export", "--to", "mlflow", "--table", "points", "-o", "x"]).complaint(2), @r"error: --table is for csv, jsonl and parquet");
    insta::assert_snapshot!(sandbox.run(&["export", "--to", "csv", "--model", "c"]).complaint(1), @r"error: the ledger has no attempt of model `c` (it has: a, b)");
    insta::assert_snapshot!(sandbox.run(&["export", "latest", "latest~1"]).complaint(2), @r"error: a portable file holds one attempt (name one, or export several with --to)");
    sandbox.run(&["export"]).complaint(2);
    sandbox.run(&["export", "--model", "a", "latest"]).complaint(2);
    // An attempt that is hidden is not among all, unless it is asked for.
    let id = sandbox.json(&["ls"], 0)["attempts"][0]["attempt"].as_str().unwrap().to_owned();
    sandbox.run(&["hide", &id]).expect(0);
    let count = |arguments: &[&str]| sandbox.run(arguments).expect(0).lines().count();
    assert_eq!(count(&["export", "--to", "jsonl"]), 1);
    assert_eq!(count(&["export", "--to", "jsonl", "--hidden"]), 2);
    assert_eq!(count(&["export", "--to", "jsonl", &id]), 1, "who names it means it");
}
