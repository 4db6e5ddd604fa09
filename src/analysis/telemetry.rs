//! Hardware telemetry: curves over time, rates of counters, means, and curves that are thinned for plots.
//!
//! Knows which quantities are counters and which are flags. Must not know how anything is shown.

mod given;

pub use given::Given;

use super::statistic::real;
use crate::record::{Axis, Quantity, Series};

/// The shortest time over which a rate is taken. Shorter rates of counters that tick ten times a second would only show the ticks.
const RATE_SPAN_NS: u64 = 1_000_000_000;
/// A curve has a gap where nothing was read for this many usual intervals.
const GAP_INTERVALS: u64 = 4;
/// The number of bits that a reading represents exactly.
const BITS: i32 = 53;

/// The meaning of a series' values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A value at the moment when it was read.
    Level,
    /// Only differences between two values have a meaning.
    Counter,
    /// A set of bits.
    Flags,
}

impl Kind {
    /// Returns the kind of a series with that name.
    pub fn of(name: &str) -> Self {
        match quantity(name) {
            Some(
                Quantity::Energy
                | Quantity::PcieTx
                | Quantity::PcieRx
                | Quantity::WorkerCpuTime
                | Quantity::WorkerIoRead
                | Quantity::WorkerIoWritten,
            ) => Self::Counter,
            Some(Quantity::ThrottleReasons) => Self::Flags,
            _ => Self::Level,
        }
    }

    /// `level`, `counter` or `flags`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Level => "level",
            Self::Counter => "counter",
            Self::Flags => "flags",
        }
    }
}

/// Returns the hardware quantity of a series with that name.
pub fn quantity(name: &str) -> Option<Quantity> {
    let (source, quantity) = name.rsplit_once('.')?;
    let numbered = |kind| source.strip_prefix(kind).is_some_and(|number| number.parse::<u32>().is_ok());
    let is_source = source == "host" || numbered("gpu.") || numbered("package.");
    Quantity::ALL.into_iter().find(|known| is_source && known.name() == quantity)
}

/// A series as a curve: pieces without gaps, each a line through points with positions that never decrease.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    pieces: Vec<Vec<(u64, f64)>>,
}

impl Curve {
    /// The curve of a series: the values of a level, the rate per second of a counter, and for flags 1 while any is set and 0 otherwise.
    pub fn of(series: &Series) -> Self {
        match Kind::of(&series.name) {
            Kind::Level => Self { pieces: pieces(series) },
            Kind::Counter => Self { pieces: rates(series) },
            Kind::Flags => Self::held(series, |value| value > 0.0),
        }
    }

    /// 1 while a bit is set and 0 otherwise. The mean is the share of time in which it was set.
    pub fn of_bit(series: &Series, bit: i32) -> Self {
        Self::held(series, |value| has_bit(value, bit))
    }

    /// Each reading of flags holds until the next one.
    fn held(series: &Series, is_set: impl Fn(f64) -> bool) -> Self {
        let step = |points: Vec<(u64, f64)>| {
            let mut stairs: Vec<(u64, f64)> = Vec::with_capacity(2 * points.len());
            for (position, value) in points {
                stairs.extend(stairs.last().map(|(_, before)| (position, *before)));
                stairs.push((position, if is_set(value) { 1.0 } else { 0.0 }));
            }
            stairs
        };
        Self { pieces: pieces(series).into_iter().map(step).collect() }
    }

    /// The pieces, of which none is empty.
    pub fn pieces(&self) -> &[Vec<(u64, f64)>] {
        &self.pieces
    }

    /// The smallest and the largest value.
    pub fn range(&self) -> Option<(f64, f64)> {
        let mut values = self.pieces.iter().flatten().map(|(_, value)| *value);
        let first = values.next()?;
        Some(values.fold((first, first), |(min, max), value| (min.min(value), max.max(value))))
    }

    /// The last value.
    pub fn last(&self) -> Option<f64> {
        Some(self.pieces.last()?.last()?.1)
    }

    /// The time-weighted mean over the time in which the curve is known. Readings that span no time have their unweighted mean.
    pub fn mean(&self) -> Option<f64> {
        let mut mean = Mean::default();
        self.segments().for_each(|((from, a), (to, b))| mean.add(f64::midpoint(a, b), real(to - from)));
        if mean.weight == 0.0 {
            self.pieces.iter().flatten().for_each(|(_, value)| mean.add(*value, 1.0));
        }
        mean.value()
    }

    /// The means of `count` equal intervals from `from` to `to`; `None` for an interval in which nothing is known.
    pub fn buckets(&self, from: u64, to: u64, count: usize) -> Vec<Option<f64>> {
        let mut means = vec![Mean::default(); count];
        let width = u128::from(to.saturating_sub(from).max(1));
        // Borders may lie between two positions, because there may be few steps.
        let border = |bucket: usize| small(width) * small(bucket as u128) / small(count as u128);
        for ((start, a), (stop, b)) in self.segments() {
            let (begin, end) = (real(start) - real(from), real(stop) - real(from));
            let at = |place: f64| a + (b - a) * ((place - begin) / (end - begin)).clamp(0.0, 1.0);
            let mut bucket = bucket_of(start, from, width, count);
            while bucket < count && border(bucket) < end {
                let (left, right) = (begin.max(border(bucket)), end.min(border(bucket + 1)));
                if left < right {
                    means[bucket].add(f64::midpoint(at(left), at(right)), right - left);
                }
                bucket += 1;
            }
        }
        let known: Vec<bool> = means.iter().map(|mean| mean.weight > 0.0).collect();
        for (position, value) in self.lone().filter(|(position, _)| (from..=to).contains(position)) {
            let bucket = bucket_of(position, from, width, count);
            if let (Some(mean), Some(false)) = (means.get_mut(bucket), known.get(bucket)) {
                mean.add(value, 1.0);
            }
        }
        means.iter().map(Mean::value).collect()
    }

    /// The curve with at most four points in each of `count` equal intervals: the first, the last, the smallest and the
    /// largest. It looks the same if it is drawn at that width.
    pub fn thinned(&self, from: u64, to: u64, count: usize) -> Self {
        let width = u128::from(to.saturating_sub(from).max(1));
        let thin = |piece: &Vec<(u64, f64)>| {
            let stretches =
                piece.chunk_by(|a, b| bucket_of(a.0, from, width, count) == bucket_of(b.0, from, width, count));
            stretches.flat_map(extremes).collect()
        };
        Self { pieces: self.pieces.iter().map(thin).collect() }
    }

    /// Neighbouring points at different times.
    fn segments(&self) -> impl Iterator<Item = ((u64, f64), (u64, f64))> {
        let pairs = self.pieces.iter().flat_map(|piece| piece.windows(2).map(|pair| (pair[0], pair[1])));
        pairs.filter(|((from, _), (to, _))| from < to)
    }

    /// The points of pieces that span no time.
    fn lone(&self) -> impl Iterator<Item = (u64, f64)> {
        let lone = |piece: &&Vec<(u64, f64)>| piece.first().map(|first| first.0) == piece.last().map(|last| last.0);
        self.pieces.iter().filter(lone).flatten().copied()
    }
}

/// The figures of a series in one row of output.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// The smallest and the largest finite value of the curve.
    pub range: Option<(f64, f64)>,
    /// See [`Curve::mean`].
    pub mean: Option<f64>,
    /// The last value; for a level the last reading, finite or not.
    pub last: Option<f64>,
}

impl Figures {
    /// The figures of a series and of its curve.
    pub fn of(series: &Series, curve: &Curve) -> Self {
        let last = if Kind::of(&series.name) == Kind::Level { series.values.last().copied() } else { curve.last() };
        Self { range: curve.range(), mean: curve.mean(), last }
    }
}

/// Returns the bits that were ever set in a series of flags, each with the share of time in which it was set, and the
/// share of time without any.
pub fn bit_shares(series: &Series) -> (Vec<(i32, f64)>, Option<f64>) {
    let seen = |bit: &i32| series.values.iter().any(|value| has_bit(*value, *bit));
    let share = |bit: i32| Some((bit, Curve::of_bit(series, bit).mean()?));
    let none = Curve::held(series, |value| value == 0.0).mean();
    ((0..BITS).filter(seen).filter_map(share).collect(), none)
}

/// Whether a bit is set in a reading of flags.
pub(super) fn has_bit(value: f64, bit: i32) -> bool {
    value.is_finite() && (value / 2f64.powi(bit)).floor() % 2.0 == 1.0
}

/// The finite readings, split at gaps and at values that are not finite.
fn pieces(series: &Series) -> Vec<Vec<(u64, f64)>> {
    let gap = if series.axis == Axis::TimeNs { gap(&series.positions) } else { u64::MAX };
    let mut pieces: Vec<Vec<(u64, f64)>> = Vec::new();
    let mut before: Option<u64> = None;
    for (position, value) in series.positions.iter().copied().zip(series.values.iter().copied()) {
        if !value.is_finite() {
            before = None;
            continue;
        }
        let follows = before.is_some_and(|before| position.saturating_sub(before) <= gap);
        match pieces.last_mut().filter(|_| follows) {
            Some(piece) => piece.push((position, value)),
            None => pieces.push(vec![(position, value)]),
        }
        before = Some(position);
    }
    pieces
}

/// The longest interval between readings that is not a gap.
fn gap(positions: &[u64]) -> u64 {
    let mut intervals: Vec<u64> = positions.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    intervals.retain(|interval| *interval > 0);
    intervals.sort_unstable();
    intervals.get(intervals.len() / 2).map_or(u64::MAX, |median| median.saturating_mul(GAP_INTERVALS))
}

/// The rates of a counter as steps, split where the counter restarted. Gaps do not split, because the counter went on counting.
fn rates(series: &Series) -> Vec<Vec<(u64, f64)>> {
    let finite =
        series.positions.iter().copied().zip(series.values.iter().copied()).filter(|point| point.1.is_finite());
    let points: Vec<(u64, f64)> = finite.collect();
    let ascents = points.chunk_by(|a, b| a.1 <= b.1);
    ascents.map(stairs).filter(|piece| !piece.is_empty()).collect()
}

fn stairs(ascent: &[(u64, f64)]) -> Vec<(u64, f64)> {
    let Some((mut start, end)) = ascent.first().copied().zip(ascent.last().copied()) else { return Vec::new() };
    let mut spans: Vec<((u64, f64), (u64, f64))> = Vec::new();
    for point in ascent {
        if point.0.saturating_sub(start.0) >= RATE_SPAN_NS {
            spans.push((start, *point));
            start = *point;
        }
    }
    match spans.pop() {
        // The rest is too short for a span of its own and extends the last span.
        Some((from, _)) => spans.push((from, end)),
        None if end.0 > start.0 => spans.push((start, end)),
        None => {}
    }
    let rate = |((from, a), (to, b)): ((u64, f64), (u64, f64))| {
        let rate = (b - a) / (real(to.saturating_sub(from)) / 1e9);
        rate.is_finite().then_some([(from, rate), (to, rate)])
    };
    spans.into_iter().filter_map(rate).flatten().collect()
}

/// The first, the last, the smallest and the largest point, in their order.
fn extremes(points: &[(u64, f64)]) -> Vec<(u64, f64)> {
    let by_value = |a: &usize, b: &usize| points[*a].1.total_cmp(&points[*b].1);
    let mut kept: Vec<usize> =
        [Some(0), (0..points.len()).min_by(by_value), (0..points.len()).max_by(by_value), points.len().checked_sub(1)]
            .into_iter()
            .flatten()
            .collect();
    kept.sort_unstable();
    kept.dedup();
    kept.into_iter().map(|at| points[at]).collect()
}

/// A running weighted mean.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    mean: f64,
    weight: f64,
}

impl Mean {
    fn add(&mut self, value: f64, weight: f64) {
        self.weight += weight;
        // In this form, equal values have exactly their value as mean.
        self.mean += (value - self.mean) * (weight / self.weight);
    }

    fn value(&self) -> Option<f64> {
        (self.weight > 0.0).then_some(self.mean)
    }
}

/// The index of the interval in which a position lies; the end of the last interval belongs to it.
fn bucket_of(position: u64, from: u64, width: u128, count: usize) -> usize {
    let bucket = u128::from(position.saturating_sub(from)) * count as u128 / width;
    usize::try_from(bucket).unwrap_or(usize::MAX).min(count.saturating_sub(1))
}

#[expect(clippy::cast_precision_loss, reason = "as of `real`")]
fn small(count: u128) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;
