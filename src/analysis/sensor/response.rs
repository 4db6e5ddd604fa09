//! A sensor's response to a known load: the window and the delay with which its readings fit best.
//!
//! Least squares over a grid that is refined, for a boxcar window and for a first-order filter. Uncertainties come from
//! a block bootstrap of the readings.

use super::{Shape, Within};
use crate::analysis::statistic::{CONFIDENCE, number, split_mix};

/// The least share of the readings' variance that the load has to explain.
const EXPLAINED: f64 = 0.7;
/// A filter is chosen only if its sum of squares is less than this share of the window's.
const CLEARLY_LESS: f64 = 0.75;
/// The longest windows and delays that are searched, in seconds.
const LONGEST_S: f64 = 2.0;
/// The most by which a response may seem to be early, in seconds: the clocks of readings and loads are not read at the same moment.
const EARLY_S: f64 = 0.03;
/// The number of bootstrap draws, and of readings in a block.
const DRAWS: usize = 40;
const BLOCK: usize = 5;
/// The shortest window, in seconds.
const SHORTEST_S: f64 = 1e-3;

/// The times in which a load was on, in seconds.
pub(super) struct Pulses {
    edges: Vec<(f64, f64)>,
    /// The time that the load was on before each edge's start.
    before: Vec<f64>,
}

impl Pulses {
    /// Takes the pulses in order.
    pub(super) fn new(edges: Vec<(f64, f64)>) -> Self {
        let before = edges.iter().scan(0.0, |sum, (start, stop)| {
            let before = *sum;
            *sum += stop - start;
            Some(before)
        });
        Self { before: before.collect(), edges }
    }

    /// The start of the first and the end of the last pulse.
    pub(super) fn ends(&self) -> (f64, f64) {
        let first = self.edges.first().map_or(0.0, |(start, _)| *start);
        (first, self.edges.last().map_or(0.0, |(_, stop)| *stop))
    }

    /// The time that the load was on before a moment.
    fn on_until(&self, moment: f64) -> f64 {
        let next = self.edges.partition_point(|(start, _)| *start <= moment);
        let Some(at) = next.checked_sub(1) else { return 0.0 };
        self.before[at] + (moment.min(self.edges[at].1) - self.edges[at].0)
    }
}

/// A sensor's response to a load of 1.
struct Answer<'a> {
    pulses: &'a Pulses,
    width: f64,
    /// The value of a filter at the start of each pulse; empty for a window.
    reached: Vec<f64>,
}

impl<'a> Answer<'a> {
    fn new(pulses: &'a Pulses, shape: Shape, width: f64) -> Self {
        let mut reached = Vec::new();
        if shape == Shape::FirstOrder {
            let (mut level, mut since) = (0.0, 0.0);
            for (start, stop) in &pulses.edges {
                level *= (-(start - since) / width).exp();
                reached.push(level);
                level = 1.0 - (1.0 - level) * (-(stop - start) / width).exp();
                since = *stop;
            }
        }
        Self { pulses, width, reached }
    }

    /// The response whose middle is at that moment.
    fn at(&self, middle: f64) -> f64 {
        if self.reached.is_empty() {
            let half = self.width / 2.0;
            return (self.pulses.on_until(middle + half) - self.pulses.on_until(middle - half)) / self.width;
        }
        let newest = middle + self.width;
        let next = self.pulses.edges.partition_point(|(start, _)| *start <= newest);
        let Some(at) = next.checked_sub(1) else { return 0.0 };
        let (start, stop) = self.pulses.edges[at];
        let level = 1.0 - (1.0 - self.reached[at]) * (-(newest.min(stop) - start) / self.width).exp();
        level * (-(newest - stop).max(0.0) / self.width).exp()
    }
}

/// A fit of a response to updates.
#[derive(Clone, Copy, Debug)]
struct Fit {
    shape: Shape,
    /// The window or the time constant.
    width: f64,
    /// The time from the middle of an update's window to the update.
    middle: f64,
    squares: f64,
    /// The power of the load, in the readings' unit.
    height: f64,
}

impl Fit {
    /// The age of the newest power in an update.
    fn lag(&self) -> f64 {
        match self.shape {
            Shape::Boxcar => self.middle - self.width / 2.0,
            Shape::FirstOrder => self.middle - self.width,
        }
    }
}

/// The linear least-squares fit `value = rest + height · answer`.
fn fit(points: &[(f64, f64)], pulses: &Pulses, shape: Shape, width: f64, middle: f64) -> Fit {
    let answer = Answer::new(pulses, shape, width);
    let (mut sum_x, mut sum_y, mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (at, y) in points {
        let x = answer.at(at - middle);
        sum_x += x;
        sum_y += y;
        xx += x * x;
        xy += x * y;
        yy += y * y;
    }
    let n = number(points.len());
    let (xx, xy, yy) = (xx - sum_x * sum_x / n, xy - sum_x * sum_y / n, yy - sum_y * sum_y / n);
    let height = if xx > 1e-9 { xy / xx } else { 0.0 };
    Fit { shape, width, middle, squares: yy - height * xy, height }
}

fn better(a: Fit, b: Fit) -> Fit {
    // A load draws power: a value that falls when the load starts is no response to it.
    if b.height > 0.0 && (b.squares < a.squares || a.height <= 0.0) { b } else { a }
}

/// The steps of width and middle that are tried: each alone, and both such that the newest seen moment stays the same.
const TURNS: [(f64, f64); 8] =
    [(0.0, 1.0), (0.0, -1.0), (1.0, 0.0), (-1.0, 0.0), (1.0, 1.0), (-1.0, -1.0), (2.0, 1.0), (-2.0, -1.0)];

/// Moves a fit to better neighbours, by steps that are halved.
fn refine(points: &[(f64, f64)], pulses: &Pulses, from: Fit, step: f64, least: f64) -> Fit {
    let (mut best, mut step) = (fit(points, pulses, from.shape, from.width, from.middle), step);
    while step >= least {
        let before = best.squares;
        for (width, middle) in TURNS {
            let (width, middle) = (best.width + width * step, best.middle + middle * step);
            let tried = Fit { width, middle, ..best };
            if (SHORTEST_S..=LONGEST_S).contains(&width) && tried.lag() >= -EARLY_S {
                best = better(best, fit(points, pulses, best.shape, width, middle));
            }
        }
        if best.squares >= before {
            step /= 2.0;
        }
    }
    best
}

fn search(points: &[(f64, f64)], pulses: &Pulses, shape: Shape) -> Fit {
    let mut best = fit(points, pulses, shape, SHORTEST_S, 0.0);
    let mut width = 4e-3;
    while width <= LONGEST_S {
        let mut lag = 0.0;
        let step = (width / 4.0).clamp(0.01, 0.05);
        while lag <= LONGEST_S / 2.0 {
            let middle = if shape == Shape::Boxcar { lag + width / 2.0 } else { lag + width };
            best = better(best, fit(points, pulses, shape, width, middle));
            lag += step;
        }
        width *= 1.5;
    }
    refine(points, pulses, best, 0.02, 1e-4)
}

/// A sensor's response to a load.
pub(super) struct Response {
    pub(super) shape: Shape,
    pub(super) window: Within,
    pub(super) lag: Within,
    /// The time from the middle of an update's window to the update.
    pub(super) middle: Within,
    pub(super) explained: f64,
}

/// Finds the response from updates, in seconds and any unit. No update is more than `poll_s` away from its time.
///
/// # Errors
/// The reason why there is no result, as the end of a sentence.
pub(super) fn response(points: &[(f64, f64)], pulses: &Pulses, poll_s: f64) -> Result<Response, String> {
    let mean = points.iter().map(|(_, y)| y).sum::<f64>() / number(points.len());
    let all = points.iter().map(|(_, y)| (y - mean).powi(2)).sum::<f64>();
    let (window, filter) = (search(points, pulses, Shape::Boxcar), search(points, pulses, Shape::FirstOrder));
    let best = if filter.height > 0.0 && filter.squares < CLEARLY_LESS * window.squares { filter } else { window };
    let explained = if all > 0.0 && best.height > 0.0 { 1.0 - best.squares / all } else { 0.0 };
    if explained < EXPLAINED {
        let (percent, needed) = ((explained * 100.0).floor(), EXPLAINED * 100.0);
        return Err(format!(
            "the load explains {percent:.0}% of what its readings vary by, and {needed:.0}% are needed"
        ));
    }
    if best.lag() < -EARLY_S / 2.0 - poll_s {
        let early_ms = -best.lag() * 1e3;
        return Err(format!("it answers {early_ms:.0} ms before the load comes on"));
    }
    if best.width > 0.95 * LONGEST_S || best.middle > 0.95 * LONGEST_S {
        return Err(format!("it looks back for {LONGEST_S:.0} s or more"));
    }
    let draws: Vec<Fit> = (0..DRAWS).map(|draw| refine(&drawn(points, draw), pulses, best, 4e-3, 2e-4)).collect();
    let within = |value: fn(&Fit) -> f64, clock_s: f64| {
        let center = value(&best);
        let variance = draws.iter().map(|fit| (value(fit) - center).powi(2)).sum::<f64>() / number(DRAWS);
        Within { seconds: center, half_width: CONFIDENCE * variance.sqrt() + clock_s }
    };
    Ok(Response {
        shape: best.shape,
        // Each update may have been anywhere between two readings, and each reading anywhere within its call.
        window: within(|fit| fit.width, poll_s / 2.0),
        lag: within(Fit::lag, poll_s / 2.0),
        middle: within(|fit| fit.middle, poll_s / 2.0),
        explained,
    })
}

/// Draws as many points as there are, in blocks. The same number gives the same draw.
fn drawn(points: &[(f64, f64)], draw: usize) -> Vec<(f64, f64)> {
    let mut state = u64::try_from(draw).unwrap_or(0).wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x6a09_e667_f3bc_c909;
    let len = u64::try_from(points.len().max(1)).unwrap_or(1);
    let blocks = std::iter::repeat_with(|| {
        let from = usize::try_from(split_mix(&mut state) % len).unwrap_or(0);
        points.iter().cycle().skip(from).take(BLOCK).copied()
    });
    blocks.flatten().take(points.len()).collect()
}
