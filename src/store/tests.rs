mod bulk;
mod census;
mod disk;
mod flips;
mod merge;
mod unwritable;
mod verifying;

pub(super) use disk::Disk;

use super::*;
use crate::record::{
    Attempt, Change, Direction, LogEntry, Metric, Nonce, Outcome, Parts, Phase, Run, Sealed, Table, Target, Value,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn run(x: i64, seed: u64) -> Run {
    let config = [("model.name".to_owned(), "m".into()), ("params.x".to_owned(), Value::Int(x))];
    Run::new(Parts { config: Value::Table(config.into()), seed, ..Parts::sample() })
}

fn sealed(x: i64, seed: u64, number: u32, loss: f64, finished: bool) -> Sealed {
    let run = run(x, seed);
    let mut nonce = [0; 16];
    nonce[..4].copy_from_slice(&number.to_le_bytes());
    let outcome = if finished { Outcome::Finished } else { Outcome::Failed { reason: "r".into() } };
    let attempt = Attempt {
        run: run.id,
        nonce: Nonce(nonce),
        started_unix_ms: i64::from(number),
        wall_ns: 1,
        outcome,
        metrics: BTreeMap::from([("loss".to_owned(), Metric::new(loss, ""))]),
        phases: Phase::digest_all(&[]),
        ..Attempt::sample()
    };
    Sealed { run, attempt, series: Vec::new(), phases: Vec::new() }
}

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::at(dir.path().join("ledger"));
    (dir, store)
}

/// Silences the panics of redb on damaged pages, which are caught.
fn quiet() {
    std::panic::set_hook(Box::new(|info| {
        if info.location().is_none_or(|place| !place.file().contains("redb")) {
            // As the default hook, without a backtrace.
            let _ = io::Write::write_all(&mut io::stderr(), format!("{info}\n").as_bytes());
        }
    }));
}

fn faults(store: &Store) -> Vec<Fault> {
    store.read(|reader| reader.verify(&mut |_, _| {})).unwrap().faults
}

#[test]
fn an_attempt_that_does_not_decode_is_passed_over_and_named_and_can_be_hidden() {
    let (_dir, store) = store();
    let all: Vec<Sealed> = (0..3u32).map(|n| sealed(i64::from(n), 1, n, f64::from(n), true)).collect();
    let ids: Vec<AttemptId> = all.iter().map(|one| one.attempt.id()).collect();
    for one in &all {
        store.write(|writer| writer.seal(one, 0)).unwrap();
    }
    store
        .write(|writer| {
            writer.txn.open_table(tables::ATTEMPTS)?.insert(ids[1].0.0, b"rubbish".as_slice())?;
            Ok(())
        })
        .unwrap();
    let error = store.read(|reader| reader.attempt(ids[1])).unwrap_err().to_string();
    assert!(error.starts_with(&format!("attempt {} cannot be read: attempt ", ids[1])), "{error}");
    assert!(store.passed_over().is_empty());
    let found = store.read(|reader| ids.iter().map(|id| reader.readable_sealed(*id)).collect::<Result<Vec<_>, _>>());
    assert_eq!(found.unwrap(), [Some(all[0].clone()), None, Some(all[2].clone())]);
    assert_eq!(store.passed_over(), [ids[1]].into());
    assert!(store.passed_over().is_empty(), "it is named once");
    let named = |store: &Store| faults(store).iter().any(|fault| fault.owner == format!("attempt {}", ids[1]));
    assert!(named(&store));
    for hides in [true, false] {
        let target = Target::Attempt(ids[1]);
        let change = if hides { Change::Hidden(target) } else { Change::Unhidden(target) };
        store.write(|writer| writer.note(&LogEntry { unix_ms: 0, change })).unwrap();
        let ranked = store.read(|reader| reader.best("m", "loss", Direction::Minimize, 10)).unwrap();
        assert_eq!(ranked.iter().map(|place| place.mean).collect::<Vec<_>>(), [0.0, 2.0]);
        assert!(named(&store));
    }
    let rows = store.read(|reader| reader.recent(0, 9, false)).unwrap();
    assert_eq!(rows.len(), 3, "a listing has it all the same");
}

#[test]
fn every_page_of_the_listing_is_a_part_of_the_whole() {
    let (_dir, store) = store();
    for number in 0..7 {
        store.write(|writer| writer.seal(&sealed(0, 1, number, 0.0, true), 0)).unwrap();
    }
    for is_hidden in [false, true] {
        let whole = store.read(|reader| reader.recent(0, usize::MAX, false)).unwrap();
        assert_eq!(whole.len(), if is_hidden { 6 } else { 7 });
        assert_eq!(store.read(|reader| reader.recent(2, usize::MAX, true)).unwrap().len(), 5);
        assert!(whole.is_sorted_by_key(|row| std::cmp::Reverse(row.started_unix_ms)));
        for (skip, limit) in (0..9).flat_map(|skip| (0..9).map(move |limit| (skip, limit))) {
            let page = store.read(|reader| reader.recent(skip, limit, false)).unwrap();
            let part: Vec<_> = whole.iter().skip(skip).take(limit).cloned().collect();
            assert_eq!(page, part, "{skip} {limit}");
        }
        let change = Change::Hidden(Target::Attempt(whole[2].attempt));
        store.write(|writer| writer.note(&LogEntry { unix_ms: 0, change })).unwrap();
    }
}

#[test]
fn a_missing_index_entry_or_table_is_reported_by_name() {
    type Damage = fn(&mut Writer<'_>) -> Result<(), StoreError>;
    let damage: [(&str, Damage); 3] = [
        ("index `groups`: 1 entry missing", |writer| {
            writer.txn.open_table(tables::GROUPS)?.pop_first()?;
            Ok(())
        }),
        ("table `unmeasured`: Table 'unmeasured' does not exist", |writer| {
            writer.txn.delete_table(tables::UNMEASURED)?;
            Ok(())
        }),
        ("table `log`: Table 'log' does not exist", |writer| {
            writer.txn.delete_table(tables::LOG)?;
            Ok(())
        }),
    ];
    for (expected, damage) in damage {
        let (_dir, store) = store();
        store.write(|writer| writer.seal(&sealed(1, 1, 1, 0.5, true), 0)).unwrap();
        assert_eq!(faults(&store), []);
        store.write(damage).unwrap();
        let found: Vec<String> = faults(&store).iter().map(|one| format!("{}: {}", one.owner, one.fault)).collect();
        assert_eq!(found, [expected]);
    }
}

#[test]
fn an_attempt_that_could_not_be_decoded_again_is_refused() {
    let (_dir, store) = store();
    let mut one = sealed(1, 1, 1, 0.5, true);
    one.attempt.facts =
        Table::from([("deep".to_owned(), (0..80).fold(Value::Int(1), |inner, _| Value::List(vec![inner])))]);
    let error = store.write(|writer| writer.seal(&one, 0)).unwrap_err().to_string();
    assert_eq!(
        error,
        "attempt is refused: it could not be read again (value is not well formed: it is nested too deep)"
    );
    assert_eq!(store.read(|reader| Ok((reader.attempt_count()?, reader.run_count()?))).unwrap(), (0, 0));
}

/// The expected answer of `best`, computed from all attempts: (x, mean, n), best first.
fn naive(attempts: &[(i64, f64, bool, bool)], direction: Direction) -> Vec<(i64, f64, u32)> {
    let mut groups: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
    for (x, loss, finished, hidden) in attempts {
        if *finished && !*hidden {
            groups.entry(*x).or_default().push(*loss);
        }
    }
    let mut ranked: Vec<(i64, f64, u32)> = groups
        .into_iter()
        .map(|(x, values)| {
            let n = u32::try_from(values.len()).unwrap();
            (x, values.iter().sum::<f64>() / f64::from(n), n)
        })
        .filter(|(_, mean, _)| mean.is_finite())
        .collect();
    ranked.sort_by(|a, b| a.1.total_cmp(&b.1));
    if direction == Direction::Maximize {
        ranked.reverse();
    }
    ranked
}

fn attempts() -> impl Strategy<Value = Vec<(i64, f64, bool, bool)>> {
    // Multiples of 1/8 below 64: sums and means of a few of them are exact in any order.
    let loss = prop_oneof![8 => (-500i32..500).prop_map(|i| f64::from(i) / 8.0), 1 => Just(f64::NAN), 1 => Just(f64::INFINITY)];
    prop::collection::vec((0i64..4, loss, prop::bool::weighted(0.8), prop::bool::weighted(0.2)), 1..14)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn best_agrees_with_a_scan_of_all_attempts(attempts in attempts()) {
        let (_dir, store) = store();
        let mut ids = Vec::new();
        for (number, (x, loss, finished, _)) in (0u32..).zip(&attempts) {
            let one = sealed(*x, u64::from(number), number, *loss, *finished);
            ids.push(store.write(|writer| writer.seal(&one, 0)).unwrap().id());
        }
        store.write(|writer| {
            for (id, _) in ids.iter().zip(&attempts).filter(|(_, (.., hidden))| *hidden) {
                writer.note(&LogEntry { unix_ms: 0, change: Change::Hidden(Target::Attempt(*id)) })?;
            }
            Ok(())
        }).unwrap();
        for direction in [Direction::Minimize, Direction::Maximize] {
            let ranked = store.read(|reader| reader.best("m", "loss", direction, 10)).unwrap();
            let expected = naive(&attempts, direction);
            let means: Vec<(f64, u32)> = ranked.iter().map(|place| (place.mean, place.n)).collect();
            let wanted: Vec<(f64, u32)> = expected.iter().map(|(_, mean, n)| (*mean, *n)).collect();
            prop_assert_eq!(means.len(), wanted.len());
            for (found, wanted) in means.iter().zip(&wanted) {
                prop_assert_eq!(found.0, wanted.0);
            }
        }
        prop_assert_eq!(faults(&store), vec![]);
    }

    #[test]
    fn the_order_of_imports_does_not_matter(attempts in attempts(), swap in any::<prop::sample::Index>()) {
        let all: Vec<Sealed> = (0u32..).zip(&attempts).map(|(number, (x, loss, finished, _))| {
            sealed(*x, u64::from(number), number, *loss, *finished)
        }).collect();
        let mut turned = all.clone();
        turned.rotate_left(swap.index(all.len()));
        turned.reverse();
        let states = [all, turned].map(|order| {
            let (_dir, store) = store();
            store.write(|writer| {
                for one in order.iter().chain(&order) {
                    writer.import(one, 0)?;
                }
                Ok(())
            }).unwrap();
            store.read(|reader| {
                let rows = format!("{:?}", reader.recent(0, usize::MAX, true)?);
                Ok((rows, reader.best("m", "loss", Direction::Minimize, 10)?, reader.attempt_count()?))
            }).unwrap()
        });
        // A group may have another of its runs.
        let plain = |ranked: &[Ranked]| ranked.iter().map(|place| (place.group, place.n)).collect::<Vec<_>>();
        prop_assert_eq!(&states[0].0, &states[1].0);
        prop_assert_eq!(plain(&states[0].1), plain(&states[1].1));
        prop_assert_eq!(states[0].2, u64::try_from(attempts.len()).unwrap());
    }
}

#[test]
fn one_execution_is_sealed_once() {
    let (_dir, store) = store();
    let one = sealed(1, 1, 7, 0.5, true);
    let mut other = one.clone();
    other.attempt.warnings.push("found twice".into());
    let added =
        store.write(|writer| Ok([writer.seal(&one, 0)?, writer.seal(&one, 0)?, writer.seal(&other, 0)?])).unwrap();
    let id = one.attempt.id();
    assert_eq!(added, [Added::New(id), Added::Known(id), Added::Known(id)]);
    assert_eq!(faults(&store), []);
}

#[test]
fn a_group_is_named_by_a_run_that_has_a_value_in_it() {
    let (_dir, store) = store();
    let good = [sealed(1, 1, 1, 0.5, true), sealed(1, 2, 2, 0.25, true)];
    let failed = sealed(1, 3, 3, 0.1, false);
    store.write(|writer| good.iter().chain([&failed]).try_for_each(|one| writer.seal(one, 0).map(drop))).unwrap();
    let named = || store.read(|reader| reader.best("m", "loss", Direction::Minimize, 1)).unwrap()[0].run;
    assert_eq!(named(), good[1].run.id);
    let change = Change::Hidden(Target::Run(good[1].run.id));
    store.write(|writer| writer.note(&LogEntry { unix_ms: 0, change })).unwrap();
    assert_eq!(named(), good[0].run.id);
    assert_eq!(faults(&store), []);
}

#[test]
fn a_file_whose_maker_was_killed_before_its_first_change_is_no_ledger_yet() {
    let ((_dir, store), (_other, full)) = (store(), store());
    std::fs::create_dir_all(store.dir()).unwrap();
    drop(Database::create(store.file()).unwrap());
    assert!(matches!(store.read(|reader| reader.run_count()), Err(StoreError::Missing(_))));
    assert_eq!(store.if_there(|reader| reader.run_count()).unwrap(), None);
    full.write(|writer| writer.seal(&sealed(1, 1, 1, 0.5, true), 0)).unwrap();
    assert_eq!(store.merge(&full, 0, &mut |_, _| {}).unwrap().new, 1);
    assert_eq!(faults(&store), []);
}

#[test]
fn an_emptied_ledger_is_an_error_and_is_not_replaced() {
    let (_dir, store) = store();
    store.write(|writer| writer.seal(&sealed(1, 1, 1, 0.5, true), 0)).unwrap();
    std::fs::write(store.file(), "").unwrap();
    let told = |result: Result<u64, StoreError>| {
        let error = result.unwrap_err();
        assert!(matches!(error, StoreError::Empty(_)) && error.to_string().contains("restore a copy"), "{error}");
    };
    told(store.read(|reader| reader.run_count()));
    told(store.if_there(|reader| reader.run_count()).map(Option::unwrap_or_default));
    told(store.write(|_| Ok(0)));
    assert_eq!(std::fs::metadata(store.file()).unwrap().len(), 0);
    // The creator was killed on a file system without hard links.
    std::fs::write(store.dir().join(".ledger.redb.7.00ff"), "").unwrap();
    assert!(matches!(store.read(|reader| reader.run_count()), Err(StoreError::Missing(_))));
    store.write(|writer| writer.seal(&sealed(1, 1, 1, 0.5, true), 0)).unwrap();
    let names: Vec<_> = std::fs::read_dir(store.dir()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["ledger.redb"]);
    assert_eq!(faults(&store), vec![]);
}

#[test]
fn the_error_of_a_full_disk_names_the_remedy() {
    let refused = |kind: io::ErrorKind| {
        StoreError::Io { action: "read or write", path: "l".into(), source: kind.into() }.to_string()
    };
    let full = refused(io::ErrorKind::StorageFull);
    assert!(
        full.starts_with("cannot read or write `l` (free some space; nothing that was sealed is lost): "),
        "{full}"
    );
    assert!(refused(io::ErrorKind::PermissionDenied).starts_with("cannot read or write `l`: "));
    let fix = "cannot read or write `l` (choose a folder that can be written with --ledger or LEDGER_DIR): ";
    assert!(refused(io::ErrorKind::ReadOnlyFilesystem).starts_with(fix));
}

#[test]
fn a_ledger_without_read_permission_is_not_reported_as_missing() {
    let store = Store::at("/place");
    let said = |kind: io::ErrorKind| store.unfound(kind.into()).to_string();
    for kind in [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory] {
        assert!(said(kind).starts_with("there is no ledger at `/place`: nothing"), "{}", said(kind));
    }
    assert_eq!(said(io::ErrorKind::PermissionDenied), "cannot read `/place/ledger.redb`: permission denied");
}

#[test]
fn a_change_that_fails_leaves_nothing() {
    let (_dir, store) = store();
    let good = sealed(1, 1, 1, 0.5, true);
    let mut bad = sealed(2, 1, 2, 0.5, true);
    bad.run = run(3, 1);
    assert!(matches!(
        store.write(|writer| {
            writer.seal(&good, 0)?;
            writer.seal(&bad, 0)
        }),
        Err(StoreError::Refused(_))
    ));
    store.write(|_| Ok(())).unwrap();
    assert_eq!(store.read(|reader| reader.attempt_count()).unwrap(), 0);
}

#[test]
fn an_ambiguous_prefix_lists_its_matches_by_unique_prefixes() {
    let (_dir, store) = store();
    store
        .write(|writer| {
            for number in 0..700u32 {
                writer.seal(&sealed(i64::from(number), 1, number, 0.5, true), 0)?;
            }
            Ok(())
        })
        .unwrap();
    let ambiguous = store
        .read(|reader| {
            for row in reader.recent(0, usize::MAX, true)? {
                let prefix = row.run.0.prefix(4);
                if let Err(ResolveError::Ambiguous { candidates, .. }) = reader.resolve(&prefix)? {
                    return Ok(Some((prefix, candidates)));
                }
            }
            Ok(None)
        })
        .unwrap();
    // 1,400 ids among 65,536 prefixes: the probability of no collision is below 1e-6, and the ids are always the same.
    let (prefix, candidates) = ambiguous.unwrap();
    assert!(candidates.len() > 1);
    for candidate in candidates {
        let id = candidate.split(' ').next_back().unwrap().to_owned();
        assert!(id.starts_with(&prefix) && id.len() >= 8);
        assert!(store.read(|reader| reader.resolve(&id)).unwrap().is_ok());
    }
}

#[test]
fn a_busy_ledger_is_waited_for_within_bounds() {
    let (_dir, store) = store();
    store.write(|_| Ok(())).unwrap();
    let impatient = Store { patience: Duration::from_millis(20), ..store.clone() };
    store
        .write(|_| {
            assert!(matches!(impatient.read(|reader| reader.run_count()), Err(StoreError::Busy { .. })));
            assert!(matches!(impatient.write(|_| Ok(())), Err(StoreError::Busy { .. })));
            Ok(())
        })
        .unwrap();
    assert_eq!(impatient.read(|reader| reader.run_count()).unwrap(), 0);
}

#[test]
fn a_call_after_the_time_to_wait_is_over_does_not_wait_again() {
    let (_dir, store) = store();
    store.write(|_| Ok(())).unwrap();
    let patient = Store { patience: Duration::from_secs(3600), ..store.clone() };
    patient.stop_waiting();
    store
        .write(|_| {
            assert!(matches!(patient.read(|_| Ok(())), Err(StoreError::Busy { seconds: 3600, .. })));
            Ok(())
        })
        .unwrap();
    assert!(patient.read(|_| Ok(())).is_ok());
}

#[test]
fn a_writer_that_waits_goes_before_readers_that_come_after_it() {
    use std::sync::mpsc::{RecvTimeoutError, channel};
    let (_dir, store) = store();
    store.write(|writer| writer.seal(&sealed(1, 1, 1, 0.5, true), 0)).unwrap();
    let count = |store: &Store| store.read(|reader| reader.attempt_count()).unwrap();
    let reading = store.clone();
    std::thread::scope(|scope| {
        let (answered, answers) = channel();
        store
            .read(|_| {
                scope.spawn(|| store.clone().write(|writer| writer.seal(&sealed(2, 1, 2, 0.5, true), 0)).unwrap());
                while !store.is_wanted() {
                    std::thread::yield_now();
                }
                scope.spawn(move || answered.send(count(&reading)).unwrap());
                // A reader that did not wait would have returned by then.
                let early = answers.recv_timeout(Duration::from_millis(200));
                assert_eq!(early, Err(RecvTimeoutError::Timeout));
                Ok(())
            })
            .unwrap();
        assert_eq!(answers.recv(), Ok(2));
    });
}

#[test]
fn the_next_change_removes_the_temporary_name_of_a_dead_creator() {
    let (_dir, store) = store();
    store.write(|writer| writer.seal(&sealed(1, 1, 1, 0.5, true), 0)).unwrap();
    std::fs::hard_link(store.file(), store.dir().join(".ledger.redb.7.00ff")).unwrap();
    store.write(|writer| writer.seal(&sealed(2, 1, 2, 0.5, true), 0)).unwrap();
    let names: Vec<_> = std::fs::read_dir(store.dir()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["ledger.redb"]);
    assert_eq!(faults(&store), vec![]);
}

#[test]
fn a_group_of_equal_values_stands_by_that_value() {
    let (_dir, store) = store();
    // Three times 0.1 is more than 0.3, so a rounded mean would rank behind that of one attempt.
    let all = [(1, 1), (1, 2), (1, 3), (2, 1)];
    for (number, (x, seed)) in (0..).zip(all) {
        store.write(|writer| writer.seal(&sealed(x, seed, number, 0.1, true), 0)).unwrap();
    }
    for direction in [Direction::Minimize, Direction::Maximize] {
        let ranked = store.read(|reader| reader.best("m", "loss", direction, 10)).unwrap();
        assert_eq!(ranked.iter().map(|one| one.mean.to_bits()).collect::<Vec<_>>(), [0.1f64.to_bits(); 2]);
    }
    assert_eq!(faults(&store), vec![]);
}

/// Changes the stored version of the indexes.
fn of_kind(store: &Store, kind: u32) {
    let database = Database::open(store.file()).unwrap();
    let txn = database.begin_write().unwrap();
    txn.open_table(tables::META).unwrap().insert("indexes", kind.to_le_bytes().as_slice()).unwrap();
    txn.commit().unwrap();
}

#[test]
fn newer_indexes_are_refused_and_older_ones_are_rebuilt() {
    let (_dir, store) = store();
    store.write(|writer| writer.seal(&sealed(1, 1, 1, 0.5, true), 0)).unwrap();
    of_kind(&store, INDEXES + 1);
    let read = store.read(|reader| reader.best("m", "loss", Direction::Minimize, 1)).unwrap_err();
    let written = store.write(|_| Ok(())).unwrap_err();
    for error in [read, written] {
        let text =
            format!("indexes of kind {}, but this ledger reads up to {INDEXES} (use a newer ledger)", INDEXES + 1);
        assert!(error.to_string().ends_with(&text), "{error}");
    }
    of_kind(&store, INDEXES - 1);
    assert!(store.is_behind().unwrap());
    store.write(|_| Ok(())).unwrap();
    assert!(!store.is_behind().unwrap());
    assert_eq!(store.read(|reader| reader.best("m", "loss", Direction::Minimize, 1)).unwrap()[0].mean, 0.5);
    assert_eq!(faults(&store), vec![]);
}
