use super::*;
use crate::rng::Rng;
use proptest::prelude::*;
use std::fs;

fn windows(width: usize, objective: Objective) -> Windows {
    Windows { width, objective, batch: 2 }
}

/// A text whose tokens are 10, 11, 12 and so on; the evaluation part continues where training ends.
fn counting(train: u16, eval: u16, windows: Windows) -> Text {
    let masked = windows.objective == Objective::MaskedToken;
    let marks = masked.then_some(Marks { cls: 1, sep: 2, mask: 3, end: Some(4) });
    let (train, eval) = ((10..10 + train).collect(), (10 + train..10 + train + eval).collect());
    Text::new(Encoded { train, eval, vocabulary: 5_000, marks }, windows).expect("long enough")
}

#[test]
fn the_target_of_each_token_is_the_next_one_also_at_a_windows_edge() {
    let text = counting(13, 5, windows(4, Objective::NextToken));
    assert_eq!((text.train_len(), text.eval_len()), (3, 1));
    let batch = text.train_batch(0, 0, &[2, 0]);
    assert_eq!((batch.rows, batch.width), (2, 4));
    assert_eq!(batch.ids, [18, 19, 20, 21, 10, 11, 12, 13]);
    assert_eq!(batch.targets, [19, 20, 21, 22, 11, 12, 13, 14]);
    assert_eq!(text.eval_batch(&[0]).targets, [24, 25, 26, 27]);
}

#[test]
fn a_masked_window_lies_between_cls_and_sep() {
    let text = counting(40, 20, windows(12, Objective::MaskedToken));
    assert_eq!((text.train_len(), text.eval_len()), (4, 2));
    let batch = text.train_batch(1, 1, &[3]);
    assert_eq!((batch.ids[0], batch.ids[11]), (1, 2));
    assert_eq!((batch.targets[0], batch.targets[11]), (NO_TARGET, NO_TARGET));
    for place in 1..11 {
        let original = 40 + i32::try_from(place).expect("small") - 1;
        let target = batch.targets[place];
        assert!(target == original || (target == NO_TARGET && batch.ids[place] == original));
    }
    // 15% of 10, rounded.
    assert_eq!(batch.targets.iter().filter(|target| **target != NO_TARGET).count(), 2);
}

#[test]
fn masks_have_the_published_shares() {
    let text = counting(4_900, 98, windows(100, Objective::MaskedToken));
    let (mut masked, mut same, mut other, mut places) = (0, 0, 0, [0; 100]);
    let rounds: u64 = 20;
    for epoch in 0..rounds {
        for index in 0..50 {
            let batch = text.train_batch(3, epoch, &[index]);
            // 15% of 98 is 14.7.
            assert_eq!(batch.targets.iter().filter(|target| **target != NO_TARGET).count(), 15);
            for (place, (id, target)) in batch.ids.iter().zip(&batch.targets).enumerate() {
                match (*id, *target) {
                    (_, NO_TARGET) => continue,
                    (3, _) => masked += 1,
                    (id, target) if id == target => same += 1,
                    _ => other += 1,
                }
                places[place] += 1;
            }
        }
    }
    // 15,000 positions: 12,000 with a standard deviation of 49, and 1,500 with one of 37; 5 of them are allowed.
    assert!((11_755..12_245).contains(&masked), "{masked}");
    assert!((1_315..1_685).contains(&same), "{same}");
    assert!((1_315..1_685).contains(&other), "{other}");
    // Each of 98 places about 153 times, with a standard deviation of 11.4.
    assert!(places[1..99].iter().all(|count| (96..211).contains(count)), "{places:?}");
}

#[test]
fn special_tokens_are_never_masked() {
    let marks = Marks { cls: 1, sep: 2, mask: 3, end: Some(4) };
    let mut batch = TokenBatch::default();
    for window in 0..200 {
        mask(&[4, 2, 9, 1, 3, 4], &marks, 50, &mut Rng::new(0, Stream::Mask, window), &mut batch);
        mask(&[4, 4], &marks, 50, &mut Rng::new(0, Stream::Mask, window), &mut batch);
    }
    assert_eq!(batch.ids.len(), 200 * 12);
    for (places, target) in batch.targets.iter().enumerate() {
        assert_eq!(*target, if places % 12 == 3 { 9 } else { NO_TARGET });
    }
}

#[test]
fn masks_depend_on_seed_epoch_and_window_alone() {
    let text = counting(1_000, 300, windows(52, Objective::MaskedToken));
    let one = text.train_batch(5, 2, &[7]);
    assert_eq!(text.train_batch(5, 2, &[3, 7]).ids[52..], one.ids);
    assert_eq!(text.train_batch(5, 2, &[7, 3]).targets[..52], one.targets);
    let longer = counting(2_000, 300, windows(52, Objective::MaskedToken));
    assert_eq!(longer.train_batch(5, 2, &[7]), one);
    for other in [text.train_batch(6, 2, &[7]), text.train_batch(5, 3, &[7])] {
        assert_ne!(other.targets, one.targets);
    }
    let eval = text.eval_batch(&[0, 1, 2]);
    assert_eq!(text.eval_batch(&[2]).ids, eval.ids[104..]);
    assert_ne!(eval.targets[..52], eval.targets[52..104]);
}

#[test]
fn too_little_text_is_an_error_with_the_counts() {
    let new = |train: u16, eval: u16, objective| {
        let text = Encoded {
            train: (0..train).collect(),
            eval: (0..eval).collect(),
            vocabulary: 100,
            marks: Some(Marks { cls: 1, sep: 2, mask: 3, end: None }),
        };
        Text::new(text, windows(10, objective))
            .map(|text| (text.train_len(), text.eval_len()))
            .map_err(|fault| fault.to_string())
    };
    assert_eq!(new(21, 11, Objective::NextToken), Ok((2, 1)));
    assert_eq!(
        new(20, 11, Objective::NextToken).expect_err("too short"),
        "the training text has 20 tokens, but 21 are needed for 2 windows of 10 (take more text, or a smaller `data.width`, `training.batch_size` or `data.validation_share`)"
    );
    assert_eq!(
        new(21, 10, Objective::NextToken).expect_err("too short"),
        "the evaluation text has 10 tokens, but 11 are needed for 1 window of 10 (take more text, a smaller `data.width` or a larger `data.validation_share`)"
    );
    assert_eq!(new(16, 8, Objective::MaskedToken), Ok((2, 1)));
    assert_eq!(
        new(15, 8, Objective::MaskedToken).expect_err("too short"),
        "the training text has 15 tokens, but 16 are needed for 2 windows of 10 (take more text, or a smaller `data.width`, `training.batch_size` or `data.validation_share`)"
    );
}

#[test]
fn a_part_without_maskable_tokens_is_refused() {
    // The rest behind the last whole window is never used.
    let new = |train: [u16; 5], eval: [u16; 5], objective| {
        let marks = Some(Marks { cls: 1, sep: 2, mask: 3, end: Some(4) });
        let text = Encoded { train: train.to_vec(), eval: eval.to_vec(), vocabulary: 100, marks };
        Text::new(text, Windows { width: 6, objective, batch: 1 }).map(drop).map_err(|fault| fault.to_string())
    };
    let (open, shut) = ([4, 4, 9, 4, 4], [4, 4, 4, 4, 9]);
    let message = |part| {
        format!(
            "the {part} text has no token that may be masked (`data.path` must have more than ends of lines and documents)"
        )
    };
    assert_eq!(new(open, open, Objective::MaskedToken), Ok(()));
    assert_eq!(new(open, shut, Objective::MaskedToken), Err(message("evaluation")));
    assert_eq!(new(shut, open, Objective::MaskedToken), Err(message("training")));
    assert!(new([4; 5], [4; 5], Objective::NextToken).is_err_and(|fault| fault.starts_with("the training text has 5")));
}

#[test]
fn windows_without_room_are_refused() {
    let generate = |width, objective| {
        Text::generate(0, 200, 500, 500, windows(width, objective)).map_err(|fault| fault.to_string())
    };
    assert_eq!(
        generate(2, Objective::MaskedToken).expect_err("no room"),
        "windows of 2 tokens are too narrow (they must have at least 3)"
    );
    assert!(generate(3, Objective::MaskedToken).is_ok());
    assert!(generate(0, Objective::NextToken).is_err());
    assert_eq!(generate(1, Objective::NextToken).expect("room").train_len(), 499);
}

#[test]
fn a_file_is_divided_before_its_vocabulary_is_made() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("text.txt");
    fs::write(&file, "a b c d e f g h i j\n".repeat(9) + "only here at an end\n").expect("written");
    let read = |held| Text::read(&file, Vocabulary::Words { size: 100 }, held, windows(4, Objective::NextToken));
    let text = read(0.1).expect("enough");
    // 9 lines of 11 tokens. The vocabulary has the ten letters, `<eos>` and `<unk>`. It excludes the last line, all of
    // whose words are unknown.
    assert_eq!((text.vocabulary, text.train_len(), text.eval_len()), (12, 24, 1));
    assert_eq!(text.eval_batch(&[0]).ids, [1; 4]);
    assert_eq!(text.digest(), read(0.1).expect("enough").digest());
    assert_ne!(text.digest(), read(0.3).expect("enough").digest());
    assert!(matches!(read(0.0), Err(TextError::Short { part: "evaluation", tokens: 0, .. })));
}

#[test]
fn generated_text_supports_both_objectives() {
    for objective in [Objective::NextToken, Objective::MaskedToken] {
        let text = Text::generate(4, 500, 3_000, 600, windows(32, objective)).expect("enough");
        assert_eq!(text.vocabulary, 500);
        let batch = text.train_batch(0, 0, &[0, 1]);
        assert!(batch.ids.iter().chain(&batch.targets).all(|id| (NO_TARGET..500).contains(id)));
        assert_ne!(text.eval_batch(&[0]), text.train_batch(0, 0, &[0]));
    }
    assert!(matches!(Text::generate(4, 50, 3_000, 600, windows(32, Objective::NextToken)), Err(TextError::Grammar(_))));
}

#[test]
fn the_digest_covers_both_parts_and_the_vocabulary() {
    let digest = |seed, vocabulary, train, eval| {
        let windows = windows(8, Objective::NextToken);
        Text::generate(seed, vocabulary, train, eval, windows).expect("enough").digest()
    };
    let one = digest(0, 200, 400, 100);
    assert_eq!(digest(0, 200, 400, 100), one);
    for other in
        [digest(1, 200, 400, 100), digest(0, 201, 400, 100), digest(0, 200, 401, 100), digest(0, 200, 400, 101)]
    {
        assert_ne!(other, one);
    }
}

proptest! {
    #[test]
    fn windows_use_every_token_once_in_order(train in 200..600_u16, width in 3..40_usize, masked: bool) {
        let objective = if masked { Objective::MaskedToken } else { Objective::NextToken };
        let text = counting(train, 100, windows(width, objective));
        let mut seen = Vec::new();
        for (len, batch) in [(text.train_len(), true), (text.eval_len(), false)] {
            for index in 0..len {
                let batch = if batch { text.train_batch(0, 0, &[index]) } else { text.eval_batch(&[index]) };
                let mut row = batch.ids.clone();
                if masked {
                    row.iter_mut().zip(&batch.targets).filter(|(_, t)| **t != NO_TARGET).for_each(|(id, t)| *id = *t);
                    row = row[1..width - 1].to_vec();
                }
                seen.push(row);
            }
        }
        let expected = |from: u16, rows: usize| -> Vec<i32> {
            (i32::from(from)..).take(rows * text.windows.stride()).collect()
        };
        prop_assert_eq!(seen[..text.train_len()].concat(), expected(10, text.train_len()));
        prop_assert_eq!(seen[text.train_len()..].concat(), expected(10 + train, text.eval_len()));
    }
}
