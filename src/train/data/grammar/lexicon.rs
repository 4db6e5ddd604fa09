//! The words of the generated language: their ids, spellings and frequencies.
//!
//! Knows nothing of sentences. The ids are in this order: special tokens, function words, nouns, verbs, adjectives,
//! adverbs. Within a class the stems are in the order of their frequency, and a stem's forms are adjacent.

use super::GrammarError;
use crate::number::real_len;

/// Fills up rows; never generated.
#[cfg(test)]
pub const PAD: u16 = 0;
/// Opens a window of masked text; never generated.
pub const CLS: u16 = 1;
/// Closes a window of masked text; never generated.
pub const SEP: u16 = 2;
/// Replaces a masked token; never generated.
pub const MASK: u16 = 3;
/// Ends a document.
pub const END: u16 = 4;

pub(super) const HEADING: u16 = 5;
pub(super) const STOP: u16 = 6;
pub(super) const QUESTION: u16 = 7;
pub(super) const WHETHER: u16 = 8;
pub(super) const COMMA: u16 = 9;
pub(super) const AND: u16 = 10;
pub(super) const OPEN_QUOTE: u16 = 11;
pub(super) const CLOSE_QUOTE: u16 = 12;
/// The opening brackets, one for each kind.
pub(super) const OPEN: u16 = 13;
pub(super) const CLOSE: u16 = 16;
/// The pronouns, one for each [`Form`].
pub(super) const PRONOUN: u16 = 19;
pub(super) const RELATIVE: u16 = 23;
/// The definite determiners, then the indefinite ones, each for every [`Form`].
pub(super) const DETERMINER: u16 = 27;
pub(super) const PREPOSITION: u16 = 35;
/// The first id of a noun.
pub(super) const OPEN_CLASSES: u16 = 43;

/// Kinds of brackets.
pub(super) const BRACKETS: usize = 3;
/// Number of prepositions.
pub(super) const PREPOSITIONS: usize = 8;

/// The spelling of the ids below [`OPEN_CLASSES`]. Unlike generated words, these do not begin with a consonant.
#[cfg(test)]
const FUNCTION_WORDS: [&str; 43] = [
    "[PAD]", "[CLS]", "[SEP]", "[MASK]", "[END]", "#", ".", "?", "ob", ",", "und", "\u{201c}", "\u{201d}", "(", "[",
    "{", ")", "]", "}", "ol", "oles", "ar", "ares", "okel", "okeles", "aker", "akeres", "el", "eles", "er", "eres",
    "ul", "ules", "ur", "ures", "ap", "in", "ex", "ad", "ub", "em", "ix", "ak",
];

/// The allowed sizes. Fewer ids leave too few words in a class; `model.classes` has the same maximum.
pub const VOCABULARY: std::ops::RangeInclusive<usize> = 128..=65_535;

/// Gender and number, in which determiners, adjectives, pronouns, relative words and nouns agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    /// 0 or 1.
    pub gender: u16,
    /// 0 for singular, 1 for plural.
    pub number: u16,
}

impl Form {
    /// Returns its place among the four forms.
    pub fn place(self) -> u16 {
        2 * self.gender + self.number
    }
}

/// The number of stems of each class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lexicon {
    /// Nouns of one gender; each has two forms.
    pub nouns: usize,
    /// Verbs; each has two forms.
    pub verbs: usize,
    /// Adjectives; each has four forms.
    pub adjectives: usize,
    /// Adverbs.
    pub adverbs: usize,
}

impl Lexicon {
    /// Divides `vocabulary` ids: half to nouns, 30% to verbs, 16% to adjectives, the rest to adverbs.
    pub fn new(vocabulary: usize) -> Result<Self, GrammarError> {
        if !VOCABULARY.contains(&vocabulary) {
            return Err(GrammarError { vocabulary });
        }
        let free = vocabulary - usize::from(OPEN_CLASSES);
        let (nouns, verbs, adjectives) = (free / 8, free * 3 / 20, free / 25);
        Ok(Self { nouns, verbs, adjectives, adverbs: free - 4 * nouns - 2 * verbs - 4 * adjectives })
    }

    /// Returns the id of a noun.
    pub fn noun(&self, form: Form, rank: usize) -> u16 {
        id(2 * (usize::from(form.gender) * self.nouns + rank), form.number)
    }

    /// Returns the id of a verb.
    pub fn verb(&self, number: u16, rank: usize) -> u16 {
        id(4 * self.nouns + 2 * rank, number)
    }

    /// Returns the id of an adjective.
    pub fn adjective(&self, form: Form, rank: usize) -> u16 {
        id(4 * self.nouns + 2 * self.verbs + 4 * rank, form.place())
    }

    /// Returns the id of an adverb.
    pub fn adverb(&self, rank: usize) -> u16 {
        id(4 * self.nouns + 2 * self.verbs + 4 * self.adjectives + rank, 0)
    }

    /// Returns the word of an id below the vocabulary's size.
    #[cfg(test)]
    pub fn spell(&self, id: u16) -> String {
        let Some(mut place) = id.checked_sub(OPEN_CLASSES).map(usize::from) else {
            return FUNCTION_WORDS[usize::from(id)].to_owned();
        };
        let classes: [(usize, &[&str]); 5] = [
            (self.nouns, &["l", "les"]),
            (self.nouns, &["r", "res"]),
            (self.verbs, &["t", "tes"]),
            (self.adjectives, &["m", "mes", "n", "nes"]),
            (self.adverbs, &["k"]),
        ];
        for (stems, endings) in classes {
            if place < stems * endings.len() {
                return stem(place / endings.len()) + endings[place % endings.len()];
            }
            place -= stems * endings.len();
        }
        String::new()
    }
}

fn id(stem: usize, form: u16) -> u16 {
    u16::try_from(stem).unwrap_or(u16::MAX).saturating_add(OPEN_CLASSES).saturating_add(form)
}

/// Returns a stem: syllables of a consonant and a vowel, more of them for a higher rank, because frequent words are
/// short (Zipf 1935).
#[cfg(test)]
fn stem(rank: usize) -> String {
    const CONSONANTS: [char; 14] = ['b', 'd', 'f', 'g', 'k', 'l', 'm', 'n', 'p', 'r', 's', 't', 'v', 'z'];
    const VOWELS: [char; 5] = ['a', 'e', 'i', 'o', 'u'];
    let mut rest = rank;
    let mut stem = String::new();
    loop {
        let syllable = rest % (CONSONANTS.len() * VOWELS.len());
        stem.push(CONSONANTS[syllable / VOWELS.len()]);
        stem.push(VOWELS[syllable % VOWELS.len()]);
        match (rest / (CONSONANTS.len() * VOWELS.len())).checked_sub(1) {
            Some(more) => rest = more,
            None => return stem,
        }
    }
}

/// Frequencies that fall as 1 / (rank + 2.5) with rank from 0 (Zipf 1935, Mandelbrot 1953), in whole numbers.
///
/// One table serves classes of every size: a class of n words uses its first n entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Zipf {
    /// The sum of the weights up to and including each rank.
    sums: Vec<usize>,
}

impl Zipf {
    /// A table for classes of up to `len` words.
    pub fn new(len: usize) -> Self {
        let weights = (0..len).map(|rank| (1 << 21) / (2 * rank + 5));
        let sums = weights.scan(0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        Self { sums: sums.collect() }
    }

    /// Returns the sum of the weights of a class of `len` words: the bound of the argument of [`Zipf::rank`].
    pub fn total(&self, len: usize) -> usize {
        len.checked_sub(1).map_or(0, |last| self.sums[last])
    }

    /// Returns the rank whose part of the weights contains `spot`.
    pub fn rank(&self, spot: usize) -> usize {
        self.sums.partition_point(|sum| *sum <= spot)
    }

    /// Returns the probability of a rank in a class of `len` words.
    pub fn probability(&self, rank: usize, len: usize) -> f64 {
        if rank >= len {
            return 0.0;
        }
        real_len(self.sums[rank] - self.total(rank)) / real_len(self.total(len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_id_has_a_word_of_its_own() {
        for vocabulary in [128, 1_000, 10_000, 50_257, 65_535] {
            let lexicon = Lexicon::new(vocabulary).expect("allowed");
            let ids = (0..vocabulary).map(|id| u16::try_from(id).expect("16 bits"));
            let words: HashSet<String> = ids.map(|id| lexicon.spell(id)).filter(|word| !word.is_empty()).collect();
            assert_eq!(words.len(), vocabulary);
        }
    }

    #[test]
    fn the_classes_fill_the_vocabulary_without_overlap() {
        let lexicon = Lexicon::new(777).expect("allowed");
        let forms: Vec<Form> =
            [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(gender, number)| Form { gender, number }).to_vec();
        let mut ids: Vec<u16> = (0..OPEN_CLASSES).collect();
        for &form in &forms {
            ids.extend((0..lexicon.nouns).map(|rank| lexicon.noun(form, rank)));
            ids.extend((0..lexicon.adjectives).map(|rank| lexicon.adjective(form, rank)));
        }
        for number in 0..2 {
            ids.extend((0..lexicon.verbs).map(|rank| lexicon.verb(number, rank)));
        }
        ids.extend((0..lexicon.adverbs).map(|rank| lexicon.adverb(rank)));
        ids.sort_unstable();
        assert_eq!(ids, (0..777).collect::<Vec<u16>>());
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        assert!(Lexicon::new(127).is_err());
        assert_eq!(
            Lexicon::new(65_536).expect_err("too many").to_string(),
            "`model.classes` is 65536, but a generated vocabulary has 128 to 65535 words"
        );
    }

    #[test]
    fn probabilities_are_the_shares_of_the_numbers_drawn() {
        let zipf = Zipf::new(20);
        for len in [1, 7, 20] {
            let mut counts = vec![0_usize; len];
            let total = zipf.total(len);
            (0..total).for_each(|spot| counts[zipf.rank(spot)] += 1);
            for (rank, count) in counts.iter().enumerate() {
                assert!((zipf.probability(rank, len) - real_len(*count) / real_len(total)).abs() < 1e-12);
            }
        }
        assert!((zipf.probability(0, 20) / zipf.probability(5, 20) - 3.0).abs() < 1e-4);
        assert_eq!(zipf.probability(7, 7), 0.0);
    }
}
