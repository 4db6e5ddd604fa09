use super::*;
use crate::record::{Axis, Series, SourceText};

/// The content of a ledger, independent of the order in which it was added.
#[derive(Debug, PartialEq)]
pub(super) struct Said {
    rows: String,
    attempts: Vec<Sealed>,
    tags: BTreeMap<String, Target>,
    notes: Vec<Vec<String>>,
    hidden: BTreeSet<Digest>,
    best: Vec<(Digest, u64, u32)>,
    verdicts: BTreeSet<Digest>,
}

pub(super) fn said(store: &Store) -> Result<Said, StoreError> {
    store.read(|reader| {
        let rows = reader.recent(0, usize::MAX, true)?;
        let mut attempts = Vec::new();
        let mut notes = Vec::new();
        let ids: BTreeSet<AttemptId> = rows.iter().map(|row| row.attempt).collect();
        for id in ids {
            let one = reader.sealed(id)?;
            notes.push(reader.notes(id.0)?);
            notes.extend(one.as_ref().map(|one| reader.notes(one.run.id.0)).transpose()?);
            attempts.extend(one);
        }
        let best = reader.best("m", "loss", Direction::Minimize, 1000)?;
        let verdicts = reader.log()?.into_iter().filter(|entry| matches!(entry.change, Change::Verdict { .. }));
        Ok(Said {
            rows: format!("{rows:?}"),
            attempts,
            tags: reader.tags()?,
            notes,
            hidden: reader.hidden()?,
            best: best.into_iter().map(|place| (place.group.0, place.mean.to_bits(), place.n)).collect(),
            verdicts: verdicts.map(|entry| entry.digest()).collect(),
        })
    })
}

pub(super) fn with_series(mut one: Sealed) -> Sealed {
    let mut series = Series::new("curve", "", Axis::Step);
    (1..200u32).for_each(|step| series.push(u64::from(step), f64::from(step % 17) / 8.0));
    one.attempt.series = vec![series.summary()];
    one.series = vec![series];
    one
}

/// A step in the history of a ledger: an attempt with this number, or a change that concerns it.
#[derive(Clone, Debug)]
enum Step {
    Seal(u32),
    Tag(u32, bool),
    Untag(bool),
    Hide(u32, bool),
    Note(u32),
    Verdict(u32),
}

fn attempt(number: u32) -> Sealed {
    // Some belong to the same run, some are one execution that was sealed in two ways, some failed.
    let mut one =
        sealed(i64::from(number % 3), u64::from(number % 4), number, f64::from(number) / 8.0, number % 5 != 4);
    if number == 7 {
        one.attempt.nonce = attempt(6).attempt.nonce;
    }
    with_series(one)
}

fn step() -> impl Strategy<Value = Step> {
    let number = || 0u32..10;
    prop_oneof![
        4 => number().prop_map(Step::Seal),
        1 => (number(), any::<bool>()).prop_map(|(number, name)| Step::Tag(number, name)),
        1 => any::<bool>().prop_map(Step::Untag),
        2 => (number(), any::<bool>()).prop_map(|(number, undo)| Step::Hide(number, undo)),
        1 => number().prop_map(Step::Note),
        1 => number().prop_map(Step::Verdict),
    ]
}

fn name(first: bool) -> String {
    if first { "one".to_owned() } else { "two".to_owned() }
}

fn made(steps: &[(i64, Step)]) -> (tempfile::TempDir, Store) {
    let (dir, store) = store();
    let mut clock = 0;
    for (pause, step) in steps {
        clock += pause;
        let unix_ms = clock;
        let target = |number: u32| {
            let one = attempt(number);
            if number.is_multiple_of(2) { Target::Attempt(one.attempt.id()) } else { Target::Run(one.run.id) }
        };
        let change = match step {
            Step::Seal(number) => {
                store.write(|writer| writer.unite(&attempt(*number), unix_ms)).unwrap();
                continue;
            }
            Step::Tag(number, first) => Change::Tagged { name: name(*first), target: target(*number) },
            Step::Untag(first) => Change::Untagged { name: name(*first) },
            Step::Hide(number, false) => Change::Hidden(target(*number)),
            Step::Hide(number, true) => Change::Unhidden(target(*number)),
            Step::Note(number) => Change::Noted { target: target(*number), text: format!("note {unix_ms}") },
            Step::Verdict(number) => Change::Verdict {
                original: attempt(*number).attempt.id(),
                rerun: attempt(0).attempt.id(),
                verdict: "identical".to_owned(),
                detail: String::new(),
            },
        };
        store.write(|writer| writer.note(&LogEntry { unix_ms, change })).unwrap();
    }
    store.write(|_| Ok(())).unwrap();
    (dir, store)
}

fn merged(stores: &[&Store]) -> (tempfile::TempDir, Store) {
    let (dir, store) = store();
    for other in stores {
        assert_eq!(store.merge(other, 1000, &mut |_, _| {}).unwrap().faults, []);
    }
    (dir, store)
}

#[test]
fn attempts_that_another_merge_imported_meanwhile_count_as_known() {
    let (_from_dir, from) = made(&[(1, Step::Seal(0)), (1, Step::Seal(1)), (1, Step::Seal(2))]);
    let (_to_dir, to) = store();
    to.write(|_| Ok(())).unwrap();
    let mut told = Vec::new();
    let merged = to.merge(&from, 1000, &mut |done, total| {
        if told.is_empty() {
            let beside = Store::at(to.dir()).merge(&from, 999, &mut |_, _| {}).unwrap();
            assert_eq!((beside.new, beside.known), (3, 0));
        }
        told.push((done, total));
    });
    let merged = merged.unwrap();
    assert_eq!((merged.new, merged.known, told), (0, 3, vec![(0, 3), (3, 3)]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn a_merge_is_a_union_in_any_order(
        histories in prop::collection::vec(prop::collection::vec((-2i64..3, step()), 0..8), 3),
        cut in 0usize..10,
    ) {
        let ledgers: Vec<_> = histories.iter().map(|steps| made(steps)).collect();
        let [a, b, c] = [&ledgers[0].1, &ledgers[1].1, &ledgers[2].1];
        let (_all, all) = merged(&[a, b, c]);
        let expected = said(&all).unwrap();
        prop_assert_eq!(faults(&all), vec![]);
        // The union has every attempt of each ledger, unchanged.
        for store in [a, b, c] {
            for one in said(store).unwrap().attempts {
                prop_assert!(expected.attempts.contains(&one));
            }
        }
        for order in [[a, c, b], [b, a, c], [b, c, a], [c, a, b], [c, b, a]] {
            let (_dir, other) = merged(&order);
            prop_assert_eq!(&said(&other).unwrap(), &expected);
        }
        // Merging in pairs, and each of a pair into the other, gives the same.
        let (_left, left) = merged(&[a, b]);
        let (_right, right) = merged(&[c, &left]);
        prop_assert_eq!(&said(&right).unwrap(), &expected);
        left.merge(&right, 1000, &mut |_, _| {}).unwrap();
        prop_assert_eq!(&said(&left).unwrap(), &expected);
        // Merging again does not even change the log.
        let head = || all.read(|reader| reader.log_head()).unwrap();
        let before = head();
        for store in [a, b, c, &left, &right] {
            let again = all.merge(store, 2000, &mut |_, _| {}).unwrap();
            prop_assert_eq!((again.new, again.entries), (0, 0));
        }
        prop_assert_eq!(head(), before);
        // The attempts of an interrupted merge do no harm.
        let (_dir, cut_off) = store();
        cut_off.write(|writer| expected.attempts.iter().take(cut).try_for_each(|one| writer.unite(one, 5).map(drop))).unwrap();
        for store in [a, b, c] {
            cut_off.merge(store, 1000, &mut |_, _| {}).unwrap();
        }
        prop_assert_eq!(&said(&cut_off).unwrap(), &expected);
        prop_assert_eq!(faults(&cut_off), vec![]);
    }
}

#[test]
fn damaged_attempts_and_changed_logs_are_not_imported() {
    let (_a, good) = made(&[(1, Step::Seal(1)), (1, Step::Seal(2)), (1, Step::Seal(3))]);
    {
        // A wrong number in one attempt's series, and a tag that looks like an id.
        let id = attempt(2).attempt.id().0.0;
        let database = Database::open(good.file()).unwrap();
        let txn = database.begin_write().unwrap();
        let mut wrong = attempt(2).series[0].clone();
        wrong.values[7] += 1.0;
        let chunk = crate::wire::encode_series(&wrong).unwrap();
        txn.open_table(tables::CHUNKS).unwrap().insert((id, "curve"), chunk.as_slice()).unwrap();
        txn.commit().unwrap();
    }
    let change = Change::Tagged { name: "abcd".to_owned(), target: Target::Attempt(attempt(1).attempt.id()) };
    good.write(|writer| writer.note(&LogEntry { unix_ms: 9, change })).unwrap();
    let (_b, into) = store();
    let merged = into.merge(&good, 0, &mut |_, _| {}).unwrap();
    assert_eq!((merged.new, merged.known, merged.entries), (2, 0, 0));
    let owners: Vec<&str> = merged.faults.iter().map(|fault| fault.owner.as_str()).collect();
    assert_eq!(owners, [format!("attempt {}", attempt(2).attempt.id()).as_str(), "tag `abcd`"]);
    assert!(merged.faults[0].fault.contains("series `curve` does not match its digest"));
    assert_eq!(faults(&into), []);
    // A ledger whose log was changed is refused.
    {
        let database = Database::open(good.file()).unwrap();
        let txn = database.begin_write().unwrap();
        let entry = LogEntry { unix_ms: 4, change: Change::Imported(attempt(1).attempt.id()) };
        let bytes = crate::wire::encode_log_entry(&entry).unwrap();
        txn.open_table(tables::LOG).unwrap().insert(0, bytes.as_slice()).unwrap();
        txn.commit().unwrap();
    }
    assert!(matches!(into.merge(&good, 0, &mut |_, _| {}), Err(StoreError::Damaged { .. })));
}

#[test]
fn a_source_never_replaces_another_one() {
    let text = |original: &[u8], kept: &[u8]| SourceText {
        original: Digest::of(original),
        is_redacted: original != kept,
        kept: kept.to_vec(),
    };
    let whole = text(b"name = 1", b"name = 1");
    let redacted = text(b"key = 1", b"key = (redacted)");
    let facts: Table = SourceText::redacted(&[whole.clone(), redacted.clone()]).into_iter().collect();
    // With this many, some keys sort before the genuine ones.
    let forged: Vec<SourceText> = (0..8)
        .flat_map(|number| {
            let kept = format!("evil = {number}");
            [text(b"name = 1", kept.as_bytes()), text(b"key = 1", kept.as_bytes())]
        })
        .collect();
    let with = |sources: &[SourceText]| {
        let (dir, store) = store();
        store.write(|writer| sources.iter().try_for_each(|source| writer.keep(source))).unwrap();
        (dir, store)
    };
    let (_a, genuine) = with(&[whole.clone(), redacted.clone()]);
    let (_b, other) = with(&forged);
    let kept =
        |store: &Store, source: &SourceText| store.read(|reader| reader.source(source.original, &facts)).unwrap();
    assert_eq!(kept(&other, &whole), None);
    genuine.merge(&other, 0, &mut |_, _| {}).unwrap();
    genuine.write(|writer| forged.iter().try_for_each(|source| writer.keep(source))).unwrap();
    other.merge(&genuine, 0, &mut |_, _| {}).unwrap();
    for store in [&genuine, &other] {
        assert_eq!(kept(store, &whole), Some(whole.clone()));
        assert_eq!(kept(store, &redacted), Some(redacted.clone()));
        assert_eq!(faults(store), []);
    }
}

#[test]
fn a_clock_that_was_set_back_does_not_restore_an_old_tag() {
    let at = |number: u32| Target::Attempt(attempt(number).attempt.id());
    let tag = |number| Change::Tagged { name: "one".to_owned(), target: at(number) };
    let (_a, a) = store();
    a.write(|writer| {
        writer.import(&attempt(1), 0)?;
        writer.import(&attempt(2), 0)?;
        writer.note(&LogEntry { unix_ms: 100, change: tag(1) })?;
        writer.note(&LogEntry { unix_ms: 100, change: Change::Hidden(at(1)) })
    })
    .unwrap();
    a.write(|writer| {
        writer.note(&LogEntry { unix_ms: 50, change: tag(2) })?;
        writer.note(&LogEntry { unix_ms: 50, change: Change::Unhidden(at(1)) })
    })
    .unwrap();
    assert_eq!(a.read(|reader| reader.tags()).unwrap()["one"], at(2));
    let (_b, b) = merged(&[&a]);
    assert_eq!(said(&b).unwrap(), said(&a).unwrap());
    // The other ledger's clock is behind too, and its entry comes last.
    b.write(|writer| writer.note(&LogEntry { unix_ms: 10, change: Change::Untagged { name: "one".to_owned() } }))
        .unwrap();
    a.merge(&b, 1000, &mut |_, _| {}).unwrap();
    assert_eq!(said(&a).unwrap(), said(&b).unwrap());
    assert!(a.read(|reader| reader.tags()).unwrap().is_empty());
}
