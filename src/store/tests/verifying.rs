//! Verification in slices, and of new attempts only.

use super::*;

fn fill(store: &Store, numbers: std::ops::Range<u32>) -> Vec<Sealed> {
    let all: Vec<Sealed> = numbers.map(|n| sealed(i64::from(n), 1 + u64::from(n % 7), n, f64::from(n), true)).collect();
    store.write(|writer| all.iter().try_for_each(|one| writer.seal(one, 0).map(drop))).unwrap();
    all
}

fn tag(store: &Store, target: Target) {
    let change = Change::Tagged { name: "t".to_owned(), target };
    store.write(|writer| writer.note(&LogEntry { unix_ms: 0, change })).unwrap();
}

/// Runs a check that is interrupted as often as possible, with a change after each slice.
fn sliced(store: &Store, mut change: impl FnMut(u32)) -> Verification {
    let mut check = verify::Check::new(None);
    for slice in 0.. {
        let found = store.read(|reader| check.go_on(reader, &|| true, &mut |_, _| {})).unwrap();
        if let Some(found) = found {
            return found;
        }
        change(slice);
    }
    unreachable!()
}

#[test]
fn a_check_that_lets_writers_go_first_includes_what_they_wrote() {
    let (_dir, store) = store();
    let first = fill(&store, 0..40);
    let found = sliced(&store, |slice| {
        if slice % 4 == 0 {
            fill(&store, 100 + slice..103 + slice);
        }
        // Also between the pieces of the attempts, whatever the number of processors.
        if slice.is_power_of_two() {
            let target = Target::Attempt(first[0].attempt.id());
            let change =
                if slice.trailing_zeros() % 2 == 0 { Change::Hidden(target) } else { Change::Unhidden(target) };
            store.write(|writer| writer.note(&LogEntry { unix_ms: i64::from(slice), change })).unwrap();
            tag(&store, target);
        }
    });
    assert_eq!(found.faults, []);
    let whole = store.verify(false, &mut |_, _| {}).unwrap();
    assert_eq!(found, whole);
}

#[test]
fn a_check_compares_all_indexes_if_they_are_rebuilt_meanwhile() {
    for after in (0..).step_by(9) {
        let (_dir, store) = store();
        fill(&store, 0..40);
        of_kind(&store, INDEXES - 1);
        let mut slices = 0;
        let found = sliced(&store, |slice| {
            slices = slice;
            if slice == after {
                store.write(|_| Ok(())).unwrap();
            }
        });
        if slices < after {
            assert!(after > 9, "none came in the midst");
            break;
        }
        assert_eq!(found.faults, [], "after {after}");
        assert_eq!(found, store.verify(false, &mut |_, _| {}).unwrap());
    }
}

#[test]
fn only_what_came_after_the_last_verification_is_checked() {
    let (_dir, store) = store();
    fill(&store, 0..10);
    assert_eq!(store.last_verified(), None);
    let verified = store.verify(false, &mut |_, _| {}).unwrap().verified.unwrap();
    store.remember_verified(&verified).unwrap();
    assert_eq!(store.last_verified(), Some(verified));
    let new = fill(&store, 10..13);
    tag(&store, Target::Attempt(new[0].attempt.id()));
    let (found, is_partial) = store.verify_since(&verified, &mut |_, _| {}).unwrap();
    assert_eq!((found.attempts, found.log_entries, found.faults.as_slice(), is_partial), (3, 4, [].as_slice(), true));
    assert_eq!(found.verified, store.verify(false, &mut |_, _| {}).unwrap().verified);
    // An index loses a new attempt.
    let id = new[1].attempt.id().0.0;
    store
        .write(|writer| {
            writer.txn.open_table(tables::RECENT)?.retain(|(_, other), _| other != id)?;
            Ok(())
        })
        .unwrap();
    let (found, is_partial) = store.verify_since(&verified, &mut |_, _| {}).unwrap();
    assert!(!is_partial, "a fault makes everything be verified");
    assert_eq!(found.faults, faults(&store));
    assert_eq!(found.faults[0].fault, "1 entry missing, 0 too many, 0 wrong");
}

#[test]
fn an_older_copy_of_the_ledger_is_verified_whole() {
    let (_dir, store) = store();
    fill(&store, 0..3);
    let other = Verified { entries: 2, head: Digest([7; 32]) };
    let longer = Verified { entries: 9, ..other };
    for verified in [other, longer] {
        let (found, is_partial) = store.verify_since(&verified, &mut |_, _| {}).unwrap();
        assert_eq!((found.attempts, found.faults.as_slice(), is_partial), (3, [].as_slice(), false));
    }
}

#[test]
fn damaged_attempts_are_replaced_by_those_of_another_ledger() {
    let (_dir, store) = store();
    let all = fill(&store, 0..5);
    let damage = |writer: &mut Writer<'_>| {
        let key = |at: usize| all[at].attempt.id().0.0;
        let mut runs = writer.txn.open_table(tables::RUNS)?;
        runs.insert(all[0].run.id.0.0, [0].as_slice())?;
        runs.insert(all[1].run.id.0.0, [0].as_slice())?;
        writer.txn.open_table(tables::CHUNKS)?.insert((key(2), ""), [9].as_slice())?;
        let mut attempts = writer.txn.open_table(tables::ATTEMPTS)?;
        attempts.remove(key(3))?;
        attempts.insert(key(4), [0].as_slice())?;
        Ok(())
    };
    store.write(damage).unwrap();
    assert!(!faults(&store).is_empty());
    // One at a time, while others are still damaged.
    for one in &all {
        let unite = || store.write(|writer| writer.unite(one, 1)).unwrap();
        let id = one.attempt.id();
        assert_eq!([unite(), unite()], [Added::Restored(id), Added::Known(id)]);
    }
    assert_eq!(store.verify(false, &mut |_, _| {}).unwrap().faults, []);
}
