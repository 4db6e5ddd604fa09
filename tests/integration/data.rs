//! Data in files: what a run is named by is what its worker reads, or the attempt is no finished one.

use crate::sandbox::Sandbox;
use ledger::engine::{
    Attempted, Bound, Cause, EngineError, Launch, Machine, Place, Seen, Shim, Stop, Sweep, Trainer, Watch,
    bind_anchored, execute, plan,
};
use ledger::record::{Attempt, Cell, Exit, Outcome, RunId, Table};
use ledger::store::Store;
use std::collections::BTreeSet;
use std::error::Error;
use std::fs;

/// Asks as often to stop.
struct Asked(u32);

impl Stop for Asked {
    fn asked(&self) -> u32 {
        self.0
    }

    fn time_left(&self) -> Option<std::time::Duration> {
        None
    }
}

impl Watch for Asked {
    fn see(&self, _seen: Seen<'_>) {}
}

const NOBODY: Asked = Asked(0);

/// A run of the trainer over the texts of the sandbox, by what a machine has seen there.
fn bound(sandbox: &Sandbox, machine: &Machine, seed: u64) -> Bound {
    let cell = Cell {
        config: [("data.name".to_owned(), "text".into()), ("hardware.device".to_owned(), "cpu".into())].into(),
        settings: [("data.path".to_owned(), sandbox.path("texts").display().to_string().into())].into(),
        seed,
    };
    let trainer = Trainer { program: |_, _| "trainer".into(), generators: Vec::new() };
    bind_anchored(cell, None, Some(&trainer), machine).unwrap()
}

/// The run with that script in the trainer's place.
fn scripted(sandbox: &Sandbox, bound: &Bound, script: &str) -> Bound {
    let argv = ["sh", "-c", script].map(str::to_owned).into();
    Bound { launch: Launch::Program { argv, directory: sandbox.path("") }, ..bound.clone() }
}

fn shim(sandbox: &Sandbox) -> Shim {
    Shim { executable: env!("CARGO_BIN_EXE_ledger").into(), restore: Place::at(sandbox.path("restore")), key: None }
}

/// What comes of executing the run with that script.
fn tried(sandbox: &Sandbox, bound: &Bound, script: &str, stop: &Asked) -> Result<Attempted, EngineError> {
    let store = Store::at(sandbox.ledger_dir());
    execute(&store, &scripted(sandbox, bound, script), None, &Table::new(), &shim(sandbox), &NOBODY, stop)
}

fn executed(sandbox: &Sandbox, bound: &Bound, script: &str) -> Attempt {
    let came = tried(sandbox, bound, script, &NOBODY).unwrap();
    let Attempted::Executed(executed) = came else { panic!("{came:?}") };
    executed.attempt
}

fn with_text() -> Sandbox {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("texts")).unwrap();
    sandbox.write("texts/a.txt", "one");
    sandbox
}

/// What changed, as it is said.
fn changed(sandbox: &Sandbox) -> String {
    let path = sandbox.path("texts/a.txt");
    format!("the data changed after the run id was computed: `{}` was written to", path.display())
}

#[test]
fn an_attempt_whose_data_were_written_to_is_never_a_finished_one() {
    let sandbox = with_text();
    let first = bound(&sandbox, &Machine::default(), 1);
    let read = executed(&sandbox, &first, "cat texts/a.txt; touch texts/.b.txt");
    assert_eq!((read.outcome, read.exit), (Outcome::Finished, Some(Exit::Code(0))));

    let failed = Outcome::Failed { reason: format!("{} (start it again)", changed(&sandbox)) };
    let written = executed(&sandbox, &first, "echo more >> texts/a.txt");
    assert_eq!((&written.outcome, written.exit), (&failed, Some(Exit::Code(0))));

    let before = tried(&sandbox, &first, "touch started", &NOBODY).unwrap_err().to_string();
    assert!(before.starts_with(&changed(&sandbox)) && before.ends_with("compute their ids again)"), "{before}");
    assert!(!sandbox.path("started").exists(), "nobody learns from what the run is not named by");
    assert_eq!((sandbox.outcomes(), sandbox.journals().len()), (vec!["failed".to_owned(), "finished".to_owned()], 0));

    let second = bound(&sandbox, &Machine::default(), 1);
    assert_ne!(second.run.id, first.run.id);
    assert_eq!(executed(&sandbox, &second, "true").outcome, Outcome::Finished);

    // What stops by itself tells its own reason.
    let own = executed(&sandbox, &second, "echo more >> texts/a.txt; echo 'no memory' >&2; exit 3");
    assert_eq!(own.outcome, Outcome::Failed { reason: "the worker exited with code 3: no memory".to_owned() });
}

#[test]
fn what_is_left_of_a_sweep_whose_data_changed_is_not_begun_and_told_once() {
    for jobs in [1, 2] {
        let sandbox = with_text();
        let machine = Machine::default();
        // All that run at once have begun before the data change.
        let script = format!(
            "touch begun.$LEDGER_RUN; while [ $(ls begun.* | wc -l) -lt {jobs} ]; do sleep 0.01; done; echo more >> texts/a.txt"
        );
        let bounds =
            (1..=6).map(|seed| (scripted(&sandbox, &bound(&sandbox, &machine, seed), &script), Cause::Repeat(2)));
        let store = Store::at(sandbox.ledger_dir());
        let planned = plan(&store, bounds.collect()).unwrap();
        let (facts, shim) = (Table::new(), shim(&sandbox));
        let sweep =
            Sweep { store: &store, facts: &facts, shim: &shim, watch: &NOBODY, stop: &NOBODY, jobs, canary: false };
        let report = sweep.run(planned);
        assert_eq!(sandbox.outcomes(), vec!["failed"; jobs]);
        assert!(report.executed.len() == jobs && report.any_failed());
        let [(told, error @ EngineError::Data(_))] = report.troubled.as_slice() else {
            panic!("{:?}", report.troubled)
        };
        assert!(error.to_string().starts_with(&changed(&sandbox)), "{error}");
        // Each run has its reason, whoever asks.
        assert!(report.untried.iter().all(|(_, why)| *why == changed(&sandbox)), "{:?}", report.untried);
        let runs: BTreeSet<RunId> = report.untried.iter().map(|(run, _)| *run).chain([*told]).collect();
        assert_eq!((report.untried.len(), runs.len()), (5, 6));
    }
}

#[test]
fn data_that_cannot_be_looked_at_keep_a_run_from_being_begun_and_no_other() {
    let sandbox = with_text();
    let machine = Machine::default();
    let bounds: Vec<Bound> =
        (1..=3).map(|seed| scripted(&sandbox, &bound(&sandbox, &machine, seed), "touch started")).collect();
    let (text, aside) = (sandbox.path("texts/a.txt"), sandbox.path("aside"));
    fs::rename(&text, &aside).unwrap();
    std::os::unix::fs::symlink(sandbox.path("nowhere"), &text).unwrap();
    let store = Store::at(sandbox.ledger_dir());
    let planned = plan(&store, bounds.into_iter().map(|bound| (bound, Cause::Repeat(1))).collect()).unwrap();
    let (facts, shim) = (Table::new(), shim(&sandbox));
    let sweep =
        Sweep { store: &store, facts: &facts, shim: &shim, watch: &NOBODY, stop: &NOBODY, jobs: 1, canary: false };
    let report = sweep.run(planned);
    assert!(report.executed.is_empty() && report.untried.is_empty() && !sandbox.path("started").exists());
    assert_eq!(report.troubled.len(), 3);
    let said = &report.troubled[0].1;
    let expected = "the run was not started, since its data cannot be checked (repeat the command, or `submit`)";
    assert_eq!(said.to_string(), expected);
    let why = said.source().unwrap().to_string();
    assert_eq!(why, format!("cannot read `{}` (check the path)", sandbox.path("texts").display()));
    fs::rename(aside, text).unwrap();
    assert_eq!(executed(&sandbox, &bound(&sandbox, &machine, 1), "true").outcome, Outcome::Finished);
}

#[test]
fn whoever_asks_to_stop_waits_for_no_look_at_the_data() {
    let sandbox = with_text();
    let first = bound(&sandbox, &Machine::default(), 1);
    let file = fs::File::options().append(true).open(sandbox.path("texts/a.txt")).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    let came = tried(&sandbox, &first, "touch started", &Asked(1)).unwrap();
    assert!(matches!(came, Attempted::Stopped), "{came:?}");
    assert!(!sandbox.ledger_dir().join("ledger.redb").exists() && !sandbox.path("started").exists());
    assert_eq!(executed(&sandbox, &first, "true").outcome, Outcome::Finished, "the content is the same");
}
