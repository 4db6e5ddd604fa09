//! Configurations in two metrics at a time, as an SVG. The same front gives the same bytes.

use super::front::{Coordinate, Front, FrontPoint};
use super::number::significant;
use super::plot::{COLOURS, GREY, PlotError, plain, sized};
use crate::record::Direction;
use plotters::coord::Shift;
use plotters::prelude::{
    BLACK, ChartBuilder, Circle, Color, DrawingArea, IntoDrawingArea, PathElement, SVGBackend, Text, WHITE,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::ops::Range;

/// Pixels of one panel.
const PANEL: (u32, u32) = (600, 440);
const HEADER: u32 = 44;
/// Panels beside each other.
const ACROSS: usize = 2;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The plot: one panel for each pair of metrics, the front in colour with its numbers, what is dominated as open grey circles, and the
/// 95% intervals of the means as bars.
///
/// # Errors
/// If there are fewer than two metrics, or no point.
pub fn pareto_svg(front: &Front) -> Result<String, PlotError> {
    let last = front.coordinates.len();
    let pairs: Vec<(usize, usize)> = (0..last).flat_map(|a| (a + 1..last).map(move |b| (a, b))).collect();
    if pairs.is_empty() || front.points.is_empty() {
        return Err(PlotError::Empty);
    }
    let across = pairs.len().min(ACROSS);
    let down = pairs.len().div_ceil(across);
    let side = |count: usize| u32::try_from(count).unwrap_or(1);
    let size = (PANEL.0 * side(across), HEADER + PANEL.1 * side(down));
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        let (header, rest) = root.split_vertically(HEADER);
        header.draw(&Text::new(plain(&front.model, 18), (14, 14), sized(18.0).color(&BLACK)))?;
        let key = "numbered: the front; open circles: dominated; bars: 95% intervals";
        let right = sized(12.0).color(&GREY).pos(Pos::new(HPos::Right, VPos::Top));
        header.draw(&Text::new(key, (i32::try_from(size.0).unwrap_or(i32::MAX) - 14, 18), right))?;
        for (area, (x, y)) in rest.split_evenly((down, across)).iter().zip(&pairs) {
            panel(area, front, *x, *y)?;
        }
        root.present()?;
    }
    Ok(svg)
}

fn panel(area: &Area<'_>, front: &Front, x: usize, y: usize) -> Result<(), PlotError> {
    let mut chart = ChartBuilder::on(area)
        .margin(14)
        .x_label_area_size(46)
        .y_label_area_size(74)
        .build_cartesian_2d(extent(front, x), extent(front, y))?;
    let number = |value: &f64| significant(*value);
    chart
        .configure_mesh()
        .max_light_lines(0)
        .bold_line_style(BLACK.mix(0.12))
        .axis_style(GREY)
        .label_style(sized(11.0).color(&GREY))
        .axis_desc_style(sized(13.0).color(&BLACK))
        .x_desc(title(&front.coordinates[x], "←", "→"))
        .y_desc(title(&front.coordinates[y], "↓", "↑"))
        .x_labels(6)
        .y_labels(6)
        .x_label_formatter(&number)
        .y_label_formatter(&number)
        .draw()?;
    let place = |point: &FrontPoint| (point.means[x].0, point.means[y].0);
    let bars = |point: &FrontPoint| {
        let (at_x, at_y) = place(point);
        let across = point.means[x].1.map(|half| vec![(at_x - half, at_y), (at_x + half, at_y)]);
        let along = point.means[y].1.map(|half| vec![(at_x, at_y - half), (at_x, at_y + half)]);
        across.into_iter().chain(along)
    };
    chart.draw_series(front.points.iter().flat_map(|point| {
        let colour = if point.dominated_by.is_some() { GREY.mix(0.45) } else { COLOURS[0].mix(0.8) };
        bars(point).map(move |ends| PathElement::new(ends, colour.stroke_width(1))).collect::<Vec<_>>()
    }))?;
    let dominated = front.points.iter().filter(|point| point.dominated_by.is_some());
    chart.draw_series(dominated.map(|point| Circle::new(place(point), 4, GREY.stroke_width(1))))?;
    let best = || front.points.iter().enumerate().filter(|(_, point)| point.dominated_by.is_none());
    if front.coordinates.len() == 2 {
        let mut line: Vec<(f64, f64)> = best().map(|(_, point)| place(point)).collect();
        line.sort_by(|a, b| a.0.total_cmp(&b.0));
        chart.draw_series([PathElement::new(line, COLOURS[0].mix(0.5).stroke_width(1))])?;
    }
    chart.draw_series(best().map(|(_, point)| Circle::new(place(point), 5, COLOURS[0].filled())))?;
    // The numbers stand beside their points whatever the scale is.
    for (at, point) in best() {
        let (left, top) = chart.backend_coord(&place(point));
        let (base_x, base_y) = area.get_base_pixel();
        area.draw(&Text::new((at + 1).to_string(), (left - base_x + 8, top - base_y - 14), sized(12.0).color(&BLACK)))?;
    }
    Ok(())
}

fn title(coordinate: &Coordinate, less: &str, more: &str) -> String {
    let unit = if coordinate.unit.is_empty() { String::new() } else { format!(", {}", coordinate.unit) };
    let better = if coordinate.direction == Direction::Minimize { less } else { more };
    format!("{}{unit} (better {better})", plain(&coordinate.metric, 40))
}

/// All means with their intervals, and some room.
fn extent(front: &Front, at: usize) -> Range<f64> {
    let ends = front.points.iter().flat_map(|point| {
        let (mean, half_width, _) = point.means[at];
        [mean - half_width.unwrap_or(0.0), mean + half_width.unwrap_or(0.0)]
    });
    let (low, high) = ends.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), end| (low.min(end), high.max(end)));
    let room = if high > low { 0.06 * (high - low) } else { low.abs().max(1.0) * 0.1 };
    low - room..high + room
}
