//! Vocabularies: made only from the training text, and applied to both parts.
//!
//! Knows the published types and nothing of windows. The crate `tokenizers` trains and applies BPE and WordPiece.
//!
//! The same text gives the same vocabulary. By default the library numbers the characters within words (`##a`) in the
//! order of a hash map, which changes from run to run. It orders equally frequent pairs by these numbers, so that even
//! the set of tokens would vary. Therefore all characters are numbered here before training, and those that are too
//! rare are left out here.

use super::TextError;
use super::pieces::{BREAK, Pieces, Rule};
use rayon::prelude::*;
use std::collections::{HashMap, HashSet};
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, Model};

/// The units of a vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vocabulary {
    /// Bytes of UTF-8: 256 tokens, and three more if tokens are masked. Documents are not separated.
    Bytes,
    /// Words separated by white space: the most frequent ones, and `<unk>` for the others. Every line ends with
    /// `<eos>`.
    Words {
        /// The maximum number of tokens, including special tokens.
        size: usize,
    },
    /// Byte-level byte-pair encoding as in GPT-2 (Radford et al. 2019, section 2.2), which can encode any text. Every
    /// document ends with `<|endoftext|>`.
    Bpe {
        /// The maximum number of tokens, including special tokens.
        size: usize,
    },
    /// WordPiece as in uncased BERT (Devlin et al. 2018, section 3): lower case, no accents, `[UNK]` for words with
    /// characters that are not among the 1,000 most frequent ones. Every document ends with `[SEP]`.
    WordPiece {
        /// The maximum number of tokens, including special tokens.
        size: usize,
    },
}

/// The maximum size: token ids have 16 bits, and `model.classes` has the same maximum.
pub const MAX_VOCABULARY: usize = 65_535;

/// The minimum frequency of a pair that is merged: the library's usual choice.
const LEAST: u64 = 2;

/// The maximum number of characters in WordPiece: the library's usual choice.
const CHARACTERS: usize = 1000;

/// The special tokens of masking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Opens a window.
    pub cls: u16,
    /// Closes a window.
    pub sep: u16,
    /// Replaces a masked token.
    pub mask: u16,
    /// Ends a document.
    pub end: Option<u16>,
}

impl Marks {
    /// Whether a token is never masked.
    pub fn has(&self, token: u16) -> bool {
        [self.cls, self.sep, self.mask].contains(&token) || self.end == Some(token)
    }
}

/// Both parts of a text as tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The tokens for training.
    pub train: Vec<u16>,
    /// The tokens for evaluation.
    pub eval: Vec<u16>,
    /// The number of token ids; all ids are below it.
    pub vocabulary: usize,
    /// The special tokens of masking, if requested.
    pub marks: Option<Marks>,
}

impl Vocabulary {
    /// Makes the vocabulary from the training texts and encodes both parts.
    ///
    /// With `masked`, `[CLS]`, `[SEP]` and `[MASK]` are among the tokens of every type.
    pub fn encode(self, train: &[&str], eval: &[&str], masked: bool) -> Result<Encoded, TextError> {
        let (rule, size) = match self {
            Self::Bytes => return Ok(bytes(train, eval, masked)),
            Self::Words { size } => (Rule::Lines, size),
            Self::Bpe { size } => (Rule::ByteLevel, size),
            Self::WordPiece { size } => (Rule::Bert, size),
        };
        let special: &[&str] = match (rule, masked) {
            (Rule::Bert, _) => &["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
            (Rule::Lines, true) => &["<eos>", "<unk>", "[CLS]", "[SEP]", "[MASK]"],
            (Rule::Lines, false) => &["<eos>", "<unk>"],
            (Rule::ByteLevel, true) => &["<|endoftext|>", "[CLS]", "[SEP]", "[MASK]"],
            (Rule::ByteLevel, false) => &["<|endoftext|>"],
        };
        let place = |name: &str| special.iter().position(|token| *token == name).and_then(|place| id(place).ok());
        let end = place("<eos>").or(place("<|endoftext|>")).or(place("[SEP]")).unwrap_or_default();
        let marks = match (place("[CLS]"), place("[SEP]"), place("[MASK]")) {
            (Some(cls), Some(sep), Some(mask)) if masked => Some(Marks { cls, sep, mask, end: Some(end) }),
            _ => None,
        };

        let train = Pieces::cut(train, rule)?;
        let eval = Pieces::cut(eval, rule)?;
        let tokens = Tokens::train(&train, rule, size, special)?;
        Ok(Encoded {
            train: tokens.apply(&train, end)?,
            eval: tokens.apply(&eval, end)?,
            vocabulary: tokens.len(),
            marks,
        })
    }
}

fn bytes(train: &[&str], eval: &[&str], masked: bool) -> Encoded {
    let flat = |texts: &[&str]| texts.iter().flat_map(|text| text.bytes().map(u16::from)).collect();
    let marks = masked.then_some(Marks { cls: 256, sep: 257, mask: 258, end: None });
    Encoded { train: flat(train), eval: flat(eval), vocabulary: if masked { 259 } else { 256 }, marks }
}

/// A trained vocabulary.
enum Tokens {
    Words { ids: HashMap<String, u16>, unknown: u16 },
    Bpe(BPE),
    WordPiece(WordPiece),
}

impl Tokens {
    fn train(text: &Pieces, rule: Rule, size: usize, special: &[&str]) -> Result<Self, TextError> {
        match rule {
            Rule::Lines => {
                check(size, special.len() + 1)?;
                Ok(Self::words(text, size, special))
            }
            Rule::ByteLevel => {
                check(size, special.len() + 256)?;
                Ok(Self::Bpe(Self::merges(text, size, special, |trainer| {
                    trainer.initial_alphabet = ByteLevel::alphabet();
                })?))
            }
            Rule::Bert => {
                let characters = Characters::of(text);
                let first: Vec<String> =
                    special.iter().map(|token| (*token).to_owned()).chain(characters.tokens()).collect();
                let first: Vec<&str> = first.iter().map(String::as_str).collect();
                check(size, first.len())?;
                let known = text.words.iter().zip(&text.counts).filter(|(word, _)| characters.spell(word));
                let (words, counts) = known.map(|(word, count)| (word.clone(), *count)).unzip();
                let known = Pieces { words, counts, sequence: Vec::new() };
                let bpe = Self::merges(&known, size, &first, |trainer| {
                    trainer.continuing_subword_prefix = Some("##".to_owned());
                })?;
                Ok(Self::WordPiece(WordPiece::from_bpe(&bpe)))
            }
        }
    }

    /// Returns the most frequent words. Equally frequent ones are in the order of their bytes.
    fn words(text: &Pieces, size: usize, special: &[&str]) -> Self {
        let mut order: Vec<(&String, u64)> = text.words.iter().zip(text.counts.iter().copied()).collect();
        order.retain(|(word, _)| !special.contains(&word.as_str()));
        order.sort_unstable_by(|(word, count), (other, than)| than.cmp(count).then(word.cmp(other)));
        let known = special.iter().copied().chain(order.iter().map(|(word, _)| word.as_str()));
        let ids: HashMap<String, u16> =
            known.take(size).enumerate().filter_map(|(place, word)| Some((word.to_owned(), id(place).ok()?))).collect();
        let unknown = ids.get("<unk>").copied().unwrap_or_default();
        Self::Words { ids, unknown }
    }

    /// Merges the most frequent pair repeatedly (Sennrich, Haddow, Birch 2016), after `first` has taken the lowest ids.
    fn merges(text: &Pieces, size: usize, first: &[&str], set: impl FnOnce(&mut BpeTrainer)) -> Result<BPE, TextError> {
        let first = first.iter().map(|token| AddedToken::from(*token, true)).collect();
        let mut trainer = BpeTrainer::builder()
            .show_progress(false)
            .vocab_size(size)
            .min_frequency(LEAST)
            .special_tokens(first)
            .build();
        set(&mut trainer);
        let counts = text.words.iter().zip(&text.counts).map(|(word, count)| (word.as_str().into(), *count)).collect();
        let mut bpe = BPE::default();
        trainer.do_train(&counts, &mut bpe).map_err(TextError::tokenizer)?;
        Ok(bpe)
    }

    fn len(&self) -> usize {
        match self {
            Self::Words { ids, .. } => ids.len(),
            Self::Bpe(model) => model.get_vocab_size(),
            Self::WordPiece(model) => model.get_vocab_size(),
        }
    }

    /// Returns a text as tokens, with `end` at its breaks.
    fn apply(&self, text: &Pieces, end: u16) -> Result<Vec<u16>, TextError> {
        let each: Vec<Vec<u16>> = text.words.par_iter().map(|word| self.word(word)).collect::<Result<_, _>>()?;
        let end = [end];
        let tokens = text.sequence.iter().flat_map(|&place| match place {
            BREAK => &end,
            place => usize::try_from(place).ok().and_then(|place| each.get(place)).map_or(&end[..0], Vec::as_slice),
        });
        Ok(tokens.copied().collect())
    }

    fn word(&self, word: &str) -> Result<Vec<u16>, TextError> {
        let tokens = match self {
            Self::Words { ids, unknown } => return Ok(vec![ids.get(word).copied().unwrap_or(*unknown)]),
            Self::Bpe(model) => model.tokenize(word),
            Self::WordPiece(model) => model.tokenize(word),
        };
        tokens.map_err(TextError::tokenizer)?.iter().map(|token| id(token.id)).collect()
    }
}

/// The characters of a text that WordPiece supports.
struct Characters {
    all: HashSet<char>,
    /// Those that occur within a word, and not only at its beginning.
    inner: HashSet<char>,
}

impl Characters {
    /// The most frequent characters; of equally frequent ones the lowest.
    fn of(text: &Pieces) -> Self {
        let mut counts: HashMap<char, u64> = HashMap::new();
        for (word, count) in text.words.iter().zip(&text.counts) {
            word.chars().for_each(|character| *counts.entry(character).or_default() += count);
        }
        let mut order: Vec<(char, u64)> = counts.into_iter().collect();
        order.sort_unstable_by_key(|&(character, count)| (std::cmp::Reverse(count), character));
        let mut characters = Self {
            all: order.iter().take(CHARACTERS).map(|(character, _)| *character).collect(),
            inner: HashSet::new(),
        };
        let inner = text.words.iter().filter(|word| characters.spell(word)).flat_map(|word| word.chars().skip(1));
        characters.inner = inner.collect();
        characters
    }

    fn spell(&self, word: &str) -> bool {
        word.chars().all(|character| self.all.contains(&character))
    }

    /// Returns their tokens in a fixed order.
    fn tokens(&self) -> impl Iterator<Item = String> {
        let sorted = |set: &HashSet<char>| {
            let mut characters: Vec<char> = set.iter().copied().collect();
            characters.sort_unstable();
            characters
        };
        let inner = sorted(&self.inner).into_iter().map(|character| format!("##{character}"));
        sorted(&self.all).into_iter().map(String::from).chain(inner)
    }
}

fn check(size: usize, least: usize) -> Result<(), TextError> {
    if (least..=MAX_VOCABULARY).contains(&size) { Ok(()) } else { Err(TextError::Vocabulary { size, least }) }
}

fn id<T: TryInto<u16>>(place: T) -> Result<u16, TextError> {
    place.try_into().map_err(|_| TextError::Vocabulary { size: MAX_VOCABULARY + 1, least: 1 })
}

#[cfg(test)]
mod tests;
