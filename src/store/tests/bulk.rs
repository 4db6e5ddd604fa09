//! Writing many attempts at once gives the same ledger as writing one after the other.

use super::*;

/// A list of attempts and where to split it. Some are drawn twice, and some are the same execution with other values.
fn drawn() -> impl Strategy<Value = (Vec<(i64, u64, u32, bool)>, usize)> {
    (prop::collection::vec((0..3i64, 0..3u64, 0..12u32, prop::bool::weighted(0.8)), 1..16), 0..16usize)
}

type Answer = (Vec<(f64, u32)>, Tally, Vec<AttemptId>);

fn answer(store: &Store) -> Answer {
    let asked = |reader: &Reader<'_>| {
        let best = reader.best("m", "loss", Direction::Minimize, 99)?;
        let best = best.into_iter().map(|ranked| (ranked.mean, ranked.n)).collect();
        Ok((best, reader.tally("m", "loss")?, reader.of_model(Some("m"))?))
    };
    store.read(asked).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn importing_in_pieces_equals_importing_one_attempt_after_the_other((drawn, split) in drawn(), hidden in 0..3i64, piece in 1..7usize) {
        // The number is the nonce: equal numbers with other values are several attempts of one execution.
        let all: Vec<Sealed> = drawn
            .into_iter()
            .map(|(x, seed, number, finished)| sealed(x, seed, number, f64::from(number % 5) / 3.0, finished))
            .collect();
        let (first, rest) = all.split_at(split.min(all.len()));
        let ((_one_dir, one), (_many_dir, many)) = (store(), store());
        let change = Change::Hidden(Target::Run(run(hidden, 1).id));
        for store in [&one, &many] {
            store.write(|writer| writer.note(&LogEntry { unix_ms: 0, change: change.clone() })).unwrap();
        }
        for part in [first, rest] {
            let singly = one.write(|writer| part.iter().map(|one| writer.import(one, 0)).collect::<Result<Vec<_>, _>>()).unwrap();
            let mut importer = many.importer(0);
            let pieces = part.chunks(piece).flat_map(|piece| importer.add(Piece::of(piece.to_vec()).unwrap()).unwrap().1);
            let together: Vec<Added> = pieces.collect();
            importer.finish().unwrap();
            prop_assert_eq!(singly, together);
        }
        prop_assert_eq!(answer(&one), answer(&many));
        prop_assert_eq!((faults(&one), faults(&many)), (vec![], vec![]));
    }
}
