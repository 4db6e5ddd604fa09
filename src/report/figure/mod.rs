//! Plots as data: panels with axes and marks. They are drawn as SVG, PNG or terminal characters, and written as CSV.
//!
//! Knows how a plot looks. Must not know its subject: `pictures` makes figures from records, and nothing else draws.

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

/// The reasons why a plot cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// The selection has nothing to draw.
    #[error("there is nothing to draw: {0}")]
    Empty(String),
    /// The request is not possible for this kind of plot.
    #[error("{0}")]
    Asked(String),
    /// The rasterizer failed.
    #[error("the plot cannot be drawn: {0}")]
    Drawing(String),
}

/// A plot: panels, a summary in words, and the data behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Title.
    pub title: String,
    /// Summary of the plot in words, for readers who cannot see it.
    pub summary: String,
    /// Notes below the plot: sample sizes, kinds of intervals, omissions.
    pub notes: Vec<String>,
    /// Explanations below the plot of marks that have no legend entry.
    pub key: Vec<Key>,
    /// The panels, in reading order.
    pub panels: Vec<Panel>,
    /// Most panels in one row.
    pub across: usize,
    /// The data.
    pub sheet: Sheet,
}

/// The meaning of a mark, for each output form.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// Text for SVG and PNG.
    drawn: String,
    /// Text for terminals; empty if they do not draw the mark.
    typed: String,
}

impl Key {
    pub(super) fn new(drawn: &str, typed: &str) -> Self {
        Self { drawn: drawn.to_owned(), typed: typed.to_owned() }
    }
}

impl Figure {
    /// Returns the lines below the drawn plot.
    pub fn below(&self) -> impl Iterator<Item = &str> {
        let key = self.key.iter().map(|key| key.drawn.as_str());
        key.chain(self.notes.iter().map(String::as_str)).filter(|text| !text.is_empty())
    }

    /// Returns the lines below the plot on a terminal.
    fn below_characters(&self) -> impl Iterator<Item = &str> {
        let key = self.key.iter().map(|key| key.typed.as_str());
        key.chain(self.notes.iter().map(String::as_str)).filter(|text| !text.is_empty())
    }
}

/// The data behind a plot: one row for each mark.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sheet {
    /// The names of the columns, with units.
    pub heads: Vec<String>,
    /// The rows; a missing value is an empty cell.
    pub rows: Vec<Vec<String>>,
}

impl Sheet {
    /// Creates an empty sheet with these columns.
    pub(super) fn new(heads: &[&str]) -> Self {
        Self { heads: heads.iter().map(|head| (*head).to_owned()).collect(), rows: Vec::new() }
    }

    /// Returns comma-separated values with a head, quoted where needed (RFC 4180).
    /// A non-numeric cell that a spreadsheet would evaluate as a formula gets a leading apostrophe.
    /// This is needed because cells contain names and texts of workers and of other people's ledgers.
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
    if is_formula { csv_field(&format!("'{text}")) } else { csv_field(text) }
}

/// Quotes a cell of CSV if needed (RFC 4180).
pub(super) fn csv_field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

/// A pair of axes with marks.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// Heading; empty if the figure's title suffices.
    pub title: String,
    /// Height without title and x labels, relative to the usual height.
    pub height: f64,
    /// The x axis, left to right.
    pub x: AxisOf,
    /// The y axis, bottom to top.
    pub y: AxisOf,
    /// Whether the x axis has labels; a panel above another with the same axis needs none.
    pub has_x: bool,
    /// Tinted spans of the x axis, behind all marks.
    pub bands: Vec<Tint>,
    /// The marks, in drawing order.
    pub marks: Vec<Mark>,
}

/// An axis: quantity, unit and range.
#[derive(Clone, Debug, PartialEq)]
pub struct AxisOf {
    /// Quantity and unit: `energy, J`.
    pub label: String,
    /// Mapping of values to positions.
    pub scale: Scale,
}

/// A tinted span of the x axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Tint {
    /// Start and end, in the axis' unit.
    pub span: (f64, f64),
    /// Kind, such as `epoch`. Each kind has one tint and a legend entry.
    pub kind: String,
    /// Labels from the longest to the shortest; the first that fits is drawn.
    pub labels: Vec<String>,
    /// Whether it is drawn darker; alternates between spans of a kind.
    pub is_odd: bool,
}

/// One or more shapes with one style and one legend entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// Legend entry; empty for none.
    pub label: String,
    /// Colour, dash, marker and hatch.
    pub style: Style,
    /// Shape.
    pub shape: Shape,
}

/// Style of a mark. Colour always varies together with form, so that colour alone never carries meaning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Style {
    /// The n-th colour, dash, marker and hatch.
    Series(usize),
    /// In grey, behind the others.
    Faint,
    /// A thin dashed line for an ideal, such as perfect scaling.
    Ideal,
}

/// The shapes of marks.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// Polylines, each drawn separately.
    Line(Vec<Vec<(f64, f64)>>),
    /// Single points.
    Points(Vec<Point>),
    /// Horizontal bars in rows of the y axis.
    Bars(Vec<Bar>),
    /// Box plots in rows of the y axis.
    Boxes(Vec<Quartiles>),
    /// Cells of a heat map.
    Cells(Vec<Cell>),
}

/// A point with its intervals.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    /// Position.
    pub at: (f64, f64),
    /// Half-widths of the 95% intervals along x and y.
    pub half: (Option<f64>, Option<f64>),
    /// Ends of an asymmetric 95% interval along x, used instead of the first half-width.
    pub ends: Option<(f64, f64)>,
    /// Description in words.
    pub name: String,
    /// Label drawn next to it.
    pub tag: String,
    /// The run that it shows.
    pub run: Option<RunId>,
}

impl Point {
    /// Returns the ends of its interval along the x axis.
    fn across(&self) -> Option<(f64, f64)> {
        let symmetric = || self.half.0.map(|half| (self.at.0 - half, self.at.0 + half));
        self.ends.or_else(symmetric)
    }
}

/// A bar of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Row of the y axis, from 0.
    pub row: usize,
    /// Start and end on the x axis.
    pub span: (f64, f64),
    /// Half-width of the 95% interval around its end.
    pub half: Option<f64>,
    /// Description in words.
    pub name: String,
    /// The run that it shows.
    pub run: Option<RunId>,
}

/// The quartiles of the values of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quartiles {
    /// Row of the y axis, from 0.
    pub row: usize,
    /// First quartile, median and third quartile.
    pub at: (f64, f64, f64),
}

/// A cell of a heat map.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Column and row, from 0.
    pub at: (usize, usize),
    /// Depth of its colour, from 0 to 1; `None` without a value.
    pub depth: Option<f64>,
    /// Lines of text in it.
    pub lines: Vec<String>,
    /// Whether it has the best value.
    pub is_best: bool,
    /// Description in words.
    pub name: String,
    /// The run that it shows.
    pub run: Option<RunId>,
}

/// The width of a plot on paper, in millimetres.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Millimetres(pub f64);

impl Millimetres {
    /// One column of a journal page.
    pub const COLUMN: Self = Self(85.0);
    /// The full text width of a page.
    pub const PAGE: Self = Self(174.0);
    /// Smallest and largest accepted width.
    pub const LIMITS: (f64, f64) = (60.0, 400.0);
}

/// Creates an empty panel of the usual height.
pub(super) fn panel(title: &str, x: AxisOf, y: AxisOf) -> Panel {
    Panel { title: title.to_owned(), height: 1.0, x, y, has_x: true, bands: Vec::new(), marks: Vec::new() }
}

/// Creates an axis labelled with its quantity and unit; a unit goes before a remark: `energy, kJ (lower is better)`.
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
