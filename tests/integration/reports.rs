//! Reports and pictures of runs that are not of this machine, of those that do not count, and of metrics of which nobody said which way is better.

use crate::pictures::sealed;
use crate::sandbox::{Sandbox, WORKER};
use std::fs;

#[test]
fn a_report_of_a_manifest_needs_neither_its_gpus_nor_its_data() {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(WORKER, "[1, 2]", "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    let cuda = fs::read_to_string(sandbox.path("m.toml")).unwrap().replace("device = \"cpu\"", "device = \"cuda\"");
    sandbox.write("cuda.toml", cuda);
    assert!(sandbox.run(&["report", "cuda.toml", "-o", "site"]).complaint(1).contains("no attempt of a cell"));
    // The same run on two machines with GPUs, brought here.
    let store = ledger::store::Store::at(sandbox.ledger_dir());
    let id = store.read(|reader| Ok(reader.of_model(None)?.into_iter().next())).unwrap().unwrap();
    let here = store.read(|reader| reader.sealed(id)).unwrap().unwrap();
    for gpus in [1i64, 2] {
        let mut there = here.clone();
        let mut config = there.run.config().clone();
        config.insert("hardware.device".to_owned(), "cuda".into());
        config.insert("hardware.gpus".to_owned(), gpus.into());
        let parts = ledger::record::Parts { config: config.into(), device: "H200".into(), ..there.run.parts.clone() };
        there.run = ledger::record::Run::new(parts);
        there.attempt.run = there.run.id;
        there.attempt.nonce = ledger::record::Nonce([u8::try_from(gpus).unwrap(); 16]);
        let pack = sandbox.write("run.ledger", ledger::wire::encode_pack(&there).unwrap());
        sandbox.run(&["import", pack.to_str().unwrap()]).expect(0);
    }
    let there = sandbox.json(&["ls", "--all"], 0);
    assert_eq!(there["attempts"].as_array().unwrap().len(), 4, "{there}");
    let said = sandbox.run(&["report", "cuda.toml", "-o", "site"]);
    assert!(said.err.contains("no attempt of 1 of 2 cells of the manifest"), "{}", said.err);
    assert_eq!(said.expect(0), "site/index.html (1 run, 1 attempt)\n");
    // Cells that manifests share count once, and those of the CPU are others.
    let said = sandbox.run(&["report", "m.toml", "m.toml", "-o", "site"]);
    assert!(said.err.is_empty(), "{}", said.err);
    assert_eq!(said.expect(0), "site/index.html (2 runs, 2 attempts)\n");
}

#[test]
fn what_was_selected_and_why_nothing_counts_stand_in_a_report() {
    let sandbox = sealed();
    let said = sandbox.run(&["report", "m.toml", "--where", "x < 3", "-o", "site"]);
    assert!(said.err.contains("left out: 2 of 6 cells of the manifest"), "{}", said.err);
    said.expect(0);
    for file in ["site/index.html", "site/report.md"] {
        let text = fs::read_to_string(sandbox.path(file)).unwrap().replace("\\<", "&lt;");
        assert!(
            text.contains("Selected: attempts where x &lt; 3.")
                && text.contains(
                    "Left out: 2 of 6 cells that were planned (none of their attempts is selected and not hidden)."
                )
        );
        assert!(!text.contains("Without an attempt"));
    }
    let failing = Sandbox::new();
    failing.sweep_manifest(&format!("{WORKER}echo 'one\ttwo' >&2; exit 3\n"), "1", "1");
    failing.run(&["run", "m.toml"]);
    failing.run(&["note", "latest", "first\nsecond"]).expect(0);
    failing.run(&["report", "--all", "-o", "site"]).expect(0);
    let index = fs::read_to_string(failing.path("site/index.html")).unwrap();
    assert!(index.contains("No attempt counts.") && index.contains("left out: 1 failed"), "{index}");
    assert!(index.contains("(failed)"), "the curves say that their attempt failed");
    let runs = fs::read_dir(failing.path("site/runs")).unwrap().next().unwrap().unwrap().path();
    let page = fs::read_to_string(runs).unwrap();
    assert!(page.contains("first second") && page.contains("one\ttwo") && !page.contains('\u{fffd}'), "{page}");
}

#[test]
fn nothing_is_called_best_where_nobody_said_which_way_is_better() {
    let sandbox = Sandbox::new();
    let score = "say \"{\\\"event\\\":\\\"metric\\\",\\\"name\\\":\\\"score\\\",\\\"value\\\":$x.5}\"\n";
    sandbox.sweep_manifest(&format!("{WORKER}{score}"), "[1, 2]", "[1, 2]");
    sandbox.run(&["run", "m.toml"]).expect(0);
    let question = ["--model", "toy", "--metric", "score"];
    let plot = |kind: &str, more: &[&str]| sandbox.run(&[&["plot", kind], question.as_slice(), more].concat());
    let heat = plot("heat", &["--x", "x", "--y", "seed"]).expect(0);
    assert!(!heat.contains('*') && !heat.contains("best"), "{heat}");
    let refused = plot("heat", &["--x", "x", "--y", "seed", "--best"]).complaint(2);
    assert!(refused.contains("--direction") && !refused.contains("nothing to draw"), "{refused}");
    let heat = plot("heat", &["--x", "x", "--y", "seed", "--best", "--direction", "maximize"]).expect(0);
    assert!(heat.contains("*2.5"), "{heat}");
    let document = sandbox.json(&[&["plot", "distribution"], question.as_slice()].concat(), 0);
    assert!(document["summary"].as_str().unwrap().starts_with("score by group, smallest first"), "{document}");
}

#[test]
fn a_report_ranks_by_the_recorded_objective() {
    let sandbox = Sandbox::new();
    let score = "say \"{\\\"event\\\":\\\"metric\\\",\\\"name\\\":\\\"score\\\",\\\"value\\\":$x.5}\"\n";
    sandbox.sweep_manifest(&format!("{WORKER}{score}"), "[1, 2]", "[1, 2]");
    let text = fs::read_to_string(sandbox.path("m.toml")).unwrap();
    sandbox.run(&["run", "m.toml"]).expect(0);
    let report = |more: &[&str]| sandbox.run(&[&["report", "--all", "-o", "r", "--force"], more].concat());
    let refused = report(&["--metrics", "score"]).complaint(2);
    assert!(refused.contains("`score:minimize` or `score:maximize`"), "{refused}");
    sandbox.write("m.toml", format!("{text}\n[objective]\nmetric = 'score'\ndirection = 'maximize'\n"));
    sandbox.run(&["run", "m.toml", "--repeat", "1"]).expect(0);
    for more in [&["--metrics", "score"][..], &[]] {
        report(more).expect(0);
        let page = fs::read_to_string(sandbox.path("r/report.md")).unwrap();
        assert!(page.contains("### By score (maximize)"), "{page}");
    }
}

#[test]
fn a_model_begins_with_its_best_and_its_last_configuration() {
    let sandbox = Sandbox::new();
    let score = "say \"{\\\"event\\\":\\\"metric\\\",\\\"name\\\":\\\"score\\\",\\\"value\\\":$x.5}\"\n";
    let objective = "\n[objective]\nmetric = 'score'\ndirection = 'maximize'\n";
    sandbox.sweep_manifest(&format!("{WORKER}{score}"), "[2, 4]", "[1, 2]");
    let text = fs::read_to_string(sandbox.path("m.toml")).unwrap();
    sandbox.write("m.toml", format!("{text}{objective}"));
    sandbox.run(&["run", "m.toml"]).expect(0);
    let pages = || {
        sandbox.run(&["report", "--all", "--metrics", "score", "-o", "r", "--force"]).expect(0);
        ["r/report.md", "r/index.html"].map(|page| fs::read_to_string(sandbox.path(page)).unwrap())
    };
    for page in pages() {
        assert!(
            page.contains("Highest score: x 4 with 4.5 (no scatter; 2 seeds). The lowest of 2: x 2 with 2.5, 0.56×"),
            "{page}"
        );
        assert!(!page.contains("say nothing of what was learned"), "{page}");
    }
    sandbox.run(&["hide", "--where", "x == 2"]).expect(0);
    for page in pages() {
        assert!(page.contains("One configuration, so nothing is compared: score 4.5 (no scatter; 2 seeds)."), "{page}");
    }
}

/// 200 W by the card's counter, and an epoch of three of the four seconds.
#[test]
fn energy_is_drawn_by_phase() {
    let sandbox = Sandbox::new();
    crate::telemetry::import_of_a_gpu(&sandbox);
    sandbox.run(&["plot", "energy", "latest", "-o", "e.csv"]).expect(0);
    let csv = fs::read_to_string(sandbox.path("e.csv")).unwrap();
    let joules = |phase: &str| -> f64 {
        let row = csv.lines().find(|line| line.split(',').nth(2) == Some(phase)).unwrap_or_else(|| panic!("{csv}"));
        row.split(',').nth(4).unwrap().parse().unwrap()
    };
    assert!((joules("epoch") - 600.0).abs() < 6.0 && (joules("(whole attempt)") - 800.0).abs() < 25.0, "{csv}");
    sandbox.run(&["plot", "energy", "latest", "-o", "e.svg"]).expect(0);
    let svg = fs::read_to_string(sandbox.path("e.svg")).unwrap();
    assert!(svg.contains("epoch: 600") && svg.contains("rest"), "{svg}");
}

#[test]
fn the_fonts_licence_is_in_the_program() {
    let said = Sandbox::new().run(&["plot", "license"]).expect(0);
    for words in [
        "Copyright (c) 2003 by Bitstream",
        "Arev Fonts Copyright",
        "(c) 2006 by Tavmjong Bah",
        "TAVMJONG BAH BE LIABLE",
    ] {
        assert!(said.contains(words), "{words}");
    }
}
