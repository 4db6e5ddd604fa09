//! Writes a document: the decisions of the grammar, one after the other.
//!
//! Every alternative begins with a token with which no other alternative at that place begins. Therefore the
//! probability of a token is the product of the probabilities of the decisions since the previous token. New decisions
//! must preserve that.

use super::Document;
use super::lexicon::{
    AND, BRACKETS, CLOSE, CLOSE_QUOTE, COMMA, DETERMINER, END, Form, HEADING, Lexicon, OPEN, OPEN_QUOTE, PREPOSITION,
    PREPOSITIONS, PRONOUN, QUESTION, RELATIVE, STOP, WHETHER, Zipf,
};
use crate::number::real_len;
use crate::rng::Rng;

/// The probabilities of alternatives in percent.
mod percent {
    pub const PARAGRAPH_AGAIN: u8 = 70;
    pub const PARAGRAPH_ENDS: u8 = 12;
    pub const QUOTE_OPENS: u8 = 8;
    pub const QUOTE_CLOSES: u8 = 40;
    pub const QUESTION: u8 = 12;
    pub const PRONOUN: u8 = 35;
    pub const ONE_OF_TWO: u8 = 50;
    pub const SEVERAL: u8 = 35;
    pub const INDEFINITE: u8 = 40;
    pub const ADJECTIVE: u8 = 30;
    /// By depth: deeper clauses contain fewer clauses, and the deepest none.
    pub const RELATIVE: [u8; 4] = [15, 10, 5, 0];
    pub const BRACKET: [u8; 4] = [8, 6, 4, 0];
    pub const ADVERB: u8 = 15;
    pub const PLACE: u8 = 25;
    pub const AND: u8 = 15;
}

/// The maximum number of adjectives of a noun, and of places and of joined verbs of a verb.
const MOST: usize = 2;

/// The maximum number of topics. A topic's words are those whose rank has the topic as remainder.
const TOPICS: usize = 50;

/// The maximum number of groups of words that prefer each other. It is coprime to the number of topics.
const TASTES: usize = 97;

/// The noun that later words depend on.
#[derive(Clone, Copy)]
struct Noun {
    form: Form,
    rank: usize,
}

/// The words of a class whose rank has this remainder.
#[derive(Clone, Copy)]
struct Among {
    divisor: usize,
    rest: usize,
}

/// Writes one document.
pub(super) struct Writer<'a> {
    rng: Rng,
    lexicon: &'a Lexicon,
    zipf: &'a Zipf,
    done: Document,
    /// The probability of the decisions since the last token.
    probability: f64,
    topic: Among,
}

impl<'a> Writer<'a> {
    pub fn new(rng: Rng, lexicon: &'a Lexicon, zipf: &'a Zipf) -> Self {
        let topic = Among { divisor: TOPICS.min(lexicon.nouns), rest: 0 };
        Self { rng, lexicon, zipf, done: Document::default(), probability: 1.0, topic }
    }

    pub fn document(mut self) -> Document {
        loop {
            self.paragraph();
            if !self.decides(percent::PARAGRAPH_AGAIN) {
                break;
            }
        }
        self.say(END);
        self.done
    }

    fn paragraph(&mut self) {
        self.say(HEADING);
        self.topic.rest = self.by_frequency(self.topic.divisor, &[]);
        self.say(self.lexicon.noun(Form { gender: 0, number: 0 }, self.topic.rest));
        let mut subject = None;
        loop {
            if self.decides(percent::QUOTE_OPENS) {
                self.say(OPEN_QUOTE);
                loop {
                    self.sentence(&mut subject);
                    if self.decides(percent::QUOTE_CLOSES) {
                        break;
                    }
                }
                self.say(CLOSE_QUOTE);
            } else {
                self.sentence(&mut subject);
            }
            if self.decides(percent::PARAGRAPH_ENDS) {
                return;
            }
        }
    }

    /// Writes a sentence. `last` is the subject of the previous sentence and becomes that of this one.
    fn sentence(&mut self, last: &mut Option<Noun>) {
        let asks = self.decides(percent::QUESTION);
        if asks {
            self.say(WHETHER);
        }
        let subject = match *last {
            Some(noun) if self.decides(percent::PRONOUN) => {
                self.say(PRONOUN + noun.form.place());
                noun
            }
            _ => self.noun_phrase(0, [self.topic; 2]),
        };
        *last = Some(subject);
        self.predicate(subject, 0);
        self.say(if asks { QUESTION } else { STOP });
    }

    /// Writes a predicate; verbs joined by `AND` have the same subject.
    fn predicate(&mut self, subject: Noun, depth: usize) {
        for joined in 0..=MOST {
            if joined > 0 {
                if !self.decides(percent::AND) {
                    return;
                }
                self.say(AND);
            }
            if self.decides(percent::ADVERB) {
                let adverb = self.by_frequency(self.lexicon.adverbs, &[self.topic]);
                self.say(self.lexicon.adverb(adverb));
            }
            let fitting = taste(subject.rank);
            let among = [self.topic, fitting, fitting];
            let verb = self.by_frequency(self.lexicon.verbs, &among);
            self.say(self.lexicon.verb(subject.form.number, verb));
            if takes_object(verb) {
                self.noun_phrase(depth, [taste(verb); 2]);
            }
            for _ in 0..MOST {
                if !self.decides(percent::PLACE) {
                    break;
                }
                let preposition = self.evenly(PREPOSITIONS);
                self.say(PREPOSITION + small(preposition));
                self.noun_phrase(depth, [taste(preposition); 2]);
            }
        }
    }

    /// Writes a noun with the words that agree with it and its relative clause or aside.
    fn noun_phrase(&mut self, depth: usize, from: [Among; 2]) -> Noun {
        let indefinite = self.decides(percent::INDEFINITE);
        let gender = u16::from(self.decides(percent::ONE_OF_TWO));
        let form = Form { gender, number: u16::from(self.decides(percent::SEVERAL)) };
        self.say(DETERMINER + 4 * u16::from(indefinite) + form.place());
        for _ in 0..MOST {
            if !self.decides(percent::ADJECTIVE) {
                break;
            }
            let adjective = self.by_frequency(self.lexicon.adjectives, &[self.topic; 2]);
            self.say(self.lexicon.adjective(form, adjective));
        }
        let among = [self.topic, from[0], from[1]];
        let noun = Noun { form, rank: self.by_frequency(self.lexicon.nouns, &among) };
        self.say(self.lexicon.noun(form, noun.rank));
        if self.decides(percent::RELATIVE[depth]) {
            self.say(RELATIVE + form.place());
            self.predicate(noun, depth + 1);
            self.say(COMMA);
        } else if self.decides(percent::BRACKET[depth]) {
            let kind = small(self.evenly(BRACKETS));
            self.say(OPEN + kind);
            let subject = self.noun_phrase(depth + 1, [self.topic; 2]);
            self.predicate(subject, depth + 1);
            self.say(CLOSE + kind);
        }
        noun
    }

    /// Writes a token, which reveals all decisions since the last one.
    fn say(&mut self, token: u16) {
        self.done.tokens.push(token);
        self.done.probabilities.push(self.probability);
        self.probability = 1.0;
    }

    /// Returns whether an alternative with this probability is taken.
    fn decides(&mut self, percent: u8) -> bool {
        let taken = self.rng.below(100) < usize::from(percent);
        self.probability *= f64::from(if taken { percent } else { 100 - percent }) / 100.0;
        taken
    }

    /// Returns one of `count` equally likely alternatives.
    fn evenly(&mut self, count: usize) -> usize {
        self.probability /= real_len(count);
        self.rng.below(count)
    }

    /// Draws the rank of a word. The probability is the mean of its frequency among all `len` words of its class and
    /// its frequencies within each group.
    fn by_frequency(&mut self, len: usize, groups: &[Among]) -> usize {
        let rank = match self.rng.below(groups.len() + 1).checked_sub(1).map(|group| groups[group].within(len)) {
            None => self.zipf.rank(self.rng.below(self.zipf.total(len))),
            Some(Among { divisor, rest }) => {
                let size = members(len, divisor, rest);
                rest + divisor * self.zipf.rank(self.rng.below(self.zipf.total(size)))
            }
        };
        let shares = groups.iter().map(|group| {
            let Among { divisor, rest } = group.within(len);
            let among = rank % divisor == rest;
            if among { self.zipf.probability(rank / divisor, members(len, divisor, rest)) } else { 0.0 }
        });
        let sum = self.zipf.probability(rank, len) + shares.sum::<f64>();
        self.probability *= sum / real_len(groups.len() + 1);
        rank
    }
}

impl Among {
    /// Returns the same for a class of `len` words, with fewer groups if it has fewer words than there are groups.
    fn within(self, len: usize) -> Self {
        let divisor = self.divisor.min(len);
        Self { divisor, rest: self.rest % divisor }
    }
}

/// Returns the number of ranks below `len` with that remainder.
fn members(len: usize, divisor: usize, rest: usize) -> usize {
    (len + divisor - 1 - rest) / divisor
}

/// Returns the words of another class that go with a word of that rank.
fn taste(rank: usize) -> Among {
    Among { divisor: TASTES, rest: rank % TASTES }
}

/// Whether a verb has an object: two of three verbs have.
pub(super) fn takes_object(verb: usize) -> bool {
    verb % 3 != 2
}

fn small(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}
