//! Pictures as data: panels with axes, and the marks on them. Drawn as SVG, as PNG, as characters on a terminal, and written as CSV.
//!
//! Knows how a picture looks. Must not know what it is of: `pictures` makes figures of records, and nothing else draws.

mod palette;
mod png;
mod scale;
mod svg;
mod term;
mod text;

pub use png::{FONT_LICENSE, png};
pub use svg::Drawing;
pub use term::term;

pub(super) use scale::{Scale, padded};
pub(super) use text::{escaped, plain};

use crate::record::RunId;

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// Nothing that was chosen can be drawn.
    #[error("there is nothing to draw: {0}")]
    Empty(String),
    /// No picture can be what was asked for.
    #[error("{0}")]
    Asked(String),
    /// The drawing itself went wrong.
    #[error("the plot cannot be drawn: {0}")]
    Drawing(String),
}

/// A picture: what is drawn, what it says in words, and the numbers behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What it is of.
    pub title: String,
    /// What is to be seen, for those who do not see it.
    pub summary: String,
    /// What has to be known of the numbers: how many, what intervals, what is left out. Below the picture.
    pub notes: Vec<String>,
    /// What the marks mean that have no name in a legend. Below the picture.
    pub key: Vec<Key>,
    /// The panels, in reading order.
    pub panels: Vec<Panel>,
    /// Panels beside each other, at most.
    pub across: usize,
    /// The numbers.
    pub sheet: Sheet,
}

/// What a mark means, by the form in which it is drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// In a picture.
    drawn: String,
    /// In characters; empty where they do not show it.
    typed: String,
}

impl Key {
    pub(super) fn new(drawn: &str, typed: &str) -> Self {
        Self { drawn: drawn.to_owned(), typed: typed.to_owned() }
    }
}

impl Figure {
    /// All that stands below the picture.
    pub fn below(&self) -> impl Iterator<Item = &str> {
        let key = self.key.iter().map(|key| key.drawn.as_str());
        key.chain(self.notes.iter().map(String::as_str)).filter(|text| !text.is_empty())
    }

    /// All that stands below the picture in characters.
    fn below_characters(&self) -> impl Iterator<Item = &str> {
        let key = self.key.iter().map(|key| key.typed.as_str());
        key.chain(self.notes.iter().map(String::as_str)).filter(|text| !text.is_empty())
    }
}

/// The numbers behind a picture: one row for each mark.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sheet {
    /// The names of the columns, with units.
    pub heads: Vec<String>,
    /// The rows; an empty cell where something is not known.
    pub rows: Vec<Vec<String>>,
}

impl Sheet {
    /// An empty one with these columns.
    pub(super) fn new(heads: &[&str]) -> Self {
        Self { heads: heads.iter().map(|head| (*head).to_owned()).collect(), rows: Vec::new() }
    }

    /// Comma-separated values with a head, quoted where they have to be (RFC 4180). A cell that a spreadsheet would take for a formula, and that is
    /// no number, has an apostrophe before it: names and texts of workers and of other people's ledgers are in some.
    pub fn csv(&self) -> String {
        let mut text = String::new();
        for row in std::iter::once(&self.heads).chain(&self.rows) {
            let cells: Vec<String> = row.iter().map(|cell| field(cell)).collect();
            text.push_str(&cells.join(","));
            text.push('\n');
        }
        text
    }
}

fn field(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']) && text.parse::<f64>().is_err();
    let text = if is_formula { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

/// Axes and what stands on them.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// What stands above it; empty where the figure's title says all.
    pub title: String,
    /// Its height without title and labels of the x axis, as a share of the usual one.
    pub height: f64,
    /// From left to right.
    pub x: AxisOf,
    /// From below to above.
    pub y: AxisOf,
    /// Whether the x axis has its labels; panels that stand above another with the same axis need none.
    pub has_x: bool,
    /// Tinted stretches of the x axis, behind all marks.
    pub bands: Vec<Tint>,
    /// What is drawn, in this order.
    pub marks: Vec<Mark>,
}

/// An axis: what it counts, in which unit, and from where to where.
#[derive(Clone, Debug, PartialEq)]
pub struct AxisOf {
    /// What it counts and the unit: `energy, J`.
    pub label: String,
    /// Where values lie.
    pub scale: Scale,
}

/// A stretch of the x axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Tint {
    /// Where it begins and ends, in the axis' unit.
    pub span: (f64, f64),
    /// What it is: `epoch`. Each kind has one tint, and is named in the legend.
    pub kind: String,
    /// What is written into it, from the longest form to the shortest; the first that has room.
    pub labels: Vec<String>,
    /// Every other one of a kind is a little darker.
    pub is_odd: bool,
}

/// Something that is drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// Its name in the legend; empty for none.
    pub label: String,
    /// Which colour, dash, marker and hatch.
    pub style: Style,
    /// What it is.
    pub shape: Shape,
}

/// How a mark is told from others: colour and form go together, so that colour alone never counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Style {
    /// The n-th of the colours, dashes, markers and hatches.
    Series(usize),
    /// In grey, behind the others.
    Faint,
    /// A thin dashed line: what would be ideal.
    Ideal,
}

/// The forms of marks.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// Lines through points; each piece by itself.
    Line(Vec<Vec<(f64, f64)>>),
    /// Single points.
    Points(Vec<Point>),
    /// Horizontal bars: from, to, and the row of the y axis.
    Bars(Vec<Bar>),
    /// Quartiles of a row of the y axis.
    Boxes(Vec<Quartiles>),
    /// Fields of a grid.
    Cells(Vec<Cell>),
}

/// A point, with the interval in which it may lie.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    /// Where.
    pub at: (f64, f64),
    /// Half the widths of the 95% intervals.
    pub half: (Option<f64>, Option<f64>),
    /// The ends of a 95% interval along the x axis that is not symmetric, in place of the first half width.
    pub ends: Option<(f64, f64)>,
    /// What it is, in words.
    pub name: String,
    /// What is written beside it.
    pub tag: String,
    /// The run behind it.
    pub run: Option<RunId>,
}

impl Point {
    /// The ends of its interval along the x axis.
    fn across(&self) -> Option<(f64, f64)> {
        let symmetric = || self.half.0.map(|half| (self.at.0 - half, self.at.0 + half));
        self.ends.or_else(symmetric)
    }
}

/// A bar of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Which row of the y axis, from 0.
    pub row: usize,
    /// From where to where on the x axis.
    pub span: (f64, f64),
    /// Half the width of the 95% interval around its end.
    pub half: Option<f64>,
    /// What it is, in words.
    pub name: String,
    /// The run behind it.
    pub run: Option<RunId>,
}

/// The quartiles of the values of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quartiles {
    /// Which row of the y axis, from 0.
    pub row: usize,
    /// First quartile, median and third quartile.
    pub at: (f64, f64, f64),
}

/// A field of a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Column and row, from 0.
    pub at: (usize, usize),
    /// How deep its colour is, from 0 to 1; none where there is no value.
    pub depth: Option<f64>,
    /// What is written into it.
    pub lines: Vec<String>,
    /// Whether it is the best one.
    pub is_best: bool,
    /// What it is, in words.
    pub name: String,
    /// The run behind it.
    pub run: Option<RunId>,
}

/// How wide a picture is on paper, in millimetres.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Millimetres(pub f64);

impl Millimetres {
    /// One column of a paper.
    pub const COLUMN: Self = Self(85.0);
    /// The width of a page's text.
    pub const PAGE: Self = Self(174.0);
    /// What can be read and printed.
    pub const LIMITS: (f64, f64) = (60.0, 400.0);
}

/// A panel of the usual height with nothing on it.
pub(super) fn panel(title: &str, x: AxisOf, y: AxisOf) -> Panel {
    Panel { title: title.to_owned(), height: 1.0, x, y, has_x: true, bands: Vec::new(), marks: Vec::new() }
}

/// An axis; its label is what it counts and, where there is one, the unit, before a remark in parentheses: `energy, kJ (lower is better)`.
pub(super) fn axis(name: &str, unit: &str, scale: Scale) -> AxisOf {
    let label = match (unit, name.split_once(" (")) {
        ("", _) => name.to_owned(),
        (unit, Some((name, remark))) => format!("{name}, {unit} ({remark}"),
        (unit, None) => format!("{name}, {unit}"),
    };
    AxisOf { label, scale }
}

#[cfg(test)]
pub(super) mod tests;
