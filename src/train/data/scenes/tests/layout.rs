//! Tests of the positions in scenes, which must not reveal a class.

use super::*;
use crate::number::whole;

/// Returns Pearson's chi-squared statistic of counts that should be equal. Its mean is about the number of counts, its
/// variance twice that.
fn unlikeness(counts: &[usize]) -> f64 {
    let mean = real_len(counts.iter().sum()) / real_len(counts.len());
    counts.iter().map(|count| (real_len(*count) - mean).powi(2) / mean).sum()
}

/// Returns the bound that 5 standard deviations allow.
fn bound(counts: &[usize]) -> f64 {
    let degrees = real_len(counts.len() - 1);
    degrees + 5.0 * (2.0 * degrees).sqrt() + 5.0
}

/// Returns the objects of many scenes.
fn many(side: usize, classes: usize) -> Vec<Vec<Placed>> {
    placed(5, side, classes, 800)
}

/// Returns the number of values in each tenth of 0 to 1.
fn tenths(values: impl Iterator<Item = f32>) -> [usize; 10] {
    let mut counts = [0; 10];
    values.for_each(|value| counts[usize::try_from(whole(f64::from(10.0 * value))).expect("small").min(9)] += 1);
    counts
}

/// Returns the number of pixels that an object covers, hidden or not.
fn covered(object: &Placed) -> usize {
    let layer = &object.layer;
    let row = |y| layer.row(y).map_or(0, |(_, cover)| cover.iter().filter(|byte| **byte >= HALF).count());
    layer.rows().map(row).sum()
}

#[test]
fn every_number_of_objects_is_equally_likely() {
    let mut counts = [0; 8];
    many(416, 80).iter().for_each(|objects| counts[objects.len() - 1] += 1);
    assert!(unlikeness(&counts) < bound(&counts), "{counts:?}");
}

/// Near the edges less is hidden and so fewer objects are drawn again: places there are a few percent more likely.
#[test]
fn objects_lie_anywhere() {
    let all = placed(6, 416, 80, 1500);
    let even = |counts: &[usize], by: f64| {
        let mean = real_len(counts.iter().sum()) / real_len(counts.len());
        assert!(counts.iter().all(|count| (real_len(*count) / mean - 1.0).abs() < by), "{counts:?}");
    };
    let spots = || all.iter().flatten().map(|object| object.spot);
    even(&tenths(spots().map(|spot| spot.place.x)), 0.2);
    even(&tenths(spots().map(|spot| spot.place.y)), 0.2);
    // The boxes of small objects, over the picture itself. No centre of a box can be at its edges.
    let small = || {
        all.iter()
            .flatten()
            .filter(|object| object.spot.size < 32.0)
            .map(|object| Xyxy::from(object.mask.bounds()).array())
    };
    even(&tenths(small().map(|[left, _, right, _]| 0.5 * (left + right) / 416.0))[1..9], 0.3);
    even(&tenths(small().map(|[_, top, _, bottom]| 0.5 * (top + bottom) / 416.0))[1..9], 0.3);
}

#[test]
fn sizes_spread_over_small_medium_and_large() {
    for side in [416, 512] {
        let all = many(side, 80);
        let mut bands = [0; 3];
        for object in all.iter().flatten() {
            let band = match object.mask.area() {
                0..1024 => 0,
                1024..9216 => 1,
                _ => 2,
            };
            bands[band] += 1;
        }
        let count = real_len(bands.iter().sum());
        assert!(bands.iter().all(|band| (0.25..0.45).contains(&(real_len(*band) / count))), "{bands:?} of {side}");
    }
}

#[test]
fn objects_hide_others_and_some_are_cut_by_the_edges() {
    let all = many(416, 80);
    let count = real_len(all.iter().map(Vec::len).sum());
    let objects = || all.iter().flatten();
    let hidden = objects().filter(|object| real(object.mask.area().into()) < 0.95 * real_len(covered(object)));
    let cut = objects().filter(|object| real_len(covered(object)) < 0.9 * f64::from(object.spot.size).powi(2));
    let (hidden, cut) = (real_len(hidden.count()) / count, real_len(cut.count()) / count);
    assert!((0.25..0.50).contains(&hidden), "{hidden}");
    assert!((0.10..0.30).contains(&cut), "{cut}");
}

#[test]
fn classes_are_even_and_independent_of_order_size_and_place() {
    let all = many(128, 80);
    let mut classes = vec![0; 80];
    let mut by_order = [[0; 10]; 8];
    for objects in &all {
        for (place, object) in objects.iter().enumerate() {
            classes[object.class] += 1;
            by_order[place][class::form(object.class)] += 1;
        }
    }
    assert!(unlikeness(&classes) < bound(&classes), "{classes:?}");
    // Eight times ten counts; each ten have nine degrees of freedom.
    let order: f64 = by_order.iter().map(|counts| unlikeness(counts)).sum();
    assert!(order < 72.0 + 5.0 * 12.0, "{order}: {by_order:?}");
    let measures: [fn(&Placed) -> f32; 3] = [|o| o.spot.size, |o| o.spot.place.x, |o| o.spot.place.y];
    for measure in measures {
        let values = |class: Option<usize>| {
            let of_class = all.iter().flatten().filter(move |object| class.is_none_or(|class| class == object.class));
            of_class.map(|object| f64::from(measure(object))).collect::<Vec<f64>>()
        };
        let mean = |values: &[f64]| values.iter().sum::<f64>() / real_len(values.len());
        let overall = values(None);
        let deviation =
            mean(&overall.iter().map(|value| (value - mean(&overall)).powi(2)).collect::<Vec<f64>>()).sqrt();
        for class in 0..80 {
            let found = values(Some(class));
            let off = (mean(&found) - mean(&overall)).abs() / (deviation / real_len(found.len()).sqrt());
            assert!(off < 5.0, "class {class} is {off} deviations off");
        }
    }
}
