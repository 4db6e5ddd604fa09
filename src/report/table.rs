//! Aligned columns of text without borders, readable on a terminal and by `awk`.

use super::fields::changing_together;
use super::live;
use super::plain::plain;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};

thread_local! {
    /// Characters per line; `None` without a limit.
    static WIDTH: Cell<Option<usize>> = const { Cell::new(None) };
    /// Heads of the tables made for a terminal, as lines of text.
    static HEADS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Calls `make` with its tables fitted to a terminal of this width, if any. Also returns the lines of their heads.
pub fn fitted_to<T>(width: Option<usize>, make: impl FnOnce() -> T) -> (T, Vec<String>) {
    let before = WIDTH.replace(width);
    let heads_before = HEADS.replace(Some(Vec::new()));
    let made = make();
    WIDTH.set(before);
    (made, HEADS.replace(heads_before).unwrap_or_default())
}

/// Lays out rows under their heads. A cell always takes one line. A head begins with marks:
/// - `>`: the column is right-aligned;
/// - `~`: the column may be dropped on a narrow terminal, those with the most marks first;
/// - `+`: the column is an axis of the configuration; if axes do not fit, they are in lines below the table;
/// - `<`: its cells may be truncated, the longest of such columns first.
///
/// Only tables with `~`, `+` or `<` are fitted to the terminal.
pub fn columns(heads: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut columns: Vec<Column> = heads.iter().map(|head| Column::new(head)).collect();
    for row in rows {
        let mut cells = row.iter();
        columns
            .iter_mut()
            .for_each(|column| column.cells.push(cells.next().map_or_else(String::new, |cell| plain(cell))));
    }
    let has_marks = columns.iter().any(|column| column.spare > 0 || column.is_axis || column.may_be_cut);
    match WIDTH.get() {
        Some(width) if has_marks && total(&columns) > width => narrowed(columns, width),
        _ => laid_out(&columns),
    }
}

/// Returns heads for columns of axes.
pub(super) fn axis_heads(names: &[String]) -> Vec<String> {
    names.iter().map(|name| format!("+{name}")).collect()
}

#[derive(Clone)]
struct Column {
    head: String,
    is_right: bool,
    /// Priority for being dropped, the highest first; 0 for never.
    spare: usize,
    is_axis: bool,
    may_be_cut: bool,
    cells: Vec<String>,
}

/// Characters between two columns.
const GAP: usize = 2;
/// A table with up to this many compared values is never split.
const MOST_SIDES: usize = 3;
/// Least width of a truncated column.
const LEAST: usize = 12;

impl Column {
    fn new(head: &str) -> Self {
        let name = head.trim_start_matches(['>', '~', '+', '<']);
        let marks = &head[..head.len() - name.len()];
        Self {
            head: plain(name),
            is_right: marks.contains('>'),
            spare: marks.matches('~').count(),
            is_axis: marks.contains('+'),
            may_be_cut: marks.contains('<'),
            cells: Vec::new(),
        }
    }

    fn width(&self) -> usize {
        let cells = self.cells.iter().chain([&self.head]).map(|cell| cell.chars().count());
        cells.max().unwrap_or(0) + GAP
    }

    /// Returns the value that several rows share, if it is the same in all.
    fn constant(&self) -> Option<&str> {
        let (first, rest) = self.cells.split_first()?;
        (!rest.is_empty() && rest.iter().all(|cell| cell == first)).then_some(first)
    }

    fn cut(&mut self, width: usize) {
        self.cells.iter_mut().for_each(|cell| *cell = live::fitted(cell, Some(width)));
    }
}

fn total(columns: &[Column]) -> usize {
    columns.iter().map(Column::width).sum::<usize>().saturating_sub(GAP)
}

/// Moves columns with one value into a line above. Then drops columns, named in a line below, until the rest fits.
fn narrowed(mut columns: Vec<Column>, width: usize) -> String {
    let (mut shared, mut left_out) = (Vec::new(), Vec::new());
    // The first column names the row and stays. Several columns that may be truncated are compared values.
    let sides = columns.iter().filter(|column| column.may_be_cut).count();
    let are_sides = sides > 1;
    for column in columns.extract_if(1.., |column| column.constant().is_some() && !(are_sides && column.may_be_cut)) {
        match column.constant() {
            // A column without any value has no information.
            Some("" | "-") | None => {}
            Some(value) => shared.push(format!("{} {value}", column.head)),
        }
    }
    if !are_sides
        && total(&columns) > width
        && let Some(column) = columns.iter_mut().find(|column| column.may_be_cut)
        && let Some((common, rest)) = without_common_words(&column.cells)
    {
        shared.push(format!("{} {common}", column.head));
        column.cells = rest;
    }
    let axes = axes_below(&mut columns, width);
    while total(&columns) > width {
        let most_spare = columns.iter().enumerate().filter(|(_, column)| column.spare > 0);
        let Some((at, _)) = most_spare.max_by_key(|(_, column)| column.spare) else { break };
        left_out.push(columns.remove(at).head);
    }
    let blocks = if sides > MOST_SIDES { blocks_of_sides(columns, width) } else { vec![columns] };
    let table: String = blocks
        .into_iter()
        .map(|mut columns| {
            cut_longest(&mut columns, width);
            laid_out(&columns)
        })
        .collect();
    let above = if shared.is_empty() { String::new() } else { format!("all rows: {}\n", shared.join(", ")) };
    let below = match left_out.as_slice() {
        [] => String::new(),
        names => format!("left out for the width: {} (`| cat` shows all)\n", names.join(", ")),
    };
    format!("{above}{table}{axes}{below}")
}

/// Splits a table whose compared values have less than [`LEAST`] characters each. Every part repeats the other columns.
fn blocks_of_sides(columns: Vec<Column>, width: usize) -> Vec<Vec<Column>> {
    let least = |column: &Column| column.width().min(LEAST + GAP);
    let (sides, others): (Vec<usize>, Vec<usize>) = (0..columns.len()).partition(|at| columns[*at].may_be_cut);
    let mut left = (width + GAP).saturating_sub(others.iter().map(|at| columns[*at].width()).sum());
    let all = left;
    let mut blocks: Vec<Vec<usize>> = vec![Vec::new()];
    for at in sides {
        let needed = least(&columns[at]);
        if needed > left && blocks.last().is_some_and(|block| !block.is_empty()) {
            blocks.push(Vec::new());
            left = all;
        }
        left = left.saturating_sub(needed);
        blocks.last_mut().into_iter().for_each(|block| block.push(at));
    }
    let of_block = |block: Vec<usize>| {
        let is_in = |at: &usize| others.contains(at) || block.contains(at);
        (0..columns.len()).filter(is_in).map(|at| columns[at].clone()).collect()
    };
    blocks.into_iter().map(of_block).collect()
}

/// Returns the words that all cells contain once, and the cells without them.
/// Returns `None` if there are no such words, or nothing else. A number belongs to the word before it: `lr 0.1`.
/// A word before another word that differs stays, because it may be its name.
fn without_common_words(cells: &[String]) -> Option<(String, Vec<String>)> {
    let rows: Vec<Vec<String>> = cells.iter().map(|cell| named_words(cell)).collect();
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for row in &rows {
        let mut own: HashMap<&str, usize> = HashMap::new();
        row.iter().for_each(|word| *own.entry(word).or_default() += 1);
        own.into_iter().filter(|(_, times)| *times == 1).for_each(|(word, _)| *counts.entry(word).or_default() += 1);
    }
    let is_in_all = |word: &str| rows.len() > 1 && counts.get(word) == Some(&rows.len());
    let is_word = |word: &str| !word.contains(' ');
    let pairs = rows.iter().flat_map(|row| row.windows(2));
    let names: HashSet<&str> = pairs
        .filter(|pair| is_word(&pair[0]) && is_word(&pair[1]) && !is_in_all(&pair[1]))
        .map(|pair| pair[0].as_str())
        .collect();
    let is_common = |word: &&String| is_in_all(word) && !names.contains(word.as_str());
    let common: Vec<&str> = rows.first()?.iter().filter(is_common).map(String::as_str).collect();
    let without = |row: &Vec<String>| row.iter().filter(|word| !is_common(word)).cloned().collect::<Vec<_>>().join(" ");
    let rest: Vec<String> = rows.iter().map(without).collect();
    (!common.is_empty() && rest.iter().any(|cell| !cell.is_empty())).then(|| (common.join(" "), rest))
}

/// Splits a label into words, each with the number or list after it.
fn named_words(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut is_list = false;
    for word in text.split(' ') {
        let is_number = word.starts_with(|c: char| c.is_ascii_digit() || c == '-');
        let is_behind = is_list || is_number || word.starts_with('[');
        match found.last_mut().filter(|last| is_behind && (is_list || !last.contains(' '))) {
            Some(name) => *name = format!("{name} {word}"),
            None => found.push(word.to_owned()),
        }
        is_list = (is_list || word.starts_with('[')) && !word.ends_with(']');
    }
    found
}

/// Removes the columns of axes from a table that is too wide for them.
/// Returns a line for each row: `#1 lr 0.1 batch_size 8`, or `a1 with lr 0.1` without numbered rows.
fn axes_below(columns: &mut Vec<Column>, width: usize) -> String {
    let least: usize = columns.iter().filter(|column| column.spare == 0).map(Column::width).sum();
    if least.saturating_sub(GAP) <= width {
        return String::new();
    }
    let (axes, together) = without_followers(columns.extract_if(.., |column| column.is_axis).collect());
    let Some(name) = columns.iter().find(|column| !column.is_right).filter(|_| !axes.is_empty()) else {
        return String::new();
    };
    let numbers = columns.iter().find(|column| column.head == "#");
    let line = |(row, name): (usize, &String)| {
        let of_row = axes.iter().map(|axis| (&axis.head, &axis.cells[row])).filter(|(_, cell)| *cell != "-");
        let with: String = of_row.map(|(head, cell)| format!(" {head} {cell}")).collect();
        let row = numbers.map_or_else(|| format!("{name} with"), |numbers| format!("#{}", numbers.cells[row]));
        if with.is_empty() { String::new() } else { format!("{row}{with}\n") }
    };
    let lines: String = name.cells.iter().enumerate().map(line).collect();
    format!("{lines}{together}")
}

/// Keeps the shortest of axes that change together. Returns the kept axes, and a line for each that replaces others.
fn without_followers(axes: Vec<Column>) -> (Vec<Column>, String) {
    let cells: Vec<Vec<&str>> = axes.iter().map(|axis| axis.cells.iter().map(String::as_str).collect()).collect();
    let (mut kept, mut text) = (Vec::new(), String::new());
    for (first, others) in changing_together(&cells) {
        if !others.is_empty() {
            let others: Vec<&str> = others.iter().map(|at| axes[*at].head.as_str()).collect();
            text.push_str(&format!("changes with {}: {}\n", axes[first].head, others.join(", ")));
        }
        kept.push(axes[first].clone());
    }
    (kept, text)
}

/// Truncates the longest of the columns that may be truncated, until all fit or have their least width.
fn cut_longest(columns: &mut [Column], width: usize) {
    let room = |column: &Column| column.width() - GAP;
    let rest: usize = columns.iter().filter(|column| !column.may_be_cut).map(Column::width).sum();
    let mut lengths: Vec<usize> = columns.iter().filter(|column| column.may_be_cut).map(room).collect();
    lengths.sort_unstable();
    let mut left = (width + GAP).saturating_sub(rest + GAP * lengths.len());
    // A column shorter than its share leaves more width to the others.
    for at in 0..lengths.len() {
        let share = left / (lengths.len() - at);
        if lengths[at] > share {
            let most = share.max(LEAST);
            let mut longest: Vec<&mut Column> =
                columns.iter_mut().filter(|column| column.may_be_cut && room(column) > most).collect();
            let whole: Vec<Vec<String>> = longest.iter().map(|column| column.cells.clone()).collect();
            longest.iter_mut().for_each(|column| column.cut(most));
            tell_apart(&mut longest, &whole, most);
            return;
        }
        left -= lengths[at];
    }
}

/// Cells of a row that are equal only after truncation start where they differ instead.
fn tell_apart(columns: &mut [&mut Column], whole: &[Vec<String>], most: usize) {
    for row in 0..columns.first().map_or(0, |column| column.cells.len()) {
        let mut alike: BTreeMap<String, Vec<(usize, &str)>> = BTreeMap::new();
        for (at, (column, whole)) in columns.iter().zip(whole).enumerate() {
            alike.entry(column.cells[row].clone()).or_default().push((at, &whole[row]));
        }
        for cells in alike.into_values() {
            let first = cells.first().map_or("", |(_, cell)| cell);
            if cells.iter().all(|(_, cell)| *cell == first) {
                continue;
            }
            let same = |cell: &str| cell.chars().zip(first.chars()).take_while(|(a, b)| a == b).count();
            let common = cells.iter().map(|(_, cell)| same(cell)).min().unwrap_or(0);
            for (at, cell) in cells {
                let rest: String = cell.chars().skip(common).collect();
                columns[at].cells[row] = live::fitted(&format!("…{rest}"), Some(most));
            }
        }
    }
}

fn laid_out(columns: &[Column]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(columns.iter().map(|column| &column.head));
    for row in 0..columns.first().map_or(0, |column| column.cells.len()) {
        table.add_row(columns.iter().map(|column| &column.cells[row]));
    }
    for (shown, column) in table.column_iter_mut().zip(columns) {
        shown.set_padding((0, 2));
        if column.is_right {
            shown.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = String::new();
    for (at, line) in table.lines().enumerate() {
        let line = line.trim_end();
        if at == 0 {
            HEADS.with_borrow_mut(|heads| heads.iter_mut().for_each(|heads| heads.push(line.to_owned())));
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_lines_have_no_trailing_blanks() {
        let rows = [vec!["a".to_owned(), "1".to_owned()], vec!["long".to_owned(), "23".to_owned()]];
        assert_eq!(columns(&["name", ">n"], rows), "name   n\na      1\nlong  23\n");
    }

    #[test]
    fn control_characters_in_a_cell_are_escaped() {
        let rows = [vec!["a\nbest: b".to_owned(), "\u{1b}[2K1".to_owned()]];
        assert_eq!(columns(&["na\rme", ">n"], rows), "na\\u{d}me               n\na\\u{a}best: b  \\u{1b}[2K1\n");
    }

    #[test]
    fn a_narrow_terminal_shows_columns_that_differ_and_names_the_others() {
        let heads = ["RUN", "~EXPERIMENT", "MODEL", "<WITH", "~~>LOSS", ">ACCURACY"];
        let row = |run: &str, experiment: &str, loss: &str| {
            let with = format!("adamw-lr-0.001-batch-64-steps-1100-{run}");
            [run, experiment, "bert", &with, loss, "-"].map(str::to_owned).to_vec()
        };
        let rows = || [row("a1", "speed", "2.5"), row("b2", "learns", "0.25")];
        let at = |width| fitted_to(Some(width), || columns(&heads, rows())).0;
        let whole = columns(&heads, rows());
        assert_eq!(at(90), whole);
        assert_eq!(
            at(60),
            "all rows: MODEL bert\n\
             RUN  EXPERIMENT  WITH                                   LOSS\n\
             a1   speed       adamw-lr-0.001-batch-64-steps-1100-a1   2.5\n\
             b2   learns      adamw-lr-0.001-batch-64-steps-1100-b2  0.25\n"
        );
        assert_eq!(
            at(40),
            "all rows: MODEL bert\n\
             RUN  WITH\n\
             a1   adamw-lr-0.001-batch-64-steps-1100…\n\
             b2   adamw-lr-0.001-batch-64-steps-1100…\n\
             left out for the width: LOSS, EXPERIMENT (`| cat` shows all)\n"
        );
        assert_eq!(columns(&heads, rows()), whole, "elsewhere lines may have any width");
    }

    #[test]
    fn axes_that_do_not_fit_are_below_the_table() {
        let heads = ["RUN", ">LOSS", "+lr", "+optimizer", "+warmup_steps"];
        let row = |row: [&str; 5]| row.map(str::to_owned).to_vec();
        let rows = || [row(["a1", "2.5", "0.1", "adamw", "-"]), row(["b2", "0.25", "0.02", "momentum", "100"])];
        let at = |width| fitted_to(Some(width), || columns(&heads, rows())).0;
        assert_eq!(at(50), columns(&heads, rows()));
        assert_eq!(
            at(39),
            "RUN  LOSS\n\
             a1    2.5\n\
             b2   0.25\n\
             a1 with lr 0.1 optimizer adamw\n\
             b2 with lr 0.02 optimizer momentum warmup_steps 100\n"
        );
    }

    #[test]
    fn axes_that_change_together_are_shown_once() {
        let row = |id: usize, at: usize| {
            let (side, device, batch) = (["256", "416"][at / 2], ["H100", "H200"][at / 2], ["8", "16"][at % 2]);
            [&id.to_string(), &format!("a{id}"), side, device, batch].map(str::to_owned).to_vec()
        };
        let rows = (0..4).map(|at| row(at + 1, at));
        let text = fitted_to(Some(20), || columns(&[">#", "RUN", "+side", "+device", "+batch"], rows)).0;
        assert!(text.contains("\n#2 side 256 batch 16\n") && text.contains("\nchanges with side: device\n"), "{text}");
    }

    #[test]
    fn words_common_to_all_rows_are_above_a_narrow_table() {
        let at = |width, labels: [&str; 3]| {
            let rows = ["a", "b", "c"].into_iter().zip(labels).map(|row| vec![row.0.to_owned(), row.1.to_owned()]);
            fitted_to(Some(width), || columns(&["RUN", "<WITH"], rows)).0
        };
        let labels = ["adam lr 0.1 cosine batch 8", "adam lr 0.2 cosine batch 8", "sgd lr 0.2 cosine batch 8"];
        let narrow = "all rows: WITH cosine batch 8\nRUN  WITH\na    adam lr 0.1\nb    adam lr 0.2\nc    sgd lr 0.2\n";
        assert_eq!(at(20, labels), narrow);
        assert!(at(80, labels).starts_with("RUN  WITH\na    adam lr 0.1 cosine batch 8\n"));
        let named = at(26, ["kind a schedule auto x", "kind b schedule 0.1 x", "kind b schedule c x"]);
        assert!(named.starts_with("all rows: WITH x\nRUN  WITH\na    kind a schedule auto\n"), "{named}");
        let uneven = at(20, ["adam lr 0.1 cosine", "adam lr 0.1", "adam lr 0.1 cosine batch 8"]);
        let expected = "all rows: WITH adam lr 0.1\nRUN  WITH\na    cosine\nb\nc    cosine batch 8\n";
        assert_eq!(uneven, expected);
        let twice = at(28, ["amp true nesterov true x", "amp true nesterov false x", "amp true nesterov true x"]);
        assert!(twice.starts_with("all rows: WITH x\nRUN  WITH\na    amp true nesterov true\n"), "{twice}");
        let lists = at(16, ["sizes [1, 2] x 3", "sizes [1, 4] x 3", "sizes [1, 4] x 3"]);
        assert!(lists.starts_with("all rows: WITH x 3\nRUN  WITH\na    sizes [1, 2]\n"), "{lists}");
    }

    #[test]
    fn compared_values_are_truncated_to_equal_widths() {
        let rows =
            || [["rule", &"a".repeat(50), &"b".repeat(40)], ["n", "1", "1"]].map(|row| row.map(str::to_owned).to_vec());
        let at = |width| fitted_to(Some(width), || columns(&["FIELD", "<A", "<B"], rows())).0;
        let shown = |a: usize, b: usize| {
            let cut = |letter: &str, most: usize| {
                if most < 40 { format!("{}…", letter.repeat(most - 1)) } else { letter.repeat(most) }
            };
            format!("rule   {}  {}\n", cut("a", a), cut("b", b))
        };
        assert!(at(49).contains(&shown(20, 20)), "{}", at(49));
        assert!(at(20).contains(&shown(12, 12)), "{}", at(20));
        assert!(at(49).contains("\nn      1 "), "{}", at(49));
        let (x, y) = (format!("{}x1", "a".repeat(30)), format!("{}y1", "a".repeat(30)));
        let alike = fitted_to(Some(40), || columns(&["FIELD", "<A", "<B"], [vec!["rule".to_owned(), x, y]])).0;
        assert!(alike.contains("rule   …x1  …y1"), "{alike}");
        let short = ["lr", "0.001", "0.0001", "0.001"].map(str::to_owned).to_vec();
        let long = ["digest".to_owned(), "b".repeat(40), "c".repeat(40), "d".repeat(40)].to_vec();
        let three = fitted_to(Some(50), || columns(&["FIELD", "<A", "<B", "<C"], [short, long])).0;
        assert!(three.contains("lr      0.001         0.0001        0.001"), "{three}");
    }

    #[test]
    fn compared_values_that_do_not_fit_are_split_into_tables() {
        let row = |name: &str, of: &str| [vec![name.to_owned()], vec![of.repeat(20); 4], vec!["J".to_owned()]].concat();
        let rows = [row("energy", "a"), row("power", "b")];
        let text = fitted_to(Some(40), || columns(&["METRIC", "<A", "<B", "<C", "<D", "UNIT"], rows)).0;
        let heads: Vec<&str> = text.lines().filter(|line| line.starts_with("METRIC")).collect();
        assert_eq!(heads.len(), 2, "{text}");
        assert!(heads[0].contains("A") && heads[0].contains("B") && heads[1].contains("D"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
    }
}
