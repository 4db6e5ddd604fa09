//! Compares the metrics with pycocotools, on truths and detections from the same formula; see `tests/parity/coco.py`.

use super::*;
use crate::detection::formula::{Lcg, line};
use crate::detection::mask::Size;
use crate::detection::{Detection, Truth};

type Picture<R> = (Vec<Detection<R>>, Vec<Truth<R>>);

fn index(n: u32) -> usize {
    usize::try_from(n).expect("small")
}

/// A random score. In every second image scores are coarse, so that many are equal.
fn score(rng: &mut Lcg, image: usize) -> f32 {
    let share = if image.is_multiple_of(2) { rng.real(16) / 16.0 } else { rng.real(65_536) / 65_536.0 };
    crate::number::single(share)
}

/// The class of a truth; classes 6 and 7 have none.
fn there(rng: &mut Lcg) -> usize {
    index(rng.below(6))
}

/// The class of a detection; classes 5 and 7 have none.
fn told(rng: &mut Lcg) -> usize {
    [0, 1, 2, 3, 4, 6][index(rng.below(6))]
}

/// Draws a region of an image, a detection of a region, and the area of a region in the ground truth.
struct Form<R> {
    rng: fn(&mut Lcg) -> R,
    moved: fn(&mut Lcg, &R) -> R,
    area: fn(&mut Lcg, &R) -> f64,
}

/// The images of a set.
fn pictures<S: Clone>(rng: &mut Lcg, set: usize, images: usize, form: &Form<S>) -> Vec<Picture<S>> {
    let mut pictures = Vec::new();
    for image in 0..if set == 5 { 1 } else { images } {
        let (many, stray) = (rng.below(8), rng.below(6));
        let many = if image == 3 || set == 7 { 0 } else { many };
        let stray = if image == 4 { 130 } else { stray };
        let (mut detections, mut truths) = (Vec::new(), Vec::new());
        for _ in 0..many {
            let (class, region, crowd) = (there(rng), (form.rng)(rng), rng.below(8) == 0);
            truths.push(Truth { class, area: (form.area)(rng, &region), crowd, region: region.clone() });
            let copies = rng.below(4);
            for _ in 0..if image == 2 || set == 6 { 0 } else { copies } {
                let class = if rng.below(8) == 0 || class == 5 { told(rng) } else { class };
                detections.push(Detection { class, score: score(rng, image), region: (form.moved)(rng, &region) });
            }
        }
        for _ in 0..stray {
            let class = if image == 4 { 0 } else { told(rng) };
            detections.push(Detection { class, score: score(rng, image), region: (form.rng)(rng) });
        }
        pictures.push((detections, truths));
    }
    pictures
}

fn bounds(rng: &mut Lcg) -> Xywh {
    let (least, spread) = [(16, 200), (128, 400), (384, 800)][index(rng.below(3))];
    let mut side = || f64::from(least + rng.below(spread)) / 4.0;
    let (width, height) = (side(), side());
    Xywh::new([rng.real(1400) / 4.0, rng.real(1000) / 4.0, width, height])
}

fn moved_bounds(rng: &mut Lcg, Xywh { left, top, width, height }: &Xywh) -> Xywh {
    let reach = [1, 4, 8][index(rng.below(3))];
    let step = [(); 4].map(|()| (rng.real(2 * reach + 1) - f64::from(reach)) / 32.0);
    Xywh::new([
        left + step[0] * width / 2.0,
        top + step[1] * height / 2.0,
        width + step[2] * width,
        height + step[3] * height,
    ])
}

const BOXES: Form<Xywh> = Form {
    rng: bounds,
    moved: moved_bounds,
    area: |rng, bounds| bounds.width * bounds.height * f64::from(50 + rng.below(50)) / 100.0,
};

type Outlines = Vec<Vec<f64>>;

const SIZE: Size = Size { width: 170, height: 130 };

fn outline(rng: &mut Lcg) -> Vec<f64> {
    let (least, spread) = [(5, 30), (20, 60), (90, 75)][index(rng.below(3))];
    let (width, height) = (least + rng.below(spread), least + rng.below(spread));
    let mut start = |side: u16, extent: u32| rng.real(u32::from(side) * 10) / 10.0 - f64::from(extent) / 2.0;
    let (left, top) = (start(SIZE.width, width), start(SIZE.height, height));
    let mut corner =
        |start: f64, share: f64, extent: u32| start + share * f64::from(extent) + rng.real(extent * 2 + 1) / 10.0;
    let corners = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]];
    corners.into_iter().flat_map(|[x, y]| [corner(left, x, width), corner(top, y, height)]).collect()
}

fn moved_outlines(rng: &mut Lcg, outlines: &Outlines) -> Outlines {
    let far = [3_u32, 10, 30, 100][index(rng.below(4))];
    let mut moved = |corner: &f64| corner + (rng.real(far) - f64::from(far / 2)) / 10.0;
    outlines.iter().map(|corners| corners.iter().map(&mut moved).collect()).collect()
}

const MASKS: Form<Outlines> = Form {
    rng: |rng| {
        let parts = 1 + rng.below(2);
        (0..parts).map(|_| outline(rng)).collect()
    },
    moved: moved_outlines,
    area: |_, outlines| f64::from(Mask::from_polygons(SIZE, outlines).area()),
};

fn mask_pictures(set: usize) -> Vec<Picture<Mask>> {
    let drawn = pictures(&mut Lcg(u64::try_from(200 + set).expect("small")), set, 12, &MASKS);
    let mask = |outlines: Outlines| Mask::from_polygons(SIZE, &outlines);
    drawn
        .into_iter()
        .map(|(detections, truths)| {
            let detections = detections.into_iter().map(|Detection { class, score, region }| Detection {
                class,
                score,
                region: mask(region),
            });
            let truths = truths.into_iter().map(|Truth { class, area, crowd, region }| Truth {
                class,
                area,
                crowd,
                region: mask(region),
            });
            (detections.collect(), truths.collect())
        })
        .collect()
}

/// Compares the twelve summary metrics and the average precision of each class.
fn agrees<R: Region>(name: &str, pictures: &[Picture<R>]) {
    let mut evaluation = MeanAveragePrecision::new(8);
    for (detections, truths) in pictures {
        evaluation.add(match_picture(8, detections, truths).expect("valid"));
    }
    let Evaluation { summary, classes } = evaluation.finish();
    let found = summary.named().map(|(_, value)| value).into_iter().chain(classes.iter().map(|class| class.ap));
    let expected = line(name);
    let (sizes, numbers) = expected.split_at(2);
    let truths: usize = pictures.iter().map(|(_, truths)| truths.len()).sum();
    assert_eq!(sizes[0], truths.to_string());
    assert_eq!(numbers.len(), 20);
    for (place, (found, expected)) in found.zip(numbers).enumerate() {
        let expected: f64 = expected.parse().expect("a number");
        assert!((found.unwrap_or(-1.0) - expected).abs() < 1e-12, "{name}, number {place}: {found:?}, not {expected}");
    }
}

#[test]
fn box_metrics_match_pycocotools() {
    for set in 1..=7 {
        let mut rng = Lcg(u64::try_from(100 + set).expect("small"));
        agrees(&format!("boxes.{set}"), &pictures(&mut rng, set, 24, &BOXES));
    }
}

#[test]
fn mask_metrics_match_pycocotools() {
    for set in 1..=7 {
        agrees(&format!("masks.{set}"), &mask_pictures(set));
    }
}

#[test]
fn thresholds_are_rounded_as_in_numpy() {
    assert_eq!(matching::thresholds().map(|threshold| threshold.to_string()).to_vec(), line("thresholds"));
}
