//! Tests that apply to all figures.

use super::*;
use crate::record::{Digest, RunId};

/// Asserts that every tag is closed in order and that all text is escaped.
pub(in crate::report) fn assert_well_formed(svg: &str) {
    let mut open: Vec<&str> = Vec::new();
    for piece in svg.split('<').skip(1) {
        let (tag, text) = piece.split_once('>').expect("a tag ends");
        assert!(!text.contains('>'), "{text}");
        for entity in text.split('&').chain(tag.split('&')).skip(1) {
            let known = ["lt;", "gt;", "amp;", "quot;", "#39;"].iter().any(|known| entity.starts_with(known));
            assert!(known || !piece.contains(&format!("&{entity}")), "{entity}");
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        assert!(!tag.contains("NaN") && !tag.contains("inf"), "{tag}");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty() && svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{open:?}");
    assert!(!svg.chars().any(|c| c.is_control() && c != '\n'));
}

const HOSTILE: &str = "a <b> & \"c\" 'd' \u{1b}[31m\u{fffe} 温度 <script>alert(1)</script>";

/// Returns a figure with every kind of mark and axis, whose names contain markup.
fn everything() -> Figure {
    let mark = |at, shape| Mark { label: format!("{HOSTILE} {at}"), style: Style::Series(at), shape };
    let names = || Scale::Names(vec![HOSTILE.to_owned(), "two".to_owned()]);
    let point = Point {
        at: (2.0, 3.0),
        half: (Some(0.5), Some(1.0)),
        ends: None,
        name: HOSTILE.to_owned(),
        tag: "1".to_owned(),
        run: Some(RunId(Digest([7; 32]))),
    };
    let mut plane = panel(HOSTILE, axis(HOSTILE, "s", Scale::Linear(0.0, 4.0)), axis("y", "J", Scale::Log(1.0, 1e6)));
    plane.marks = vec![
        mark(0, Shape::Line(vec![vec![(0.0, 1.0), (4.0, 1e6)], vec![(1.0, 10.0)], Vec::new()])),
        mark(9, Shape::Points(vec![point.clone()])),
    ];
    plane.bands =
        vec![Tint { span: (1.0, 3.0), kind: "eval".to_owned(), labels: vec![HOSTILE.to_owned()], is_odd: true }];
    let mut rows = panel("", axis("x", "", Scale::Linear(0.0, 10.0)), axis("", "", names()));
    let bar = |row, name: &str| Bar { row, span: (0.0, 5.0), half: Some(1.0), name: name.to_owned(), run: point.run };
    rows.marks = vec![
        mark(1, Shape::Bars(vec![bar(0, HOSTILE), bar(1, "b")])),
        mark(2, Shape::Boxes(vec![Quartiles { row: 1, at: (1.0, 2.0, 3.0) }])),
    ];
    let mut grid = panel("", axis("x", "", names()), axis("y", "", names()));
    let cell =
        |at, depth| Cell { at, depth, lines: vec!["1".to_owned()], is_best: true, name: HOSTILE.to_owned(), run: None };
    grid.marks =
        vec![mark(3, Shape::Cells(vec![cell((0, 0), Some(1.0)), cell((1, 1), Some(0.0)), cell((0, 1), None)]))];
    Figure {
        title: HOSTILE.to_owned(),
        summary: HOSTILE.to_owned(),
        key: vec![Key::new(HOSTILE, HOSTILE)],
        notes: vec![HOSTILE.to_owned()],
        panels: vec![plane, rows, grid],
        across: 2,
        sheet: Sheet { heads: vec!["a,b".to_owned()], rows: vec![vec!["say \"no\"".to_owned()], vec!["2".to_owned()]] },
    }
}

#[test]
fn svg_stays_well_formed_with_hostile_names() {
    let figure = everything();
    let link = |run: &RunId| Some(format!("runs/{}.html?a=\"b\"&c", run.0.prefix(8)));
    for (width, links) in [(Millimetres::COLUMN, false), (Millimetres::PAGE, true)] {
        let link: Option<&svg::Link<'_>> = if links { Some(&link) } else { None };
        let svg = Drawing { width, link, ..Drawing::default() }.svg(&figure).unwrap();
        assert_well_formed(&svg);
        assert!(!svg.contains("<script") && svg.contains("&lt;script&gt;"));
        assert_eq!(svg.matches("<a href=").count(), if links { 3 } else { 0 });
        assert!(
            svg.contains("<pattern id=") && svg.contains("<polygon points="),
            "hatches and markers go with colours"
        );
    }
}

#[test]
fn png_draws_text_without_system_fonts() {
    let svg = |text: &str| {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"20mm\" height=\"5mm\" font-family=\"Nothing, sans-serif\">{text}</svg>"
        )
    };
    let bitmap = |text: &str| png(&svg(text)).unwrap();
    let with = bitmap("<text x=\"2\" y=\"12\" font-size=\"10\">energy, µJ ± 5%</text>");
    assert!(with.len() > bitmap("").len() + 300);
    // Width and height follow the signature of a PNG: 20 mm at 300 dots per inch are 236.2 pixels.
    assert_eq!(with[16..24], [0, 0, 0, 237, 0, 0, 0, 60]);
    assert!(matches!(png("no picture"), Err(FigureError::Drawing(_))));
}

#[test]
fn characters_show_rows_grids_and_planes() {
    let text = term(&everything(), 80);
    for there in ["two │▒", "└──", "*1"] {
        assert!(text.contains(there), "{there}: {text}");
    }
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn characters_keep_to_the_width_of_a_terminal() {
    let mut figure = Figure { notes: Vec::new(), key: Vec::new(), ..everything() };
    // A table is as wide as its cells, so the grid is left out.
    figure.panels.truncate(2);
    for columns in [40, 50, 100] {
        let text = term(&figure, columns);
        let widest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
        assert!(widest.chars().count() <= columns, "{columns}: {widest:?} in\n{text}");
    }
}

#[test]
fn each_tick_is_drawn_in_one_row() {
    // The tick lies midway between two rows.
    let mut plane = panel("", axis("x", "", Scale::Linear(0.0, 1.0)), axis("", "", Scale::At(0.0, 0.2, vec![0.1])));
    let point = Point { at: (0.5, 0.1), ..Point::default() };
    plane.marks = vec![Mark { label: String::new(), style: Style::Series(0), shape: Shape::Points(vec![point]) }];
    let text = term(&Figure { panels: vec![plane], notes: Vec::new(), key: Vec::new(), ..everything() }, 60);
    assert_eq!(text.lines().filter(|line| line.starts_with("0.1 ┤")).count(), 1, "{text}");
}

#[test]
fn csv_cells_are_quoted_if_needed() {
    assert_eq!(everything().sheet.csv(), "\"a,b\"\n\"say \"\"no\"\"\"\n2\n");
}

#[test]
fn csv_cells_are_never_formulas() {
    let cells = ["=1+1", "+49 89", "-x", "@a", "\t=1", "-1.5e-3", "+2", "-inf", "a=b"];
    let mut sheet = Sheet::new(&["=head"]);
    sheet.rows = cells.iter().map(|cell| vec![(*cell).to_owned()]).collect();
    assert_eq!(sheet.csv(), "'=head\n'=1+1\n'+49 89\n'-x\n'@a\n'\t=1\n-1.5e-3\n+2\n-inf\na=b\n");
}

#[test]
fn characters_show_intervals_and_explain_only_what_they_show() {
    let mut rows = panel("", axis("x", "", Scale::Linear(0.0, 10.0)), axis("", "", Scale::Names(vec!["a".to_owned()])));
    let point = Point { at: (5.0, 0.5), half: (Some(2.0), None), ..Point::default() };
    rows.marks = vec![Mark { label: String::new(), style: Style::Series(0), shape: Shape::Points(vec![point]) }];
    let key = vec![Key::new("Shaded: epochs.", ""), Key::new("The best is framed.", "* is the best.")];
    let figure = Figure {
        title: "t".to_owned(),
        summary: String::new(),
        key,
        notes: vec!["n = 1".to_owned()],
        panels: vec![rows],
        across: 1,
        sheet: Sheet::default(),
    };
    let text = term(&figure, 60);
    let line = text.lines().find(|line| line.contains('●')).unwrap();
    let (left, right) = line.split_once('●').unwrap();
    let count = |text: &str| text.matches('─').count();
    assert!(count(left) > 7 && count(left).abs_diff(count(right)) <= 1, "{text}");
    assert!(text.ends_with("* is the best.\nn = 1\n"), "{text}");
    let svg = Drawing::default().svg(&figure).unwrap();
    assert!(svg.contains("Shaded: epochs.") && svg.contains("The best is framed.") && !svg.contains("* is the best."));
}

#[test]
fn line_breaks_become_spaces() {
    assert_eq!((escaped("a\nb\tc\u{1}"), plain("a\nb", 9)), ("a b c\u{fffd}".to_owned(), "a b".to_owned()));
}
