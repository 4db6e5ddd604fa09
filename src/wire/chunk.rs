//! Series and phases as compressed chunks, format 1.
//!
//! Chunks are stored apart from the attempt's record, so that listing attempts never reads them. Values are bit-exact:
//! each column has the most compact of a few lossless encodings.

mod columns;
mod points;

pub use columns::visit_series;
pub use points::{First, Points, encode_points, summarize_series};

use super::v1::{WireError, axis_code, axis_of, decode, encode};
use bincode::{Decode, Encode};
use ledger_record::{Inconsistency, Phase, Series, count};
use pco::ChunkConfig;
use pco::data_types::Number;
use std::collections::HashMap;

/// A chunk that does not encode or decode.
#[derive(Debug, thiserror::Error)]
pub enum ChunkError {
    /// The frame around the columns.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A compressed column.
    #[error("a compressed column is damaged: {0}")]
    Column(#[from] pco::errors::PcoError),
    /// A column is shorter or longer than the chunk states.
    #[error("a column has {}, but the chunk says {expected}", count(found, "value"))]
    Length {
        /// The number of values found.
        found: usize,
        /// The number of values stated.
        expected: u64,
    },
    /// More points than any attempt has.
    #[error("a chunk of {0} values is refused (at most {MAX_POINTS} points, and {MAX_BYTES} bytes of memory)")]
    TooLong(u64),
    /// Points that cannot be read from their file.
    #[error("the points of a series cannot be read: {0}")]
    Unread(#[from] std::io::Error),
    /// The chunk differs from its attempt's record.
    #[error("{0}")]
    Inconsistent(#[from] Inconsistency),
    /// A phase whose encoded length would mean that it never stopped.
    #[error("phase `{name}` {index} stops a nanosecond before its start, which a chunk cannot hold")]
    Backwards {
        /// The phase's name.
        name: String,
        /// The phase's number.
        index: u64,
    },
}

/// The most points of a series: more than five days at 100 Hz.
const MAX_POINTS: u64 = 50_000_000;
/// The memory of a point, in bytes.
const POINT_BYTES: u64 = 16;
/// The most memory that a decoded chunk may take, in bytes.
const MAX_BYTES: u64 = MAX_POINTS * POINT_BYTES;
/// The memory of a phase without its name, in bytes: five columns, and the phase itself.
const PHASE_BYTES: u64 = (5 * size_of::<u64>() + size_of::<Phase>()) as u64;

#[derive(Encode, Decode)]
enum PositionsV1 {
    /// `start + i * stride`.
    Regular {
        start: u64,
        stride: u64,
    },
    Pco(Vec<u8>),
}

#[derive(Encode, Decode)]
enum ValuesV1 {
    /// One bit pattern for all values.
    Constant(u64),
    /// Whole numbers below 2^53.
    Int(Vec<u8>),
    /// Every value is an `f32`.
    F32(Vec<u8>),
    F64(Vec<u8>),
}

#[derive(Encode, Decode)]
struct SeriesV1 {
    name: String,
    unit: String,
    axis: u8,
    len: u64,
    positions: PositionsV1,
    values: ValuesV1,
}

fn compress<T: Number>(values: &[T]) -> Result<Vec<u8>, ChunkError> {
    Ok(pco::standalone::simple_compress(values, &ChunkConfig::default())?)
}

fn decompress<T: Number + Default>(bytes: &[u8], len: u64) -> Result<Vec<T>, ChunkError> {
    let expected = usize::try_from(len.min(MAX_POINTS)).unwrap_or(0);
    let mut values = vec![T::default(); expected];
    let progress = pco::standalone::simple_decompress_into(bytes, &mut values)?;
    if progress.n_processed == expected && progress.finished {
        Ok(values)
    } else {
        Err(ChunkError::Length { found: progress.n_processed, expected: len })
    }
}

fn regular(positions: &[u64]) -> Option<PositionsV1> {
    let start = *positions.first()?;
    let stride = positions.get(1).map_or(Some(0), |second| second.checked_sub(start))?;
    positions
        .windows(2)
        .all(|pair| pair[1].checked_sub(pair[0]) == Some(stride))
        .then_some(PositionsV1::Regular { start, stride })
}

/// Returns the whole number with exactly these bits as an `f64`.
fn whole(value: f64) -> Option<i64> {
    const LIMIT: f64 = 9_007_199_254_740_992.0;
    if value.abs() >= LIMIT || value.is_nan() {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "the bits are compared below")]
    let int = value as i64;
    (real(int).to_bits() == value.to_bits()).then_some(int)
}

#[expect(clippy::cast_precision_loss, reason = "only numbers below 2^53 come here")]
fn real(int: i64) -> f64 {
    int as f64
}

fn single(value: f64) -> Option<f32> {
    #[expect(clippy::cast_possible_truncation, reason = "the bits are compared below")]
    let single = value as f32;
    (f64::from(single).to_bits() == value.to_bits()).then_some(single)
}

fn values_form(values: &[f64]) -> Result<ValuesV1, ChunkError> {
    let first = values.first().map_or(0, |value| value.to_bits());
    if values.iter().all(|value| value.to_bits() == first) {
        return Ok(ValuesV1::Constant(first));
    }
    if let Some(ints) = values.iter().map(|value| whole(*value)).collect::<Option<Vec<_>>>() {
        return Ok(ValuesV1::Int(compress(&ints)?));
    }
    if let Some(singles) = values.iter().map(|value| single(*value)).collect::<Option<Vec<_>>>() {
        return Ok(ValuesV1::F32(compress(&singles)?));
    }
    Ok(ValuesV1::F64(compress(values)?))
}

/// Encodes a series.
///
/// # Errors
/// If it could not be decoded.
pub fn encode_series(series: &Series) -> Result<Vec<u8>, ChunkError> {
    let positions = match regular(&series.positions) {
        Some(form) => form,
        None => PositionsV1::Pco(compress(&series.positions)?),
    };
    let wire = SeriesV1 {
        name: series.name.clone(),
        unit: series.unit.clone(),
        axis: axis_code(series.axis),
        len: series.values.len() as u64,
        positions,
        values: values_form(&series.values)?,
    };
    let bytes = encode("series", &wire)?;
    // Decoding has limits that encoding does not check.
    series_frame(&bytes)?;
    Ok(bytes)
}

fn series_frame(bytes: &[u8]) -> Result<(SeriesV1, u64), ChunkError> {
    let wire: SeriesV1 = decode("series", bytes)?;
    if wire.len > MAX_POINTS {
        return Err(ChunkError::TooLong(wire.len));
    }
    let memory = wire.len * POINT_BYTES;
    Ok((wire, memory))
}

/// The memory of a series after decoding, in bytes. A chunk of a few bytes can have many points.
pub fn series_memory(bytes: &[u8]) -> Result<u64, ChunkError> {
    Ok(series_frame(bytes)?.1)
}

/// Decodes a series, bit for bit as it was encoded.
pub fn decode_series(bytes: &[u8]) -> Result<Series, ChunkError> {
    let (wire, _) = series_frame(bytes)?;
    let positions = match wire.positions {
        PositionsV1::Regular { start, stride } => {
            (0..wire.len).map(|i| start.wrapping_add(stride.wrapping_mul(i))).collect()
        }
        PositionsV1::Pco(bytes) => decompress(&bytes, wire.len)?,
    };
    let values = match wire.values {
        ValuesV1::Constant(bits) => (0..wire.len).map(|_| f64::from_bits(bits)).collect(),
        ValuesV1::Int(bytes) => decompress(&bytes, wire.len)?.into_iter().map(real).collect(),
        ValuesV1::F32(bytes) => decompress(&bytes, wire.len)?.into_iter().map(|v: f32| f64::from(v)).collect(),
        ValuesV1::F64(bytes) => decompress(&bytes, wire.len)?,
    };
    Ok(Series { name: wire.name, unit: wire.unit, axis: axis_of(wire.axis)?, positions, values })
}

#[derive(Encode, Decode)]
struct PhasesV1 {
    names: Vec<String>,
    len: u64,
    name: Vec<u8>,
    index: Vec<u8>,
    rank: Vec<u8>,
    start_ns: Vec<u8>,
    /// Duration in nanoseconds plus one; 0 if the phase never stopped.
    duration: Vec<u8>,
}

/// Encodes the phases of an attempt.
///
/// # Errors
/// If they could not be decoded.
pub fn encode_phases(phases: &[Phase]) -> Result<Vec<u8>, ChunkError> {
    let mut names: Vec<String> = Vec::new();
    let mut known: HashMap<&str, u64> = HashMap::new();
    let mut name = Vec::with_capacity(phases.len());
    for phase in phases {
        name.push(*known.entry(phase.name.as_str()).or_insert_with(|| {
            names.push(phase.name.clone());
            names.len() as u64 - 1
        }));
    }
    let duration = |phase: &Phase| match phase.stop_ns {
        None => Ok(0),
        Some(stop_ns) => match stop_ns.wrapping_sub(phase.start_ns).wrapping_add(1) {
            // It would be decoded as a phase that never stopped.
            0 => Err(ChunkError::Backwards { name: phase.name.clone(), index: phase.index }),
            duration => Ok(duration),
        },
    };
    let wire = PhasesV1 {
        names,
        len: phases.len() as u64,
        name: compress(&name)?,
        index: compress(&phases.iter().map(|phase| phase.index).collect::<Vec<_>>())?,
        rank: compress(&phases.iter().map(|phase| u64::from(phase.rank)).collect::<Vec<_>>())?,
        start_ns: compress(&phases.iter().map(|phase| phase.start_ns).collect::<Vec<_>>())?,
        duration: compress(&phases.iter().map(duration).collect::<Result<Vec<_>, _>>()?)?,
    };
    let bytes = encode("phases", &wire)?;
    phases_frame(&bytes)?;
    Ok(bytes)
}

fn phases_frame(bytes: &[u8]) -> Result<(PhasesV1, u64), ChunkError> {
    let wire: PhasesV1 = decode("phases", bytes)?;
    let all = |each: u64| wire.len.checked_mul(each).filter(|memory| *memory <= MAX_BYTES);
    let longest = wire.names.iter().map(String::len).max().unwrap_or(0) as u64;
    if let Some(most) = all(PHASE_BYTES.saturating_add(longest)) {
        return Ok((wire, most));
    }
    // A long name may belong to only a few phases.
    let refused = || ChunkError::TooLong(wire.len);
    let nameless = all(PHASE_BYTES).ok_or_else(refused)?;
    let of = |at: &u64| wire.names.get(usize::try_from(*at).ok()?).map(|name| name.len() as u64);
    let names: u64 = decompress::<u64>(&wire.name, wire.len)?.iter().filter_map(of).sum();
    match nameless.checked_add(names).filter(|memory| *memory <= MAX_BYTES) {
        Some(memory) => Ok((wire, memory)),
        None => Err(refused()),
    }
}

/// The memory of phases after decoding, in bytes.
pub fn phases_memory(bytes: &[u8]) -> Result<u64, ChunkError> {
    Ok(phases_frame(bytes)?.1)
}

/// Decodes the phases of an attempt.
pub fn decode_phases(bytes: &[u8]) -> Result<Vec<Phase>, ChunkError> {
    let (wire, _) = phases_frame(bytes)?;
    let column = |bytes: &[u8]| decompress::<u64>(bytes, wire.len);
    let (name, index, rank) = (column(&wire.name)?, column(&wire.index)?, column(&wire.rank)?);
    let (start, duration) = (column(&wire.start_ns)?, column(&wire.duration)?);
    let misshapen = |fault| WireError::Shape { what: "phases", fault };
    (0..name.len())
        .map(|i| {
            let at = usize::try_from(name[i]).unwrap_or(usize::MAX);
            Ok(Phase {
                name: wire.names.get(at).cloned().ok_or_else(|| misshapen("a name is missing"))?,
                index: index[i],
                rank: u32::try_from(rank[i]).map_err(|_| misshapen("a rank is too large"))?,
                start_ns: start[i],
                stop_ns: (duration[i] > 0).then(|| start[i].wrapping_add(duration[i] - 1)),
            })
        })
        .collect()
}

/// A chunk of a few bytes that claims this many equal points.
#[cfg(test)]
pub(crate) fn bomb(len: u64) -> Vec<u8> {
    let positions = PositionsV1::Regular { start: 0, stride: 1 };
    let (name, values) = ("loss".to_owned(), ValuesV1::Constant(0));
    encode("series", &SeriesV1 { name, unit: String::new(), axis: 0, len, positions, values }).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger_record::Axis;
    use proptest::prelude::*;

    #[test]
    fn a_column_with_extra_values_is_refused_by_both_readers() {
        let mut series = Series::new("loss", "", Axis::Step);
        (0..5000u32).for_each(|i| series.push(u64::from(i * i % 977), f64::from(i).sin()));
        let (mut wire, _) = series_frame(&encode_series(&series).unwrap()).unwrap();
        for len in [5000, 4999, 4096, 300, 1] {
            wire.len = len;
            let bytes = encode("series", &wire).unwrap();
            let visited = visit_series(&bytes, &mut |_, _| {});
            assert_eq!((decode_series(&bytes).is_ok(), visited.is_ok()), (len == 5000, len == 5000), "{len}");
        }
    }

    fn bits(series: &Series) -> Vec<u64> {
        series.values.iter().map(|value| value.to_bits()).collect()
    }

    /// Moments that are often neighbours, also around the limits of integers.
    fn near_an_end() -> impl Strategy<Value = u64> {
        prop_oneof![0u64..4, u64::MAX - 3..=u64::MAX]
    }

    #[test]
    fn a_series_that_is_decoded_piece_by_piece_has_the_summary_of_the_whole() {
        for len in [0, 1000, (1 << 20) + 1] {
            let mut series = Series::new("power", "W", Axis::TimeNs);
            (0..len).for_each(|at| series.push(at * at, f64::from(u32::try_from(at % 977).unwrap()) / 7.0));
            assert_eq!(summarize_series(&encode_series(&series).unwrap()).unwrap(), series.summary());
        }
    }

    proptest! {
        #[test]
        fn any_series_comes_back_bit_for_bit(points in prop::collection::vec((any::<u32>(), any::<u64>()), 0..300)) {
            let mut series = Series::new("loss", "", Axis::Step);
            let mut position = 0;
            for (step, value) in points {
                position += u64::from(step);
                series.push(position, f64::from_bits(value));
            }
            let back = decode_series(&encode_series(&series).unwrap()).unwrap();
            prop_assert_eq!(&back.positions, &series.positions);
            prop_assert_eq!(bits(&back), bits(&series));
            prop_assert_eq!(back.digest(), series.digest());
            let mut visited = Vec::new();
            visit_series(&encode_series(&series).unwrap(), &mut |at, value| visited.push((at, value.to_bits()))).unwrap();
            let all: Vec<(u64, u64)> = series.positions.iter().copied().zip(bits(&series)).collect();
            prop_assert_eq!(visited, all);
        }

        #[test]
        fn a_series_of_several_pieces_is_visited_point_by_point(
            len in 0u64..20_000, is_regular in any::<bool>(), form in 0..4u8,
        ) {
            let mut series = Series::new("loss", "", Axis::Step);
            for at in 0..len {
                let value = f64::from(u32::try_from(at).unwrap());
                let value = [1.5, value, value / 2.0, value / 3.0][usize::from(form)];
                series.push(if is_regular { 3 * at } else { at * at }, value);
            }
            let bytes = encode_series(&series).unwrap();
            let mut visited = Series::new("loss", "", Axis::Step);
            visit_series(&bytes, &mut |at, value| visited.push(at, value)).unwrap();
            prop_assert_eq!(visited, series);
        }

        #[test]
        fn any_phases_come_back(
            items in prop::collection::vec(("[a-c]{1,2}", any::<u64>(), any::<u32>(), any::<u32>(), any::<Option<u32>>()), 0..100)
        ) {
            let phases: Vec<Phase> = items
                .into_iter()
                .map(|(name, index, rank, start, length)| Phase {
                    name,
                    index,
                    rank,
                    start_ns: u64::from(start),
                    stop_ns: length.map(|length| u64::from(start) + u64::from(length)),
                })
                .collect();
            prop_assert_eq!(decode_phases(&encode_phases(&phases).unwrap()).unwrap(), phases);
        }

        #[test]
        fn phases_of_any_stops_come_back_or_are_refused(
            edges in prop::collection::vec((near_an_end(), prop::option::of(near_an_end())), 0..4)
        ) {
            let phase = |(start_ns, stop_ns)| Phase { name: "step".to_owned(), index: 1, rank: 0, start_ns, stop_ns };
            let phases: Vec<Phase> = edges.into_iter().map(phase).collect();
            let is_lost = |phase: &Phase| phase.stop_ns.is_some_and(|stop_ns| stop_ns.wrapping_add(1) == phase.start_ns);
            match encode_phases(&phases) {
                Ok(bytes) => prop_assert_eq!(decode_phases(&bytes).unwrap(), phases),
                Err(error) => prop_assert!(phases.iter().any(is_lost), "{error}"),
            }
        }

        #[test]
        fn rubbish_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_series(&bytes);
            let _ = decode_phases(&bytes);
        }

        #[test]
        fn damage_never_panics(at in any::<prop::sample::Index>(), flip in 1u8..) {
            let mut series = Series::new("power_w", "W", Axis::TimeNs);
            (0..100u32).for_each(|i| series.push(u64::from(i * i), f64::from(i) * 0.37));
            let mut bytes = encode_series(&series).unwrap();
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            let _ = decode_series(&bytes);
        }
    }

    #[test]
    fn whole_numbers_singles_and_constants_take_little_room() {
        let mut ints = Series::new("clock", "MHz", Axis::TimeNs);
        let mut singles = Series::new("loss", "", Axis::Step);
        let mut constant = Series::new("limit", "W", Axis::TimeNs);
        for i in 0..6000u16 {
            ints.push(u64::from(i) * 100, f64::from(1700 + i % 16));
            singles.push(u64::from(i), f64::from(1.0f32 / (f32::from(i) + 1.0)));
            constant.push(u64::from(i) * 100, 700.0);
        }
        assert!(encode_series(&ints).unwrap().len() < 6000);
        assert!(encode_series(&singles).unwrap().len() < 6000 * 4);
        assert!(encode_series(&constant).unwrap().len() < 64);
        let negative_zero =
            Series { values: vec![-0.0, 1.0], positions: vec![0, 1], ..Series::new("z", "", Axis::Step) };
        assert_eq!(bits(&decode_series(&encode_series(&negative_zero).unwrap()).unwrap()), bits(&negative_zero));
    }
    #[test]
    fn the_memory_of_a_chunk_is_known_before_it_is_decoded() {
        assert_eq!(series_memory(&bomb(1_000_000)).unwrap(), 16_000_000);
        assert!(bomb(MAX_POINTS).len() < 40);
        assert_eq!(series_memory(&bomb(MAX_POINTS)).unwrap(), 800_000_000);
        for len in [MAX_POINTS + 1, u64::MAX] {
            assert!(matches!(decode_series(&bomb(len)), Err(ChunkError::TooLong(_))));
        }
        // A long name that each of many phases would have.
        let phases = |len: u64, name: usize| {
            let column = || compress(&vec![0u64; 1000]).unwrap();
            let (name, names) = (column(), vec!["n".repeat(name)]);
            let (index, rank, start_ns, duration) = (column(), column(), column(), column());
            encode("phases", &PhasesV1 { names, len, name, index, rank, start_ns, duration }).unwrap()
        };
        assert_eq!(decode_phases(&phases(1000, 10)).unwrap().len(), 1000);
        assert!(matches!(decode_phases(&phases(1000, 1 << 20)), Err(ChunkError::TooLong(1000))));
        assert!(matches!(decode_phases(&phases(MAX_POINTS, 1)), Err(ChunkError::TooLong(_))));
    }

    #[test]
    fn phases_are_written_if_they_can_be_read_again() {
        let phase = |name: String, index| Phase { name, index, rank: 0, start_ns: index, stop_ns: None };
        let short = || (0..1000).map(|index| phase("q".to_owned(), index));
        let one_long: Vec<Phase> = std::iter::once(phase("p".repeat(900_000), 0)).chain(short()).collect();
        assert_eq!(decode_phases(&encode_phases(&one_long).unwrap()).unwrap(), one_long);
        let all_long: Vec<Phase> = (0..1000).map(|index| phase("p".repeat(900_000), index)).collect();
        assert!(matches!(encode_phases(&all_long), Err(ChunkError::TooLong(1000))));
        let names: Vec<Phase> = (0..700_000).map(|index| phase(format!("{index:0100}"), index)).collect();
        assert!(encode_phases(&names).is_err(), "their names alone take more than a decoder allocates");
    }

    #[test]
    fn a_series_is_written_if_it_can_be_read_again() {
        let mut state = 1u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            f64::from_bits(state ^ (state >> 31))
        };
        let mut series = Series::new("noise", "", Axis::Step);
        (0..9_000_000).for_each(|step| series.push(step, noise()));
        assert!(encode_series(&series).is_err(), "9 million values that do not compress are more than 64 MiB");
    }
}
