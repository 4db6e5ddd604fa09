//! Tables as text and as Parquet, written piece by piece.

use super::columnar::Parquet;
use super::frame::{Frame, Kind};
use crate::interop::rows::cause;
use crate::record::{Table, Value};
use crate::wire::to_json_line;
use std::io::{self, Write};

/// How a table is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Text separated by commas (RFC 4180): a header, empty cells where a value is missing.
    Csv,
    /// One JSON object a row; what is missing is left out, and non-finite numbers are the texts `NaN`, `Infinity` and `-Infinity`.
    JsonLines,
    /// Apache Parquet, compressed with Snappy; what is missing is null.
    Parquet,
}

/// Writes pieces of one table, which all have the same columns.
pub struct TableWriter<W: Write + Send> {
    form: Form<W>,
}

enum Form<W: Write + Send> {
    Csv { out: Box<csv::Writer<W>>, begun: bool },
    JsonLines(W),
    Parquet(Box<Parquet<W>>),
}

impl<W: Write + Send> TableWriter<W> {
    /// A writer that has written nothing.
    pub fn new(encoding: Encoding, out: W) -> Self {
        let form = match encoding {
            Encoding::Csv => Form::Csv { out: Box::new(csv::Writer::from_writer(out)), begun: false },
            Encoding::JsonLines => Form::JsonLines(out),
            Encoding::Parquet => Form::Parquet(Box::new(Parquet::new(out))),
        };
        Self { form }
    }

    /// Writes the rows of a piece.
    ///
    /// # Errors
    /// If what is written to refuses.
    pub fn append(&mut self, frame: Frame) -> io::Result<()> {
        match &mut self.form {
            Form::Csv { out, begun } => {
                if !std::mem::replace(begun, true) {
                    out.write_record(frame.columns.iter().map(|column| &column.name)).map_err(cause)?;
                }
                for row in 0..frame.rows {
                    for column in &frame.columns {
                        let text = column.text(row).unwrap_or_default();
                        out.write_field(text.as_bytes()).map_err(cause)?;
                    }
                    out.write_record(None::<&[u8]>).map_err(cause)?;
                }
                Ok(())
            }
            Form::JsonLines(out) => (0..frame.rows).try_for_each(|row| writeln!(out, "{}", line(&frame, row))),
            Form::Parquet(parquet) => parquet.append(frame),
        }
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// If what is written to refuses.
    pub fn finish(self) -> io::Result<()> {
        match self.form {
            Form::Csv { mut out, .. } => out.flush(),
            Form::JsonLines(mut out) => out.flush(),
            Form::Parquet(parquet) => parquet.finish(),
        }
    }
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
