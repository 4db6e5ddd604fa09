//! The marks of a panel.

use super::super::palette::{COLOURS, FAINT, blend, is_dark, tone};
use super::super::scale::Scale;
use super::super::text::{escaped, width};
use super::super::{Bar, Cell, Mark, Panel, Point, Quartiles, Shape, Style};
use super::{Frame, Hold, Page, TICK, at, stroke};
use crate::record::RunId;

/// Half the height of a bar, relative to its row.
const BAR: f64 = 0.32;

impl Page<'_> {
    pub(super) fn mark(&mut self, mark: &Mark, panel: &Panel, frame: Frame) {
        let is_named = matches!(panel.y.scale, Scale::Names(_));
        let place = |(x, y): (f64, f64)| {
            let share = panel.y.scale.place(y);
            (
                frame.left + frame.width * panel.x.scale.place(x),
                frame.top + frame.height * if is_named { share } else { 1.0 - share },
            )
        };
        match &mark.shape {
            Shape::Line(pieces) => self.pieces(pieces, mark.style, &place),
            Shape::Points(points) => points.iter().for_each(|point| self.point(point, mark.style, &place)),
            Shape::Bars(bars) => bars.iter().for_each(|bar| self.bar(bar, mark.style, &place)),
            Shape::Boxes(boxes) => boxes.iter().for_each(|one| self.quartiles(one, &place)),
            Shape::Cells(cells) => cells.iter().for_each(|cell| self.cell(cell, &place)),
        }
    }

    fn pieces(&mut self, pieces: &[Vec<(f64, f64)>], style: Style, place: &dyn Fn((f64, f64)) -> (f64, f64)) {
        let (colour, dash, wide) = stroke(style);
        for piece in pieces {
            let mut path = String::new();
            for (at_point, point) in piece.iter().enumerate() {
                let (x, y) = place(*point);
                path.push_str(&format!("{}{} {}", if at_point == 0 { "M" } else { "L" }, at(x), at(y)));
            }
            match piece.as_slice() {
                [] => {}
                [only] => self.marker(style, place(*only), 1.5, ""),
                _ => self.add(format_args!(
                    "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{wide}\" stroke-linejoin=\"round\"{dash}/>\n"
                )),
            }
        }
    }

    fn point(&mut self, point: &Point, style: Style, place: &dyn Fn((f64, f64)) -> (f64, f64)) {
        let (x, y) = point.at;
        let colour = match style {
            Style::Series(series) => COLOURS[series % COLOURS.len()],
            Style::Faint | Style::Ideal => FAINT,
        };
        if let Some((low, high)) = point.across() {
            self.line(place((low, y)), place((high, y)), colour, 0.8);
        }
        if let Some(half) = point.half.1 {
            self.line(place((x, y - half)), place((x, y + half)), colour, 0.8);
        }
        let (left, top) = place(point.at);
        let is_open = self.open(point.run.as_ref());
        self.marker(style, (left, top), if style == Style::Faint { 1.7 } else { 2.4 }, &point.name);
        self.close(is_open);
        if !point.tag.is_empty() {
            self.text(&point.tag, (left + 4.0, top - 3.0), TICK, "#000000", Hold::Start, "");
        }
    }

    /// Draws a filled marker; background styles are drawn as a ring.
    pub(super) fn marker(&mut self, style: Style, (x, y): (f64, f64), radius: f64, name: &str) {
        let title = if name.is_empty() { String::new() } else { format!("<title>{}</title>", escaped(name)) };
        let Style::Series(series) = style else {
            self.add(format_args!(
                "<circle cx=\"{}\" cy=\"{}\" r=\"{radius}\" fill=\"#ffffff\" fill-opacity=\"0.6\" stroke=\"{FAINT}\" stroke-width=\"0.7\">{title}</circle>\n",
                at(x),
                at(y)
            ));
            return;
        };
        let colour = COLOURS[series % COLOURS.len()];
        let outline = r##" stroke="#ffffff" stroke-width="0.4""##;
        let r = radius;
        let path = match series % COLOURS.len() {
            0 => {
                self.add(format_args!(
                    "<circle cx=\"{}\" cy=\"{}\" r=\"{r}\" fill=\"{colour}\"{outline}>{title}</circle>\n",
                    at(x),
                    at(y)
                ));
                return;
            }
            1 => vec![(-r, -r), (r, -r), (r, r), (-r, r)],
            2 => vec![(0.0, -1.3 * r), (1.2 * r, 0.9 * r), (-1.2 * r, 0.9 * r)],
            3 => vec![(0.0, -1.4 * r), (1.4 * r, 0.0), (0.0, 1.4 * r), (-1.4 * r, 0.0)],
            4 => vec![(0.0, 1.3 * r), (1.2 * r, -0.9 * r), (-1.2 * r, -0.9 * r)],
            5 => vec![(-0.6 * r, -1.3 * r), (0.6 * r, -1.3 * r), (0.6 * r, 1.3 * r), (-0.6 * r, 1.3 * r)],
            6 => vec![(-1.3 * r, -0.6 * r), (1.3 * r, -0.6 * r), (1.3 * r, 0.6 * r), (-1.3 * r, 0.6 * r)],
            _ => vec![(-1.3 * r, 0.0), (0.0, -0.5 * r), (1.3 * r, 0.0), (0.0, 1.4 * r)],
        };
        let points: Vec<String> = path.iter().map(|(dx, dy)| format!("{},{}", at(x + dx), at(y + dy))).collect();
        self.add(format_args!(
            "<polygon points=\"{}\" fill=\"{colour}\"{outline}>{title}</polygon>\n",
            points.join(" ")
        ));
    }

    fn bar(&mut self, bar: &Bar, style: Style, place: &dyn Fn((f64, f64)) -> (f64, f64)) {
        let middle = super::number(bar.row) + 0.5;
        let ((left, top), (right, bottom)) = (place((bar.span.0, middle - BAR)), place((bar.span.1, middle + BAR)));
        let series = match style {
            Style::Series(series) => series,
            Style::Faint | Style::Ideal => COLOURS.len() - 1,
        };
        let is_open = self.open(bar.run.as_ref());
        self.hatched((left, top), ((right - left).max(0.0), bottom - top), series, &bar.name);
        self.close(is_open);
        if let Some(half) = bar.half {
            let (from, to) = (place((bar.span.1 - half, middle)), place((bar.span.1 + half, middle)));
            self.line(from, to, "#000000", 0.9);
            for end in [from, to] {
                self.line((end.0, end.1 - 2.0), (end.0, end.1 + 2.0), "#000000", 0.9);
            }
        }
    }

    fn quartiles(&mut self, one: &Quartiles, place: &dyn Fn((f64, f64)) -> (f64, f64)) {
        let middle = super::number(one.row) + 0.5;
        let (first, median, third) = one.at;
        let ((left, top), (right, bottom)) = (place((first, middle - BAR)), place((third, middle + BAR)));
        self.add(format_args!(
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"#eeeeee\" stroke=\"{FAINT}\" stroke-width=\"0.5\"/>\n",
            at(left),
            at(top),
            at(right - left),
            at(bottom - top)
        ));
        self.line(place((median, middle - BAR)), place((median, middle + BAR)), "#545454", 1.0);
    }

    fn cell(&mut self, cell: &Cell, place: &dyn Fn((f64, f64)) -> (f64, f64)) {
        let (column, row) = (super::number(cell.at.0), super::number(cell.at.1));
        let ((left, top), (right, bottom)) = (place((column, row)), place((column + 1.0, row + 1.0)));
        let (wide, high) = (right - left, bottom - top);
        let colour = cell.depth.map(tone);
        let fill = colour.map_or_else(|| "#ffffff".to_owned(), blend);
        let ink = if colour.is_some_and(is_dark) { "#ffffff" } else { "#000000" };
        let is_open = self.open(cell.run.as_ref());
        self.add(format_args!(
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{fill}\" stroke=\"#ffffff\" stroke-width=\"0.8\"><title>{}</title></rect>\n",
            at(left),
            at(top),
            at(wide),
            at(high),
            escaped(&cell.name)
        ));
        let lines = super::number(cell.lines.len());
        for (at_line, text) in (0u32..).zip(&cell.lines) {
            let size = if at_line == 0 { TICK } else { TICK - 1.2 };
            // The text is shrunk instead of truncated, because a truncated number would be a different number.
            let size = size.min((wide - 1.0).max(1.0) / width(text).max(1.0));
            let y = top + high / 2.0 + (f64::from(at_line) - (lines - 1.0) / 2.0) * TICK * 1.15 + size * 0.36;
            self.text(text, (left + wide / 2.0, y), size, ink, Hold::Middle, "");
        }
        if cell.is_best {
            self.add(format_args!(
                "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"{ink}\" stroke-width=\"1.4\"/>\n",
                at(left + 1.8),
                at(top + 1.8),
                at(wide - 3.6),
                at(high - 3.6)
            ));
        }
        self.close(is_open);
    }

    /// Opens a link to the page of a run, if there is one.
    fn open(&mut self, run: Option<&RunId>) -> bool {
        let Some(target) = run.and_then(|run| self.drawing.link.and_then(|link| link(run))) else { return false };
        let target = escaped(&target);
        self.add(format_args!("<a href=\"{target}\">"));
        true
    }

    fn close(&mut self, is_open: bool) {
        if is_open {
            self.add(format_args!("</a>\n"));
        }
    }
}
