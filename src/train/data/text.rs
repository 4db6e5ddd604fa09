//! Text for language models: token sequences cut into windows, in batches of ids and targets.
//!
//! Knows how windows are cut and tokens masked. The tokens come from [`corpus`], [`pieces`] and [`vocabulary`] for
//! files, and from [`grammar`](super::grammar) for generated text. Knows nothing of models.
//!
//! A batch is a function of indices: no threads, no state, the same on every machine.

mod corpus;
mod pieces;
mod vocabulary;

pub use vocabulary::{MAX_VOCABULARY, Vocabulary};

use super::dataset::{Dataset, Inputs, Samples};
use super::digits::Split;
use super::grammar::{self, Grammar, GrammarError};
use crate::DataError;
use crate::number::{real_len, wide};
use crate::rng::{Rng, Stream};
use ledger_record::{Digest, Value, count};
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use vocabulary::{Encoded, Marks};

/// The text cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// The file or directory cannot be read.
    #[error("`{path}` cannot be read", path = path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The directory has no text files.
    #[error("`{dir}` has no files whose names end in `.txt` (`data.path` must be a text file or a directory with some)", dir = dir.display())]
    NoFiles {
        /// The directory.
        dir: PathBuf,
    },
    /// There is more text than [`MAX_BYTES`].
    #[error("`{path}` makes the text longer than 1 GiB (take less of it)", path = path.display())]
    TooLong {
        /// The file that exceeds the limit.
        path: PathBuf,
    },
    /// The file is not UTF-8.
    #[error("`{path}` is not UTF-8 at byte {offset}, counting from 0 (convert it)", path = path.display())]
    Utf8 {
        /// The file.
        path: PathBuf,
        /// The number of valid bytes before the first that is not.
        offset: usize,
    },
    /// The vocabulary is too small for the tokens that every text needs, or too large.
    #[error(
        "`model.classes` is {size}, but a vocabulary of this text and `data.tokenizer` has {least} to {most} tokens",
        most = MAX_VOCABULARY
    )]
    Vocabulary {
        /// The requested size.
        size: usize,
        /// The minimum: special tokens and single characters.
        least: usize,
    },
    /// A window has no room for a token.
    #[error("windows of {width} tokens are too narrow (they must have at least {least})")]
    Width {
        /// The requested width.
        width: usize,
        /// The minimum.
        least: usize,
    },
    /// A part of the text is too short.
    #[error(
        "the {part} text has {tokens}, but {needed} are needed for {windows} of {width} ({remedy})",
        tokens = count(tokens, "token"), windows = count(windows, "window"),
        remedy = remedy(part)
    )]
    Short {
        /// `training` or `evaluation`.
        part: &'static str,
        /// The number of tokens.
        tokens: usize,
        /// The required number of windows: a batch for training, one for evaluation.
        windows: usize,
        /// The width of a window.
        width: usize,
        /// The number of tokens required.
        needed: usize,
    },
    /// No token of a part may be masked.
    #[error(
        "the {part} text has no token that may be masked (`data.path` must have more than ends of lines and documents)"
    )]
    Unmasked {
        /// `training` or `evaluation`.
        part: &'static str,
    },
    /// Text cannot be generated with this vocabulary.
    #[error(transparent)]
    Grammar(#[from] GrammarError),
    /// The tokenizer library failed.
    #[error("the text cannot be cut into tokens")]
    Tokenizer {
        /// The cause.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
}

impl TextError {
    fn tokenizer(source: Box<dyn Error + Send + Sync>) -> Self {
        Self::Tokenizer { source }
    }
}

/// Returns the fix for a part that is too short.
fn remedy(part: &str) -> &'static str {
    match part {
        "evaluation" => "take more text, a smaller `data.width` or a larger `data.validation_share`",
        _ => "take more text, or a smaller `data.width`, `training.batch_size` or `data.validation_share`",
    }
}

/// The training objective of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// Predict the next token at each token.
    NextToken,
    /// Predict the original tokens at masked positions.
    MaskedToken,
}

/// How tokens are cut into windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Tokens in a window.
    pub width: usize,
    /// The training objective.
    pub objective: Objective,
    /// Windows in a step, which is also the required number.
    pub batch: usize,
}

impl Windows {
    /// Returns the distance between the starts of windows in the text.
    fn stride(self) -> usize {
        match self.objective {
            Objective::NextToken => self.width,
            Objective::MaskedToken => self.width.saturating_sub(2),
        }
    }

    /// Returns the number of windows in a text of `tokens` tokens; the rest at its end is not used.
    fn count(self, tokens: usize) -> usize {
        match self.objective {
            Objective::NextToken => tokens.saturating_sub(1) / self.stride(),
            Objective::MaskedToken => tokens / self.stride(),
        }
    }

    /// Returns the number of tokens that `windows` windows need.
    pub fn needed(self, windows: usize) -> usize {
        windows.saturating_mul(self.stride()).saturating_add(usize::from(self.objective == Objective::NextToken))
    }

    fn check_width(self) -> Result<(), TextError> {
        let least = match self.objective {
            Objective::NextToken => 1,
            Objective::MaskedToken => 3,
        };
        if self.width < least { Err(TextError::Width { width: self.width, least }) } else { Ok(()) }
    }

    fn check(self, part: &'static str, tokens: usize, windows: usize) -> Result<(), TextError> {
        let needed = self.needed(windows);
        let width = self.width;
        if tokens < needed { Err(TextError::Short { part, tokens, windows, width, needed }) } else { Ok(()) }
    }

    /// Checks that the windows of a part have a token that may be masked. Without targets, accuracy would be undefined.
    fn check_open(self, part: &'static str, tokens: &[u16], marks: &Marks) -> Result<(), TextError> {
        let used = &tokens[..self.count(tokens.len()) * self.stride()];
        if used.iter().all(|token| marks.has(*token)) { Err(TextError::Unmasked { part }) } else { Ok(()) }
    }
}

/// The target of a position that does not count.
pub const NO_TARGET: i32 = -1;

/// Windows of tokens and their targets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenBatch {
    /// Number of windows.
    pub rows: usize,
    /// Tokens in a window.
    pub width: usize,
    /// The model's input: `rows` times `width` token ids.
    pub ids: Vec<i32>,
    /// The target at each position: the next token, or the original token where it was masked and [`NO_TARGET`]
    /// elsewhere.
    pub targets: Vec<i32>,
}

/// Token sequences for training and evaluation, cut into windows.
///
/// For [`Objective::NextToken`] the windows are consecutive; the target of a window's last token is the first token of
/// the next window. For [`Objective::MaskedToken`] a window is consecutive tokens between `[CLS]` and `[SEP]`, which
/// its width includes. There is one segment and no next-sentence task, and windows extend across documents (as
/// FULL-SENTENCES of Liu et al. 2019, section 4.2).
#[derive(Clone, Debug, PartialEq)]
pub struct Text {
    train: Vec<u16>,
    eval: Vec<u16>,
    /// The number of token ids; every id is below it. A small text may have fewer than requested.
    vocabulary: usize,
    marks: Option<Marks>,
    windows: Windows,
    /// The evaluation loss in nats that no model can go below, if known.
    floor: Option<f64>,
}

impl Text {
    /// Reads a text file, or the `.txt` files of a directory in the order of their names. Holds back the last fraction
    /// `held` of it (0 to 1) for evaluation. The vocabulary is made only from the rest.
    ///
    /// # Errors
    /// If the text cannot be read or is too short, or the vocabulary is too small.
    pub fn read(path: &Path, vocabulary: Vocabulary, held: f64, windows: Windows) -> Result<Self, TextError> {
        windows.check_width()?;
        let texts = corpus::read(path)?;
        let (train, eval) = corpus::divide(&texts, held);
        Self::new(vocabulary.encode(&train, &eval, windows.objective == Objective::MaskedToken)?, windows)
    }

    /// Generates `train` and `eval` tokens of a grammar with `vocabulary` token ids, seeded by `seed`.
    ///
    /// # Errors
    /// If the grammar does not support the vocabulary, or there are too few tokens for the windows.
    pub fn generate(
        seed: u64,
        vocabulary: usize,
        train: usize,
        eval: usize,
        windows: Windows,
    ) -> Result<Self, TextError> {
        windows.check_width()?;
        let grammar = Grammar::new(seed, vocabulary)?;
        let marks = Marks { cls: grammar::CLS, sep: grammar::SEP, mask: grammar::MASK, end: Some(grammar::END) };
        let floor = (windows.objective == Objective::NextToken).then(|| grammar.floor(Split::Eval, eval));
        let (train, eval) = (grammar.generate(Split::Train, train), grammar.generate(Split::Eval, eval));
        let text = Self::new(Encoded { train, eval, vocabulary, marks: Some(marks) }, windows)?;
        Ok(Self { floor, ..text })
    }

    fn new(text: Encoded, windows: Windows) -> Result<Self, TextError> {
        windows.check("training", text.train.len(), windows.batch)?;
        windows.check("evaluation", text.eval.len(), 1)?;
        if let (Objective::MaskedToken, Some(marks)) = (windows.objective, &text.marks) {
            windows.check_open("training", &text.train, marks)?;
            windows.check_open("evaluation", &text.eval, marks)?;
        }
        Ok(Self {
            train: text.train,
            eval: text.eval,
            vocabulary: text.vocabulary,
            marks: text.marks,
            windows,
            floor: None,
        })
    }

    /// Returns the training windows of these indices, each below [`Dataset::train_len`]. Masks depend only on seed, epoch
    /// and the window's index.
    pub fn train_batch(&self, seed: u64, epoch: u64, indices: &[usize]) -> TokenBatch {
        let epoch = Rng::new(seed, Stream::Mask, epoch).bits();
        self.batch(&self.train, indices, |window| Rng::new(epoch, Stream::Mask, window))
    }

    /// Returns the evaluation windows of these indices, each below [`Dataset::eval_len`]. Masks depend only on the
    /// window's index: they are the same for all seeds.
    pub fn eval_batch(&self, indices: &[usize]) -> TokenBatch {
        self.batch(&self.eval, indices, |window| Rng::new(0, Stream::EvalMask, window))
    }

    fn batch(&self, tokens: &[u16], indices: &[usize], rng: impl Fn(u64) -> Rng) -> TokenBatch {
        let Windows { width, objective, .. } = self.windows;
        let stride = self.windows.stride();
        let mut batch = TokenBatch { rows: indices.len(), width, ..TokenBatch::default() };
        for &index in indices {
            let window = &tokens[index * stride..(index + 1) * stride];
            match (objective, &self.marks) {
                (Objective::MaskedToken, Some(marks)) => {
                    mask(window, marks, self.vocabulary, &mut rng(wide(index)), &mut batch);
                }
                _ => {
                    batch.ids.extend(window.iter().copied().map(i32::from));
                    let next = &tokens[index * stride + 1..=(index + 1) * stride];
                    batch.targets.extend(next.iter().copied().map(i32::from));
                }
            }
        }
        batch
    }
}

impl Dataset for Text {
    fn train_len(&self) -> usize {
        self.windows.count(self.train.len())
    }

    fn eval_len(&self) -> usize {
        self.windows.count(self.eval.len())
    }

    fn classes(&self) -> usize {
        self.vocabulary
    }

    fn width(&self) -> usize {
        self.windows.width
    }

    fn max_targets(&self) -> usize {
        match self.windows.objective {
            Objective::NextToken => self.windows.width,
            Objective::MaskedToken => chosen(self.windows.stride()),
        }
    }

    fn train(&self, seed: u64, epoch: u64, indices: &[usize]) -> Result<Samples, DataError> {
        Ok(samples(self.train_batch(seed, epoch, indices)))
    }

    fn eval(&self, indices: &[usize]) -> Result<Samples, DataError> {
        Ok(samples(self.eval_batch(indices)))
    }

    fn facts(&self) -> Vec<(&'static str, Value)> {
        let chance = Some(("chance_perplexity", real_len(self.vocabulary).into()));
        let floor = self.floor.map(|floor| ("eval_loss_floor", floor.into()));
        chance.into_iter().chain(floor).collect()
    }

    /// Returns the digest of all tokens and of the size of the vocabulary.
    fn digest(&self) -> Digest {
        let bytes = |tokens: &[u16]| tokens.iter().flat_map(|token| token.to_le_bytes()).collect::<Vec<u8>>();
        let size = wide(self.vocabulary).to_le_bytes();
        Digest::of_pieces("ledger text v1", &[&bytes(&self.train), &bytes(&self.eval), &size])
    }
}

fn samples(batch: TokenBatch) -> Samples {
    let TokenBatch { rows, width, ids, targets } = batch;
    Samples { inputs: Inputs::Tokens { ids, shape: [rows, width] }, targets }
}

/// Returns the number of tokens that are chosen out of `open` ones.
fn chosen(open: usize) -> usize {
    ((15 * open + 50) / 100).max(1).min(open)
}

/// Adds a window whose tokens are masked as by Devlin et al. 2018 (section 3.1): 15% of the positions are chosen, at
/// least one. Of these, 80% get `[MASK]`, 10% any token, and 10% remain unchanged. Special tokens are never chosen.
fn mask(window: &[u16], marks: &Marks, vocabulary: usize, rng: &mut Rng, batch: &mut TokenBatch) {
    let first = batch.ids.len() + 1;
    batch.ids.push(i32::from(marks.cls));
    batch.ids.extend(window.iter().copied().map(i32::from));
    batch.ids.push(i32::from(marks.sep));
    batch.targets.resize(batch.ids.len(), NO_TARGET);

    let mut open: Vec<usize> = (0..window.len()).filter(|place| !marks.has(window[*place])).collect();
    let chosen = chosen(open.len());
    for next in 0..chosen {
        let other = next + rng.below(open.len() - next);
        open.swap(next, other);
        let place = first + open[next];
        batch.targets[place] = batch.ids[place];
        match rng.below(10) {
            0..8 => batch.ids[place] = i32::from(marks.mask),
            8 => batch.ids[place] = i32::try_from(rng.below(vocabulary)).unwrap_or_default(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
