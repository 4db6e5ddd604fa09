use super::*;
use crate::engine::Stop;
use crate::engine::kernels::InUse;
use crate::record::Parts;
use std::sync::atomic::{AtomicU32, Ordering};

/// Requests a stop after this many calls.
struct After(AtomicU32);

impl Stop for After {
    fn asked(&self) -> u32 {
        u32::from(self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err())
    }
}

fn run(model: &str, deterministic: bool) -> Run {
    let mut config: Table = [("model.name".to_owned(), model.into())].into();
    if deterministic {
        config.insert("training.deterministic".to_owned(), true.into());
    }
    Run::new(Parts {
        config: config.into(),
        program: "trainer".into(),
        cuda: "13.0".into(),
        driver: "580".into(),
        device: "NVIDIA H200".into(),
        ..Parts::sample()
    })
}

fn open(ledger: &Path, run: &Run) -> Option<InUse> {
    KernelCache::of(ledger, run).open(run, &After(3.into())).unwrap()
}

fn pin_of(in_use: &InUse) -> Value {
    in_use.pinned()[FACT].clone()
}

#[test]
fn choices_are_made_once_by_an_exclusive_run_and_reused() {
    let ledger = tempfile::tempdir().unwrap();
    let (bert, other) = (run("bert", true), run("bert", false));
    let loose = open(ledger.path(), &other).unwrap();
    assert!(open(ledger.path(), &bert).is_none(), "another run may be choosing");
    assert!(loose.pinned().is_empty() && !loose.is_pinned());
    loose.remember().unwrap();
    drop(loose);
    // A run that is not deterministic makes no pin, because two of them may have chosen at the same time.
    let first = open(ledger.path(), &bert).unwrap();
    assert!(open(ledger.path(), &other).is_none(), "a run would choose beside it");
    let config = fs::read_to_string(first.workplace.join("cubecl.toml")).unwrap();
    let record = first.pinning.as_ref().unwrap().record.clone();
    assert!(config.contains(&format!("[autotune.recorder]\nfile = {:?}", record.display().to_string())));
    fs::write(&record, "{}").unwrap();
    assert_eq!(first.chosen(), None, "the first one makes the choices");
    first.remember().unwrap();
    let (pin, workplace) = (pin_of(&first), first.workplace.clone());
    drop(first);
    assert!(!workplace.exists());
    let [second, third] = [(); 2].map(|()| open(ledger.path(), &bert).unwrap());
    assert!(second.tuned && second.workplace != third.workplace);
    assert_eq!((pin_of(&second), pin_of(&third)), (pin.clone(), pin.clone()));
    // A run with the same shapes that is not deterministic keeps the pin.
    drop([second, third]);
    let loose = open(ledger.path(), &other).unwrap();
    loose.remember().unwrap();
    drop(loose);
    assert_eq!(pin_of(&open(ledger.path(), &bert).unwrap()), pin);
    assert_ne!(pin_of(&open(ledger.path(), &run("gpt2", true)).unwrap()), pin);
}

#[test]
fn a_choice_after_the_pin_is_an_error_that_names_it() {
    let ledger = tempfile::tempdir().unwrap();
    let bert = run("bert", true);
    open(ledger.path(), &bert).unwrap().remember().unwrap();
    let late = open(ledger.path(), &bert).unwrap();
    assert_eq!(late.chosen(), None);
    let line = r#"{"key":{"m":64,"n":8},"fastest_index":1,"fastest_time":{"secs":0,"nanos":5},"results":[{"outcome":{"Err":{"Skip":{"name":"plain"}}}},{"outcome":{"Ok":{"name":"tiled","index":1}}}],"log_context":null}"#;
    fs::write(&late.pinning.as_ref().unwrap().record, format!("{line}\n")).unwrap();
    let told = late.chosen().unwrap();
    assert!(told.starts_with("training.deterministic: 1 kernel chosen by time, though"), "{told}");
    assert!(told.contains(r#"tiled for {"m":64,"n":8} (they are made now"#), "{told}");
    fs::write(&late.pinning.as_ref().unwrap().record, [line; 5].join("\n")).unwrap();
    assert!(late.chosen().unwrap().contains(" and 2 more"));
}

#[test]
fn another_pin_than_the_recorded_one_is_refused() {
    let [here, there] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let bert = run("bert", true);
    let first = open(here.path(), &bert).unwrap();
    first.remember().unwrap();
    let facts = first.pinned();
    drop(first);
    assert_eq!(KernelCache::has_pin(here.path(), &bert, &facts), Ok(()));
    assert_eq!(KernelCache::has_pin(there.path(), &bert, &Table::new()), Ok(()), "nothing was pinned");
    let missing = KernelCache::has_pin(there.path(), &bert, &facts).unwrap_err();
    assert_eq!(missing.here, None);
    // The pin moves with the kernels.
    let kernels = KernelCache::of(here.path(), &bert);
    fs::write(kernels.dir.join("default.db"), "kernels").unwrap();
    KernelCache::import(there.path(), &kernels.export().unwrap(), false).unwrap();
    assert_eq!(KernelCache::has_pin(there.path(), &bert, &facts), Ok(()));
    let other = [(FACT.to_owned(), "0123".into())].into();
    let told = KernelCache::has_pin(there.path(), &bert, &other).unwrap_err().to_string();
    assert!(told.contains("by pin 0123") && told.contains("selected by pin"), "{told}");
}
