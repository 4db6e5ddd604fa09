//! Draws a figure as SVG. The same figure gives the same bytes.
//!
//! Lengths are points (1/72 inch) of the printed plot, so that text has the same size on paper at any width.
//! There are only attributes and no styles, so pages whose content policy forbids styles show it too.

mod marks;
mod panel;

use super::palette::{COLOURS, DASHES, FAINT, GREY, tint};
use super::scale::number;
use super::text::{broken, escaped, fitted, width};
use super::{Figure, FigureError, Mark, Millimetres, Panel, Shape, Style};
use crate::record::RunId;
use std::fmt::Write;

/// Text sizes, in points.
const TITLE: f64 = 8.5;
const LABEL: f64 = 7.0;
const TICK: f64 = 6.5;
const LINE: f64 = 9.0;
/// Space between panels and at the borders.
const GAP: f64 = 8.0;
/// PNGs are rasterised with the first family.
const FAMILY: &str = "DejaVu Sans, Verdana, Helvetica, Arial, sans-serif";

/// Returns the address of a run's page; `None` if it has none.
pub type Link<'a> = dyn Fn(&RunId) -> Option<String> + 'a;

/// Options for drawing a figure.
#[derive(Clone, Copy)]
pub struct Drawing<'a> {
    /// Width on paper.
    pub width: Millimetres,
    /// Prefix of the ids within the SVG; it must be unique if several SVGs are on one page.
    pub prefix: &'a str,
    /// Resolves the address of a run's page.
    pub link: Option<&'a Link<'a>>,
}

impl Default for Drawing<'_> {
    fn default() -> Self {
        Self { width: Millimetres::PAGE, prefix: "ledger", link: None }
    }
}

/// The output and the options that every element needs.
struct Page<'a> {
    out: String,
    drawing: Drawing<'a>,
    clips: usize,
}

/// A rectangle.
#[derive(Clone, Copy, Debug)]
struct Frame {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

/// The horizontal alignment of text.
#[derive(Clone, Copy)]
enum Hold {
    Start,
    Middle,
    End,
}

/// An entry of the legend.
#[derive(Clone, Debug, PartialEq)]
enum Key {
    Mark { label: String, style: Style, kind: &'static str },
    Tint { kind: String },
}

impl Drawing<'_> {
    /// Draws the figure.
    ///
    /// # Errors
    /// If it has no panel.
    pub fn svg(self, figure: &Figure) -> Result<String, FigureError> {
        if figure.panels.is_empty() {
            return Err(FigureError::Empty("there is no panel".to_owned()));
        }
        let wide = self.width.0 * 72.0 / 25.4;
        let mut page = Page { out: String::new(), drawing: self, clips: 0 };
        let inner = wide - 2.0 * GAP;
        let mut top = GAP;
        for line in broken(&figure.title, inner / TITLE) {
            page.text(&line, (GAP, top + TITLE), TITLE, "#000000", Hold::Start, r#" font-weight="bold""#);
            top += TITLE * 1.35;
        }
        let (common, is_shared) = common_keys(figure);
        top = page.legend(&common, (GAP, top), inner);
        top += 2.0;
        let most = if inner > 340.0 { figure.across.max(1) } else { 1 };
        let across = most.min(figure.panels.len());
        let panel_width = (inner - GAP * 1.5 * number(across - 1)) / number(across);
        for row in figure.panels.chunks(across) {
            // Panels of one column align their axes.
            let gutters: Vec<f64> = (0..across).map(|at| self.gutter(figure, at, across, panel_width)).collect();
            let mut bottom = top;
            for (at, panel) in row.iter().enumerate() {
                let left = GAP + number(at) * (panel_width + GAP * 1.5);
                let own = if is_shared { Vec::new() } else { mark_keys(panel) };
                bottom = bottom.max(page.panel(panel, &own, (left, top), panel_width, gutters[at], across));
            }
            top = bottom + if row.iter().any(|panel| panel.has_x) { GAP } else { 3.0 };
        }
        for note in figure.below() {
            for line in broken(note, inner / TICK) {
                page.text(&line, (GAP, top + TICK), TICK, GREY, Hold::Start, "");
                top += TICK * 1.4;
            }
        }
        Ok(page.whole(figure, wide, top + GAP * 0.5))
    }

    /// Returns the space left of a column's panels for the labels of their y axes.
    fn gutter(&self, figure: &Figure, column: usize, across: usize, wide: f64) -> f64 {
        let of_panel = |panel: &Panel| {
            let ticks = panel.y.scale.ticks(panel::y_ticks(panel));
            let widest = ticks.iter().map(|(_, text)| width(text)).fold(0.0, f64::max) * TICK;
            widest.min(wide * 0.38) + if panel.y.label.is_empty() { 6.0 } else { LABEL * 1.6 + 6.0 }
        };
        figure.panels.iter().skip(column).step_by(across).map(of_panel).fold(0.0, f64::max)
    }
}

/// Returns the legend above all panels, and whether it includes the marks.
/// It always has the tints; it has the marks if they are the same in all panels.
fn common_keys(figure: &Figure) -> (Vec<Key>, bool) {
    let all: Vec<Vec<Key>> = figure.panels.iter().map(mark_keys).collect();
    let is_shared = all.windows(2).all(|pair| pair[0] == pair[1]);
    let mut found = if is_shared { all.into_iter().next().unwrap_or_default() } else { Vec::new() };
    for tint in figure.panels.iter().flat_map(|panel| &panel.bands) {
        let key = Key::Tint { kind: tint.kind.clone() };
        if !found.contains(&key) {
            found.push(key);
        }
    }
    (found, is_shared)
}

fn mark_keys(panel: &Panel) -> Vec<Key> {
    let mut found: Vec<Key> = Vec::new();
    for Mark { label, style, shape } in panel.marks.iter().filter(|mark| !mark.label.is_empty()) {
        let kind = match shape {
            Shape::Line(_) => "line",
            Shape::Points(_) => "point",
            Shape::Bars(_) | Shape::Boxes(_) | Shape::Cells(_) => "area",
        };
        let is_there = found.iter().any(|other| matches!(other, Key::Mark { label: there, .. } if there == label));
        if !is_there {
            found.push(Key::Mark { label: label.clone(), style: *style, kind });
        }
    }
    found
}

impl Page<'_> {
    fn add(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.out.write_fmt(text);
    }

    fn text(&mut self, text: &str, (x, y): (f64, f64), size: f64, colour: &str, hold: Hold, more: &str) {
        let anchor = match hold {
            Hold::Start => "",
            Hold::Middle => r#" text-anchor="middle""#,
            Hold::End => r#" text-anchor="end""#,
        };
        let text = escaped(text);
        self.add(format_args!(
            "<text x=\"{}\" y=\"{}\" font-size=\"{size}\" fill=\"{colour}\"{anchor}{more}>{text}</text>\n",
            at(x),
            at(y)
        ));
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, wide: f64) {
        self.add(format_args!(
            "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{colour}\" stroke-width=\"{wide}\"/>\n",
            at(from.0),
            at(from.1),
            at(to.0),
            at(to.1)
        ));
    }

    /// Draws the legend in as many lines as needed, and returns its lower end.
    fn legend(&mut self, keys: &[Key], (left, top): (f64, f64), room: f64) -> f64 {
        if keys.is_empty() {
            return top;
        }
        let (mut x, mut y) = (left, top + LINE * 0.55);
        for key in keys {
            let label = match key {
                Key::Mark { label, .. } => fitted(label, (room - 24.0) / LABEL),
                Key::Tint { kind } => kind.clone(),
            };
            let takes = 22.0 + width(&label) * LABEL + 8.0;
            if x > left && x + takes > left + room + 8.0 {
                x = left;
                y += LINE;
            }
            match key {
                Key::Tint { kind } => {
                    let (colour, share) = tint(kind, true);
                    self.add(format_args!(
                        "<rect x=\"{}\" y=\"{}\" width=\"16\" height=\"6\" fill=\"{colour}\" fill-opacity=\"{}\" stroke=\"{GREY}\" stroke-width=\"0.3\"/>\n",
                        at(x),
                        at(y - 3.0),
                        at((share * 1.6_f64).min(1.0))
                    ));
                }
                Key::Mark { style, kind, .. } => self.swatch(*style, kind, (x, y)),
            }
            self.text(&label, (x + 20.0, y + LABEL * 0.36), LABEL, "#000000", Hold::Start, "");
            x += takes;
        }
        y + LINE * 0.7
    }

    fn swatch(&mut self, style: Style, kind: &str, (x, y): (f64, f64)) {
        match (kind, style) {
            ("area", Style::Series(series)) => self.hatched((x, y - 3.0), (16.0, 6.0), series, ""),
            ("point", style) => self.marker(style, (x + 8.0, y), 2.4, ""),
            (_, style) => {
                let (colour, dash, wide) = stroke(style);
                self.add(format_args!(
                    "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{colour}\" stroke-width=\"{wide}\"{dash}/>\n",
                    at(x),
                    at(y),
                    at(x + 16.0),
                    at(y)
                ));
            }
        }
    }

    /// Draws a filled rectangle with the hatch of a series.
    /// The hatch is a second rectangle, because pattern tiles would show seams.
    fn hatched(&mut self, (x, y): (f64, f64), (wide, high): (f64, f64), series: usize, name: &str) {
        let series = series % COLOURS.len();
        let title = if name.is_empty() { String::new() } else { format!("<title>{}</title>", escaped(name)) };
        let hatch = self.fill(series);
        let place = format!("x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"", at(x), at(y), at(wide), at(high));
        self.add(format_args!(
            "<rect {place} fill=\"{}\" stroke=\"#000000\" stroke-width=\"0.3\">{title}</rect>\n",
            COLOURS[series]
        ));
        if series > 0 {
            self.add(format_args!("<rect {place} fill=\"{hatch}\" pointer-events=\"none\"/>\n"));
        }
    }

    /// Returns the reference to a hatch.
    fn fill(&self, series: usize) -> String {
        format!("url(#{}-h{series})", self.drawing.prefix)
    }

    fn whole(self, figure: &Figure, wide: f64, high: f64) -> String {
        let prefix = self.drawing.prefix;
        let used = (0..COLOURS.len()).filter(|series| self.out.contains(&self.fill(*series)));
        let hatches: String = used.map(|series| hatch(prefix, series)).collect();
        let role = if self.drawing.link.is_some() { "group" } else { "img" };
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}mm\" height=\"{}mm\" viewBox=\"0 0 {} {}\" role=\"{role}\" \
             aria-labelledby=\"{prefix}-t {prefix}-d\" font-family=\"{FAMILY}\">\n<title id=\"{prefix}-t\">{}</title>\n\
             <desc id=\"{prefix}-d\">{}</desc>\n<defs>{hatches}</defs>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{}</svg>\n",
            at(self.drawing.width.0),
            at(high * 25.4 / 72.0),
            at(wide),
            at(high),
            escaped(&figure.title),
            escaped(&figure.summary),
            self.out,
        )
    }
}

/// Returns the white lines or dots over the colour of a series; series 0 has none.
fn hatch(prefix: &str, series: usize) -> String {
    let ink = r##"stroke="#ffffff" stroke-width="0.8" fill="none""##;
    let lines = match series {
        1 => format!(r#"<path d="M0 4L4 0M-1 1L1 -1M3 5L5 3" {ink}/>"#),
        2 => r##"<circle cx="2" cy="2" r="0.8" fill="#ffffff"/>"##.to_owned(),
        3 => format!(r#"<path d="M0 0L4 4M-1 3L1 5M3 -1L5 1" {ink}/>"#),
        4 => format!(r#"<path d="M0 2H4" {ink}/>"#),
        5 => format!(r#"<path d="M2 0V4" {ink}/>"#),
        6 => format!(r#"<path d="M0 4L4 0M0 0L4 4" {ink}/>"#),
        _ => format!(r#"<path d="M0 2H4M2 0V4" {ink}/>"#),
    };
    format!(
        "<pattern id=\"{prefix}-h{series}\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\">{lines}</pattern>"
    )
}

/// Returns colour, dash attribute and width of a line.
fn stroke(style: Style) -> (&'static str, String, f64) {
    let dashed = |dash: &str| if dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dash}\"") };
    match style {
        Style::Series(series) => (COLOURS[series % COLOURS.len()], dashed(DASHES[series % DASHES.len()]), 1.0),
        Style::Faint => (FAINT, String::new(), 0.6),
        Style::Ideal => (GREY, dashed("2 2"), 0.7),
    }
}

/// Formats a length with at most two decimals.
fn at(value: f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}
