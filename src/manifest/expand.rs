//! Turns a checked document into cells: expansion, exclusion, merging, and checks of the grid as a whole.

use super::draft::{Draft, Entry};
use super::fault::{Faults, shown};
use super::field::Role;
use super::grid::{Block, MOST_CELLS, blocks, count};
use super::program::{Program, known};
use super::resolve::{Resolved, Resolver};
use crate::record::{Cell, Digest, Table, Value};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the cells in order without duplicates, and adds what is wrong to `faults`.
pub(super) fn cells(draft: &Draft, shared: &Table, program: Option<&Program>, faults: &mut Faults) -> Vec<Cell> {
    let blocks = blocks(draft);
    let axes = draft.base.iter().map(|place| &draft.given[*place]).filter(|given| given.items.len() > 1);
    let at = axes.max_by_key(|given| (given.items.len(), Reverse(given.at))).map_or(0, |given| given.at);
    match count(&blocks) {
        Some(count) if count <= MOST_CELLS => {}
        many => {
            let many = many.map_or_else(|| "more than 10^38".to_owned(), |count| count.to_string());
            faults.add(at, format!("the grid has {many} cells (at most {MOST_CELLS} are allowed: shorten its lists)"));
            return Vec::new();
        }
    }
    let mut expansion = Expansion {
        draft,
        resolver: Resolver { draft, shared },
        program,
        used: BTreeSet::new(),
        matched: vec![false; draft.exclude.len()],
        seen: BTreeSet::new(),
        unresolved: BTreeMap::new(),
        cells: Vec::new(),
    };
    blocks.iter().for_each(|block| expansion.add(block, faults));
    expansion.finish(faults)
}

struct Expansion<'a> {
    draft: &'a Draft,
    resolver: Resolver<'a>,
    program: Option<&'a Program>,
    /// Keys that are used in at least one cell.
    used: BTreeSet<usize>,
    /// Whether each entry of `grid.exclude` matched a cell.
    matched: Vec<bool>,
    seen: BTreeSet<Digest>,
    /// Placeholders by item and name, with the number of cells in which they have no value.
    unresolved: BTreeMap<(usize, String), usize>,
    cells: Vec<Cell>,
}

impl Expansion<'_> {
    fn add(&mut self, block: &Block, faults: &mut Faults) {
        block.points(self.draft, |point| {
            let resolved = self.resolver.resolve(point);
            if self.is_excluded(&resolved) {
                return;
            }
            self.used.extend(&resolved.used);
            let sound = resolved.faults.is_empty() && resolved.unknown.is_empty();
            for (at, message) in resolved.faults {
                faults.add(at, message);
            }
            let mut cell = resolved.cell;
            if !self.seen.insert(identity(&mut cell)) {
                return;
            }
            if let (Some(program), true) = (self.program, sound) {
                for (item, name) in program.unresolved(&cell) {
                    *self.unresolved.entry((item, name.to_owned())).or_default() += 1;
                }
            }
            self.cells.push(cell);
        });
    }

    fn is_excluded(&mut self, resolved: &Resolved<'_>) -> bool {
        let mut excluded = false;
        for (number, entry) in self.draft.exclude.iter().enumerate() {
            match meets(self.draft, entry, resolved) {
                Some(true) => {
                    self.matched[number] = true;
                    excluded = true;
                }
                Some(false) => {}
                None => self.matched[number] = true,
            }
        }
        excluded
    }

    fn finish(self, faults: &mut Faults) -> Vec<Cell> {
        for (entry, matched) in self.draft.exclude.iter().zip(&self.matched) {
            if !matched {
                faults.add(entry.at, "this entry of grid.exclude matches no cell (remove or correct it)");
            }
        }
        if self.cells.is_empty() {
            let at = self.draft.sections.get("grid").copied().unwrap_or(0);
            faults.add(at, "grid.exclude leaves no cell (exclude less)");
            return self.cells;
        }
        let included = self.draft.include.iter().flat_map(|entry| &entry.given);
        for place in self.draft.base.iter().chain(included) {
            let given = &self.draft.given[*place];
            // No follow-up faults are reported for faulty values.
            let sound = given.items.iter().any(|item| item.value.is_some());
            if given.field.is_of_cell() && sound && !self.used.contains(place) {
                let why = match given.field.when {
                    Some(when) => format!("it applies where {when}"),
                    None => "no cell is left that takes it".to_owned(),
                };
                faults.add(given.at, format!("{} has no effect ({why})", given.name));
            }
        }
        if let (Some(text), Some(first)) = (&self.draft.program, self.cells.first()) {
            for ((item, name), cells) in self
                .unresolved
                .iter()
                .filter(|((_, name), _)| !self.draft.unknown.contains(name.rsplit('.').next().unwrap_or(name)))
            {
                let at = text.command.get(*item).map_or(0, |(_, at)| *at);
                let name = shown(name);
                if *cells == self.cells.len() {
                    let known = known(first).join(", ");
                    faults.add(at, format!("unknown placeholder `{{{name}}}` (there are: {known})"));
                } else {
                    let all = self.cells.len();
                    let message = format!("`{{{name}}}` has no value in {cells} of {all} cells (give it one in each)");
                    faults.add(at, message);
                }
            }
        }
        self.cells
    }
}

/// Whether the cell matches everything in the entry; `None` if a fault makes that unknown.
fn meets(draft: &Draft, entry: &Entry, resolved: &Resolved<'_>) -> Option<bool> {
    let mut certain = true;
    for place in &entry.given {
        let given = &draft.given[*place];
        if resolved.unknown.contains(given.field.key) && given.field.key != "params.*" {
            certain = false;
            continue;
        }
        let name = if given.field.key == "params.*" { given.name.as_str() } else { given.field.cell };
        let found = match given.field.role {
            Role::Seed => Some(Value::Str(resolved.cell.seed.to_string())),
            _ => resolved.cell.get(name).cloned(),
        };
        let mut matches = false;
        for item in &given.items {
            match &item.value {
                Some(value) => matches |= found.as_ref() == Some(value),
                None => certain = false,
            }
        }
        if !matches && given.items.iter().all(|item| item.value.is_some()) {
            return Some(false);
        }
    }
    certain.then_some(true)
}

/// Returns a digest that is equal for equal cells. Hashing needs values, so the tables are moved out and back.
fn identity(cell: &mut Cell) -> Digest {
    let lend = |table: &mut Table| {
        let value = Value::Table(std::mem::take(table));
        let digest = value.digest();
        if let Value::Table(back) = value {
            *table = back;
        }
        digest
    };
    let (config, settings) = (lend(&mut cell.config), lend(&mut cell.settings));
    Digest::of_pieces("cell", &[&config.0, &settings.0, &cell.seed.to_le_bytes()])
}
