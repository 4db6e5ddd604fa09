//! Data in files: what a run is named by is what its worker reads, or the attempt is no finished one.

use crate::sandbox::Sandbox;
use ledger::engine::{
    Attempted, Bound, Launch, Machine, Place, Seen, Shim, Stop, Trainer, Watch, bind_anchored, execute,
};
use ledger::record::{Attempt, Cell, Exit, Outcome, Table};
use ledger::store::Store;
use std::fs;

struct Nobody;

impl Stop for Nobody {
    fn asked(&self) -> u32 {
        0
    }

    fn time_left(&self) -> Option<std::time::Duration> {
        None
    }
}

impl Watch for Nobody {
    fn see(&self, _seen: Seen<'_>) {}
}

/// A run of the trainer over the texts of the sandbox, by what lies there now.
fn bound(sandbox: &Sandbox) -> Bound {
    let cell = Cell {
        config: [("data.name".to_owned(), "text".into()), ("hardware.device".to_owned(), "cpu".into())].into(),
        settings: [("data.path".to_owned(), sandbox.path("texts").display().to_string().into())].into(),
        seed: 1,
    };
    let trainer = Trainer { cpu: "trainer".into(), cuda: None, generators: Vec::new() };
    bind_anchored(cell, None, Some(&trainer), &Machine::default()).unwrap()
}

/// Executes the run with that script in the trainer's place.
fn executed(sandbox: &Sandbox, bound: &Bound, script: &str) -> Attempt {
    let argv = ["sh", "-c", script].map(str::to_owned).into();
    let bound = Bound { launch: Launch::Program { argv, directory: sandbox.path("") }, ..bound.clone() };
    let store = Store::at(sandbox.ledger_dir());
    let shim = Shim { executable: env!("CARGO_BIN_EXE_ledger").into(), restore: Place::at(sandbox.path("restore")) };
    let came = execute(&store, &bound, None, &Table::new(), &shim, &Nobody, &Nobody).unwrap();
    let Attempted::Executed(executed) = came else { panic!("{came:?}") };
    executed.sealed.attempt
}

#[test]
fn an_attempt_whose_data_were_written_to_is_never_a_finished_one() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("texts")).unwrap();
    sandbox.write("texts/a.txt", "one");
    let first = bound(&sandbox);
    let read = executed(&sandbox, &first, "cat texts/a.txt; touch texts/.b.txt");
    assert_eq!((read.outcome, read.exit), (Outcome::Finished, Some(Exit::Code(0))));

    let path = sandbox.path("texts/a.txt");
    let reason = format!(
        "the data changed since the run was named by them: `{}` was written to (start it again)",
        path.display()
    );
    let failed = Outcome::Failed { reason };
    let written = executed(&sandbox, &first, "echo more >> texts/a.txt");
    assert_eq!((&written.outcome, written.exit), (&failed, Some(Exit::Code(0))));

    let before = executed(&sandbox, &first, "touch started");
    assert_eq!((before.outcome, before.exit), (failed, None));
    assert!(!sandbox.path("started").exists(), "nobody learns from what the run is not named by");

    let second = bound(&sandbox);
    assert_ne!(second.run.id, first.run.id);
    assert_eq!(executed(&sandbox, &second, "true").outcome, Outcome::Finished);

    // What stops by itself tells its own reason.
    let own = executed(&sandbox, &second, "echo more >> texts/a.txt; echo 'no memory' >&2; exit 3");
    assert_eq!(own.outcome, Outcome::Failed { reason: "the worker exited with code 3: no memory".to_owned() });
}
