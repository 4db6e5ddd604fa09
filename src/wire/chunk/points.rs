//! Incremental encoding of a series as a chunk: memory does not grow with the series.

use super::{ChunkError, PositionsV1, SeriesV1, ValuesV1, decode_series, series_frame, single, visit_series, whole};
use crate::v1::{LIMIT_BYTES, axis_code, axis_of, encode};
use ledger_record::{Axis, Series, SeriesDigest, SeriesSummary};
use pco::data_types::Number;
use pco::standalone::FileCompressor;
use pco::{ChunkConfig, PagingSpec};
use std::io;

/// Points that can be read repeatedly in order.
pub trait Points {
    /// The number of points.
    fn count(&self) -> usize;

    /// Visits each point in order.
    ///
    /// # Errors
    /// If they are in a file that cannot be read.
    fn visit(&self, visit: &mut dyn FnMut(u64, f64)) -> io::Result<()>;
}

impl Points for Series {
    fn count(&self) -> usize {
        self.values.len()
    }

    fn visit(&self, visit: &mut dyn FnMut(u64, f64)) -> io::Result<()> {
        let points = self.positions.iter().zip(&self.values);
        points.for_each(|(position, value)| visit(*position, *value));
        Ok(())
    }
}

/// The first points of others.
pub struct First<'p> {
    /// The others.
    pub points: &'p dyn Points,
    /// The number of points.
    pub count: usize,
}

impl Points for First<'_> {
    fn count(&self) -> usize {
        self.count.min(self.points.count())
    }

    fn visit(&self, visit: &mut dyn FnMut(u64, f64)) -> io::Result<()> {
        let mut left = self.count;
        self.points.visit(&mut |position, value| {
            if left > 0 {
                left -= 1;
                visit(position, value);
            }
        })
    }
}

/// Encodes points to the same bytes as [`encode_series`](super::encode_series), and returns their summary for the attempt's record.
///
/// # Errors
/// If it could not be decoded, or if the points cannot be read.
pub fn encode_points(
    (name, unit, axis): (&str, &str, Axis),
    points: &dyn Points,
) -> Result<(Vec<u8>, SeriesSummary), ChunkError> {
    let count = points.count();
    let mut digest = SeriesDigest::new(name, unit, axis, count);
    let mut form = Form::default();
    points.visit(&mut |position, value| {
        digest.position(position);
        form.see(position, value);
    })?;
    let mut positions = form.positions(count)?;
    let mut values = form.values(count)?;
    let mut fault = None;
    points.visit(&mut |position, value| {
        digest.value(value);
        if fault.is_none() {
            fault = positions.push(position).and_then(|()| values.push(value)).err();
        }
    })?;
    if let Some(fault) = fault {
        return Err(fault);
    }
    let (positions, values) = (positions.finish()?, values.finish()?);
    let (name, unit, len) = (name.to_owned(), unit.to_owned(), count as u64);
    let wire = SeriesV1 { name: name.clone(), unit: unit.clone(), axis: axis_code(axis), len, positions, values };
    let bytes = encode("series", &wire)?;
    drop(wire);
    series_frame(&bytes)?;
    Ok((bytes, SeriesSummary { name, unit, axis, len, digest: digest.finish() }))
}

/// The summary of an encoded series for an attempt's record. Memory does not grow with the series.
///
/// # Errors
/// If it does not decode.
pub fn summarize_series(bytes: &[u8]) -> Result<SeriesSummary, ChunkError> {
    /// The most points that are decoded at once. Longer series are decoded twice, because the digest needs all positions first.
    const AT_ONCE: u64 = 1 << 20;
    let (wire, _) = series_frame(bytes)?;
    if wire.len <= AT_ONCE {
        return Ok(decode_series(bytes)?.summary());
    }
    let axis = axis_of(wire.axis)?;
    let len = usize::try_from(wire.len).unwrap_or(usize::MAX);
    let mut digest = SeriesDigest::new(&wire.name, &wire.unit, axis, len);
    visit_series(bytes, &mut |position, _| digest.position(position))?;
    visit_series(bytes, &mut |_, value| digest.value(value))?;
    Ok(SeriesSummary { name: wire.name, unit: wire.unit, axis, len: wire.len, digest: digest.finish() })
}

/// The most compact encoding of each column, given the points seen so far.
#[derive(Default)]
struct Form {
    first: Option<(u64, u64)>,
    stride: Option<u64>,
    last: u64,
    is_irregular: bool,
    is_varied: bool,
    has_fractions: bool,
    has_doubles: bool,
}

impl Form {
    fn see(&mut self, position: u64, value: f64) {
        let Some((_, bits)) = self.first else {
            self.first = Some((position, value.to_bits()));
            self.last = position;
            self.has_fractions = whole(value).is_none();
            self.has_doubles = single(value).is_none();
            return;
        };
        let step = position.checked_sub(self.last);
        self.is_irregular |= step.is_none() || step != Some(*self.stride.get_or_insert(step.unwrap_or(0)));
        self.last = position;
        self.is_varied |= value.to_bits() != bits;
        self.has_fractions |= whole(value).is_none();
        self.has_doubles |= single(value).is_none();
    }

    fn positions(&self, count: usize) -> Result<Positions, ChunkError> {
        Ok(match self.first {
            Some((start, _)) if !self.is_irregular => Positions::Regular(start, self.stride.unwrap_or(0)),
            _ => Positions::Pco(Column::new(count)?),
        })
    }

    fn values(&self, count: usize) -> Result<Values, ChunkError> {
        Ok(match self.first {
            _ if !self.is_varied => Values::Constant(self.first.map_or(0, |(_, bits)| bits)),
            _ if !self.has_fractions => Values::Int(Column::new(count)?),
            _ if !self.has_doubles => Values::F32(Column::new(count)?),
            _ => Values::F64(Column::new(count)?),
        })
    }
}

enum Positions {
    Regular(u64, u64),
    Pco(Column<u64>),
}

impl Positions {
    fn push(&mut self, position: u64) -> Result<(), ChunkError> {
        match self {
            Self::Regular(..) => Ok(()),
            Self::Pco(column) => column.push(position),
        }
    }

    fn finish(self) -> Result<PositionsV1, ChunkError> {
        Ok(match self {
            Self::Regular(start, stride) => PositionsV1::Regular { start, stride },
            Self::Pco(column) => PositionsV1::Pco(column.finish()?),
        })
    }
}

enum Values {
    Constant(u64),
    Int(Column<i64>),
    F32(Column<f32>),
    F64(Column<f64>),
}

impl Values {
    fn push(&mut self, value: f64) -> Result<(), ChunkError> {
        match self {
            Self::Constant(_) => Ok(()),
            // The encoding was chosen after all values were seen.
            Self::Int(column) => column.push(whole(value).unwrap_or(0)),
            Self::F32(column) => column.push(single(value).unwrap_or(f32::NAN)),
            Self::F64(column) => column.push(value),
        }
    }

    fn finish(self) -> Result<ValuesV1, ChunkError> {
        Ok(match self {
            Self::Constant(bits) => ValuesV1::Constant(bits),
            Self::Int(column) => ValuesV1::Int(column.finish()?),
            Self::F32(column) => ValuesV1::F32(column.finish()?),
            Self::F64(column) => ValuesV1::F64(column.finish()?),
        })
    }
}

/// A column that is compressed by page, with the pages of `pco::standalone::simple_compress`.
struct Column<T: Number> {
    file: FileCompressor,
    pages: std::vec::IntoIter<usize>,
    page: Vec<T>,
    page_len: usize,
    bytes: Vec<u8>,
    count: usize,
}

impl<T: Number> Column<T> {
    fn new(count: usize) -> Result<Self, ChunkError> {
        let file = FileCompressor::default().with_n_hint(count);
        let bytes = file.write_header(Vec::new())?;
        let mut pages = ChunkConfig::default().paging_spec.n_per_page(count)?.into_iter();
        let page_len = pages.next().unwrap_or(0);
        Ok(Self { file, pages, page: Vec::with_capacity(page_len), page_len, bytes, count })
    }

    fn push(&mut self, value: T) -> Result<(), ChunkError> {
        self.page.push(value);
        if self.page.len() < self.page_len {
            return Ok(());
        }
        let config = ChunkConfig::default().with_paging_spec(PagingSpec::Exact(vec![self.page_len]));
        let bytes = std::mem::take(&mut self.bytes);
        self.bytes = self.file.chunk_compressor(&self.page, &config)?.write(bytes)?;
        self.page.clear();
        self.page_len = self.pages.next().unwrap_or(0);
        // No decoder accepts more.
        if self.bytes.len() > LIMIT_BYTES { Err(ChunkError::TooLong(self.count as u64)) } else { Ok(()) }
    }

    fn finish(self) -> Result<Vec<u8>, ChunkError> {
        Ok(self.file.write_footer(self.bytes)?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::encode_series;
    use super::*;
    use proptest::prelude::*;

    fn check(series: &Series) {
        let name = (series.name.as_str(), series.unit.as_str(), series.axis);
        let (bytes, summary) = encode_points(name, series).unwrap();
        assert!(bytes == encode_series(series).unwrap(), "{} points", series.values.len());
        assert_eq!(summary, series.summary());
    }

    #[test]
    fn points_of_every_form_are_encoded_as_a_series_is() {
        for len in [0u32, 1, 2, 3, 1000, (1 << 18) - 1, 1 << 18, (1 << 18) + 1, 700_001] {
            for form in 0..6u8 {
                let mut series = Series::new("loss", "W", Axis::Step);
                for at in 0..len {
                    let value = f64::from(at);
                    let value = match form {
                        0 => 1.5,
                        1 => value,
                        2 => value / 2.0,
                        3 => value / 3.0,
                        4 if at + 1 == len => f64::NAN,
                        _ if at == 0 => -0.0,
                        _ => value,
                    };
                    series.push(if form % 2 == 0 { 3 * u64::from(at) } else { u64::from(at).pow(2) }, value);
                }
                check(&series);
            }
        }
    }

    proptest! {
        #[test]
        fn any_points_are_encoded_as_a_series_is(points in prop::collection::vec((any::<u64>(), any::<u64>()), 0..300)) {
            let mut series = Series::new("loss", "", Axis::TimeNs);
            points.iter().for_each(|(position, value)| series.push(*position, f64::from_bits(*value)));
            check(&series);
            let count = points.len() / 2;
            let first = First { points: &series, count };
            let (bytes, _) = encode_points(("loss", "", Axis::TimeNs), &first).unwrap();
            series.positions.truncate(count);
            series.values.truncate(count);
            prop_assert_eq!(bytes, encode_series(&series).unwrap());
        }
    }
}
