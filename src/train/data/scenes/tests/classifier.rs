//! Tests that classes can be learned, and only by form and fill: nearest-prototype classifiers on the visible pixels of
//! objects.

use super::*;
use crate::number::whole;

/// The features of an object, and its class.
struct Sample {
    /// Features of the mask.
    form: Vec<f64>,
    /// Features of the pixels within the mask.
    fill: Vec<f64>,
    /// Place, size, order and mean colour.
    rest: Vec<f64>,
    class: usize,
}

/// The visible part of an object. Brightness is along the colours' main direction, in units of its standard deviation.
struct Seen {
    /// At most some thousand pixels of the mask: offsets from the centre in units of the root of the area.
    places: Vec<(f64, f64)>,
    /// The brightness of these.
    bright: Vec<f64>,
    /// Their mean colour.
    colour: [f64; 3],
    /// The fraction of the colours' variance along their main direction.
    along: f64,
    /// Pixels of the mask.
    area: usize,
    bitmap: Vec<u8>,
    width: usize,
    /// The brightness of each visible pixel of the box, else 0.
    values: Vec<f64>,
}

fn seen(object: &Object, planes: &[u8], side: usize) -> Seen {
    let [left, top, width, height] =
        mask(object).bounds().array().map(|edge| usize::try_from(whole(edge)).expect("small"));
    let all = mask(object).to_bitmap();
    let rows = all.chunks_exact(side).skip(top).take(height);
    let bitmap: Vec<u8> = rows.flat_map(|row| &row[left..left + width]).copied().collect();
    let inside: Vec<usize> = (0..bitmap.len()).filter(|at| bitmap[*at] == 1).collect();
    let some: Vec<usize> = inside.iter().copied().step_by(1 + inside.len() / 1200).collect();
    let count = real_len(some.len());
    let pixel = |at: usize| {
        let spot = (top + at / width) * side + left + at % width;
        [0, 1, 2].map(|channel| f64::from(planes[channel * side * side + spot]))
    };
    let colour = [0, 1, 2].map(|channel| some.iter().map(|at| pixel(*at)[channel]).sum::<f64>() / count);
    let off = |at: usize| {
        let value = pixel(at);
        [0, 1, 2].map(|channel| value[channel] - colour[channel])
    };
    let dot = |a: &[f64; 3], b: &[f64; 3]| a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
    let offs: Vec<[f64; 3]> = some.iter().map(|at| off(*at)).collect();
    // The main direction by power iteration.
    let mut main = [1.0, 0.9, 1.1];
    for _ in 0..12 {
        let next = offs.iter().fold([0.0; 3], |sum, off| {
            let part = dot(off, &main);
            [sum[0] + part * off[0], sum[1] + part * off[1], sum[2] + part * off[2]]
        });
        let length = dot(&next, &next).sqrt().max(1e-9);
        main = next.map(|value| value / length);
    }
    let total: f64 = offs.iter().map(|off| dot(off, off)).sum();
    let spread: f64 = offs.iter().map(|off| dot(off, &main).powi(2)).sum();
    let deviation = (spread / count).sqrt().max(1e-9);
    let mut values = vec![0.0; bitmap.len()];
    inside.iter().for_each(|at| values[*at] = dot(&off(*at), &main) / deviation);
    let middle =
        |axis: fn(usize, usize) -> usize| some.iter().map(|at| real_len(axis(*at, width))).sum::<f64>() / count;
    let (x, y) = (middle(|at, width| at % width), middle(|at, width| at / width));
    let unit = real_len(inside.len()).sqrt();
    let place = |at: &usize| ((real_len(at % width) - x) / unit, (real_len(at / width) - y) / unit);
    Seen {
        places: some.iter().map(place).collect(),
        bright: some.iter().map(|at| values[*at]).collect(),
        colour,
        along: spread / total.max(1e-9),
        area: inside.len(),
        bitmap,
        width,
        values,
    }
}

/// Returns the mean of some values; 0 for none.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}

/// Returns angular waves, the distribution of distances from the centre, elongation, and length of the outline.
fn form_of(seen: &Seen) -> Vec<f64> {
    let mut found = Vec::new();
    for wave in 1..=6_u8 {
        let turn = |(x, y): &(f64, f64)| (y.atan2(*x) * f64::from(wave)).sin_cos();
        let part = |axis: fn((f64, f64)) -> f64| {
            mean(seen.places.iter().map(|place| place.0.hypot(place.1) * axis(turn(place))))
        };
        found.push(part(|turn| turn.0).hypot(part(|turn| turn.1)));
    }
    for limit in [0.2, 0.35, 0.5, 0.6, 0.75, 0.9] {
        found.push(mean(seen.places.iter().map(|(x, y)| f64::from(u8::from(x.hypot(*y) < limit)))));
    }
    let moment = |value: fn(&(f64, f64)) -> f64| mean(seen.places.iter().map(value));
    let (xx, yy, xy) = (moment(|p| p.0 * p.0), moment(|p| p.1 * p.1), moment(|p| p.0 * p.1));
    found.push(((xx - yy).powi(2) + 4.0 * xy * xy).sqrt() / (xx + yy));
    found.push(xx + yy);
    let pairs = |step: usize| {
        let whole = seen.bitmap.iter().zip(&seen.bitmap[step.min(seen.bitmap.len())..]);
        real_len(whole.filter(|(a, b)| a != b).count())
    };
    found.push((pairs(1) + pairs(seen.width)) / real_len(seen.area).sqrt());
    found
}

/// Returns the similarity of pixels at some distances in some directions, at one distance from the centre, and at one
/// angle.
fn fill_of(seen: &Seen) -> Vec<f64> {
    let mut found = vec![seen.along, mean(seen.bright.iter().map(|value| value.powi(4))).min(9.0)];
    found.push(mean(seen.bright.iter().map(|value| value.powi(3))).abs());
    let unit = real_len(seen.area).sqrt();
    for distance in [0.06, 0.1, 0.15, 0.2, 0.28] {
        let mut alike: Vec<f64> = (0..8_u8).map(|step| likeness(seen, distance * unit, f64::from(step))).collect();
        alike.sort_unstable_by(f64::total_cmp);
        found.extend([mean(alike.iter().copied()), alike[0], alike[7], alike[4]]);
    }
    let explained = |bin: &dyn Fn(&(f64, f64)) -> f64| {
        let mut sums = [(0.0, 0.0); 16];
        for (place, value) in seen.places.iter().zip(&seen.bright) {
            let at = usize::try_from(whole(bin(place))).expect("small").min(15);
            sums[at] = (sums[at].0 + value, sums[at].1 + 1.0);
        }
        sums.iter().map(|(sum, count)| sum * sum / f64::max(*count, 1.0)).sum::<f64>() / real_len(seen.places.len())
    };
    let quarter = std::f64::consts::FRAC_PI_2;
    found.push(explained(&|(x, y)| 16.0 * x.hypot(*y)));
    found.push(explained(&|(x, y)| 16.0 * y.atan2(*x).rem_euclid(quarter) / quarter));
    found
}

/// Returns the correlation of pixels `distance` apart in the direction of `eighth` eighths of half a turn.
fn likeness(seen: &Seen, distance: f64, eighth: f64) -> f64 {
    let (sin, cos) = (eighth * std::f64::consts::PI / 8.0).sin_cos();
    let (down, across) = (whole((distance * sin).round()), (distance * cos).round());
    let (down, right) = (usize::try_from(down).expect("small"), usize::try_from(whole(across.abs())).expect("small"));
    let height = seen.bitmap.len() / seen.width;
    if right >= seen.width || down >= height {
        return 0.0;
    }
    let (from, to) = if across < 0.0 { (right, 0) } else { (0, right) };
    // Some fifty rows and columns suffice.
    let pairs = (0..height - down).step_by(1 + height / 50).flat_map(|row| {
        let (one, other) = (row * seen.width + from, (row + down) * seen.width + to);
        (0..seen.width - right).step_by(1 + seen.width / 50).map(move |column| (one + column, other + column))
    });
    let pairs = pairs.filter(|(a, b)| seen.bitmap[*a] == 1 && seen.bitmap[*b] == 1);
    mean(pairs.map(|(a, b)| seen.values[a] * seen.values[b]))
}

fn samples(scenes: &Scenes, indices: std::ops::Range<usize>) -> Vec<Sample> {
    let one = |index| {
        let mut planes = vec![0; size(scenes.side)];
        let objects = scenes.eval(index, &mut planes).expect("there");
        let measure = |(place, object): (usize, &Object)| {
            let seen = seen(object, &planes, scenes.side);
            let mut rest: Vec<f64> = Xyxy::from(mask(object).bounds()).array().map(f64::from).to_vec();
            rest.extend(seen.colour);
            rest.extend([real_len(place), real_len(index % 10), real(mask(object).area().into()).sqrt()]);
            Sample { form: form_of(&seen), fill: fill_of(&seen), rest, class: object.class }
        };
        objects.iter().enumerate().map(measure).collect::<Vec<Sample>>()
    };
    indices.into_par_iter().flat_map_iter(one).collect()
}

/// Returns the fraction of samples whose label the nearest prototype predicts. A prototype is the mean of a label's
/// features, each in units of its standard deviation within labels.
fn told(
    train: &[Sample],
    test: &[Sample],
    features: impl Fn(&Sample) -> &[f64],
    label: impl Fn(&Sample) -> usize,
) -> f64 {
    let width = features(&train[0]).len();
    let labels = 1 + train.iter().map(&label).max().expect("samples");
    let mut sums = vec![(vec![0.0; width], 0.0); labels];
    for sample in train {
        let (sum, count) = &mut sums[label(sample)];
        sum.iter_mut().zip(features(sample)).for_each(|(sum, value)| *sum += value);
        *count += 1.0;
    }
    let means: Vec<Vec<f64>> =
        sums.into_iter().map(|(sum, count)| sum.iter().map(|sum| sum / f64::max(count, 1.0)).collect()).collect();
    let mut spread = vec![1e-9; width];
    for sample in train {
        let mean = &means[label(sample)];
        let off = features(sample).iter().zip(mean).map(|(value, mean)| (value - mean).powi(2));
        spread.iter_mut().zip(off).for_each(|(sum, off)| *sum += off / real_len(train.len()));
    }
    let right = test.iter().filter(|sample| {
        let far = |mean: &Vec<f64>| -> f64 {
            let off = features(sample).iter().zip(mean).zip(&spread);
            off.map(|((value, mean), spread)| (value - mean).powi(2) / spread).sum()
        };
        let nearest = means.iter().enumerate().min_by(|(_, a), (_, b)| far(a).total_cmp(&far(b)));
        nearest.is_some_and(|(nearest, _)| nearest == label(sample))
    });
    real_len(right.count()) / real_len(test.len())
}

/// Guessing predicts 1.25% of 80 classes, 10% of ten forms and 12.5% of eight fills.
#[test]
fn form_and_fill_can_be_predicted_from_visible_pixels_but_not_always() {
    let scenes = scenes(416, 80);
    let (train, test) = (samples(&scenes, 0..240), samples(&scenes, 240..320));
    let form = told(&train, &test, |sample| &sample.form, |sample| class::form(sample.class));
    let fill = told(&train, &test, |sample| &sample.fill, |sample| class::fill(sample.class));
    assert!((0.65..0.95).contains(&form), "{form}");
    assert!((0.70..0.97).contains(&fill), "{fill}");
    let joined = |samples: &[Sample]| -> Vec<Sample> {
        let join = |sample: &Sample| Sample {
            form: [&*sample.form, &*sample.fill].concat(),
            fill: vec![],
            rest: vec![],
            class: sample.class,
        };
        samples.iter().map(join).collect()
    };
    let class = told(&joined(&train), &joined(&test), |sample| &sample.form, |sample| sample.class);
    assert!((0.45..0.90).contains(&class), "{class}");

    // The mask does not predict the fill. Place, size, order, index and mean colour predict nothing. 5 standard
    // deviations are allowed.
    let count = real_len(test.len());
    let most = |chance: f64| chance + 5.0 * (chance * (1.0 - chance) / count).sqrt();
    let by_mask = told(&train, &test, |sample| &sample.form, |sample| class::fill(sample.class));
    assert!(by_mask < most(1.0 / 8.0), "{by_mask}");
    let by_rest = told(&train, &test, |sample| &sample.rest, |sample| sample.class);
    assert!(by_rest < most(1.0 / 80.0), "{by_rest}");
    let form_by_rest = told(&train, &test, |sample| &sample.rest, |sample| class::form(sample.class));
    // A form's box is part of it, so the box may predict a little.
    assert!(form_by_rest < most(1.0 / 10.0) + 0.02, "{form_by_rest}");
    let fill_by_rest = told(&train, &test, |sample| &sample.rest, |sample| class::fill(sample.class));
    assert!(fill_by_rest < most(1.0 / 8.0), "{fill_by_rest}");
}

#[test]
fn ten_classes_can_be_predicted_from_their_masks() {
    let scenes = scenes(416, 10);
    let (train, test) = (samples(&scenes, 0..100), samples(&scenes, 100..160));
    let form = told(&train, &test, |sample| &sample.form, |sample| sample.class);
    assert!((0.65..0.95).contains(&form), "{form}");
}
