use super::*;
use proptest::prelude::*;

/// Returns words with the frequencies of a language, so that there are pairs to merge.
fn sample(words: u64) -> String {
    use crate::rng::{Rng, Stream};
    let mut rng = Rng::new(7, Stream::TrainText, 0);
    let letters = ["th", "e", "n", "qu", "a", "ing", "ed", "o", "s", "é"];
    let mut text = String::new();
    for word in 1..=words {
        (0..=rng.below(3)).for_each(|_| text.push_str(letters[rng.below(10).min(rng.below(10))]));
        text.push_str(if word % 50 == 0 { ".\n\n" } else { " " });
    }
    text
}

fn vocabulary_of(text: &str, kind: Rule, size: usize) -> Vec<String> {
    let special: &[&str] =
        if kind == Rule::Bert { &["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] } else { &["<eos>", "<unk>"] };
    let pieces = Pieces::cut(&[text], kind).expect("valid");
    let ids: HashMap<String, usize> = match Tokens::train(&pieces, kind, size, special).expect("valid") {
        Tokens::Words { ids, .. } => ids.into_iter().map(|(word, id)| (word, usize::from(id))).collect(),
        Tokens::Bpe(model) => numbered(&model),
        Tokens::WordPiece(model) => numbered(&model),
    };
    let mut words = vec![String::new(); ids.len()];
    ids.into_iter().for_each(|(word, id)| words[id] = word);
    words
}

fn numbered(model: &impl Model) -> HashMap<String, usize> {
    model.get_vocab().into_iter().map(|(word, id)| (word, usize::try_from(id).expect("small"))).collect()
}

#[test]
fn training_twice_gives_the_same_tokens_and_numbers() {
    let text = sample(3_000);
    for (kind, size) in [(Rule::Lines, 50), (Rule::ByteLevel, 330), (Rule::Bert, 90)] {
        let first = vocabulary_of(&text, kind, size);
        assert_eq!(first.len(), size, "{kind:?}");
        for _ in 0..8 {
            assert_eq!(vocabulary_of(&text, kind, size), first, "{kind:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn training_does_not_depend_on_the_order_of_hash_maps(text in "(((a|b|ab){1,4}|[abc]{1,9}) ){5,60}", more in 0..60_usize) {
        // Few and repeated letters: the same token arises from several pairs, and most pairs are equally frequent.
        for (kind, least) in [(Rule::ByteLevel, 258), (Rule::Bert, 5 + 6)] {
            let first = vocabulary_of(&text, kind, least + more);
            prop_assert_eq!(&vocabulary_of(&text, kind, least + more), &first);
            prop_assert_eq!(&vocabulary_of(&text, kind, least + more), &first);
        }
    }
}

#[test]
fn wordpiece_merges_the_most_frequent_pairs() {
    let tokens = vocabulary_of("undo undo undo redo redo unis unis unis", Rule::Bert, 22);
    assert_eq!(tokens[..5], ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]);
    assert_eq!(tokens[5..12], ["d", "e", "i", "n", "o", "r", "s"]);
    assert_eq!(tokens[12..19], ["u", "##d", "##e", "##i", "##n", "##o", "##s"]);
    // `un` occurs 6 times, `##do` 5, `##is` 3 and has a lower number than `undo`.
    assert_eq!(tokens[19..], ["un", "##do", "##is"]);
}

#[test]
fn bpe_merges_bytes() {
    let tokens = vocabulary_of("low low low lower lowest", Rule::ByteLevel, 262);
    assert_eq!(tokens[..3], ["<eos>", "<unk>", "!"]);
    assert_eq!(tokens[258..], ["lo", "low", "Ġlow", "Ġlowe"]);
}

fn encode(kind: Vocabulary, train: &str, eval: &str, masked: bool) -> Encoded {
    kind.encode(&[train], &[eval], masked).expect("valid")
}

#[test]
fn bytes_are_their_own_numbers() {
    let text = encode(Vocabulary::Bytes, "aé", "b\n\nb", false);
    assert_eq!(text, Encoded { train: vec![97, 195, 169], eval: vec![98, 10, 10, 98], vocabulary: 256, marks: None });
    let masked = encode(Vocabulary::Bytes, "a", "b", true);
    assert_eq!((masked.vocabulary, masked.marks), (259, Some(Marks { cls: 256, sep: 257, mask: 258, end: None })));
}

#[test]
fn words_beyond_the_size_and_words_only_in_the_evaluation_are_unknown() {
    let text = encode(Vocabulary::Words { size: 4 }, "b a c a\nb a <unk>", "a new b", false);
    // `<eos>` 0, `<unk>` 1, `a` 2, `b` 3.
    assert_eq!(text.train, [3, 2, 1, 2, 0, 3, 2, 1, 0]);
    assert_eq!(text.eval, [2, 1, 3, 0]);
    assert_eq!((text.vocabulary, text.marks), (4, None));
}

#[test]
fn every_document_ends_with_the_separator_of_its_kind() {
    let (one, two) = ("the end\n\nthe end of the end\n", "the end");
    let bpe = encode(Vocabulary::Bpe { size: 300 }, one, two, false);
    assert_eq!(bpe.train.iter().filter(|token| **token == 0).count(), 2);
    assert_eq!(bpe.eval.last(), Some(&0));
    let wordpiece = encode(Vocabulary::WordPiece { size: 40 }, one, two, true);
    assert_eq!(wordpiece.marks, Some(Marks { cls: 2, sep: 3, mask: 4, end: Some(3) }));
    assert_eq!(wordpiece.train.iter().filter(|token| **token == 3).count(), 2);
    assert_eq!(wordpiece.train[..wordpiece.eval.len()], wordpiece.eval);
}

#[test]
fn bpe_can_encode_any_text() {
    let train = sample(500);
    let other = "東京 \u{1f600} [MASK] 42\n";
    let text = encode(Vocabulary::Bpe { size: 300 }, &train, other, true);
    let bytes: usize = other.trim_end().len();
    assert_eq!(text.eval.len(), bytes + 1, "all of it is new, so that every byte is a token");
    let marks = text.marks.expect("masked");
    assert!(text.eval.iter().all(|token| !marks.has(*token) || Some(*token) == marks.end));
}

#[test]
fn a_text_without_white_space_is_cut_and_merged_like_any_other() {
    use crate::rng::{Rng, Stream};
    let mut rng = Rng::new(7, Stream::TrainText, 0);
    let text: String = (0..100_000).map(|_| ['A', 'C', 'G', 'T'][rng.below(4)]).collect();
    let tokens = encode(Vocabulary::Bpe { size: 600 }, &text, &text[..5_000], false);
    // Pieces of a thousand bytes are separate, as words are. The last token is the document's end.
    let own = tokens.eval.len() - 1;
    assert_eq!(tokens.train[..own], tokens.eval[..own]);
    assert!((20_000..50_000).contains(&tokens.train.len()), "{}", tokens.train.len());
}

#[test]
fn wordpiece_supports_only_the_most_frequent_characters() {
    // 1,100 letters. All of them begin a word, and the last 100 occur once less.
    let letters: Vec<char> = ('\u{4e00}'..).take(1100).collect();
    let text: String = letters.iter().chain(&letters[..1000]).collect();
    let one = encode(Vocabulary::WordPiece { size: 2000 }, &text, &letters[998..1002].iter().collect::<String>(), true);
    assert_eq!(one.vocabulary, 5 + 1000);
    assert_eq!(one.eval, [1003, 1004, 1, 1, 3]);
}

#[test]
fn sizes_that_do_not_suffice_are_refused() {
    let refused = |kind: Vocabulary| kind.encode(&["ab ba"], &["ab"], false).expect_err("too small").to_string();
    let message = |size, least| {
        format!(
            "`model.classes` is {size}, but a vocabulary of this text and `data.tokenizer` has {least} to 65535 tokens"
        )
    };
    assert_eq!(refused(Vocabulary::Words { size: 2 }), message(2, 3));
    assert_eq!(refused(Vocabulary::Bpe { size: 256 }), message(256, 257));
    assert_eq!(refused(Vocabulary::WordPiece { size: 8 }), message(8, 9));
    assert_eq!(refused(Vocabulary::Bpe { size: 65_536 }), message(65_536, 257));
}

#[test]
fn the_evaluation_text_does_not_affect_the_vocabulary() {
    for kind in [Vocabulary::Words { size: 30 }, Vocabulary::Bpe { size: 280 }, Vocabulary::WordPiece { size: 60 }] {
        let train = sample(300);
        let one = encode(kind, &train, "nothing to see", true);
        let other = encode(kind, &train, &"see this see this ".repeat(500), true);
        assert_eq!((one.train, one.vocabulary), (other.train, other.vocabulary));
    }
}
