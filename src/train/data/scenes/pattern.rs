//! Patterns of two colours: the fraction of the second one in each pixel of a row.
//!
//! Knows the eight fills as functions of a place. All consist of triangle waves and distances, so that only additions,
//! multiplications, divisions and square roots of float32 are used. Knows nothing of colours or of objects.

use crate::data::shapes::outline::Point;

/// A fill at a place, turned and scaled.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    /// The number of the fill.
    pub fill: usize,
    /// The origin of its axes, in pixels.
    pub origin: Point,
    /// The direction of its first axis, of length 1.
    pub axis: Point,
    /// The size of a cell in pixels. A pattern repeats after two, up to 64 cells from its origin.
    pub cell: f32,
}

impl Pattern {
    /// Writes the second colour's fraction, from 0 to 1, of the pixels of a row whose centres are at `columns` and `y`,
    /// a value for each column. Returns false and writes nothing if the fill has one colour.
    pub fn mix(&self, y: f32, columns: &[f32], out: &mut [f32]) -> bool {
        let cell = self.cell;
        let soft = move |distance: f32| (distance * cell + 0.5).clamp(0.0, 1.0);
        match self.fill {
            1 => self.fill(y, columns, out, move |u, _| soft(wave(u) - 0.5)),
            2 => self.fill(y, columns, out, move |u, v| either(soft(wave(u) - 0.5), soft(wave(v) - 0.5))),
            3 => self.fill(y, columns, out, move |u, v| soft(0.64 - length(wave(u), wave(v)))),
            4 => self.fill(y, columns, out, move |u, v| soft(wave(length(u, v)) - 0.5)),
            5 => self.fill(y, columns, out, move |u, v| soft(0.7 * (wave(u + 1.1 * wave(0.8 * v)) - 0.5))),
            6 => self.fill(y, columns, out, move |u, v| soft(0.26 - wave(u).min(wave(v)))),
            7 => self
                .fill(y, columns, out, move |u, v| either(either(soft(u), soft(v)), soft(0.7 * (u.abs() - v.abs())))),
            _ => return false,
        }
        true
    }

    fn fill(&self, y: f32, columns: &[f32], out: &mut [f32], mix: impl Fn(f32, f32) -> f32) {
        let scale = 1.0 / self.cell;
        let Point { x: right, y: down } = Point { x: self.axis.x * scale, y: self.axis.y * scale };
        let over = y - self.origin.y;
        let (along, across) = (over * down - self.origin.x * right, over * right + self.origin.x * down);
        for (part, x) in out.iter_mut().zip(columns) {
            *part = mix(along + x * right, across - x * down);
        }
    }
}

/// Returns a triangle wave: 1 at even numbers, 0 at odd ones, up to 64.
fn wave(at: f32) -> f32 {
    let at = (at.abs() - 32.0).abs();
    let at = (at - 16.0).abs();
    let at = (at - 8.0).abs();
    let at = (at - 4.0).abs();
    let at = (at - 2.0).abs();
    (at - 1.0).abs()
}

fn length(x: f32, y: f32) -> f32 {
    (x * x + y * y).sqrt()
}

/// Returns 1 if exactly one of two fractions is 1.
fn either(a: f32, b: f32) -> f32 {
    a + b - 2.0 * a * b
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wave_repeats_after_two() {
        for step in -500..=500_i16 {
            let at = f32::from(step) / 8.0;
            let expected = (at.rem_euclid(2.0) - 1.0).abs();
            assert_eq!(wave(at), expected, "{at}");
        }
    }

    /// Returns a picture of 16 × 16 pixels around the origin in characters.
    fn picture(fill: usize, axis: Point, cell: f32) -> Vec<String> {
        let pattern = Pattern { fill, origin: Point { x: 8.0, y: 8.0 }, axis, cell };
        let columns: Vec<f32> = (0..16_u8).map(|x| f32::from(x) + 0.5).collect();
        let row = |y: u8| {
            let mut mix = [0.0; 16];
            assert!(pattern.mix(f32::from(y) + 0.5, &columns, &mut mix));
            mix.iter().map(|part| if *part > 0.5 { '#' } else { '.' }).collect()
        };
        (0..16).map(row).collect()
    }

    const LEVEL: Point = Point { x: 1.0, y: 0.0 };
    const UPRIGHT: Point = Point { x: 0.0, y: 1.0 };

    #[test]
    fn stripes_run_across_their_axis() {
        assert_eq!(picture(1, LEVEL, 4.0), ["##....####....##"; 16]);
        let rows = picture(1, UPRIGHT, 4.0);
        assert_eq!((&*rows[1], &*rows[2], &*rows[8]), ("################", "................", "################"));
    }

    #[test]
    fn checks_change_in_both_directions() {
        let rows = picture(2, LEVEL, 4.0);
        assert_eq!((&*rows[0], &*rows[2]), ("..####....####..", "##....####....##"));
    }

    #[test]
    fn dots_and_meshes_lie_at_the_points_and_lines_of_a_grid() {
        let dots = picture(3, LEVEL, 4.0);
        assert_eq!((&*dots[8], &*dots[4]), ("................", ".######..######."));
        let mesh = picture(6, LEVEL, 4.0);
        assert_eq!((&*mesh[8], &*mesh[4]), ("...##......##...", "################"));
    }

    #[test]
    fn rings_and_rays_surround_the_origin() {
        let rings = picture(4, LEVEL, 4.0);
        assert_eq!((&*rings[8], &*rings[2]), ("##....####....##", "######....######"));
        let rays = picture(7, LEVEL, 4.0);
        assert_eq!((&rays[9][4..7], &rays[9][10..14], &rays[14][9..12]), ("...", "####", "..."));
        assert_eq!(&rays[14][4..7], "###");
    }

    #[test]
    fn a_plain_fill_writes_nothing() {
        let pattern = Pattern { fill: 0, origin: LEVEL, axis: LEVEL, cell: 1.0 };
        let mut out = [7.0];
        assert!(!pattern.mix(0.0, &[0.5], &mut out));
        assert_eq!(out, [7.0]);
    }
}
