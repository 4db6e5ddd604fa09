use super::merge::{said, with_series};
use super::*;
use crate::record::SourceText;

fn ledger() -> (tempfile::TempDir, Store) {
    let (dir, store) = store();
    for number in 0..12u32 {
        let one = with_series(sealed(i64::from(number % 4), 1, number, f64::from(number), number % 5 != 4));
        let id = one.attempt.id();
        store.write(|writer| writer.seal(&one, 0)).unwrap();
        let change = match number {
            3 => Change::Tagged { name: "best".to_owned(), target: Target::Attempt(id) },
            5 => Change::Noted { target: Target::Attempt(id), text: "the fan was noisy".to_owned() },
            8 => Change::Hidden(Target::Attempt(id)),
            _ => continue,
        };
        store.write(|writer| writer.note(&LogEntry { unix_ms: 1, change })).unwrap();
    }
    // Sources, one of them redacted.
    for (text, is_redacted) in [("name = 'toy'\n".repeat(40), false), ("key = (redacted)\n".repeat(40), true)] {
        let original = Digest::of(if is_redacted { b"key = hunter2" } else { text.as_bytes() });
        let source = SourceText { original, is_redacted, kept: text.into_bytes() };
        store.write(|writer| writer.keep(&source)).unwrap();
    }
    (dir, store)
}

/// Flips bits one at a time. `verify` must find each flip, or the content must be as before. Returns the number of
/// flips found.
fn flip(flips: impl Iterator<Item = (usize, u32)>) -> usize {
    let (_dir, store) = ledger();
    let before = said(&store).unwrap();
    assert_eq!(store.verify(true, &mut |_, _| {}).unwrap().faults, []);
    let sound = std::fs::read(store.file()).unwrap();
    let mut found = 0;
    for (at, bit) in flips {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << bit;
        std::fs::write(store.file(), &bytes).unwrap();
        let is_found = match store.verify(true, &mut |_, _| {}) {
            Ok(found) => !found.faults.is_empty(),
            Err(error) => {
                let said = error.to_string();
                let is_named = said.contains("in its header or the list of its tables, ");
                assert!(is_named || matches!(error, StoreError::Newer { .. }), "bit {bit} of byte {at}: {said}");
                true
            }
        };
        if is_found {
            found += 1;
        } else {
            let after = said(&store);
            assert!(after.is_ok_and(|after| after == before), "bit {bit} of byte {at} was not found");
        }
        // Verification must not change the file, unless the flipped byte marks it as not closed.
        let is_open_mark = at == 9;
        let left = std::fs::read(store.file()).unwrap();
        assert!(is_open_mark || left == bytes, "bit {bit} of byte {at} made looking change the file");
    }
    found
}

#[test]
fn any_flipped_bit_is_found_or_harmless() {
    quiet();
    let (_dir, store) = ledger();
    let bytes = std::fs::read(store.file()).unwrap();
    // Few bytes are in use, so half of the flips fall on nonzero bytes.
    let used: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
    let mut state = 0x1edce5_u64;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    let flips: Vec<(usize, u32)> = (0..300)
        .map(|i| {
            let at = if i % 2 == 0 { used[draw(used.len())] } else { draw(bytes.len()) };
            (at, u32::try_from(draw(8)).unwrap())
        })
        .collect();
    // The header in the first page selects the pages in use.
    let header = (0..320).map(|at| (at, u32::try_from(at % 8).unwrap())).chain((0..8).map(|bit| (9, bit)));
    let found = flip(flips.into_iter().chain(header));
    assert!(found > 100, "only {found} of 628 flips were found");
}
