//! Tables as text and as Parquet, written piece by piece.

use super::columnar::Parquet;
use super::frame::{Frame, Kind};
use crate::interop::rows::cause;
use crate::record::{Table, Value};
use crate::wire::to_json_line;
use std::io::{self, Write};

/// The format of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Comma-separated text (RFC 4180) with a header. Missing values are empty cells.
    Csv,
    /// Like `Csv`, with an apostrophe before text that a spreadsheet would take for a formula.
    CsvSafe,
    /// One JSON object per row. Missing values are left out, and non-finite numbers are the texts `NaN`, `Infinity` and `-Infinity`.
    JsonLines,
    /// Apache Parquet, compressed with Snappy. Missing values are null.
    Parquet,
}

/// Writes pieces of one table. All pieces have the same columns.
pub struct TableWriter<W: Write + Send> {
    form: Form<W>,
}

enum Form<W: Write + Send> {
    Csv { out: Box<csv::Writer<W>>, begun: bool, is_safe: bool },
    JsonLines(W),
    Parquet(Box<Parquet<W>>),
}

impl<W: Write + Send> TableWriter<W> {
    /// Returns a writer that has written nothing.
    pub fn new(encoding: Encoding, out: W) -> Self {
        let form = match encoding {
            Encoding::Csv | Encoding::CsvSafe => Form::Csv {
                out: Box::new(csv::Writer::from_writer(out)),
                begun: false,
                is_safe: encoding == Encoding::CsvSafe,
            },
            Encoding::JsonLines => Form::JsonLines(out),
            Encoding::Parquet => Form::Parquet(Box::new(Parquet::new(out))),
        };
        Self { form }
    }

    /// Writes the rows of a piece.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn append(&mut self, frame: Frame) -> io::Result<()> {
        match &mut self.form {
            Form::Csv { out, begun, is_safe } => {
                let guard = |is_text: bool, text: &str| if *is_safe && is_text && is_formula(text) { "'" } else { "" };
                if !std::mem::replace(begun, true) {
                    let heads =
                        frame.columns.iter().map(|column| format!("{}{}", guard(true, &column.name), column.name));
                    out.write_record(heads).map_err(cause)?;
                }
                for row in 0..frame.rows {
                    for column in &frame.columns {
                        let text = column.text(row).unwrap_or_default();
                        let guard = guard(matches!(column.cell(row), Some(Value::Str(_))), &text);
                        out.write_field([guard.as_bytes(), text.as_bytes()].concat()).map_err(cause)?;
                    }
                    out.write_record(None::<&[u8]>).map_err(cause)?;
                }
                Ok(())
            }
            Form::JsonLines(out) => (0..frame.rows).try_for_each(|row| writeln!(out, "{}", line(&frame, row))),
            Form::Parquet(parquet) => parquet.append(frame),
        }
    }

    /// Writes the rest, and flushes.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn finish(self) -> io::Result<()> {
        match self.form {
            Form::Csv { mut out, .. } => out.flush(),
            Form::JsonLines(mut out) => out.flush(),
            Form::Parquet(parquet) => parquet.finish(),
        }
    }
}

/// Whether a spreadsheet would evaluate a cell as a formula, which may call programs and addresses.
fn is_formula(text: &str) -> bool {
    text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠'])
}

fn line(frame: &Frame, row: usize) -> String {
    let cells = frame.columns.iter().filter_map(|column| {
        let value = match (column.kind, column.cell(row)?) {
            (Kind::Moment, _) => Value::from(column.text(row)?.into_owned()),
            (Kind::Real, value) => value.as_float()?.into(),
            (_, value) => value.clone(),
        };
        Some((column.name.clone(), value))
    });
    to_json_line(&Value::Table(cells.collect::<Table>()))
}
