//! Tests that the syntax of a manifest never changes an identity, and that its meaning always does.

use super::*;
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::BTreeMap;

/// Keys with their values: the meaning of a manifest, independent of its syntax.
type Meaning = BTreeMap<&'static str, Vec<Value>>;

fn texts(words: &[&'static str]) -> Vec<Value> {
    words.iter().map(|word| Value::from(*word)).collect()
}

/// Generates distinct values from a pool, in random order.
fn some(pool: Vec<Value>, most: usize) -> impl Strategy<Value = Vec<Value>> {
    let len = pool.len();
    Just(pool)
        .prop_shuffle()
        .prop_flat_map(move |pool| (1..=most.min(len)).prop_map(move |count| pool[..count].to_vec()))
}

fn reals(numbers: &[f64]) -> Vec<Value> {
    numbers.iter().map(|number| Value::from(*number)).collect()
}

fn ints(numbers: &[i64]) -> Vec<Value> {
    numbers.iter().map(|number| Value::from(*number)).collect()
}

const LEARNING_RATES: [f64; 6] = [0.1, 1e-4, 1.0, 2.0, 0.029, 3e-5];

/// Generates meanings in which every key has an effect: some cell satisfies its conditions.
fn meanings() -> impl Strategy<Value = Meaning> {
    let always = (
        some(texts(&["softmax", "mnist_mlp", "mnist_cnn"]), 2),
        some(texts(&["sgd", "momentum", "adam"]), 3),
        some(reals(&LEARNING_RATES), 3),
        some(ints(&[1, 2, 5]), 2),
        any::<bool>(),
    );
    let optional = (
        proptest::option::of(some(ints(&[1, 2, 3, 900]), 2)),
        proptest::option::of(some(reals(&[0.0, 0.5, 0.9]), 2)),
        proptest::option::of(some(ints(&[16, 64, 100]), 2)),
        proptest::option::of(some(ints(&[500, 10_000]), 2)),
        proptest::option::of(some(ints(&[128, 7]), 2)),
        proptest::option::of(some(texts(&["auto", "cpu"]), 2)),
    );
    (always, optional).prop_map(
        |((model, optimizer, rate, length, by_epochs), (seed, momentum, batch, count, hidden, device))| {
            let mut meaning = Meaning::new();
            let has = |list: &[Value], word: &str| list.contains(&Value::from(word));
            let conditional = [
                ("seed", seed),
                ("training.momentum", momentum.filter(|_| has(&optimizer, "momentum"))),
                ("training.batch_size", batch),
                ("data.train_count", count),
                ("model.hidden", hidden.filter(|_| has(&model, "mnist_mlp"))),
                ("hardware.device", device),
            ];
            meaning.extend(conditional.into_iter().filter_map(|(key, values)| Some((key, values?))));
            meaning.insert("model.name", model);
            meaning.insert("training.optimizer", optimizer);
            meaning.insert("training.learning_rate", rate);
            meaning.insert(if by_epochs { "training.epochs" } else { "training.steps" }, length);
            meaning
        },
    )
}

/// A sequence of syntactic choices.
#[derive(Debug)]
struct Pen {
    choices: Vec<u8>,
    next: usize,
}

impl Pen {
    fn choose(&mut self, count: usize) -> usize {
        let choice = self.choices[self.next % self.choices.len()];
        self.next += 1;
        usize::from(choice) % count
    }

    fn comment(&mut self) -> &'static str {
        ["", "  # a remark = 1", "", "\n# [model]"][self.choose(4)]
    }

    fn value(&mut self, value: &Value) -> String {
        match value {
            Value::Float(number) => {
                let whole = Value::Int(format!("{number:.0}").parse().unwrap());
                let styles =
                    [format!("{number:?}"), format!("{number:e}"), format!("{number:.9}"), format!("+{number:E}")];
                if whole.as_float() == Some(*number) && self.choose(2) == 0 {
                    return whole.to_string();
                }
                styles[self.choose(4)].clone()
            }
            Value::Int(number) => match self.choose(3) {
                0 => format!("{number:#x}"),
                1 => format!("+{number}"),
                _ => number.to_string(),
            },
            Value::Str(text) => {
                [format!("'{text}'"), format!("\"{text}\""), format!("\"\"\"{text}\"\"\"")][self.choose(3)].clone()
            }
            other => panic!("{other:?}"),
        }
    }

    fn values(&mut self, values: &[Value]) -> String {
        let written: Vec<_> = values.iter().map(|value| self.value(value)).collect();
        match written.as_slice() {
            [one] if self.choose(2) == 0 => one.clone(),
            many => [format!("[{}]", many.join(", ")), format!("[ # list\n  {},\n]", many.join(",\n  "))]
                [self.choose(2)]
            .clone(),
        }
    }

    /// Writes the meaning with randomly chosen syntax.
    fn write(&mut self, meaning: &Meaning) -> String {
        let mut meaning = meaning.clone();
        // An explicit default does not change the meaning.
        for field in fields() {
            let applies = field.when.is_none_or(|when| {
                meaning
                    .get(when.field)
                    .is_some_and(|values| values.iter().any(|v| v.as_str().is_some_and(|v| when.is.contains(&v))))
            });
            if let Preset::Is(constant) = field.preset
                && matches!(field.role, Role::Config | Role::Seed)
                && applies
                && self.choose(3) == 0
            {
                meaning.entry(field.key).or_insert_with(|| vec![constant.into()]);
            }
        }
        // Settings that are only recorded do not change the identity either.
        let settings = [
            ("name", "'n'"),
            ("description", "'d'"),
            ("telemetry.hz", "7"),
            ("limits.timeout_s", "3"),
            ("objective.metric", "'loss'"),
        ];
        let mut lines: Vec<(String, String)> =
            meaning.iter().map(|(key, values)| ((*key).to_owned(), self.values(values))).collect();
        for (key, value) in settings {
            if self.choose(3) == 0 {
                lines.push((key.to_owned(), value.to_owned()));
            }
        }
        for place in (1..lines.len()).rev() {
            let other = self.choose(place + 1);
            lines.swap(place, other);
        }
        let mut sections: Vec<(&str, Vec<(&str, &str)>)> = Vec::new();
        let mut text = String::new();
        for (key, value) in &lines {
            match key.split_once('.') {
                None => text.push_str(&format!("{key} = {value}{}\n", self.comment())),
                Some((section, leaf)) => match sections.iter_mut().find(|(name, _)| *name == section) {
                    Some((_, entries)) => entries.push((leaf, value)),
                    None => sections.push((section, vec![(leaf, value)])),
                },
            }
        }
        let mut tables = String::new();
        for (section, entries) in sections {
            match self.choose(3) {
                0 => entries.iter().for_each(|(leaf, value)| {
                    text.push_str(&format!("{section} . {leaf}={value}{}\n", self.comment()))
                }),
                1 => {
                    let entries: Vec<_> = entries.iter().map(|(leaf, value)| format!("\"{leaf}\" = {value}")).collect();
                    text.push_str(&format!("{section} = {{ {} }}\n", entries.join(", ")));
                }
                _ => {
                    tables.push_str(&format!("\n[ {section} ]\n"));
                    entries.iter().for_each(|(leaf, value)| {
                        tables.push_str(&format!("  {leaf} = {value}{}\r\n", self.comment()))
                    });
                }
            }
        }
        format!("{text}{tables}")
    }
}

fn pens() -> impl Strategy<Value = Pen> {
    proptest::collection::vec(any::<u8>(), 64).prop_map(|choices| Pen { choices, next: 0 })
}

/// Returns values to replace those of a key; none of them is in the pools above.
fn other(key: &str) -> Vec<Value> {
    match key {
        "training.learning_rate" => reals(&[0.123]),
        "training.momentum" => reals(&[0.123]),
        "model.name" | "training.optimizer" | "hardware.device" => Vec::new(),
        "training.batch_size" => ints(&[8]),
        _ => ints(&[777]),
    }
}

fn sorted(manifest: &Manifest) -> Vec<(Digest, u64)> {
    let mut identities = identities(manifest);
    identities.sort();
    identities
}

proptest! {
    #[test]
    fn equal_meanings_give_equal_cells(meaning in meanings(), mut one in pens(), mut two in pens()) {
        let (one, two) = (one.write(&meaning), two.write(&meaning));
        prop_assert_eq!(identities(&read(&one)), identities(&read(&two)), "{}\n----\n{}", one, two);
    }

    #[test]
    fn one_changed_value_changes_the_cells(meaning in meanings(), mut one in pens(), mut two in pens(), which in any::<prop::sample::Index>()) {
        let keys: Vec<&'static str> = meaning.keys().copied().filter(|key| !other(key).is_empty()).collect();
        let key = *which.get(&keys);
        let mut changed = meaning.clone();
        changed.insert(key, other(key));
        prop_assert_ne!(sorted(&read(&one.write(&meaning))), sorted(&read(&two.write(&changed))), "{}", key);
    }

    #[test]
    fn one_added_value_adds_cells_and_keeps_the_others(meaning in meanings(), mut one in pens(), mut two in pens(), which in any::<prop::sample::Index>()) {
        let keys: Vec<&'static str> = meaning.keys().copied().filter(|key| !other(key).is_empty()).collect();
        let mut longer = meaning.clone();
        let key = *which.get(&keys);
        longer.entry(key).or_default().extend(other(key));
        let (before, after) = (sorted(&read(&one.write(&meaning))), sorted(&read(&two.write(&longer))));
        prop_assert!(after.len() > before.len());
        prop_assert!(before.iter().all(|identity| after.contains(identity)));
    }

    #[test]
    fn cells_are_the_product_of_the_applicable_axes(meaning in meanings(), mut pen in pens()) {
        let manifest = read(&pen.write(&meaning));
        let len = |key: &str| meaning.get(key).map_or(1, Vec::len);
        let weight = |key: &str, word: &str, extra: usize| -> usize {
            meaning[key].iter().map(|value| if value.as_str() == Some(word) { extra } else { 1 }).sum()
        };
        let plain = ["seed", "training.learning_rate", "training.batch_size", "training.epochs", "training.steps", "data.train_count", "hardware.device"];
        let product = plain.iter().map(|key| len(key)).product::<usize>()
            * weight("model.name", "mnist_mlp", len("model.hidden"))
            * weight("training.optimizer", "momentum", len("training.momentum"));
        prop_assert_eq!(manifest.cells.len(), product);
    }

    #[test]
    fn every_real_number_is_read_as_it_is_written(number in any::<f64>().prop_filter("finite and above 0", |n| n.is_finite() && *n > 0.0), style in select(vec![0, 1])) {
        let written = if style == 0 { format!("{number:?}") } else { format!("{number:e}") };
        let manifest = read(&format!("model.name = 'softmax'\n[training]\nepochs = 1\nlearning_rate = {written}"));
        prop_assert_eq!(manifest.cells[0].float("training.learning_rate"), Some(number));
    }
}
