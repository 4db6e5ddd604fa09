//! Readings of the hardware as an SVG. The same readings give the same bytes.

use super::number::significant;
use super::panels::{Band, LINES, Panel, bands, panels};
use super::telemetry::Telemetry;
use crate::record::Axis;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::drawing::DrawingAreaErrorKind;
use plotters::prelude::{
    BLACK, Cartesian2d, ChartBuilder, ChartContext, Circle, Color, DrawingArea, IntoDrawingArea, IntoFont, PathElement,
    RGBColor, Rectangle, SVGBackend, Text, TextStyle, WHITE,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::ops::Range;

/// Okabe's and Ito's colours, which colour-blind people can tell apart; a grey for their yellow, of which a thin line on white is
/// not seen.
pub(super) const COLOURS: [RGBColor; LINES] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
    RGBColor(140, 140, 140),
];
pub(super) const GREY: RGBColor = RGBColor(90, 90, 90);

/// Pixels.
const WIDTH: u32 = 1200;
const HEADER: u32 = 40;
const STRIP: u32 = 22;
const PANEL: u32 = 150;
const HEAD: u32 = 24;
const TICKS: u32 = 42;
const SCALE: u32 = 66;
const LEGEND: u32 = 250;
const CURVES: u32 = WIDTH - SCALE - LEGEND;
const LINE: i32 = 15;
/// The mean width of a character of the labels.
const CHARACTER: f64 = 6.4;
/// Longer labels are cut.
const LABEL: usize = 28;

/// Why there is no plot.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    /// Nothing that was chosen can be drawn.
    #[error("there is nothing to draw: no series that was chosen has a finite value")]
    Empty,
    /// The drawing itself went wrong.
    #[error("the plot cannot be drawn: {0}")]
    Drawing(String),
}

impl<E: std::error::Error + Send + Sync> From<DrawingAreaErrorKind<E>> for PlotError {
    fn from(error: DrawingAreaErrorKind<E>) -> Self {
        Self::Drawing(error.to_string())
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// The plot: one panel a unit, a line a series, the phases behind them.
///
/// # Errors
/// If nothing can be drawn.
pub fn plot_svg(telemetry: &Telemetry) -> Result<String, PlotError> {
    let panels = panels(telemetry, usize::try_from(CURVES).unwrap_or(0));
    if panels.is_empty() {
        return Err(PlotError::Empty);
    }
    // Panels over time stand one under the other and share the axis below the last of them.
    let has_axis =
        |at: usize| panels[at].axis == Axis::Step || panels.get(at + 1).is_none_or(|next| next.axis == Axis::Step);
    let height = |at: usize| PANEL + if has_axis(at) { TICKS } else { 0 };
    let timed = panels.iter().any(|panel| panel.axis == Axis::TimeNs);
    let end = telemetry.extent(Axis::TimeNs).1.max(1);
    let bands = if timed { bands(telemetry, end, end / u64::from(CURVES / 2)) } else { Vec::new() };
    let strip = if bands.is_empty() { 0 } else { STRIP };
    let total = HEADER + strip + (0..panels.len()).map(height).sum::<u32>();

    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, total)).into_drawing_area();
        root.fill(&WHITE)?;
        let (header, mut rest) = root.split_vertically(HEADER);
        heading(&header, telemetry)?;
        if strip > 0 {
            let (area, below) = rest.split_vertically(STRIP);
            labels(&area, &bands, seconds(end))?;
            key(&area, &bands)?;
            rest = below;
        }
        for (at, panel) in panels.iter().enumerate() {
            let (area, below) = rest.split_vertically(height(at));
            let (from, to) = telemetry.extent(panel.axis);
            let x = match panel.axis {
                Axis::TimeNs => 0.0..seconds(end),
                Axis::Step => real(from)..real(from) + real(to.saturating_sub(from)).max(1.0).max(real(from) * 1e-6),
            };
            let behind = if panel.axis == Axis::TimeNs { bands.as_slice() } else { &[] };
            draw(&area, panel, behind, x, has_axis(at))?;
            rest = below;
        }
        root.present()?;
    }
    Ok(svg)
}

fn heading(area: &Area<'_>, telemetry: &Telemetry) -> Result<(), PlotError> {
    let title = plain(&telemetry.model, 60);
    let ids = format!("run {}   attempt {}", telemetry.run.0.prefix(8), telemetry.attempt.0.prefix(8));
    area.draw(&Text::new(title, (pixels(SCALE), 14), sized(18.0).color(&BLACK)))?;
    let right = sized(13.0).color(&GREY).pos(Pos::new(HPos::Right, VPos::Top));
    Ok(area.draw(&Text::new(ids, (pixels(SCALE + CURVES), 17), right))?)
}

/// The names of the phases above the panels.
fn labels(area: &Area<'_>, bands: &[Band], end: f64) -> Result<(), PlotError> {
    let mut chart = ChartBuilder::on(area)
        .margin_left(pixels(SCALE))
        .margin_right(pixels(LEGEND))
        .build_cartesian_2d(0.0..end, 0.0..1.0)?;
    shade(&mut chart, bands, (0.0, 1.0), 2.0)?;
    let centred = sized(11.0).color(&BLACK).pos(Pos::new(HPos::Center, VPos::Center));
    let text = |band: &Band| {
        let (start, stop) = (seconds(band.start_ns), seconds(band.stop_ns));
        let label = band.label((stop - start) / end * f64::from(CURVES) / CHARACTER);
        (!label.is_empty()).then(|| Text::new(label, (f64::midpoint(start, stop), 0.5), centred.clone()))
    };
    chart.draw_series(bands.iter().filter_map(text))?;
    Ok(())
}

/// The names of the tints, beside the bands.
fn key(area: &Area<'_>, bands: &[Band]) -> Result<(), PlotError> {
    let mut x = pixels(SCALE + CURVES) + 12;
    for (at, band) in bands.iter().enumerate() {
        if bands[..at].iter().any(|before| before.name == band.name) {
            continue;
        }
        let (colour, share) = tint(band);
        let middle = pixels(STRIP) / 2;
        area.draw(&Rectangle::new([(x, middle - 6), (x + 12, middle + 6)], colour.mix(share * 2.0).filled()))?;
        let style = sized(11.0).color(&BLACK).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(band.name, (x + 16, middle), style))?;
        x += 26 + 6 * i32::try_from(band.name.len()).unwrap_or(0);
    }
    Ok(())
}

/// The colour of a phase; an epoch is told from the next by its depth.
fn tint(band: &Band) -> (RGBColor, f64) {
    match band.name {
        "eval" => (COLOURS[4], 0.22),
        "inference" => (COLOURS[2], 0.16),
        "idle" => (COLOURS[3], 0.16),
        _ if band.first.is_multiple_of(2) => (BLACK, 0.09),
        _ => (BLACK, 0.045),
    }
}

/// Tints the phases.
fn shade(chart: &mut Chart<'_, '_>, bands: &[Band], (low, high): (f64, f64), depth: f64) -> Result<(), PlotError> {
    let tinted = |band: &Band| {
        let (colour, share) = tint(band);
        let corners = [(seconds(band.start_ns), low), (seconds(band.stop_ns), high)];
        Rectangle::new(corners, colour.mix(share * depth).filled())
    };
    chart.draw_series(bands.iter().map(tinted))?;
    Ok(())
}

fn draw(area: &Area<'_>, panel: &Panel, bands: &[Band], x: Range<f64>, has_axis: bool) -> Result<(), PlotError> {
    let (low, high) = panel.range;
    let mut chart = ChartBuilder::on(area)
        .margin_top(pixels(HEAD))
        .margin_bottom(4)
        .margin_right(pixels(LEGEND))
        .y_label_area_size(pixels(SCALE))
        .x_label_area_size(if has_axis { pixels(TICKS) } else { 0 })
        .build_cartesian_2d(x, low..high)?;
    shade(&mut chart, bands, panel.range, 1.0)?;
    let number = |value: &f64| significant(*value);
    let blank = |_: &f64| String::new();
    let mut mesh = chart.configure_mesh();
    mesh.max_light_lines(0)
        .bold_line_style(BLACK.mix(0.12))
        .axis_style(GREY)
        .label_style(sized(11.0).color(&GREY))
        .axis_desc_style(sized(12.0).color(&GREY))
        .x_labels(12)
        .x_label_formatter(&number)
        .y_labels(5)
        .y_label_formatter(&number);
    if panel.unit.is_none() {
        mesh.disable_y_mesh().y_labels(0).y_label_formatter(&blank);
    }
    if has_axis {
        mesh.x_desc(if panel.axis == Axis::Step { "step" } else { "seconds since the start" });
    }
    mesh.draw()?;
    for (line, colour) in panel.lines.iter().zip(COLOURS) {
        let place = |(at, value): &(u64, f64)| {
            let at = if panel.axis == Axis::Step { real(*at) } else { seconds(*at) };
            (at, *value)
        };
        let spans = |piece: &&Vec<(u64, f64)>| piece.first().map(|first| first.0) != piece.last().map(|last| last.0);
        let drawn = line.pieces.iter().filter(spans);
        chart.draw_series(
            drawn.map(|piece| PathElement::new(piece.iter().map(place).collect::<Vec<_>>(), colour.stroke_width(1))),
        )?;
        let lone = line.pieces.iter().filter(|piece| !spans(piece)).flatten();
        chart.draw_series(lone.map(|point| Circle::new(place(point), 2, colour.filled())))?;
    }
    drop(chart);
    let title = match panel.unit.as_deref() {
        Some(unit) if !unit.is_empty() && unit != panel.title => format!("{}, {unit}", panel.title),
        _ => panel.title.clone(),
    };
    area.draw(&Text::new(plain(&title, 80), (pixels(SCALE), 4), sized(13.0).color(&BLACK)))?;
    legend(area, panel)
}

/// The lines' names beside the panel, in their colours.
fn legend(area: &Area<'_>, panel: &Panel) -> Result<(), PlotError> {
    let x = pixels(SCALE + CURVES) + 12;
    // Lines that lie one above the other are named in that order.
    let named: Vec<_> = panel.lines.iter().zip(COLOURS).collect();
    let named: Vec<_> = if panel.unit.is_none() { named.into_iter().rev().collect() } else { named };
    for (at, (line, colour)) in (0i32..).zip(named) {
        let y = pixels(HEAD) + 6 + at * LINE;
        area.draw(&Rectangle::new([(x, y - 2), (x + 14, y + 2)], colour.filled()))?;
        let style = sized(11.0).color(&BLACK).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(plain(&line.label, LABEL), (x + 20, y), style))?;
    }
    Ok(())
}

/// A font of that size in pixels; the backend divides by this factor.
pub(super) fn sized(pixels: f64) -> TextStyle<'static> {
    ("sans-serif", pixels * 1.24).into_font().into()
}

/// Text without what XML cannot hold, cut where it is too long.
pub(super) fn plain(text: &str, longest: usize) -> String {
    let clean = |c: char| if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') { '\u{fffd}' } else { c };
    let mut plain: String = text.chars().take(longest).map(clean).collect();
    if text.chars().nth(longest).is_some() {
        plain.pop();
        plain.push('…');
    }
    plain
}

fn pixels(size: u32) -> i32 {
    i32::try_from(size).unwrap_or(i32::MAX)
}

fn seconds(ns: u64) -> f64 {
    real(ns) / 1e9
}

#[expect(clippy::cast_precision_loss, reason = "a pixel is wider")]
fn real(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;
