//! Training for real on the CPU, through the whole house.

use crate::sandbox::{Said, Sandbox, repository};
use std::fs;
use std::time::{Duration, Instant};

const DIGITS: &str = r#"
seed = 3
[model]
name = "NAME"
[data]
name = "digits"
train_count = 640
eval_count = 200
[training]
optimizer = "adam"
learning_rate = 0.001
batch_size = 64
epochs = 1
[hardware]
device = "cpu"
"#;

fn weights(sandbox: &Sandbox) -> String {
    let show = sandbox.json(&["show", "latest"], 0);
    show["attempts"][0]["digests"]["weights"].as_str().unwrap().to_owned()
}

#[test]
fn same_run_same_bits_across_processes_and_thread_counts() {
    for model in ["softmax", "mnist_mlp", "mnist_cnn"] {
        let mut digests = Vec::new();
        for threads in ["1", "2", "4"] {
            let sandbox = Sandbox::new();
            sandbox.write("m.toml", DIGITS.replace("NAME", model));
            let output = sandbox.command(&["run", "m.toml"]).env("RAYON_NUM_THREADS", threads).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            digests.push(weights(&sandbox));
        }
        assert_eq!((&digests[0], &digests[0]), (&digests[1], &digests[2]), "{model}");
    }
}

#[test]
fn a_rerun_of_a_training_run_is_identical_and_another_seed_is_another_run() {
    let sandbox = Sandbox::new();
    sandbox.write("m.toml", DIGITS.replace("NAME", "mnist_mlp"));
    sandbox.run(&["run", "m.toml"]).expect(0);
    let first = weights(&sandbox);
    let rerun = sandbox.json(&["rerun", "latest"], 0);
    assert_eq!(rerun["verdict"], "identical");
    assert_eq!(weights(&sandbox), first);
    sandbox.write("m.toml", DIGITS.replace("NAME", "mnist_mlp").replace("seed = 3", "seed = 4"));
    sandbox.run(&["run", "m.toml"]).expect(0);
    assert_ne!(weights(&sandbox), first);
    let why = sandbox.json(&["why", "latest", "latest~1"], 1);
    assert_eq!(why["parts"].as_array().unwrap().len(), 1);
    assert_eq!(why["parts"][0]["part"], "seed");
}

/// The same batch by one thread and by two and four that share it. No two ranks see the same samples; all learn the same.
#[test]
fn ranks_share_a_batch_and_learn_what_one_learns() {
    let sandbox = Sandbox::new();
    let text = DIGITS.replace("NAME", "mnist_mlp").replace("batch_size = 64", "batch_global = 64");
    sandbox.write("m.toml", format!("{text}cpu_ranks = [1, 2, 4]\nparallelism = \"data\"\n"));
    sandbox.run(&["run", "m.toml"]).expect(0);
    let mut losses = Vec::new();
    for (id, ranks) in [("latest~2", 1), ("latest~1", 2), ("latest", 4)] {
        let show = sandbox.json(&["show", id], 0);
        let attempt = &show["attempts"][0];
        losses.push(attempt["metrics"]["loss"]["value"].as_f64().unwrap());
        let digests = attempt["digests"].as_object().unwrap();
        let shards: Vec<&serde_json::Value> =
            (0..ranks).filter_map(|rank| digests.get(&format!("shard.{rank}"))).collect();
        assert_eq!(attempt["facts"]["measure.samples_per_step"], 64);
        if ranks == 1 {
            assert!(shards.is_empty());
            continue;
        }
        assert_eq!(shards.len(), ranks);
        assert!((1..ranks).all(|rank| !shards[..rank].contains(&shards[rank])), "{shards:?}");
        assert_eq!(show["parts"]["config"]["value"]["training.batch_global"], 64);
        assert_eq!(show["parts"]["config"]["value"]["training.batch_size"], 64 / ranks);
        assert!(attempt["series"].as_array().unwrap().iter().any(|series| series["name"] == "step_duration.1"));
    }
    assert!(losses.iter().all(|loss| (loss - losses[0]).abs() < 2e-5 * losses[0]), "{losses:?}");
}

#[test]
fn a_rank_that_fails_ends_the_attempt_within_ten_seconds_and_is_named() {
    let text = DIGITS.replace("NAME", "softmax").replace("epochs = 1", "epochs = 1000");
    for (fault, reason) in [
        ("1 panic backward 20", "rank 1 failed, last in `backward` 20: a fault was asked for"),
        ("0 hang forward 20", "rank 0 failed, last in `forward` 20: rank 0 did not come to `all_reduce` 20 within 6 s"),
        ("1 abort optimizer 20", "rank 1 failed, last in `optimizer` 20: SIGABRT ended its process"),
        // Nobody knows how long a first step takes.
        ("1 hang forward 1", "rank 1 failed, last in `forward` 1: no thread has worked for 7 s"),
        ("0 hang warm_up 1", "rank 0 failed, last in `warm_up` 1: no thread has worked for 7 s"),
    ] {
        let sandbox = Sandbox::new();
        sandbox.write("m.toml", format!("{text}cpu_ranks = 2\nparallelism = \"data\"\n"));
        let start = Instant::now();
        Said::new(sandbox.command(&["run", "m.toml"]).env("LEDGER_FAULT", fault).output().unwrap()).expect(4);
        // 20 steps of a small model, too; and on a busy machine nobody can say so soon that nobody works.
        let limit_s = if reason.contains("worked") { 60 } else { 14 };
        assert!(start.elapsed() < Duration::from_secs(limit_s), "{fault}: {:?}", start.elapsed());
        let attempt = &sandbox.json(&["show", "latest"], 0)["attempts"][0];
        assert_eq!((&attempt["outcome"], &attempt["reason"]), (&"failed".into(), &reason.into()), "{fault}");
    }
}

#[test]
fn a_diverged_run_is_a_finished_run_and_never_the_best() {
    let sandbox = Sandbox::new();
    let manifest = "[model]\nname = \"linear\"\n[training]\nlearning_rate = [0.01, 1.0]\nsteps = 1000\n[hardware]\ndevice = \"cpu\"\n";
    sandbox.write("m.toml", manifest);
    sandbox.run(&["run", "m.toml"]).expect(0);
    assert_eq!(sandbox.outcomes(), ["finished", "finished"]);
    let diverged = &sandbox.json(&["show", "latest"], 0)["attempts"][0];
    assert_eq!(diverged["metrics"]["loss"]["value"], "NaN");
    let best = sandbox.json(&["best", "--model", "linear", "--metric", "loss"], 0);
    assert_eq!(best["places"].as_array().unwrap().len(), 1);
    assert_eq!(best["places"][0]["config"]["training.learning_rate"], 0.01);
    sandbox.json(&["verify"], 0);
}

#[test]
fn ctrl_c_stops_the_trainer_between_two_steps() {
    let sandbox = Sandbox::new();
    sandbox.write("m.toml", DIGITS.replace("NAME", "mnist_mlp").replace("epochs = 1", "epochs = 100000"));
    let child = sandbox.start(&["run", "m.toml"]);
    // The journal grows with the events of the steps.
    sandbox.wait_for("the first steps", || {
        let journal = sandbox.journals().into_iter().find(|path| path.extension().is_some_and(|e| e == "journal"));
        journal.and_then(|path| fs::metadata(path).ok()).is_some_and(|meta| meta.len() > 6000)
    });
    crate::sandbox::signal(child.id(), "INT");
    Sandbox::finish(child).expect(130);
    let attempt = &sandbox.json(&["show", "latest"], 0)["attempts"][0];
    assert_eq!((attempt["outcome"].as_str(), attempt["exit_code"].as_i64()), (Some("interrupted"), Some(130)));
    assert!(attempt["series"][0]["len"].as_i64().unwrap() > 0);
}

#[test]
fn data_that_is_missing_or_damaged_is_named() {
    let sandbox = Sandbox::new();
    let manifest = "[model]\nname = \"softmax\"\n[data]\nname = \"idx\"\npath = \"data\"\n[training]\nlearning_rate = 0.1\nepochs = 1\n[hardware]\ndevice = \"cpu\"\n";
    sandbox.write("m.toml", manifest);
    let complaint = sandbox.run(&["run", "m.toml"]).complaint(2);
    assert!(complaint.contains("train-images-idx3-ubyte"), "{complaint}");
    fs::create_dir(sandbox.path("data")).unwrap();
    for name in
        ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]
    {
        sandbox.write(&format!("data/{name}"), [0, 0, 9, 9, 0]);
    }
    sandbox.run(&["run", "m.toml"]).expect(4);
    let reason = sandbox.json(&["show", "latest"], 0)["attempts"][0]["reason"].clone();
    assert!(reason.as_str().unwrap().contains("train-images-idx3-ubyte"), "{reason}");
}

#[test]
fn every_manifest_of_the_repository_has_a_plan() {
    let sandbox = Sandbox::new();
    let mut count = 0;
    let within = |folder: &str| fs::read_dir(repository(folder)).unwrap().map(|entry| entry.unwrap().path());
    for path in within("manifests").chain(within("manifests/reference")).filter(|path| path.is_file()) {
        let arguments = ["run", path.to_str().unwrap(), "--dry-run"];
        count += 1;
        let for_gpus = fs::read_to_string(&path).unwrap().contains("device = \"cuda\"");
        if for_gpus && sandbox.run(&arguments).code == Some(2) {
            // Without a GPU it says so, before anything else could be wrong with it: expansion comes first.
            assert!(sandbox.run(&arguments).err.contains("`hardware.device` is cuda, but"), "{}", path.display());
            continue;
        }
        let plan = sandbox.json(&arguments, 0);
        assert!(!plan["runs"].as_array().unwrap().is_empty(), "{}", path.display());
    }
    assert!(count >= 5);
}

const TEXTS: &str = r#"
[model]
name = "gru"
size = "tiny"
[data]
name = "text"
path = "texts"
width = 16
tokenizer = "bytes"
[training]
optimizer = "adam"
learning_rate = [0.001, 0.002, 0.003]
batch_size = 4
steps = 20
[hardware]
device = "cpu"
"#;

#[test]
fn what_does_not_enter_the_id_is_not_learned_from() {
    let sandbox = Sandbox::new();
    fs::create_dir_all(sandbox.path("texts/below")).unwrap();
    sandbox.write("texts/a.txt", "some words that are said again and again\n".repeat(200));
    sandbox.write("m.toml", TEXTS.replace("[0.001, 0.002, 0.003]", "0.001"));
    sandbox.run(&["run", "m.toml"]).expect(0);
    for name in ["texts/.b.txt", "texts/B.TXT", "texts/below/c.txt"] {
        sandbox.write(name, "other words, which nobody has named\n".repeat(900));
    }
    sandbox.run(&["run", "m.toml", "--repeat", "1"]).expect(0);
    let [first, second] = ["latest~1", "latest"].map(|id| sandbox.json(&["show", id], 0));
    assert_eq!(first["parts"], second["parts"], "both are of one run");
    assert_eq!(first["attempts"][0]["digests"], second["attempts"][0]["digests"]);
    assert!(first["attempts"][0]["digests"]["weights"].is_string());
}

#[test]
fn data_that_change_during_a_sweep_are_sealed_under_no_name() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("texts")).unwrap();
    let path = sandbox.write("texts/a.txt", "some words that are said again and again\n".repeat(200));
    sandbox.write("m.toml", TEXTS.replace("steps = 20", "steps = 200"));
    let child = sandbox.start(&["run", "m.toml"]);
    sandbox.wait_for("the first attempt", || !sandbox.journals().is_empty());
    sandbox.write("texts/a.txt", "other words that are said again and again\n".repeat(200));
    Sandbox::finish(child).expect(4);
    let attempt = &sandbox.json(&["show", "latest"], 0)["attempts"][0];
    let reason = format!(
        "the data changed after the run id was computed: `{}` was written to (start it again)",
        path.canonicalize().unwrap().display()
    );
    assert_eq!((&attempt["outcome"], &attempt["reason"]), (&"failed".into(), &reason.into()));
    sandbox.run(&["run", "m.toml"]).expect(0);
    assert_eq!(sandbox.outcomes().iter().filter(|outcome| *outcome == "finished").count(), 3);
}
