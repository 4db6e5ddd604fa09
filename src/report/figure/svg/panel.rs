//! A panel: its frame, grid, ticks and bands.

use super::super::palette::{GREY, GRID, tint};
use super::super::scale::{Scale, number, whole};
use super::super::text::{broken, fitted, width};
use super::super::{Panel, Shape};
use super::{Frame, Hold, Key, LABEL, LINE, Page, TICK, TITLE, at};

/// Returns the usual height of a panel.
fn usual(across: usize, wide: f64) -> f64 {
    if across > 1 || wide < 260.0 { (wide * 0.62).min(140.0) } else { 150.0 }
}

/// Returns the height of a panel's plot area; each named row has the same height.
fn high(panel: &Panel, wide: f64, across: usize) -> f64 {
    let is_grid = panel.marks.iter().any(|mark| matches!(mark.shape, Shape::Cells(_)));
    match &panel.y.scale {
        Scale::Names(names) if is_grid => number(names.len()) * 26.0,
        Scale::Names(names) => (number(names.len()) * 17.0 + 6.0).max(34.0),
        _ => usual(across, wide) * panel.height,
    }
}

pub(super) fn y_ticks(panel: &Panel) -> usize {
    if panel.height < 0.7 { 4 } else { 6 }
}

/// Returns the left edge and the width of a band.
fn stretch(panel: &Panel, span: (f64, f64), frame: Frame) -> (f64, f64) {
    let place = |value: f64| panel.x.scale.place(value).clamp(0.0, 1.0);
    let (from, to) = (place(span.0), place(span.1));
    (frame.left + from * frame.width, (to - from) * frame.width)
}

impl Page<'_> {
    /// Draws a panel and returns its lower end.
    pub(super) fn panel(
        &mut self,
        panel: &Panel,
        keys: &[Key],
        (left, top): (f64, f64),
        wide: f64,
        gutter: f64,
        across: usize,
    ) -> f64 {
        let mut top = top;
        if !panel.title.is_empty() {
            let title = fitted(&panel.title, wide / (TITLE * 0.94));
            self.text(&title, (left, top + TITLE * 0.9), TITLE * 0.94, "#000000", Hold::Start, "");
            top += TITLE * 1.3;
        }
        top = self.legend(keys, (left, top), wide) + 3.0;
        let frame = Frame { left: left + gutter, top, width: wide - gutter - 4.0, height: high(panel, wide, across) };
        self.bands(panel, frame);
        self.ticks_of_y(panel, frame, left);
        let bottom = self.ticks_of_x(panel, frame);
        self.labels_of_bands(panel, frame);
        let (right, floor) = (frame.left + frame.width, frame.top + frame.height);
        self.line((frame.left, frame.top), (frame.left, floor), GREY, 0.6);
        self.line((frame.left, floor), (right, floor), GREY, 0.6);
        self.clips += 1;
        let clip = format!("{}-c{}", self.drawing.prefix, self.clips);
        self.add(format_args!(
            "<clipPath id=\"{clip}\"><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/></clipPath>\n<g clip-path=\"url(#{clip})\">\n",
            at(frame.left - 3.0),
            at(frame.top - 3.0),
            at(frame.width + 6.0),
            at(frame.height + 6.0)
        ));
        panel.marks.iter().for_each(|mark| self.mark(mark, panel, frame));
        self.add(format_args!("</g>\n"));
        bottom
    }

    fn bands(&mut self, panel: &Panel, frame: Frame) {
        for band in &panel.bands {
            let (x, wide) = stretch(panel, band.span, frame);
            let (colour, share) = tint(&band.kind, band.is_odd);
            self.add(format_args!(
                "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{colour}\" fill-opacity=\"{share}\"/>\n",
                at(x),
                at(frame.top),
                at(wide),
                at(frame.height)
            ));
        }
    }

    /// Draws the labels of bands above the grid lines and below the marks.
    fn labels_of_bands(&mut self, panel: &Panel, frame: Frame) {
        for band in &panel.bands {
            let (x, wide) = stretch(panel, band.span, frame);
            let label = band.labels.iter().find(|label| (width(label) + 0.4) * (TICK - 1.0) <= wide);
            if let Some(label) = label {
                let place = (x + wide / 2.0, frame.top + TICK);
                self.text(label, place, TICK - 1.0, GREY, Hold::Middle, "");
            }
        }
    }

    fn ticks_of_y(&mut self, panel: &Panel, frame: Frame, left: f64) {
        let is_named = matches!(panel.y.scale, Scale::Names(_));
        let room = frame.left - left - if panel.y.label.is_empty() { 6.0 } else { LABEL * 1.6 + 6.0 };
        let about = y_ticks(panel);
        for (value, text) in panel.y.scale.ticks(about) {
            let share = panel.y.scale.place(value);
            // Named rows go from top to bottom.
            let y = frame.top + frame.height * if is_named { share } else { 1.0 - share };
            if !is_named {
                self.line((frame.left, y), (frame.left + frame.width, y), GRID, 0.4);
            }
            let ems = (room + 2.0) / TICK;
            let mut lines = if is_named { broken(&text, ems) } else { vec![fitted(&text, ems)] };
            if let [_, second, _, ..] = lines.as_mut_slice() {
                // More than two lines are truncated.
                second.push('…');
            }
            lines.truncate(2);
            let first = y + TICK * 0.36 - if lines.len() > 1 { TICK * 0.55 } else { 0.0 };
            for (line, text) in (0u8..).zip(&lines) {
                let y = first + f64::from(line) * TICK * 1.1;
                self.text(&fitted(text, ems), (frame.left - 4.0, y), TICK, GREY, Hold::End, "");
            }
        }
        if !panel.y.label.is_empty() {
            let (x, y) = (left + LABEL, frame.top + frame.height / 2.0);
            let label = fitted(&panel.y.label, (frame.height + 16.0) / LABEL);
            let turned = format!(" transform=\"rotate(-90 {} {})\"", at(x), at(y));
            self.text(&label, (x, y), LABEL, "#000000", Hold::Middle, &turned);
        }
    }

    /// Draws the x axis and returns its lower end. Labels that would touch a neighbour are left out.
    fn ticks_of_x(&mut self, panel: &Panel, frame: Frame) -> f64 {
        let floor = frame.top + frame.height;
        let is_named = matches!(panel.x.scale, Scale::Names(_));
        let about = whole((frame.width / 38.0).clamp(2.0, 12.0));
        let ticks = panel.x.scale.ticks(about);
        let each = frame.width / number(ticks.len().max(1));
        let widest = ticks.iter().map(|(_, text)| width(text)).fold(0.0, f64::max) * TICK;
        let is_turned = is_named && panel.has_x && widest > each - 3.0;
        let mut free = f64::NEG_INFINITY;
        for (value, text) in &ticks {
            let x = frame.left + frame.width * panel.x.scale.place(*value);
            if !is_named {
                self.line((x, frame.top), (x, floor), GRID, 0.4);
            }
            if !panel.has_x {
                continue;
            }
            self.line((x, floor), (x, floor + 2.0), GREY, 0.6);
            let half = width(text) * TICK / 2.0;
            if is_turned {
                let turned = format!(" transform=\"rotate(-35 {} {})\"", at(x + 2.0), at(floor + TICK + 2.0));
                let text = fitted(text, 16.0);
                self.text(&text, (x + 2.0, floor + TICK + 2.0), TICK, GREY, Hold::End, &turned);
            } else if x - half > free {
                self.text(text, (x, floor + TICK + 3.0), TICK, GREY, Hold::Middle, "");
                free = x + half + 3.0;
            }
        }
        if !panel.has_x {
            return floor;
        }
        let ticks_take = if is_turned { (widest.min(16.0 * TICK)) * 0.58 + TICK + 2.0 } else { TICK + 4.0 };
        if panel.x.label.is_empty() {
            return floor + ticks_take;
        }
        let place = (frame.left + frame.width / 2.0, floor + ticks_take + LINE * 0.95);
        let label = fitted(&panel.x.label, (frame.width + 30.0) / LABEL);
        self.text(&label, place, LABEL, "#000000", Hold::Middle, "");
        floor + ticks_take + LINE * 1.2
    }
}
