//! Columns of text, aligned, without borders: readable on a terminal and by `awk`.

use super::plain::plain;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// Lays rows out under their heads. Columns whose head begins with `>` are aligned to the right. A cell is one line, whatever is in it.
pub fn columns(heads: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(heads.iter().map(|head| plain(head.trim_start_matches('>'))));
    for row in rows {
        table.add_row(row.iter().map(|cell| plain(cell)));
    }
    for (column, head) in table.column_iter_mut().zip(heads) {
        column.set_padding((0, 2));
        if head.starts_with('>') {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = String::new();
    for line in table.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_lines_end_without_blanks() {
        let rows = [vec!["a".to_owned(), "1".to_owned()], vec!["long".to_owned(), "23".to_owned()]];
        assert_eq!(columns(&["name", ">n"], rows), "name   n\na      1\nlong  23\n");
    }

    #[test]
    fn a_cell_stays_in_its_place() {
        let rows = [vec!["a\nbest: b".to_owned(), "\u{1b}[2K1".to_owned()]];
        assert_eq!(columns(&["na\rme", ">n"], rows), "na\\u{d}me               n\na\\u{a}best: b  \\u{1b}[2K1\n");
    }
}
