//! Resolves a point of the grid to a cell: applicable fields, defaults, and invalid combinations.

use super::availability::refused_values;
use super::draft::{Draft, Item};
use super::field::{Field, Kind, Preset, Role, When, choices};
use super::grid::Point;
use super::table::{
    BERT_POSITIONS, DETERMINISTIC, FIELDS, LARGEST_PICTURE, LEARNABLE, OBJECT_MODELS, OBJECT_STRIDE, SCENE_CLASSES,
    SMALLEST_SCENE, field,
};
use crate::record::{Cell, Table, Value};
use std::collections::BTreeSet;

mod share;

/// A cell and the findings while it was resolved.
pub(super) struct Resolved<'a> {
    pub(super) cell: Cell,
    /// Fields whose value is faulty or missing; no follow-up faults are reported for them.
    pub(super) unknown: BTreeSet<&'a str>,
    /// Keys that are used in the cell, by index in the draft.
    pub(super) used: Vec<usize>,
    /// Byte offsets and messages.
    pub(super) faults: Vec<(usize, String)>,
}

/// Resolves points to cells.
pub(super) struct Resolver<'a> {
    pub(super) draft: &'a Draft,
    /// The settings that all cells share.
    pub(super) shared: &'a Table,
}

#[derive(PartialEq)]
enum Truth {
    Yes,
    No,
    Unknown,
}

impl<'a> Resolver<'a> {
    pub(super) fn resolve(&self, point: &Point) -> Resolved<'a> {
        let cell = Cell { settings: self.shared.clone(), ..Cell::default() };
        let mut out = Resolved { cell, unknown: BTreeSet::new(), used: Vec::new(), faults: Vec::new() };
        for (row, field) in FIELDS.iter().enumerate() {
            if !field.is_of_cell() || field.key == "params.*" {
                continue;
            }
            let given = point.fields[row];
            match field.when.map_or(Truth::Yes, |when| self.holds(when, &out)) {
                Truth::No => {}
                Truth::Unknown => {
                    out.used.extend(given.map(|(place, _)| place));
                    out.unknown.insert(field.key);
                }
                Truth::Yes => match given {
                    Some((place, number)) => {
                        out.used.push(place);
                        out.put(field, field.cell, &self.draft.given[place].items[number]);
                    }
                    None => self.stand_in(field, &mut out),
                },
            }
        }
        for (place, number) in &point.params {
            let given = &self.draft.given[*place];
            out.used.push(*place);
            out.put(given.field, &given.name, &given.items[*number]);
        }
        self.combine(point, &mut out);
        out
    }

    fn holds(&self, when: When, out: &Resolved<'_>) -> Truth {
        if out.unknown.contains(when.field) {
            return Truth::Unknown;
        }
        let value = out.cell.text(when.field);
        let free = self.draft.program.is_some()
            && match (value, field(when.field).map(|field| field.kind)) {
                (None, _) => true,
                (Some(word), Some(Kind::Known(words))) => !words.contains(&word),
                _ => false,
            };
        if free || value.is_some_and(|value| when.is.contains(&value)) { Truth::Yes } else { Truth::No }
    }

    /// Inserts the default of a field, if it has one.
    fn stand_in(&self, field: &'static Field, out: &mut Resolved<'_>) {
        if self.draft.program.is_some() && field.is_training_work() {
            return;
        }
        match field.preset {
            Preset::None | Preset::Stated(_) => {}
            Preset::Is(constant) => out.insert(field, field.cell, constant.into()),
            Preset::By(choices) => {
                for (when, constant) in choices {
                    match self.holds(*when, out) {
                        Truth::Yes => return out.insert(field, field.cell, (*constant).into()),
                        Truth::No => {}
                        Truth::Unknown => {
                            out.unknown.insert(field.key);
                            return;
                        }
                    }
                }
            }
            Preset::Required => {
                let because = field.when.map_or_else(String::new, |when| format!("{when}: "));
                let other = if field.key == "model.name" { "; or give [program]" } else { "" };
                let at = self.draft.sections.get(field.section()).copied().unwrap_or(0);
                out.fault(at, format!("{} is missing ({because}it must be {}{other})", field.key, field.kind));
                out.unknown.insert(field.key);
            }
        }
    }

    /// Applies the rules that span several fields.
    fn combine(&self, point: &Point, out: &mut Resolved<'_>) {
        self.share_work(point, out);
        self.share_batch(point, out);
        if self.draft.program.is_none() {
            self.combine_built_in(point, out);
        }
    }

    fn combine_built_in(&self, point: &Point, out: &mut Resolved<'_>) {
        // `false` is removed, so that run ids from before this key stay valid.
        if out.cell.get(DETERMINISTIC) == Some(&Value::Bool(false)) {
            out.cell.config.remove(DETERMINISTIC);
        }
        let at = |key: &str| self.place(point, key);
        let faulty = ["training.epochs", "training.steps"].iter().any(|key| out.unknown.contains(key));
        match (out.cell.get("training.epochs").is_some(), out.cell.get("training.steps").is_some()) {
            _ if faulty => {}
            (true, true) => {
                let later = at("training.epochs").max(at("training.steps"));
                out.fault(later, "training has both epochs and steps (give one of them)".to_owned());
            }
            (false, false) => {
                let section = self.draft.sections.get("training").copied().unwrap_or(0);
                out.fault(section, "training has neither epochs nor steps (give one of them)".to_owned());
            }
            _ => {}
        }
        let Some(model) = out.cell.text("model.name").map(str::to_owned) else { return };
        if let Some(data) = out.cell.text("data.name").map(str::to_owned) {
            let learnable = LEARNABLE.iter().find(|(models, _)| models.contains(&model.as_str()));
            if let Some((_, fit)) = learnable.filter(|(_, fit)| !fit.contains(&data.as_str())) {
                let fit = choices(fit);
                out.fault(at("data.name"), format!("`{data}` does not fit `{model}` (use {fit})"));
            }
        }
        self.fit_batch(point, &model, out);
        if out.cell.get("data.validation_share").and_then(Value::as_float) == Some(0.0) {
            let rule = "data.validation_share is 0, but the built-in trainer evaluates with that part of the text (use a number above 0)";
            out.fault(at("data.validation_share"), rule.to_owned());
        }
        if model == "bert" && out.cell.int("data.width").is_some_and(|width| width > BERT_POSITIONS) {
            let rule =
                format!("data.width is more than the {BERT_POSITIONS} positions that `bert` has (use fewer tokens)");
            out.fault(at("data.width"), rule);
        }
        self.combine_pictures(point, &model, out);
        for (key, message) in refused_values(&out.cell.config, &model) {
            out.fault(at(key), message);
            out.unknown.insert(key);
        }
    }

    /// Checks the side of images and the number of classes of `scenes`.
    fn combine_pictures(&self, point: &Point, model: &str, out: &mut Resolved<'_>) {
        let data = out.cell.text("data.name").unwrap_or_default().to_owned();
        let finds = OBJECT_MODELS.contains(&model);
        if let Some(side) = out.cell.int("data.side") {
            let rule = if finds && side % OBJECT_STRIDE != 0 {
                Some(format!("`{model}` takes only multiples of {OBJECT_STRIDE} (use {})", nearest_multiple(side)))
            } else if data == "scenes" && side < SMALLEST_SCENE {
                Some(format!("`scenes` have at least {SMALLEST_SCENE} (use {SMALLEST_SCENE} or more)"))
            } else if !finds && side > LARGEST_PICTURE {
                Some(format!("`{model}` takes at most {LARGEST_PICTURE} (use fewer)"))
            } else {
                None
            };
            if let Some(rule) = rule {
                out.fault(self.place(point, "data.side"), format!("data.side is {side}, but {rule}"));
            }
        }
        let classes = out.cell.int("model.classes").filter(|classes| data == "scenes" && *classes > SCENE_CLASSES);
        if let Some(classes) = classes {
            let rule = format!("model.classes is {classes}, but `scenes` have at most {SCENE_CLASSES} (use fewer)");
            out.fault(self.place(point, "model.classes"), rule);
        }
    }

    /// Returns the position of a field's value, or else of its table, or 0.
    fn place(&self, point: &Point, key: &str) -> usize {
        let row = FIELDS.iter().position(|field| field.key == key);
        let given = row.and_then(|row| point.fields[row]);
        given.map_or_else(
            || key.split_once('.').and_then(|(section, _)| self.draft.sections.get(section)).copied().unwrap_or(0),
            |(place, number)| self.draft.given[place].items[number].at,
        )
    }
}

impl<'a> Resolved<'a> {
    fn put(&mut self, field: &Field, name: &str, item: &Item) {
        match &item.value {
            Some(value) => self.insert(field, name, value.clone()),
            None => {
                self.unknown.insert(field.key);
            }
        }
    }

    fn insert(&mut self, field: &Field, name: &str, value: Value) {
        match field.role {
            Role::Seed => self.cell.seed = seed(&value),
            Role::Setting | Role::Container => {
                self.cell.settings.insert(name.to_owned(), value);
            }
            _ => {
                self.cell.config.insert(name.to_owned(), value);
            }
        }
    }

    fn fault(&mut self, at: usize, message: String) {
        self.faults.push((at, message));
    }
}

/// Returns the multiple of a detector's stride nearest to `side`.
fn nearest_multiple(side: i64) -> i64 {
    (side + OBJECT_STRIDE / 2) / OBJECT_STRIDE * OBJECT_STRIDE
}

/// Converts a checked seed: decimal digits, or the integer of a default.
fn seed(value: &Value) -> u64 {
    match value {
        Value::Int(number) => u64::try_from(*number).unwrap_or_default(),
        other => other.as_str().and_then(|digits| digits.parse().ok()).unwrap_or_default(),
    }
}
