use super::lexicon::{
    AND, CLOSE, CLOSE_QUOTE, COMMA, DETERMINER, Form, HEADING, OPEN, OPEN_CLASSES, OPEN_QUOTE, PREPOSITION, PRONOUN,
    QUESTION, RELATIVE, STOP, WHETHER,
};
use super::sentence::takes_object;
use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

fn grammar(seed: u64, vocabulary: usize) -> Grammar {
    Grammar::new(seed, vocabulary).expect("allowed")
}

fn documents(grammar: &Grammar, count: usize) -> Vec<Document> {
    let mut all = Vec::new();
    grammar.write(Split::Train, |document| {
        all.push(document);
        all.len() < count
    });
    all
}

#[test]
fn the_reference_digest_is_what_is_written() {
    let tokens = grammar(0, 10_000).generate(Split::Train, 100_000);
    let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    assert_eq!(Digest::of_pieces("ledger grammar v1", &[&bytes]).to_hex(), REFERENCE.to_hex());
}

#[test]
fn a_beginning_reads_like_this() {
    let grammar = grammar(0, 10_000);
    let words = grammar.spell(&grammar.generate(Split::Train, 52));
    insta::assert_snapshot!(words.replace(" . ", " .\n").replace(" ? ", " ?\n"), @r"
    # del “ ul sebol tifut er kir und debuk det ul teful .
    ol zet er zeder .
    ” “ ol gudut ap er gar und kubit eres gudures und pibat er zen der ad ul nebam zel .
    ob ol tefut ?
    ” ol zibat und kubit el zibal .
    ");
}

#[test]
fn every_word_of_the_language_occurs() {
    let vocabulary = 200;
    let mut seen = vec![false; vocabulary];
    grammar(5, vocabulary).generate(Split::Eval, 300_000).iter().for_each(|token| seen[usize::from(*token)] = true);
    let never: Vec<usize> = (0..vocabulary).filter(|token| !seen[*token]).collect();
    assert_eq!(never, [PAD, CLS, SEP, MASK].map(usize::from));
}

/// Returns the losses per token of the evaluation part if each token is predicted from counts of the training part:
/// from single tokens, and from the previous token, mixed with the former.
fn losses_without_and_with_one_token(grammar: &Grammar, vocabulary: usize, count: usize) -> (f64, f64) {
    let (mut ones, mut pairs) = (vec![1_usize; vocabulary], HashMap::new());
    for pair in grammar.generate(Split::Train, count).windows(2) {
        ones[usize::from(pair[0])] += 1;
        *pairs.entry((pair[0], pair[1])).or_insert(0_usize) += 1;
    }
    let total = real_len(ones.iter().sum());
    let (mut alone, mut after, mut seen) = (0.0, 0.0, 0.0);
    for pair in grammar.generate(Split::Eval, count / 4).windows(2) {
        let one = real_len(ones[usize::from(pair[1])]) / total;
        let both = pairs.get(&(pair[0], pair[1])).copied().unwrap_or_default();
        alone -= one.ln();
        after -= (0.2 * one + 0.8 * real_len(both) / real_len(ones[usize::from(pair[0])])).ln();
        seen += 1.0;
    }
    (alone / seen, after / seen)
}

#[test]
fn context_lowers_the_loss() {
    let grammar = grammar(0, 1_000);
    let (alone, after) = losses_without_and_with_one_token(&grammar, 1_000, 400_000);
    let floor = grammar.floor(Split::Eval, 100_000);
    assert_eq!(format!("{alone:.2} {after:.2} {floor:.2}"), "5.49 3.78 2.33");
    assert!((grammar.floor(Split::Train, 100_000) - floor).abs() < 0.03);
}

#[test]
fn beginnings_are_as_frequent_as_their_probability() {
    let grammar = grammar(9, 128);
    let documents = documents(&grammar, 6_000);
    for len in 2..6 {
        let mut seen: HashMap<&[u16], (f64, f64)> = HashMap::new();
        for document in &documents {
            let probability: f64 = document.probabilities[..len].iter().product();
            let entry = seen.entry(&document.tokens[..len]).or_insert((0.0, probability));
            assert!((entry.1 / probability - 1.0).abs() < 1e-12, "one beginning, two probabilities");
            entry.0 += 1.0;
        }
        let frequent: Vec<_> = seen.values().filter(|(_, probability)| probability * 6_000.0 > 40.0).collect();
        assert!(len > 4 || frequent.len() > 3, "{} beginnings of {len} to look at", frequent.len());
        for (count, probability) in frequent {
            let expected = probability * 6_000.0;
            assert!((count - expected).abs() < 5.0 * expected.sqrt(), "{count} instead of {expected}");
        }
    }
}

#[test]
fn the_probabilities_of_all_words_that_can_follow_sum_to_one() {
    // If n words can follow, the mean of 1/p over those that do is n if and only if p is their probability.
    let grammar = grammar(3, 300);
    let Lexicon { nouns, verbs, adjectives, adverbs } = grammar.lexicon;
    let mut seen = vec![Vec::new(); 5];
    for document in documents(&grammar, 1_000) {
        for (pair, probability) in document.tokens.windows(2).zip(&document.probabilities[1..]) {
            let place = match pair[0] {
                HEADING => 0,
                AND => 1,
                token if (PRONOUN..DETERMINER).contains(&token) => 2,
                token if (DETERMINER..PREPOSITION).contains(&token) => 3,
                token if (PREPOSITION..OPEN_CLASSES).contains(&token) => 4,
                _ => continue,
            };
            seen[place].push(1.0 / probability);
        }
    }
    let choices = [nouns, adverbs + verbs, adverbs + verbs, adjectives + nouns, 8];
    for (inverses, choices) in seen.iter().zip(choices) {
        let (count, expected) = (real_len(inverses.len()), real_len(choices));
        let mean = inverses.iter().sum::<f64>() / count;
        let variance = inverses.iter().map(|inverse| (inverse - mean) * (inverse - mean)).sum::<f64>() / count;
        assert!(count > 2_000.0);
        assert!((mean - expected).abs() < 5.0 * (variance / count).sqrt() + 1e-9, "{mean} instead of {expected}");
    }
}

/// Parses a document by the grammar's rules, independently of the writer.
struct Reader<'a> {
    tokens: &'a [u16],
    nouns: usize,
    verbs: usize,
    adjectives: usize,
    deepest: usize,
    farthest: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Word {
    Noun(Form),
    Verb { number: u16, rank: usize },
    Adjective(Form),
    Adverb,
    Function(u16),
}

impl Reader<'_> {
    fn peek(&self) -> Word {
        let Some(mut place) = self.tokens[0].checked_sub(OPEN_CLASSES).map(usize::from) else {
            return Word::Function(self.tokens[0]);
        };
        let small = |value: usize| u16::try_from(value).expect("small");
        if place < 4 * self.nouns {
            let gender = small(place / (2 * self.nouns));
            return Word::Noun(Form { gender, number: small(place % 2) });
        }
        place -= 4 * self.nouns;
        if place < 2 * self.verbs {
            return Word::Verb { number: small(place % 2), rank: place / 2 };
        }
        place -= 2 * self.verbs;
        if place < 4 * self.adjectives {
            return Word::Adjective(Form { gender: small(place % 4 / 2), number: small(place % 2) });
        }
        Word::Adverb
    }

    fn take(&mut self) -> Word {
        let word = self.peek();
        self.tokens = &self.tokens[1..];
        word
    }

    fn takes(&mut self, token: u16) -> bool {
        let next = self.tokens[0] == token;
        if next {
            self.tokens = &self.tokens[1..];
        }
        next
    }

    /// Takes the next token if it is in a block of function words, and returns its place in the block.
    fn block(&mut self, first: u16, len: u16) -> Option<u16> {
        let place = self.tokens[0].checked_sub(first).filter(|place| *place < len)?;
        self.tokens = &self.tokens[1..];
        Some(place)
    }

    fn document(&mut self) {
        while self.takes(HEADING) {
            assert_eq!(self.take(), Word::Noun(Form { gender: 0, number: 0 }));
            let mut last = None;
            while !matches!(self.peek(), Word::Function(HEADING | END)) {
                if self.takes(OPEN_QUOTE) {
                    while !self.takes(CLOSE_QUOTE) {
                        self.sentence(&mut last);
                    }
                } else {
                    self.sentence(&mut last);
                }
            }
        }
        assert_eq!(self.tokens, [END]);
    }

    fn sentence(&mut self, last: &mut Option<Form>) {
        let asks = self.takes(WHETHER);
        let form = match self.block(PRONOUN, 4) {
            Some(place) => Form { gender: place / 2, number: place % 2 },
            None => self.noun_phrase(0),
        };
        if let Some(last) = last.replace(form)
            && matches!(self.peek(), Word::Function(_))
        {
            assert_eq!(last, form, "a pronoun for another subject");
        }
        self.predicate(form, 0);
        assert_eq!(self.take(), Word::Function(if asks { QUESTION } else { STOP }));
    }

    fn predicate(&mut self, subject: Form, depth: usize) {
        loop {
            if self.peek() == Word::Adverb {
                self.take();
            }
            let Word::Verb { number, rank } = self.take() else { panic!("no verb") };
            assert_eq!(number, subject.number, "a verb of another number than its subject");
            if takes_object(rank) {
                self.noun_phrase(depth);
            }
            while self.block(PREPOSITION, 8).is_some() {
                self.noun_phrase(depth);
            }
            if !self.takes(AND) {
                return;
            }
        }
    }

    fn noun_phrase(&mut self, depth: usize) -> Form {
        self.deepest = self.deepest.max(depth);
        let place = self.block(DETERMINER, 8).expect("a determiner") % 4;
        let form = Form { gender: place / 2, number: place % 2 };
        while let Word::Adjective(other) = self.peek() {
            assert_eq!(other, form, "an adjective of another form");
            self.take();
        }
        assert_eq!(self.take(), Word::Noun(form), "a noun of another form than its determiner");
        let before = self.tokens.len();
        if let Some(place) = self.block(RELATIVE, 4) {
            assert_eq!(place, form.place(), "a relative word of another form");
            self.predicate(form, depth + 1);
            assert!(self.takes(COMMA));
        } else if let Some(kind) = self.block(OPEN, 3) {
            let subject = self.noun_phrase(depth + 1);
            self.predicate(subject, depth + 1);
            assert!(self.takes(CLOSE + kind), "another kind of bracket closes");
        }
        self.farthest = self.farthest.max(before - self.tokens.len());
        form
    }
}

#[test]
fn documents_follow_the_rules_near_and_far() {
    let grammar = grammar(11, 600);
    let Lexicon { nouns, verbs, adjectives, .. } = grammar.lexicon;
    let (mut deepest, mut farthest) = (0, 0);
    for document in documents(&grammar, 400) {
        let mut reader = Reader { tokens: &document.tokens, nouns, verbs, adjectives, deepest, farthest };
        reader.document();
        (deepest, farthest) = (reader.deepest, reader.farthest);
    }
    assert_eq!(deepest, 3);
    assert!(farthest > 20, "subject and verb are never more than {farthest} tokens apart");
}

#[test]
fn a_heading_makes_the_words_of_its_topic_frequent() {
    let grammar = grammar(2, 2_000);
    let nouns = grammar.lexicon.nouns;
    let (mut within, mut all, mut topic) = (0.0, 0.0, 0);
    for pair in grammar.generate(Split::Train, 200_000).windows(2) {
        let Some(place) = pair[1].checked_sub(OPEN_CLASSES).map(usize::from).filter(|place| *place < 4 * nouns) else {
            continue;
        };
        let rank = place / 2 % nouns;
        if pair[0] == HEADING {
            topic = rank;
        } else {
            all += 1.0;
            within += f64::from(u8::from(rank % 50 == topic));
        }
    }
    // A third to a half of the nouns are drawn from the topic, and some others belong to it by chance.
    assert!((0.35..0.6).contains(&(within / all)), "{}", within / all);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn a_text_begins_as_a_longer_one_does(seed: u64, short in 0..3_000_usize, more in 0..3_000_usize) {
        let (grammar, other) = (grammar(seed, 300), grammar(seed ^ 1, 300));
        let text = grammar.generate(Split::Train, short);
        prop_assert_eq!(text.len(), short);
        let longer = grammar.generate(Split::Train, short + more);
        prop_assert_eq!(&text[..], &longer[..short]);
        if short > 100 {
            prop_assert_ne!(&grammar.generate(Split::Eval, short), &text);
            prop_assert_ne!(&other.generate(Split::Train, short), &text);
        }
    }
}
