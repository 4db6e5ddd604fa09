//! `grammar`: text of a generated language. Version 1.
//!
//! Knows how a document is made from (seed, split, index) and nothing of windows, files or models.
//!
//! A document has paragraphs, and a paragraph has a heading and sentences. The heading names a topic, whose words are
//! more frequent in the paragraph. Word frequencies follow Zipf's law. Determiners, adjectives, nouns and relative
//! words agree in gender and number. Verbs agree with their subject in number at any distance: relative clauses and
//! bracketed asides, which nest, may lie between. Brackets, quotes and questions close as they were opened. A pronoun
//! has the form of the last sentence's subject. Verbs prefer some objects, and subjects some verbs.
//!
//! Every decision shows in the next token. The probability of a token given all before it in its document is therefore
//! known: it is the product of the decisions that lead to it. [`Grammar::floor`] is the mean of its negative logarithm,
//! the loss that no model can go below, except by chance. Losses are in nats per token, perplexities in brackets. The
//! first two columns are estimated from counts of 8 million tokens and measured on 2 million others; the last is exact:
//!
//! | words  | no context   | the token before | everything before |
//! |--------|--------------|------------------|-------------------|
//! | 500    | 5.16 (174)   | 3.37 (29)        | 2.07 (8)          |
//! | 2,000  | 5.80 (330)   | 4.00 (55)        | 2.61 (14)         |
//! | 10,000 | 6.50 (665)   | 4.87 (130)       | 3.27 (26)         |
//! | 30,522 | 6.92 (1,012) | 5.50 (245)       | 3.68 (40)         |
//! | 50,257 | 7.09 (1,200) | 5.78 (324)       | 3.85 (47)         |
//!
//! A document depends only on version, seed, split, vocabulary and index: the first n tokens of a longer text are the
//! text of n. Training and evaluation documents come from separate random streams. All decisions use whole numbers, so
//! that every machine writes the same tokens.
//!
//! Any change of a token requires a new version and a new [`REFERENCE`].

mod lexicon;
mod sentence;

#[cfg(test)]
use lexicon::PAD;
pub use lexicon::{CLS, END, MASK, SEP, VOCABULARY};

use super::digits::Split;
use crate::number::real_len;
use crate::rng::{Rng, Stream};
use ledger_record::Digest;
use lexicon::{Lexicon, Zipf};
use rayon::prelude::*;
use sentence::Writer;

/// The version of the generator in this program.
pub const GENERATOR_VERSION: i64 = 1;

/// The digest of the first 100,000 training tokens of seed 0 and 10,000 words. It identifies the generator in run ids;
/// a test compares it with generated tokens.
pub const REFERENCE: Digest = Digest([
    0xd3, 0xce, 0x94, 0xf9, 0x6b, 0xda, 0x45, 0x22, 0x83, 0x49, 0x35, 0xc1, 0x02, 0x9f, 0xbe, 0xee, 0x44, 0xe1, 0x12,
    0x9e, 0x90, 0x6b, 0x19, 0x78, 0x6a, 0xba, 0xb2, 0x5e, 0x44, 0x85, 0xf3, 0x8c,
]);

/// The number of documents that are written before the length is checked.
const TOGETHER: u64 = 256;

/// The grammar cannot fill a vocabulary of this size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`model.classes` is {vocabulary}, but a generated vocabulary has {least} to {most} words", least = VOCABULARY.start(), most = VOCABULARY.end())]
pub struct GrammarError {
    /// The requested size.
    pub vocabulary: usize,
}

/// The language of one seed and one size of vocabulary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grammar {
    seed: u64,
    lexicon: Lexicon,
    zipf: Zipf,
}

impl Grammar {
    /// The language with `vocabulary` token ids, including special tokens. The seed selects the documents.
    ///
    /// # Errors
    /// If the size is not within [`VOCABULARY`].
    pub fn new(seed: u64, vocabulary: usize) -> Result<Self, GrammarError> {
        let lexicon = Lexicon::new(vocabulary)?;
        let longest = lexicon.nouns.max(lexicon.verbs).max(lexicon.adjectives).max(lexicon.adverbs);
        Ok(Self { seed, zipf: Zipf::new(longest), lexicon })
    }

    /// Returns the first `count` tokens of a split. Each document ends with [`END`]; the last one may be cut off.
    pub fn generate(&self, split: Split, count: usize) -> Vec<u16> {
        let mut tokens = Vec::new();
        self.write(split, |document| {
            tokens.extend(document.tokens);
            tokens.len() < count
        });
        tokens.truncate(count);
        tokens
    }

    /// Returns the mean negative logarithm (in nats) of the grammar's probability of each of the first `count` tokens
    /// of a split, given all tokens before it in its document. Its exponential is the perplexity that no model beats.
    ///
    /// A model that predicts the next token comes close only with wide windows, because it does not see the tokens
    /// before its window. The value does not apply to masked tokens, which are predicted from both sides.
    pub fn floor(&self, split: Split, count: usize) -> f64 {
        let (mut sum, mut seen) = (0.0, 0);
        self.write(split, |document| {
            let wanted = document.probabilities.len().min(count - seen);
            sum -= document.probabilities[..wanted].iter().map(|probability| probability.ln()).sum::<f64>();
            seen += wanted;
            seen < count
        });
        sum / real_len(seen.max(1))
    }

    /// Returns the words of some tokens, separated by spaces; ids beyond the vocabulary are left out.
    #[cfg(test)]
    pub fn spell(&self, tokens: &[u16]) -> String {
        let words: Vec<String> = tokens.iter().map(|token| self.lexicon.spell(*token)).collect();
        words.join(" ")
    }

    /// Writes one document after the other until `goes_on` returns false.
    fn write(&self, split: Split, mut goes_on: impl FnMut(Document) -> bool) {
        let stream = match split {
            Split::Train => Stream::TrainText,
            Split::Eval => Stream::EvalText,
        };
        let mut first = 0;
        loop {
            let documents: Vec<Document> = (first..first + TOGETHER)
                .into_par_iter()
                .map(|index| Writer::new(Rng::new(self.seed, stream, index), &self.lexicon, &self.zipf).document())
                .collect();
            for document in documents {
                if !goes_on(document) {
                    return;
                }
            }
            first += TOGETHER;
        }
    }
}

/// A document and the probabilities of its tokens.
#[derive(Clone, Debug, Default, PartialEq)]
struct Document {
    tokens: Vec<u16>,
    /// The probability of each token, given all before it.
    probabilities: Vec<f64>,
}

#[cfg(test)]
mod tests;
