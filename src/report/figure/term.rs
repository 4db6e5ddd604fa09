//! Draws a figure with characters for a terminal. Each series has its own character, so no colour is needed.

mod grid;

use super::super::plain::plain_lines;
use super::super::table::columns;
use super::scale::{Scale, number, whole};
use super::text::plain;
use super::{Bar, Cell, Figure, Mark, Panel, Shape, Style};
use grid::Grid;

/// Characters of the series for lines and points.
const MARKERS: [char; 8] = ['●', '■', '▲', '◆', '▼', '×', '+', '○'];
/// Characters of the series for bars.
const FILLS: [char; 8] = ['█', '▒', '▓', '░', '▞', '▌', '╬', '#'];
/// Rows of characters of a panel.
const ROWS: usize = 14;
/// Longest label of a row. In narrow output it is shorter, so that at least 20 characters remain for the plot.
const LABEL: usize = 28;

/// Draws the figure in lines of at most `columns` characters (40 to 200). Notes and tables may be wider.
pub fn term(figure: &Figure, columns: usize) -> String {
    let columns = columns.clamp(40, 200);
    let mut text = format!("{}\n", plain(&figure.title, columns));
    for panel in &figure.panels {
        text.push('\n');
        if !panel.title.is_empty() {
            text.push_str(&format!("{}\n", plain(&panel.title, columns)));
        }
        let cells = panel.marks.iter().find_map(|mark| match &mark.shape {
            Shape::Cells(cells) => Some(cells),
            _ => None,
        });
        match (cells, &panel.y.scale) {
            (Some(cells), _) => text.push_str(&table(panel, cells)),
            (None, Scale::Names(names)) => text.push_str(&rows(panel, names, columns)),
            _ => text.push_str(&plane(panel, columns)),
        }
        text.push_str(&legend(panel, columns));
    }
    if figure.below_characters().next().is_some() {
        text.push('\n');
    }
    for note in figure.below_characters() {
        text.push_str(&format!("{}\n", plain(note, usize::MAX)));
    }
    plain_lines(&text)
}

fn character(style: Style, of: &[char; 8]) -> char {
    match style {
        Style::Series(series) => of[series % of.len()],
        Style::Faint | Style::Ideal => '·',
    }
}

/// Returns the legend, broken into lines between two entries.
fn legend(panel: &Panel, columns: usize) -> String {
    let mut keys: Vec<String> = Vec::new();
    for Mark { label, style, shape } in panel.marks.iter().filter(|mark| !mark.label.is_empty()) {
        let of = if matches!(shape, Shape::Bars(_)) { &FILLS } else { &MARKERS };
        let key = format!("{} {}", character(*style, of), plain(label, 60.min(columns - 2)));
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let mut lines: Vec<String> = Vec::new();
    for key in keys {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 3 + key.chars().count() <= columns => {
                line.push_str(&format!("   {key}"));
            }
            _ => lines.push(key),
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Returns the tick labels and the label below an x axis.
fn under(panel: &Panel, gutter: usize, wide: usize) -> String {
    let ticks = panel.x.scale.ticks((wide / 14).max(2));
    let mut line: Vec<char> = vec![' '; gutter + wide + 4];
    let mut free = 0;
    for (value, text) in &ticks {
        let text = plain(text, LABEL);
        let middle = gutter + whole((panel.x.scale.place(*value) * number(wide)).max(0.0));
        let from = middle.saturating_sub(text.chars().count() / 2);
        if from < free || from + text.chars().count() > line.len() {
            continue;
        }
        text.chars().enumerate().for_each(|(at, c)| line[from + at] = c);
        free = from + text.chars().count() + 1;
    }
    let line: String = line.into_iter().collect();
    let blank = " ".repeat(gutter);
    format!("{}\n{blank}{}\n", line.trim_end(), plain(&panel.x.label, wide))
}

/// Draws lines and points over two axes.
fn plane(panel: &Panel, columns: usize) -> String {
    let ticks = panel.y.scale.ticks(5);
    let gutter = ticks.iter().map(|(_, text)| text.chars().count()).max().unwrap_or(0) + 2;
    let wide = columns.saturating_sub(gutter + 4).max(20);
    let mut grid = Grid::new(wide, ROWS);
    let place = |(x, y): (f64, f64)| (panel.x.scale.place(x), panel.y.scale.place(y));
    let lines = |mark: &&Mark| matches!(mark.shape, Shape::Line(_)) && mark.style != Style::Ideal;
    let is_alone = panel.marks.iter().filter(lines).count() == 1;
    for mark in &panel.marks {
        let marker = character(mark.style, &MARKERS);
        match &mark.shape {
            Shape::Line(pieces) => {
                for piece in pieces {
                    let places: Vec<(f64, f64)> = piece.iter().map(|point| place(*point)).collect();
                    if is_alone && mark.style != Style::Ideal { grid.fine(&places) } else { grid.line(&places, marker) }
                }
            }
            Shape::Points(points) => {
                for point in points {
                    let (x, y) = point.at;
                    if let Some((low, high)) = point.across() {
                        grid.line(&[place((low, y)), place((high, y))], '─');
                    }
                    if let Some(half) = point.half.1 {
                        grid.line(&[place((x, y - half)), place((x, y + half))], '│');
                    }
                }
                for point in points {
                    grid.put(place(point.at), marker);
                    grid.write(place(point.at), &point.tag);
                }
            }
            _ => {}
        }
    }
    let mut text = format!("{}\n", plain(&panel.y.label, columns));
    // A tick belongs to one row; otherwise a tick midway between two rows would be drawn twice.
    let row_of = |value: f64| whole(((1.0 - panel.y.scale.place(value)) * number(ROWS - 1)).round().max(0.0));
    for (row, line) in grid.lines().into_iter().enumerate() {
        let tick = ticks.iter().find(|(value, _)| row_of(*value) == row).map_or("", |(_, text)| text.as_str());
        let edge = if tick.is_empty() { '│' } else { '┤' };
        text.push_str(&format!("{tick:>width$} {edge}{}\n", line.trim_end(), width = gutter - 2));
    }
    text.push_str(&format!("{:>width$}└{}\n", "", "─".repeat(wide), width = gutter - 1));
    text + &under(panel, gutter, wide)
}

/// Draws bars, boxes and points in named rows.
fn rows(panel: &Panel, names: &[String], columns: usize) -> String {
    let label = LABEL.min(columns - 26);
    let gutter = names.iter().map(|name| name.chars().count().min(label)).max().unwrap_or(0) + 2;
    let wide = columns.saturating_sub(gutter + 4).max(20);
    let mut text =
        if panel.y.label.is_empty() { String::new() } else { format!("{}\n", plain(&panel.y.label, columns)) };
    for (row, name) in names.iter().enumerate() {
        let mut grid = Grid::new(wide, 1);
        let mut ends: Vec<(f64, f64)> = Vec::new();
        let across = |value: f64| panel.x.scale.place(value);
        // Intervals are drawn before the points, so that no point is hidden.
        let points = panel.marks.iter().filter_map(|mark| match &mark.shape {
            Shape::Points(points) => Some(points),
            _ => None,
        });
        for point in points.flatten().filter(|point| whole(point.at.1.max(0.0)) == row) {
            if let Some((low, high)) = point.across() {
                grid.line(&[(across(low), 0.5), (across(high), 0.5)], '─');
            }
        }
        for mark in &panel.marks {
            match &mark.shape {
                Shape::Bars(bars) => {
                    for Bar { span, .. } in bars.iter().filter(|bar| bar.row == row) {
                        grid.span((across(span.0), across(span.1)), character(mark.style, &FILLS));
                    }
                    ends.extend(
                        bars.iter().filter(|bar| bar.row == row).filter_map(|bar| Some((bar.span.1, bar.half?))),
                    );
                }
                Shape::Boxes(boxes) => {
                    for one in boxes.iter().filter(|one| one.row == row) {
                        grid.span((across(one.at.0), across(one.at.2)), '─');
                        grid.put((across(one.at.1), 0.5), '│');
                    }
                }
                Shape::Points(points) => {
                    for point in points.iter().filter(|point| whole(point.at.1.max(0.0)) == row) {
                        grid.put((across(point.at.0), 0.5), character(mark.style, &MARKERS));
                    }
                }
                Shape::Line(_) | Shape::Cells(_) => {}
            }
        }
        // Intervals of bars are drawn over all bars of their row.
        for (end, half) in ends {
            grid.line(&[(across(end - half), 0.5), (across(end + half), 0.5)], '─');
        }
        let line = grid.lines().pop().unwrap_or_default();
        text.push_str(&format!("{:>width$} │{}\n", plain(name, label), line.trim_end(), width = gutter - 2));
    }
    text.push_str(&format!("{:>width$}└{}\n", "", "─".repeat(wide), width = gutter - 1));
    text + &under(panel, gutter, wide)
}

/// Formats a heat map as a table; the best cell has a star.
fn table(panel: &Panel, cells: &[Cell]) -> String {
    let (Scale::Names(across), Scale::Names(down)) = (&panel.x.scale, &panel.y.scale) else { return String::new() };
    let corner = format!("{} \\ {}", plain(&panel.y.label, LABEL), plain(&panel.x.label, LABEL));
    let mut heads = vec![corner];
    heads.extend(across.iter().map(|name| format!(">{}", plain(name, LABEL))));
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let body = down.iter().enumerate().map(|(row, name)| {
        let mut line = vec![plain(name, LABEL)];
        for column in 0..across.len() {
            let cell = cells.iter().find(|cell| cell.at == (column, row));
            let shown = cell.and_then(|cell| {
                let star = if cell.is_best { "*" } else { "" };
                (!cell.lines.is_empty()).then(|| format!("{star}{}", cell.lines.join(" ")))
            });
            line.push(shown.unwrap_or_else(|| "-".to_owned()));
        }
        line
    });
    columns(&heads, body)
}
