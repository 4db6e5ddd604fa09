//! Tables as Apache Parquet.

use super::frame::{Column, Frame, Kind};
use crate::record::Value;
use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;
use std::io::{self, Write};
use std::sync::Arc;

/// The least number of rows in a row group, except the last. Readers pay for each group.
const GROUP_ROWS: usize = 1 << 18;

/// A Parquet file that is being written.
pub(super) struct Parquet<W: Write + Send> {
    /// Taken when the first frame gives the columns.
    out: Option<W>,
    writer: Option<SerializedFileWriter<W>>,
    pending: Vec<Frame>,
    rows: usize,
}

impl<W: Write + Send> Parquet<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out: Some(out), writer: None, pending: Vec::new(), rows: 0 }
    }

    pub(super) fn append(&mut self, frame: Frame) -> io::Result<()> {
        if let Some(out) = self.out.take() {
            let writer = SerializedFileWriter::new(out, Arc::new(schema(&frame).map_err(refused)?), properties());
            self.writer = Some(writer.map_err(refused)?);
        }
        if frame.rows > 0 {
            self.rows += frame.rows;
            self.pending.push(frame);
        }
        if self.rows >= GROUP_ROWS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        let frames = std::mem::take(&mut self.pending);
        let rows = std::mem::take(&mut self.rows);
        let (Some(writer), true) = (&mut self.writer, rows > 0) else { return Ok(()) };
        let mut group = writer.next_row_group().map_err(refused)?;
        let mut at = 0;
        while let Some(mut column) = group.next_column().map_err(refused)? {
            let pieces: Vec<(&Column, usize)> =
                frames.iter().filter_map(|frame| Some((frame.columns.get(at)?, frame.rows))).collect();
            write(&mut column, &pieces).map_err(refused)?;
            column.close().map_err(refused)?;
            at += 1;
        }
        group.close().map_err(refused)?;
        Ok(())
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        if let Some(writer) = self.writer {
            writer.close().map_err(refused)?;
        }
        Ok(())
    }
}

fn properties() -> Arc<WriterProperties> {
    let made_by = format!("ledger {}", env!("CARGO_PKG_VERSION"));
    Arc::new(WriterProperties::builder().set_compression(Compression::SNAPPY).set_created_by(made_by).build())
}

fn refused(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(source) => source.downcast().map_or_else(io::Error::other, |error| *error),
        error => io::Error::other(error),
    }
}

fn schema(frame: &Frame) -> Result<Type, ParquetError> {
    let fields = frame.columns.iter().map(|column| {
        let (physical, logical) = match column.kind {
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Int => (Physical::INT64, None),
            Kind::Real => (Physical::DOUBLE, None),
            Kind::Bool => (Physical::BOOLEAN, None),
            Kind::Moment => (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::MILLIS))),
        };
        let field = Type::primitive_type_builder(&column.name, physical).with_repetition(Repetition::OPTIONAL);
        field.with_logical_type(logical).build().map(Arc::new)
    });
    Type::group_type_builder("ledger").with_fields(fields.collect::<Result<_, _>>()?).build()
}

fn write(out: &mut SerializedColumnWriter<'_>, pieces: &[(&Column, usize)]) -> Result<(), ParquetError> {
    match pieces.first().map_or(Kind::Text, |(column, _)| column.kind) {
        Kind::Text => typed::<ByteArrayType>(out, pieces, &|column, row| {
            column.text(row).map(|text| ByteArray::from(text.into_owned().into_bytes()))
        }),
        Kind::Int | Kind::Moment => {
            typed::<Int64Type>(out, pieces, &|column, row| column.cell(row).and_then(Value::as_int))
        }
        Kind::Real => typed::<DoubleType>(out, pieces, &|column, row| column.cell(row).and_then(Value::as_float)),
        Kind::Bool => typed::<BoolType>(out, pieces, &|column, row| column.cell(row).and_then(Value::as_bool)),
    }
}

fn typed<T: DataType>(
    out: &mut SerializedColumnWriter<'_>,
    pieces: &[(&Column, usize)],
    cell: &dyn Fn(&Column, usize) -> Option<T::T>,
) -> Result<(), ParquetError> {
    for (column, rows) in pieces {
        let cells: Vec<Option<T::T>> = (0..*rows).map(|row| cell(column, row)).collect();
        let levels: Vec<i16> = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
        let values: Vec<T::T> = cells.into_iter().flatten().collect();
        out.typed::<T>().write_batch(&values, Some(&levels), None)?;
    }
    Ok(())
}
