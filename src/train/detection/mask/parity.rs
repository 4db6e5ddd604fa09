//! Compares the pixels of polygons from the same formula with pycocotools; see `tests/parity/coco.py`.

use super::*;
use crate::detection::formula::{Lcg, fnv, line};

#[test]
fn polygons_match_pycocotools_exactly() {
    let mut rng = Lcg(1);
    for n in 0..400_u32 {
        let (width, height) = (1 + rng.below(90), 1 + rng.below(90));
        let parts = if n % 3 == 0 { 1 + rng.below(3) } else { 1 };
        let unit = [1, 2, 4, 10, 100, 1000][usize::try_from(n % 6).expect("small")];
        let margin = if n % 4 == 0 { 30 } else { 0 };
        let corner = |side: u32, rng: &mut Lcg| {
            (rng.real((side + 2 * margin) * unit + 1) - f64::from(margin * unit)) / f64::from(unit)
        };
        let polygon = |rng: &mut Lcg| -> Vec<f64> {
            let corners = 3 + rng.below(10);
            (0..corners).flat_map(|_| [corner(width, rng), corner(height, rng)]).collect()
        };
        let polygons: Vec<Vec<f64>> = (0..parts).map(|_| polygon(&mut rng)).collect();
        let [width, height] = [width, height].map(|side| u16::try_from(side).expect("small"));
        let mask = Mask::from_polygons(Size { width, height }, &polygons);
        let bounds = mask.bounds().array().map(|number| number.to_string());
        let found =
            [vec![mask.area().to_string()], bounds.to_vec(), vec![format!("{:016x}", fnv(&mask.to_compressed()))]];
        assert_eq!(found.concat(), line(&format!("polygon.{n}")), "{width} × {height}: {polygons:?}");
    }
}
