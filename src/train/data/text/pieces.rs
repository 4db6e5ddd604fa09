//! Texts split into the words that a tokenizer works within: each distinct word once, and their sequence.
//!
//! Knows the published rules of splitting and nothing of vocabularies. The result does not depend on the number of
//! threads: the distinct words are in the order of their first occurrence.

use super::TextError;
use rayon::prelude::*;
use std::collections::HashMap;
use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{Normalizer, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

/// The rule by which a text is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// At white space; every line ends with a break (Zaremba, Sutskever, Vinyals: "Recurrent Neural Network
    /// Regularization", 2014, and others that use Mikolov's form of the Penn Treebank).
    Lines,
    /// As GPT-2: words with the space before them, written with 256 characters that stand for bytes. Every document
    /// ends with a break.
    ByteLevel,
    /// As uncased BERT: without accents and case, at white space and around punctuation. Every document ends with a
    /// break.
    Bert,
}

/// The end of a line or document in a sequence.
pub const BREAK: u32 = u32::MAX;

/// A line with this content separates documents.
const END_OF_TEXT: &str = "<|endoftext|>";

/// The approximate number of bytes that are split at a time.
const CHUNK: usize = 8192;

/// The maximum number of characters in a word; longer words are cut, because the time for merging grows with the square
/// of a word's length. A text without white space is one word. The characters of [`Rule::ByteLevel`] are bytes of the
/// text.
const LONGEST: usize = 1000;

/// Texts as sequences of words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pieces {
    /// Each distinct word once, in the order of first occurrence.
    pub words: Vec<String>,
    /// The number of occurrences of each word.
    pub counts: Vec<u64>,
    /// The text as indices of `words` and as [`BREAK`]s.
    pub sequence: Vec<u32>,
}

impl Pieces {
    /// Splits texts. The end of each text ends its last document.
    pub fn cut(texts: &[&str], rule: Rule) -> Result<Self, TextError> {
        let sections = texts.iter().flat_map(|text| match rule {
            Rule::Lines => text.lines().collect(),
            Rule::ByteLevel | Rule::Bert => documents(text),
        });
        let chunks: Vec<Option<&str>> =
            sections.flat_map(|section| chunks(section).map(Some).chain(std::iter::once(None))).collect();
        let parts: Vec<Self> =
            chunks.par_chunks(256).map(|chunks| Self::of_chunks(chunks, rule)).collect::<Result<_, _>>()?;
        Ok(Self::joined(parts))
    }

    fn of_chunks(chunks: &[Option<&str>], rule: Rule) -> Result<Self, TextError> {
        let mut pieces = Self::default();
        let mut places = HashMap::new();
        for chunk in chunks {
            match chunk {
                Some(chunk) => words(chunk, rule, |word| {
                    let place = pieces.place(&mut places, word);
                    pieces.sequence.push(place);
                })?,
                None => pieces.sequence.push(BREAK),
            }
        }
        Ok(pieces)
    }

    fn joined(parts: Vec<Self>) -> Self {
        let mut whole = Self::default();
        let mut places = HashMap::new();
        for part in parts {
            let new: Vec<u32> = part.words.iter().map(|word| whole.place(&mut places, word)).collect();
            whole.sequence.extend(part.sequence.iter().map(|&old| match old {
                BREAK => BREAK,
                old => new[usize::try_from(old).unwrap_or(usize::MAX)],
            }));
        }
        whole.counts = vec![0; whole.words.len()];
        for place in whole.sequence.iter().filter(|place| **place != BREAK) {
            whole.counts[usize::try_from(*place).unwrap_or(usize::MAX)] += 1;
        }
        whole
    }

    /// Returns the place of a word; a new word gets a new place.
    fn place(&mut self, places: &mut HashMap<String, u32>, word: &str) -> u32 {
        if let Some(place) = places.get(word) {
            return *place;
        }
        let place = u32::try_from(self.words.len()).unwrap_or(BREAK);
        places.insert(word.to_owned(), place);
        self.words.push(word.to_owned());
        place
    }
}

/// Calls `each` with every word of a text.
fn words(text: &str, rule: Rule, mut each: impl FnMut(&str)) -> Result<(), TextError> {
    let mut cut = match rule {
        Rule::Lines => {
            text.split_whitespace().for_each(each);
            return Ok(());
        }
        Rule::ByteLevel | Rule::Bert => PreTokenizedString::from(text),
    };
    if rule == Rule::Bert {
        let normalizer = BertNormalizer::new(true, true, None, true);
        cut.normalize(|text| normalizer.normalize(text)).map_err(TextError::tokenizer)?;
        BertPreTokenizer.pre_tokenize(&mut cut).map_err(TextError::tokenizer)?;
    } else {
        ByteLevel::new(false, false, true).pre_tokenize(&mut cut).map_err(TextError::tokenizer)?;
    }
    let splits = cut.get_splits(OffsetReferential::Normalized, OffsetType::None);
    splits.iter().for_each(|(word, ..)| shorter(word, &mut each));
    Ok(())
}

/// Calls `each` with a word, or with its pieces if it has more than [`LONGEST`] characters.
fn shorter(word: &str, each: &mut impl FnMut(&str)) {
    let mut rest = word;
    while let Some((at, _)) = rest.char_indices().nth(LONGEST).filter(|_| rest.len() > LONGEST) {
        let (piece, behind) = rest.split_at(at);
        each(piece);
        rest = behind;
    }
    each(rest);
}

/// Returns the documents of a text: the parts between `<|endoftext|>` lines or, if there are none, between blank lines.
fn documents(text: &str) -> Vec<&str> {
    let marked = text.lines().any(|line| line.trim() == END_OF_TEXT);
    let separates = |line: &str| if marked { line.trim() == END_OF_TEXT } else { line.trim().is_empty() };
    let mut documents = Vec::new();
    let (mut start, mut end) = (0, 0);
    let mut close = |start, end| {
        let document: &str = &text[start..end];
        let document = document.trim_matches(['\r', '\n']);
        documents.extend((!document.is_empty()).then_some(document));
    };
    for line in text.split_inclusive('\n') {
        if separates(line) {
            close(start, end);
            start = end + line.len();
        }
        end += line.len();
    }
    close(start, end);
    documents
}

/// Returns pieces of about [`CHUNK`] bytes. Splitting them gives the same words as splitting the whole.
fn chunks(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (chunk, after) = rest.split_at(seam(rest));
        rest = after;
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// Returns a position to cut a text behind its first [`CHUNK`] bytes: before a single space or line end, where every
/// rule begins a word.
fn seam(text: &str) -> usize {
    let bytes = text.as_bytes();
    let lone = |place: usize| {
        matches!(bytes[place], b' ' | b'\n')
            && bytes[place - 1].is_ascii_graphic()
            && bytes.get(place + 1).is_some_and(u8::is_ascii_graphic)
    };
    (CHUNK..bytes.len()).find(|place| lone(*place)).unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn said(texts: &[&str], rule: Rule) -> Vec<String> {
        let pieces = Pieces::cut(texts, rule).expect("valid");
        let word = |place: &u32| match *place {
            BREAK => "BREAK".to_owned(),
            place => pieces.words[usize::try_from(place).expect("small")].clone(),
        };
        pieces.sequence.iter().map(word).collect()
    }

    #[test]
    fn lines_are_cut_at_white_space() {
        assert_eq!(
            said(&["it was n't\n\n<unk> N ,\r\n", "end"], Rule::Lines),
            ["it", "was", "n't", "BREAK", "BREAK", "<unk>", "N", ",", "BREAK", "end", "BREAK"]
        );
    }

    #[test]
    fn gpt2_keeps_the_space_before_a_word_and_writes_bytes() {
        assert_eq!(
            said(&["It's 42 days\nnow,  ü!\n"], Rule::ByteLevel),
            ["It", "'s", "Ġ42", "Ġdays", "Ċ", "now", ",", "Ġ", "ĠÃ¼", "!", "BREAK"]
        );
    }

    #[test]
    fn bert_removes_case_and_accents() {
        assert_eq!(
            said(&["It's  Überall,\u{0} 東京 ok"], Rule::Bert),
            ["it", "'", "s", "uberall", ",", "東", "京", "ok", "BREAK"]
        );
    }

    #[test]
    fn blank_lines_or_marks_separate_documents() {
        assert_eq!(documents("\n\none\ntwo\n \n\nthree\r\n\r\n"), ["one\ntwo", "three"]);
        assert_eq!(documents("one\n\ntwo\n<|endoftext|>\nthree <|endoftext|>"), ["one\n\ntwo", "three <|endoftext|>"]);
        assert_eq!(documents("<|endoftext|>"), Vec::<&str>::new());
        assert_eq!(said(&["a\n\nb", "c"], Rule::Bert), ["a", "BREAK", "b", "BREAK", "c", "BREAK"]);
    }

    #[test]
    fn words_are_counted_in_the_order_of_their_first_occurrence() {
        let pieces = Pieces::cut(&["b a b", "c b"], Rule::Lines).expect("valid");
        assert_eq!(pieces.words, ["b", "a", "c"]);
        assert_eq!(pieces.counts, [3, 1, 1]);
        assert_eq!(pieces.sequence, [0, 1, 0, BREAK, 2, 0, BREAK]);
    }

    #[test]
    fn a_long_word_is_cut_into_pieces_of_a_thousand_characters() {
        let lengths =
            |text: &str, rule| said(&[text], rule).iter().map(|word| word.chars().count()).collect::<Vec<_>>();
        let end = "BREAK".len();
        for rule in [Rule::ByteLevel, Rule::Bert] {
            assert_eq!(lengths(&"a".repeat(1000), rule), [1000, end]);
            assert_eq!(lengths(&"a".repeat(2001), rule), [1000, 1000, 1, end]);
        }
        // Two bytes each, so that the cut may be within a character.
        assert_eq!(lengths(&"é".repeat(501), Rule::ByteLevel), [1000, 2, end]);
        assert_eq!(lengths(&"ж".repeat(501), Rule::Bert), [501, end]);
        assert_eq!(lengths(&"a".repeat(2001), Rule::Lines), [2001, end]);
    }

    #[test]
    fn a_text_without_a_seam_stays_whole() {
        let text = "a".repeat(3 * CHUNK);
        assert_eq!(chunks(&text).collect::<Vec<_>>(), [text.as_str()]);
        assert_eq!(chunks("").count(), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn chunks_have_the_words_of_the_whole(
            beginning in "([a-z0-9.']{1,4}[ \n\t]{1,2}){1,40}",
            end in "([a-zé.'\u{300} ]{1,5}[ \n\u{a0}]{1,3}){1,40}",
        ) {
            let text = beginning.repeat(CHUNK / beginning.len() + 1) + &end.repeat(CHUNK / end.len() + 1);
            let pieces: Vec<&str> = chunks(&text).collect();
            prop_assert_eq!(pieces.concat(), text.clone());
            for rule in [Rule::Lines, Rule::ByteLevel, Rule::Bert] {
                let (mut cut, mut whole) = (Vec::new(), Vec::new());
                for piece in &pieces {
                    words(piece, rule, |word| cut.push(word.to_owned())).expect("valid");
                }
                words(&text, rule, |word| whole.push(word.to_owned())).expect("valid");
                prop_assert_eq!(cut, whole);
            }
        }
    }
}
