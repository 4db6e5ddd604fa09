//! A canvas of characters.

use super::super::scale::{number, whole};

/// Bits of a Braille character's dots, by column and row from the top.
const DOTS: [[u32; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];
const BRAILLE: u32 = 0x2800;

pub(super) struct Grid {
    wide: usize,
    high: usize,
    cells: Vec<char>,
}

impl Grid {
    pub(super) fn new(wide: usize, high: usize) -> Self {
        Self { wide, high, cells: vec![' '; wide * high] }
    }

    /// Returns column and row (from the top) of a position, whose coordinates are 0 to 1 from below; `None` outside.
    fn cell(&self, (x, y): (f64, f64), (wide, high): (usize, usize)) -> Option<(usize, usize)> {
        let inside = |share: f64| (-1e-9..=1.0 + 1e-9).contains(&share);
        (inside(x) && inside(y)).then(|| {
            let column = whole((x * number(wide - 1)).round().max(0.0)).min(wide - 1);
            let row = whole(((1.0 - y) * number(high.max(2) - 1)).round().max(0.0)).min(high - 1);
            (column, row)
        })
    }

    /// Sets one character.
    pub(super) fn put(&mut self, place: (f64, f64), c: char) {
        if let Some((column, row)) = self.cell(place, (self.wide, self.high)) {
            self.cells[row * self.wide + column] = c;
        }
    }

    /// Writes text to the right of a position, into empty characters only.
    pub(super) fn write(&mut self, place: (f64, f64), text: &str) {
        let Some((column, row)) = self.cell(place, (self.wide, self.high)) else { return };
        for (at, c) in text.chars().enumerate() {
            let at = column + 1 + at;
            if at < self.wide && self.cells[row * self.wide + at] == ' ' {
                self.cells[row * self.wide + at] = c;
            }
        }
    }

    /// Fills a span of the first row.
    pub(super) fn span(&mut self, (from, to): (f64, f64), c: char) {
        let edge = |share: f64| whole((share.clamp(0.0, 1.0) * number(self.wide)).round()).min(self.wide);
        let (from, to) = (edge(from), edge(to));
        self.cells[from..to.max(from)].fill(c);
    }

    /// Draws a line of characters.
    pub(super) fn line(&mut self, places: &[(f64, f64)], c: char) {
        self.each(places, (self.wide, self.high), &mut |grid, place| grid.put(place, c));
    }

    /// Draws a line of Braille dots, eight per character.
    pub(super) fn fine(&mut self, places: &[(f64, f64)]) {
        let size = (self.wide * 2, self.high * 4);
        self.each(places, size, &mut |grid, place| {
            let Some((x, y)) = grid.cell(place, size) else { return };
            let cell = &mut grid.cells[y / 4 * grid.wide + x / 2];
            let there = u32::from(*cell).checked_sub(BRAILLE).filter(|dots| *dots < 256).unwrap_or(0);
            *cell = char::from_u32(BRAILLE + (there | DOTS[x % 2][y % 4])).unwrap_or(' ');
        });
    }

    /// Calls `put` for every position along a line at the given resolution.
    fn each(
        &mut self,
        places: &[(f64, f64)],
        (wide, high): (usize, usize),
        put: &mut dyn FnMut(&mut Self, (f64, f64)),
    ) {
        if let [only] = places {
            put(self, *only);
        }
        for pair in places.windows(2) {
            let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
            let span = ((x1 - x0).abs() * number(wide)).max((y1 - y0).abs() * number(high));
            let steps = whole(span.ceil().clamp(1.0, 4000.0));
            for at in 0..=steps {
                let share = number(at) / number(steps);
                put(self, (x0 + share * (x1 - x0), y0 + share * (y1 - y0)));
            }
        }
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.cells.chunks(self.wide).map(|row| row.iter().collect()).collect()
    }
}
