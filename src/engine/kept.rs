//! Limits of what a record keeps of a worker's events, and the count of what exceeds them. They bound the size of a
//! record, and one warning of each kind reports what is missing.

use crate::record::{self, Axis, Phase, SeriesSummary, Value};
use crate::wire::{ChunkError, First, Points, encode_phases, encode_points};
use std::collections::BTreeMap;

/// Values with longer names are dropped.
pub(super) const MAX_NAME_BYTES: usize = 256;
/// Far more series than attempts need. A worker that names a new one at each step would exceed it.
pub(super) const MAX_SERIES: usize = 1000;
/// Points of all series together; 800 MB in memory.
pub(super) const MAX_POINTS: usize = 50_000_000;
/// Training steps whose times are kept.
pub(super) const MAX_STEPS: usize = 10_000_000;
/// Phases of steps, enough for a day of steps of 0.1 s. Further steps are points of series, without a phase. Also the
/// limit of reported phases.
pub(super) const MAX_PHASES: usize = 1_000_000;
/// Slots reserved for phases that define time and energy windows, so that many short phases cannot crowd them out.
const KEPT_FOR_WINDOWS: usize = 100_000;
const WINDOWS: [&str; 6] = ["epoch", "eval", "checkpoint", "inference", "inference_batch", "idle"];

/// The limit of reported phases for a phase with this name.
pub(super) fn most_phases(name: &str) -> usize {
    if WINDOWS.contains(&name) { MAX_PHASES } else { MAX_PHASES - KEPT_FOR_WINDOWS }
}

/// Names of phases, metrics, digests and facts, each.
pub(super) const MAX_NAMES: usize = 10_000;
/// Bytes of all facts together.
pub(super) const MAX_FACT_BYTES: usize = 16 << 20;
/// Warnings of the supervisor.
pub(super) const MAX_WARNINGS: usize = 1000;
/// Bytes of each of the last events, which are kept if the attempt did not finish.
const MAX_LINE_BYTES: usize = 4 << 10;
/// A series with this many points fits into a chunk even if it does not compress.
const SURE_POINTS: usize = 4_000_000;

/// The kinds of dropped values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Surplus {
    Stops,
    LongNames,
    Series,
    SameSeries,
    SameName,
    Points,
    Steps,
    Phases,
    PhaseNames,
    StepPhases,
    Metrics,
    Digests,
    Facts,
    Warnings,
}

impl Surplus {
    fn text(self, count: u64, first: &str) -> String {
        let (is, was, has, ones) =
            if count == 1 { ("is", "was", "has", "one") } else { ("are", "were", "have", "ones") };
        match self {
            Self::Stops if count == 1 => format!("phase {first} was stopped but never started"),
            Self::Stops => format!("{count} phases were stopped but never started (the first: {first})"),
            Self::LongNames => format!(
                "{count} of the worker's names and units {is} longer than {MAX_NAME_BYTES} bytes, and their values were dropped (the first begins {first})"
            ),
            Self::Series => format!(
                "the worker names more than {MAX_SERIES} series; {} of further ones {was} dropped (the first: {first})",
                record::count(count, "point")
            ),
            Self::SameSeries => {
                format!(
                    "{count} series of ranks {has} names of other ranks' series, and {was} dropped (the first: {first})"
                )
            }
            Self::SameName => format!(
                "{count} of the values of ranks {has} the name of another value, and {was} dropped (the first: {first})"
            ),
            Self::Points => format!(
                "the worker's series have more than {MAX_POINTS} points; {count} further {ones} {was} dropped (the first: {first})"
            ),
            Self::Steps => {
                format!(
                    "the worker reports more than {MAX_STEPS} training steps; {count} further {ones} {is} in no time (the first: {first})"
                )
            }
            Self::Phases => format!(
                "the worker reports more than {} phases; {count} further {ones} {was} dropped (the first: {first})",
                MAX_PHASES - KEPT_FOR_WINDOWS
            ),
            Self::PhaseNames => format!(
                "the worker's phases have more than {MAX_NAMES} names; {count} of further ones {was} dropped (the first: {first})"
            ),
            Self::StepPhases => {
                format!(
                    "of more than {MAX_PHASES} steps of all ranks, {count} {is} in the series alone, without a phase (the first: {first})"
                )
            }
            Self::Metrics => format!(
                "the worker states more than {MAX_NAMES} metrics; {count} further {ones} {was} dropped (the first: {first})"
            ),
            Self::Digests => format!(
                "the worker reports more than {MAX_NAMES} digests; {count} further {ones} {was} dropped (the first: {first})"
            ),
            Self::Facts => format!(
                "the worker's facts are more than {MAX_NAMES} or take more than {} MiB; {count} {was} dropped (the first: {first})",
                MAX_FACT_BYTES >> 20
            ),
            Self::Warnings => {
                format!("{} {was} dropped (the first: {first})", record::count(count, "further warning"))
            }
        }
    }
}

/// The number of dropped values of each kind, and the first one.
#[derive(Default)]
pub(super) struct Dropped(BTreeMap<Surplus, (u64, String)>);

impl Dropped {
    pub(super) fn count(&mut self, surplus: Surplus, first: impl FnOnce() -> String) {
        self.0.entry(surplus).or_insert_with(|| (0, first())).0 += 1;
    }

    pub(super) fn has(&self, surplus: Surplus) -> bool {
        self.0.contains_key(&surplus)
    }

    /// One warning of each kind.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(surplus, (count, first))| surplus.text(*count, first))
    }
}

/// A name for a warning, in backticks and shortened to 60 characters.
pub(super) fn quoted(name: &str) -> String {
    let begin: String = name.chars().take(60).collect();
    if begin.len() < name.len() { format!("`{begin}…`") } else { format!("`{begin}`") }
}

/// Shortens the line of an event.
pub(super) fn cut(mut line: String) -> String {
    if line.len() > MAX_LINE_BYTES {
        line.truncate(line.floor_char_boundary(MAX_LINE_BYTES));
        line.push('…');
    }
    line
}

/// The size of a value in bytes: an upper limit of a decoder's memory for it.
pub(super) fn weight(value: &Value) -> usize {
    const ITEM: usize = 32;
    ITEM + match value {
        Value::Bool(_) | Value::Int(_) | Value::Float(_) => 0,
        Value::Str(text) => text.len(),
        Value::List(items) => items.iter().map(weight).sum(),
        Value::Table(table) => table.iter().map(|(key, value)| ITEM + key.len() + weight(value)).sum(),
    }
}

/// The chunk of a series, its summary for the record, and a warning if it was shortened.
pub(super) struct Fitted {
    pub(super) bytes: Vec<u8>,
    pub(super) summary: SeriesSummary,
    pub(super) warning: Option<String>,
}

/// Encodes a series. Shortens it if it does not compress enough to fit into a chunk.
pub(super) fn fit_series(named: (&str, &str, Axis), points: &dyn Points) -> Result<Fitted, ChunkError> {
    let told = points.count();
    let mut kept = told;
    loop {
        match encode_points(named, &First { points, count: kept }) {
            Ok((bytes, summary)) => {
                let name = quoted(named.0);
                let text =
                    || format!("series {name} has {told} points, which do not compress; the first {kept} were kept");
                return Ok(Fitted { bytes, summary, warning: (kept < told).then(text) });
            }
            Err(error) if kept <= SURE_POINTS || matches!(error, ChunkError::Unread(_)) => return Err(error),
            Err(_) => kept = (kept / 4 * 3).max(SURE_POINTS),
        }
    }
}

/// Shortens phases that do not fit into a chunk.
pub(super) fn fit_phases(phases: &mut Vec<Phase>) -> Option<String> {
    let told = phases.len();
    while phases.len() > MAX_PHASES && encode_phases(phases).is_err() {
        phases.truncate((phases.len() / 4 * 3).max(MAX_PHASES));
    }
    let kept = phases.len();
    (kept < told).then(|| format!("there are {told} phases, which do not compress; the first {kept} were kept"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Series;

    /// Points that do not compress.
    fn noise(points: usize) -> Series {
        let mut series = Series::new("noise", "", Axis::Step);
        let (mut state, mut position) = (1u64, 0u64);
        for _ in 0..points {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            position += state >> 26;
            series.push(position, f64::from_bits(state ^ (state >> 31)));
        }
        series
    }

    #[test]
    fn a_series_that_does_not_fit_into_a_chunk_is_shortened() {
        let named = ("noise", "", Axis::Step);
        assert_eq!(fit_series(named, &noise(SURE_POINTS)).unwrap().warning, None);
        let long = fit_series(named, &noise(6_000_000)).unwrap();
        let warning = "series `noise` has 6000000 points, which do not compress; the first 4500000 were kept";
        assert_eq!(long.warning.as_deref(), Some(warning));
        assert_eq!(long.summary, noise(4_500_000).summary());
    }

    #[test]
    fn long_names_and_lines_are_cut_at_character_borders() {
        assert_eq!(quoted("p"), "`p`");
        assert_eq!(quoted(&"ö".repeat(100)), format!("`{}…`", "ö".repeat(60)));
        assert_eq!(cut("short".to_owned()), "short");
        assert_eq!(cut("ö".repeat(MAX_LINE_BYTES) + "x"), "ö".repeat(MAX_LINE_BYTES / 2) + "…");
        assert_eq!(
            cut(format!("x{}", "ö".repeat(MAX_LINE_BYTES))),
            format!("x{}…", "ö".repeat(MAX_LINE_BYTES / 2 - 1))
        );
    }
}
