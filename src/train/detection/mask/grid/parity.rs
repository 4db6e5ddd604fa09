//! Compares grids and pasted pixels with torchvision, on masks and probabilities from the same formula; see
//! `tests/parity/mask_grid.py`.

use super::*;
use crate::detection::formula::{Lcg, find, fnv};

fn found(name: &str) -> Vec<&'static str> {
    find(include_str!("../../../../../tests/parity/mask_grid.txt"), name)
}

fn index(number: u32) -> usize {
    usize::try_from(number).expect("small")
}

fn picture(rng: &mut Lcg, spread: u32) -> Size {
    let [height, width] = [(); 2].map(|()| u16::try_from(20 + rng.below(spread)).expect("small"));
    Size { width, height }
}

/// Three rectangles in an image of random size.
fn mask(rng: &mut Lcg) -> Mask {
    let size = picture(rng, 60);
    let (width, height) = (u32::from(size.width), u32::from(size.height));
    let mut pixels = vec![0; index(size.pixels())];
    for _ in 0..3 {
        let (left, top) = (rng.below(width), rng.below(height));
        let (right, bottom) = (left + 1 + rng.below(width), top + 1 + rng.below(height));
        for row in top..bottom.min(height) {
            pixels[index(row * width + left)..index(row * width + right.min(width))].fill(1);
        }
    }
    Mask::from_bitmap(size, &pixels)
}

/// A random box inside the image; one in four extends beyond it.
fn bounds(rng: &mut Lcg, size: Size) -> Xyxy {
    let mut edges = |pixels: u16| {
        let mut both = [(); 2].map(|()| single(rng.real(u32::from(pixels) * 16) / 16.0));
        both.sort_unstable_by(f32::total_cmp);
        both
    };
    let ([left, right], [top, bottom]) = (edges(size.width), edges(size.height));
    let beyond = if rng.below(4) == 0 { 6.0 } else { 0.0 };
    Xyxy::new([left - beyond, top - beyond, right + beyond, bottom + beyond])
}

#[test]
fn targets_match_torchvision() {
    let mut rng = Lcg(3);
    for n in 0..40 {
        let mask = mask(&mut rng);
        let bounds = bounds(&mut rng, mask.size());
        let side = [2, 5, 7][index(rng.below(3))];
        let line = found(&format!("target.{n}"));
        assert_eq!(line[0], side.to_string());
        let grid = mask.aligned(bounds, side);
        assert_eq!(grid.len(), line.len() - 1);
        for (place, (value, expected)) in grid.iter().zip(&line[1..]).enumerate() {
            let expected: f32 = expected.parse().expect("a number");
            assert!((value - expected).abs() < 2e-6, "{n}, cell {place}: {value}, not {expected}");
        }
    }
}

#[test]
fn pasted_masks_match_torchvision_exactly() {
    let mut rng = Lcg(4);
    for n in 0..120 {
        let size = picture(&mut rng, 90);
        let bounds = bounds(&mut rng, size);
        let side = [4, 14, 28][index(rng.below(3))];
        let grid: Vec<f32> = (0..side * side).map(|_| single(rng.real(4096) / 4096.0)).collect();
        let mask = Mask::pasted(size, bounds, side, &grid);
        let counts: Vec<String> = mask.counts().iter().map(u32::to_string).collect();
        let pixels = [mask.area().to_string(), format!("{:016x}", fnv(&counts.join(" ")))];
        assert_eq!(pixels.to_vec(), found(&format!("paste.{n}")), "{size:?}, {bounds:?}");
    }
}
