//! The outlines of the ten shapes: closed lines around the origin that enclose an area of 1.
//!
//! The area is the same for all, so that counting the pixels of a shape does not reveal its class. Every shape has an
//! axis of symmetry, so that a mirrored picture keeps its class. Knows nothing of pixels.

/// The classes in the order of their numbers.
pub const NAMES: [&str; 10] =
    ["circle", "square", "triangle", "star", "cross", "ring", "diamond", "hexagon", "crescent", "arrow"];

/// A place or a direction; `y` points down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// To the right.
    pub x: f32,
    /// Down.
    pub y: f32,
}

const STEPS: usize = 60;

/// The unit circle in steps of 6 degrees. It is made by rotation, because a sine may differ between machines.
const CIRCLE: [Point; STEPS] = {
    let (cos, sin) = (0.994_521_9_f32, 0.104_528_46_f32);
    let mut points = [Point { x: 1.0, y: 0.0 }; STEPS];
    let mut step = 1;
    while step < STEPS {
        let Point { x, y } = points[step - 1];
        points[step] = Point { x: x * cos - y * sin, y: x * sin + y * cos };
        step += 1;
    }
    points
};

/// Returns the closed lines of a class, to be filled by the even-odd rule.
pub fn outline(class: usize) -> Vec<Vec<Point>> {
    let mut lines = match class {
        0 => vec![arc(0, 1, STEPS, 1.0)],
        1 => vec![corners(&[(1.0, 1.0), (-1.0, 1.0), (-1.0, -1.0), (1.0, -1.0)])],
        2 => vec![arc(0, 20, 3, 1.0)],
        3 => {
            let tips = arc(0, 12, 5, 1.0);
            let notches = arc(6, 12, 5, 0.42);
            vec![tips.into_iter().zip(notches).flat_map(|(tip, notch)| [tip, notch]).collect()]
        }
        4 => vec![corners(&[
            (0.33, 0.33),
            (0.33, 1.0),
            (-0.33, 1.0),
            (-0.33, 0.33),
            (-1.0, 0.33),
            (-1.0, -0.33),
            (-0.33, -0.33),
            (-0.33, -1.0),
            (0.33, -1.0),
            (0.33, -0.33),
            (1.0, -0.33),
            (1.0, 0.33),
        ])],
        // The inner line runs the other way round, so that its area counts as negative.
        5 => vec![arc(0, 1, STEPS, 1.0), arc(0, STEPS - 1, STEPS, 0.55)],
        6 => vec![corners(&[(1.0, 0.0), (0.0, 0.5), (-1.0, 0.0), (0.0, -0.5)])],
        7 => vec![arc(0, 10, 6, 1.0)],
        8 => vec![crescent()],
        _ => vec![corners(&[
            (-1.0, -0.22),
            (0.15, -0.22),
            (0.15, -0.65),
            (1.0, 0.0),
            (0.15, 0.65),
            (0.15, 0.22),
            (-1.0, 0.22),
        ])],
    };
    let scale = 1.0 / lines.iter().map(|line| area(line)).sum::<f32>().abs().sqrt();
    for point in lines.iter_mut().flatten() {
        *point = Point { x: point.x * scale, y: point.y * scale };
    }
    lines
}

fn arc(from: usize, step: usize, count: usize, radius: f32) -> Vec<Point> {
    let points = CIRCLE.iter().cycle().skip(from).step_by(step);
    points.take(count).map(|point| Point { x: radius * point.x, y: radius * point.y }).collect()
}

fn corners(list: &[(f32, f32)]) -> Vec<Point> {
    list.iter().map(|&(x, y)| Point { x, y }).collect()
}

/// Returns a disc without another disc, which meets its rim at 54 degrees to both sides and its own rim at 72 degrees.
fn crescent() -> Vec<Point> {
    let radius = CIRCLE[9].y / CIRCLE[12].y;
    let shift = CIRCLE[9].x - radius * CIRCLE[12].x;
    let mut line = arc(9, 1, 43, 1.0);
    line.extend(arc(13, 1, 35, radius).into_iter().rev().map(|point| Point { x: point.x + shift, y: point.y }));
    line
}

/// Returns the area within a line (Gauss's formula), negative if the line runs the other way round.
fn area(line: &[Point]) -> f32 {
    let next = line.iter().cycle().skip(1);
    line.iter().zip(next).map(|(a, b)| 0.5 * (a.x * b.y - b.x * a.y)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_has_area_one_and_stays_near_the_origin() {
        for (class, name) in NAMES.iter().enumerate() {
            let lines = outline(class);
            let enclosed: f32 = lines.iter().map(|line| area(line)).sum();
            assert!((enclosed.abs() - 1.0).abs() < 1e-4, "{name}: {enclosed}");
            let reach = lines.iter().flatten().map(|point| point.x.hypot(point.y)).fold(0.0, f32::max);
            assert!((0.5..1.1).contains(&reach), "{name}: {reach}");
        }
    }

    #[test]
    fn every_shape_is_its_own_mirror_image() {
        // All outlines are symmetrical to the horizontal axis.
        for (class, name) in NAMES.iter().enumerate() {
            for point in outline(class).iter().flatten() {
                let met = outline(class)
                    .iter()
                    .flatten()
                    .any(|other| (other.x - point.x).abs() < 1e-4 && (other.y + point.y).abs() < 1e-4);
                assert!(met, "{name}: {point:?}");
            }
        }
    }

    #[test]
    fn turning_closes_the_circle() {
        let last = CIRCLE[STEPS - 1];
        assert!((last.x - CIRCLE[1].x).abs() < 1e-5 && (last.y + CIRCLE[1].y).abs() < 1e-5, "{last:?}");
    }
}
