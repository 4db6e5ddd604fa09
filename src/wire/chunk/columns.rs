//! Incremental decoding of columns.

use super::{ChunkError, PositionsV1, ValuesV1, real, series_frame};
use pco::data_types::Number;
use pco::standalone::{ChunkDecompressor, DecompressorItem, FileDecompressor};

/// A column that is decoded incrementally.
enum Column<'b, T: Number + Default> {
    Coded { file: FileDecompressor, chunk: Option<Box<ChunkDecompressor<T, &'b [u8]>>>, rest: &'b [u8] },
    Computed(Box<dyn Fn(u64) -> T>),
}

/// The number of values that are decoded at a time; pco decodes multiples of 256.
const PIECE: usize = 4096;

impl<'b, T: Number + Default> Column<'b, T> {
    fn coded(bytes: &'b [u8]) -> Result<Self, ChunkError> {
        let (file, rest) = FileDecompressor::new(bytes)?;
        Ok(Self::Coded { file, chunk: None, rest })
    }

    fn is_at_its_end(&mut self) -> Result<bool, ChunkError> {
        let mut more = Vec::new();
        if let Self::Coded { .. } = self {
            self.read(0, 1, &mut more)?;
        }
        Ok(more.is_empty())
    }

    /// Reads the next values, from that index on; none after the last.
    fn read(&mut self, index: u64, left: u64, values: &mut Vec<T>) -> Result<(), ChunkError> {
        let piece = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        values.clear();
        let (file, chunk, rest) = match self {
            Self::Computed(value) => {
                for at in index..index + piece as u64 {
                    values.push(value(at));
                }
                return Ok(());
            }
            Self::Coded { file, chunk, rest } => (file, chunk, rest),
        };
        loop {
            let mut open = match chunk.take() {
                Some(open) => open,
                None => match file.chunk_decompressor::<T, &'b [u8]>(*rest)? {
                    DecompressorItem::Chunk(open) => Box::new(open),
                    DecompressorItem::EndOfData(_) => return Ok(()),
                },
            };
            values.resize(PIECE, T::default());
            let progress = open.read(values)?;
            values.truncate(progress.n_processed);
            if progress.finished {
                *rest = open.into_src();
            } else {
                *chunk = Some(open);
            }
            if !values.is_empty() {
                return Ok(());
            }
        }
    }
}

/// Visits each point of a series with incremental decoding: memory does not grow with the series.
///
/// # Errors
/// If it does not decode. Points before the error have been visited.
pub fn visit_series(bytes: &[u8], visit: &mut dyn FnMut(u64, f64)) -> Result<(), ChunkError> {
    let (wire, _) = series_frame(bytes)?;
    let mut positions: Column<'_, u64> = match &wire.positions {
        PositionsV1::Regular { start, stride } => {
            let (start, stride) = (*start, *stride);
            Column::Computed(Box::new(move |i| start.wrapping_add(stride.wrapping_mul(i))))
        }
        PositionsV1::Pco(bytes) => Column::coded(bytes)?,
    };
    match &wire.values {
        ValuesV1::Constant(bits) => {
            let bits = *bits;
            let values = Column::Computed(Box::new(move |_| bits));
            visit_columns(wire.len, &mut positions, values, f64::from_bits, visit)
        }
        ValuesV1::Int(bytes) => visit_columns(wire.len, &mut positions, Column::coded(bytes)?, real, visit),
        ValuesV1::F32(bytes) => {
            visit_columns(wire.len, &mut positions, Column::coded(bytes)?, |value: f32| f64::from(value), visit)
        }
        ValuesV1::F64(bytes) => {
            visit_columns(wire.len, &mut positions, Column::coded(bytes)?, |value: f64| value, visit)
        }
    }
}

fn visit_columns<T: Number + Default>(
    len: u64,
    positions: &mut Column<'_, u64>,
    mut values: Column<'_, T>,
    float: impl Fn(T) -> f64,
    visit: &mut dyn FnMut(u64, f64),
) -> Result<(), ChunkError> {
    let (mut done, mut at, mut of_values) = (0u64, Vec::new(), Vec::new());
    let (mut used_at, mut used_values) = (0, 0);
    while done < len {
        if used_at == at.len() {
            positions.read(done, len - done, &mut at)?;
            used_at = 0;
        }
        if used_values == of_values.len() {
            values.read(done, len - done, &mut of_values)?;
            used_values = 0;
        }
        let count = (at.len() - used_at).min(of_values.len() - used_values);
        if count == 0 {
            return Err(ChunkError::Length { found: usize::try_from(done).unwrap_or(usize::MAX), expected: len });
        }
        let pairs = at.iter().skip(used_at).zip(of_values.iter().skip(used_values)).take(count);
        for (position, value) in pairs.take(usize::try_from(len - done).unwrap_or(usize::MAX)) {
            visit(*position, float(*value));
        }
        (used_at, used_values) = (used_at + count, used_values + count);
        done += count as u64;
    }
    // As in `decode_series`, a column with more values is an error.
    let is_used = done == len && used_at == at.len() && used_values == of_values.len();
    if is_used && positions.is_at_its_end()? && values.is_at_its_end()? {
        Ok(())
    } else {
        Err(ChunkError::Length { found: usize::try_from(done + 1).unwrap_or(usize::MAX), expected: len })
    }
}
