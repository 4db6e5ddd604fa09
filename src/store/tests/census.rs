//! Compares the census with a scan of all attempts.

use super::*;
use crate::record::{LeftOut, Why};

/// One attempt: (x, seed, kind of outcome, loss, energy, whether its estimators disagree).
type Drawn = (i64, u64, u8, Option<f64>, Option<f64>, bool);

fn drawn() -> impl Strategy<Value = Drawn> {
    let number =
        || prop_oneof![4 => (0..9u8).prop_map(|i| Some(f64::from(i))), 1 => Just(Some(f64::NAN)), 1 => Just(None)];
    (0..3i64, 0..2u64, 0..5u8, number(), number(), prop::bool::weighted(0.2))
}

fn made(number: u32, (x, seed, kind, loss, energy, disagrees): Drawn) -> Sealed {
    let mut one = sealed(x, seed, number, 0.0, true);
    let attempt = &mut one.attempt;
    match kind {
        1 => attempt.outcome = Outcome::Failed { reason: "r".into() },
        2 => attempt.outcome = Outcome::Interrupted { reason: "r".into() },
        3 => drop(attempt.facts.insert("tainted".into(), vec!["hot start"].into())),
        _ => {}
    }
    if disagrees {
        attempt.facts.insert("telemetry.marks".into(), vec!["disagreement"].into());
    }
    let metric = |value: Option<f64>, unit| match value {
        Some(value) => Metric::new(value, unit),
        None => Metric::missing(unit, "not read"),
    };
    attempt.metrics = [("energy".to_owned(), metric(energy, "J"))].into();
    // A loss of zero stands for a missing one.
    if loss != Some(0.0) {
        attempt.metrics.insert("loss".to_owned(), metric(loss, ""));
    }
    one
}

/// The expected tally, computed from all attempts.
fn naive(all: &[Sealed], hidden: &dyn Fn(&Sealed) -> bool, metric: &str) -> Tally {
    let mut tally = Tally::default();
    for one in all {
        let stands = match one.attempt.counts() {
            _ if hidden(one) => Err(LeftOut { why: Why::Hidden, reason: String::new() }),
            Ok(()) => one.attempt.measured(metric),
            Err(left) => Err(left),
        };
        match stands {
            Ok(_) => tally.counted += 1,
            Err(left) => *tally.left_out.entry(left).or_default() += 1,
        }
    }
    tally
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_tally_agrees_with_a_scan_of_all_attempts(
        drawn in prop::collection::vec(drawn(), 1..10),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>(), any::<bool>()), 0..12),
    ) {
        let (_dir, store) = store();
        let all: Vec<Sealed> = (0u32..).zip(drawn).map(|(number, drawn)| made(number, drawn)).collect();
        let mut hidden = BTreeSet::new();
        store.write(|writer| {
            let (first, rest) = all.split_at(all.len() / 2);
            first.iter().try_for_each(|one| writer.seal(one, 0).map(drop))?;
            for (which, whole, hide) in changes {
                let one = which.get(&all);
                let target = if whole { Target::Run(one.run.id) } else { Target::Attempt(one.attempt.id()) };
                let change = if hide { Change::Hidden(target) } else { Change::Unhidden(target) };
                if hide { hidden.insert(target.digest()) } else { hidden.remove(&target.digest()) };
                writer.note(&LogEntry { unix_ms: 0, change })?;
            }
            rest.iter().try_for_each(|one| writer.seal(one, 0).map(drop))
        }).unwrap();
        let is_hidden = |one: &Sealed| hidden.contains(&one.run.id.0) || hidden.contains(&one.attempt.id().0);
        for metric in ["loss", "energy", "mfu"] {
            let tally = store.read(|reader| reader.tally("m", metric)).unwrap();
            prop_assert_eq!(&tally, &naive(&all, &is_hidden, metric), "{}", metric);
        }
        prop_assert_eq!(faults(&store), vec![]);
        // Indexes that are rebuilt from the records are the same.
        let answer = || store.read(|reader| Ok((reader.tally("m", "energy")?, reader.best("m", "energy", Direction::Minimize, 9)?))).unwrap();
        let before = answer();
        age(&store);
        prop_assert!(store.is_behind().unwrap());
        let verified = store.read(|reader| reader.verify(&mut |_, _| {})).unwrap();
        prop_assert_eq!((verified.faults, verified.notes.len()), (vec![], 1));
        store.write(|_| Ok(())).unwrap();
        prop_assert!(!store.is_behind().unwrap());
        let plain = |(tally, ranked): &(Tally, Vec<Ranked>)| {
            (tally.clone(), ranked.iter().map(|place| (place.group, place.mean, place.n)).collect::<Vec<_>>())
        };
        prop_assert_eq!(plain(&before), plain(&answer()));
        prop_assert_eq!(faults(&store), vec![]);
    }
}

/// Turns the indexes into those of an older version, whose tables have other names.
fn age(store: &Store) {
    let database = Database::open(store.file()).unwrap();
    let txn = database.begin_write().unwrap();
    txn.delete_table(tables::BY_MODEL).unwrap();
    txn.delete_table(tables::UNMEASURED).unwrap();
    txn.delete_table(tables::TOTALS).unwrap();
    txn.delete_table(tables::VALUES).unwrap();
    txn.delete_table(tables::RANKING).unwrap();
    txn.delete_table(tables::BRIEFS).unwrap();
    txn.delete_table(tables::SHAPES).unwrap();
    txn.open_table(tables::OLD_SHAPES).unwrap().insert([1; 32], [7].as_slice()).unwrap();
    txn.open_table(tables::OLD_VALUES).unwrap().insert(([1; 32], "loss", [2; 32]), 7).unwrap();
    txn.open_table(tables::OLD_RANKING).unwrap().insert(("m", "loss", 7, [1; 32]), 1).unwrap();
    txn.open_table(tables::META).unwrap().remove("indexes").unwrap();
    txn.commit().unwrap();
}

#[test]
fn an_older_ledger_still_answers_without_being_written() {
    let (_dir, store) = store();
    store.write(|writer| writer.seal(&sealed(1, 1, 1, 0.5, true), 0)).unwrap();
    age(&store);
    let asked = |reader: &Reader<'_>| {
        let best = reader.best("m", "loss", Direction::Minimize, 1)?;
        Ok((
            best,
            reader.tally("m", "loss")?,
            reader.is_current(),
            reader.attempt_count()?,
            reader.briefs("m")?.is_none(),
        ))
    };
    let (best, tally, is_current, attempts, is_left_to_records) = store.read(asked).unwrap();
    assert_eq!((best, tally), (vec![], Tally::default()), "its rankings are not read");
    assert_eq!((is_current, attempts, is_left_to_records), (false, 1, true), "so that the records have to answer");
    assert_eq!(faults(&store), vec![], "what is missing is a note");
    store.write(|_| Ok(())).unwrap();
    assert_eq!(store.read(|reader| reader.best("m", "loss", Direction::Minimize, 1)).unwrap()[0].mean, 0.5);
    let database = Database::open(store.file()).unwrap();
    let tables: Vec<String> = database
        .begin_read()
        .unwrap()
        .list_tables()
        .unwrap()
        .map(|table| redb::TableHandle::name(&table).to_owned())
        .collect();
    for gone in ["shapes", "values", "ranking"] {
        assert!(!tables.iter().any(|table| table == gone), "{gone}: {tables:?}");
    }
}

#[test]
fn index_rows_are_visited_once_each_in_the_order_of_their_ids() {
    let (_dir, store) = store();
    let all: Vec<_> = (0..20u32).map(|n| sealed(i64::from(n), 1, n, 0.0, true)).collect();
    for one in &all {
        store.write(|writer| writer.seal(one, 0)).unwrap();
    }
    let parts = store
        .read(|reader| {
            reader.briefs("m")?.unwrap().each(|part: &mut Vec<_>, row| {
                part.push((row.id, row.started_unix_ms));
                Ok(())
            })
        })
        .unwrap();
    assert!(parts.iter().filter(|part| !part.is_empty()).count() > 4, "there are several ranges");
    let mut expected: Vec<_> = all.iter().map(|one| (one.attempt.id(), one.attempt.started_unix_ms)).collect();
    expected.sort();
    assert_eq!(parts.concat(), expected);
}

/// Two models whose attempts have the same names.
#[test]
fn names_are_stored_for_each_model() {
    let (_dir, store) = store();
    let of_model = |model: &str, number: u32| {
        let mut one = sealed(1, 1, number, f64::from(number), true);
        let mut parts = one.run.parts.clone();
        let mut config = one.run.config().clone();
        config.insert("model.name".to_owned(), model.into());
        parts.config = config.into();
        one.run = Run::new(parts);
        one.attempt.run = one.run.id;
        one
    };
    store.write(|writer| writer.seal(&of_model("m", 1), 0)).unwrap();
    let mut importer = store.importer(0);
    importer.add(Piece::of(vec![of_model("n", 2), of_model("m", 3)]).unwrap()).unwrap();
    importer.finish().unwrap();
    let values = |model: &str| {
        let asked = |reader: &Reader<'_>| {
            let briefs = reader.briefs(model)?.unwrap();
            let (columns, mut found) = (briefs.columns(&["params.x".to_owned()], &["loss".to_owned()]), Vec::new());
            let parts = briefs.each(|part: &mut Vec<_>, row| {
                part.push(row.brief(&columns)?.values);
                Ok(())
            })?;
            found.extend(parts.into_iter().flatten());
            Ok((briefs.names().identity.contains("params.x"), found.len(), found.concat()))
        };
        store.read(asked).unwrap()
    };
    let number = |value: f64| crate::wire::Known::Is(value.into());
    let one = crate::wire::Known::Is(Value::Int(1));
    assert_eq!(values("n"), (true, 1, vec![one, number(2.0)]));
    assert_eq!((values("m").0, values("m").1, values("o")), (true, 2, (false, 0, vec![])));
    assert_eq!(faults(&store), vec![]);
    let remove = |writer: &mut Writer<'_>| {
        writer.txn.open_table(tables::SHAPES)?.retain(|(model, _), _| model != "n")?;
        Ok(())
    };
    store.write(remove).unwrap();
    let faults: Vec<(String, String)> = faults(&store).into_iter().map(|fault| (fault.owner, fault.fault)).collect();
    assert_eq!(faults, [("index `names`".to_owned(), "1 entry missing".to_owned())]);
}
