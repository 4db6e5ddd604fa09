//! RoIAlign on a GPU against loops over samples and their four neighbouring cells, in double precision on the host.

use super::*;
use crate::number::real_len;

/// Feature levels, and regions of them.
#[derive(Clone, Debug)]
struct Given {
    rows: usize,
    channels: usize,
    side: usize,
    sizes: Vec<[usize; 2]>,
    scales: Vec<f32>,
    regions: Vec<[f32; 6]>,
}

/// Returns a number from 0 to 1 that depends on n.
fn share(n: u32) -> f32 {
    f32::from(u16::try_from(mixed(n.wrapping_mul(0x9e37_79b9)) >> 16).expect("16 bits")) / 65536.0
}

fn small(n: usize) -> f32 {
    f32::from(u16::try_from(n).expect("small"))
}

impl Given {
    /// Creates regions of all sizes within the image and across its border, and some unusual ones.
    fn new([rows, channels, side]: [usize; 3], sizes: &[[usize; 2]], many: u32) -> Self {
        let scales: Vec<f32> = [0.25, 0.125, 0.0625, 0.03125].into_iter().take(sizes.len()).collect();
        let [height, width] = sizes[0].map(|length| small(length) / scales[0]);
        let region = |n: u32| {
            let [x, y, w, h, row, level] = [1, 2, 3, 4, 5, 6].map(|draw| share(n * 8 + draw));
            let [left, top] = [(1.4 * x - 0.3) * width, (1.4 * y - 0.3) * height];
            let whole = |share: f32, many: usize| (share * small(many)).floor();
            let edges = [left, top, left + w * w * width, top + h * h * height];
            let [left, top, right, bottom] = match n % 16 {
                // Empty, reversed, outside, the whole image, around it, beyond all bounds.
                3 => [left, top, left, top],
                4 => [left + 20.0, top + 9.0, left, top],
                5 => edges.map(|edge| edge + 10.0 * (width + height)),
                6 => [0.0, 0.0, width, height],
                7 => [-width, -height, 2.0 * width, 2.0 * height],
                8 => [f32::NAN, top, left, -1e30],
                _ => edges,
            };
            let level = if n % 16 == 9 { -1.0 } else { whole(level, sizes.len()) };
            let row = if n % 16 == 10 { small(rows) } else { whole(row, rows) };
            [row, level, left, top, right, bottom]
        };
        Self { rows, channels, side, sizes: sizes.to_vec(), scales, regions: (0..many).map(region).collect() }
    }

    fn shapes(&self) -> Vec<[usize; 4]> {
        self.sizes.iter().map(|[height, width]| [self.rows, self.channels, *height, *width]).collect()
    }

    fn on_card(&self) -> Tensor<2> {
        let values: Vec<f32> = self.regions.iter().flatten().copied().collect();
        Tensor::from_data(TensorData::new(values, [self.regions.len(), 6]), &card())
    }

    /// Calls `with` for each sample and cell: the level, the indices in the level and in the bins, and the weight.
    fn each(&self, mut with: impl FnMut(usize, usize, usize, f64)) {
        let bins = self.side * self.side;
        for (n, [row, level, edges @ ..]) in self.regions.iter().enumerate() {
            let there = (0.0..small(self.rows)).contains(row) && (0.0..small(self.sizes.len())).contains(level);
            if !there {
                continue;
            }
            let [row, level] = [row, level].map(|value| (0..9).find(|n| small(*n) == *value).expect("whole"));
            let (scale, [height, width]) = (self.scales[level], self.sizes[level]);
            let [left, top, right, bottom] = edges.map(|edge| edge * scale);
            let along = |start: f32, end: f32, sample: usize, length: usize| {
                let bin = (end - start).max(1.0) / small(self.side);
                around(start + small(sample / 2) * bin + (small(sample % 2) + 0.5) * bin / 2.0, length)
            };
            for (down, across) in (0..2 * self.side).flat_map(|y| (0..2 * self.side).map(move |x| (y, x))) {
                for (y, high) in along(top, bottom, down, height) {
                    for (x, wide) in along(left, right, across, width) {
                        for channel in 0..self.channels {
                            let cell = ((row * self.channels + channel) * height + y) * width + x;
                            let bin = (n * self.channels + channel) * bins + down / 2 * self.side + across / 2;
                            with(level, cell, bin, high * wide / 4.0);
                        }
                    }
                }
            }
        }
    }
}

/// Returns the cells around a sample with their weights; none if it is more than a cell beyond the border.
fn around(at: f32, length: usize) -> Vec<(usize, f64)> {
    if !(-1.0..=small(length)).contains(&at) {
        return Vec::new();
    }
    let at = at.max(0.0);
    match (0..length - 1).find(|low| at < small(low + 1)) {
        Some(low) => {
            let far = f64::from(at) - real_len(low);
            vec![(low, 1.0 - far), (low + 1, far)]
        }
        None => vec![(length - 1, 1.0)],
    }
}

fn doubled(tensor: &Tensor<4>) -> Vec<f64> {
    read(tensor.clone()).into_iter().map(f64::from).collect()
}

fn close(ours: &[f32], theirs: &[f64], format: FloatDType, what: &str) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    let largest = theirs.iter().fold(1e-30_f64, |largest, value| largest.max(value.abs()));
    for (place, (a, b)) in ours.iter().zip(theirs).enumerate() {
        let near = (f64::from(*a) - b).abs() <= f64::from(rounding(format)) * largest;
        assert!(near, "{what}, value {place}: {a} and not {b}");
    }
}

#[test]
fn the_loops_find_the_middle_of_a_bin_of_linear_features() {
    let mut given = Given::new([2, 3, 7], &[[20, 30], [10, 15]], 0);
    given.regions = vec![[1.0, 0.0, 9.0, 11.0, 65.0, 53.0], [1.0, -1.0, 9.0, 11.0, 65.0, 53.0]];
    let mut bins = vec![0.0; 2 * 3 * 49];
    given.each(|level, cell, bin, share| {
        assert_eq!((level, cell / 1800), (0, 1), "the level and the row");
        let (channel, y, x) = (cell / 600 % 3, cell / 30 % 20, cell % 30);
        bins[bin] += share * (real_len(channel) * 100.0 + 2.0 * real_len(y) - 3.0 * real_len(x));
    });
    for (place, bin) in bins.iter().enumerate() {
        let (channel, down, across) = (place / 49, real_len(place / 7 % 7) + 0.5, real_len(place % 7) + 0.5);
        let (y, x) = ((11.0 + down * 6.0) / 4.0, (9.0 + across * 8.0) / 4.0);
        let right = if channel < 3 { real_len(channel) * 100.0 + 2.0 * y - 3.0 * x } else { 0.0 };
        assert!((bin - right).abs() < 1e-4, "{place}: {bin}, not {right}");
    }
    assert_eq!(around(-1.1, 5).len() + around(5.1, 5).len() + around(f32::NAN, 5).len(), 0);
    assert_eq!(
        [around(-0.9, 5), around(4.7, 5), around(5.0, 5)],
        [vec![(0, 1.0), (1, 0.0)], vec![(4, 1.0)], vec![(4, 1.0)]]
    );
}

#[test]
fn image_kernels_refuse_host_tensors() {
    let (x, vector) = (random([1, 2, 4, 4]), random([2]));
    let norm =
        BatchNorm { channels: [&vector; 4], epsilon: 1e-5, residual: None, residual_last: false, leak: Some(0.0) };
    assert!(batch_norm(&x, &norm, 0.1).is_none(), "no card is asked for");
    assert!(batch_norm_answer(&x, &norm).is_none(), "no card is asked for");
    let frozen = FrozenNorm { channels: [&vector; 2], epsilon: 1e-5, activation: None, residual: true };
    assert!(frozen_norm_back(&x, &frozen).is_none(), "no card is asked for");
    assert!(roi_align(std::slice::from_ref(&x), &random([1, 6]), &[0.25], 4).is_none(), "no card is asked for");
    assert!(roi_align_back(&x, &random([1, 6]), &[x.dims()], &[0.25]).is_none(), "no card is asked for");
    assert!(upsample(&x, None).is_none(), "no card is asked for");
    assert!(upsample_back(&x).is_none(), "no card is asked for");
}

#[test]
#[ignore = "needs a GPU"]
fn roi_aligns_on_gpu() {
    let pyramid = [[40, 37], [20, 19], [10, 9], [5, 5]];
    let cases = [
        Given::new([2, 20, 7], &pyramid, 64),
        Given::new([1, 72, 7], &pyramid[..2], 33),
        Given::new([2, 17, 14], &[[33, 20], [17, 10]], 48),
        Given::new([3, 32, 14], &[[32, 48]], 40),
        Given::new([1, 3, 1], &[[1, 1], [3, 2]], 32),
        Given::new([1, 4, 16], &[[18, 18]], 16),
        // More regions touch a tile than there are threads.
        Given::new([1, 8, 3], &[[24, 40]], 1500),
    ];
    for (given, format) in cases.iter().flat_map(|given| FORMATS.map(|format| (given, format))) {
        let what = format!("{format:?} {:?} of {} rows, side {}", given.sizes, given.rows, given.side);
        let features: Vec<Tensor<4>> =
            given.shapes().into_iter().map(|shape| moved(&random(shape).cast(format), &card())).collect();
        let regions = given.on_card();
        let answer = || roi_align(&features, &regions, &given.scales, given.side).expect("possible");
        let ours = answer();
        let dims = [given.regions.len(), given.channels, given.side, given.side];
        assert_eq!((ours.dims(), ours.dtype()), (dims, format.into()), "{what}");
        let values: Vec<Vec<f64>> = features.iter().map(doubled).collect();
        let mut theirs = vec![0.0; dims.iter().product()];
        given.each(|level, cell, bin, share| theirs[bin] += share * values[level][cell]);
        let ours = read(ours);
        close(&ours, &theirs, format, &what);
        assert!(ours == read(answer()), "{what}: not the same twice");
        let gradient = moved(&random(dims).cast(format), &card());
        let slopes = doubled(&gradient);
        let mut theirs: Vec<Vec<f64>> = values.iter().map(|level| vec![0.0; level.len()]).collect();
        given.each(|level, cell, bin, share| theirs[level][cell] += share * slopes[bin]);
        let back = || roi_align_back(&gradient, &regions, &given.shapes(), &given.scales).expect("possible");
        for ((ours, again), theirs) in back().into_iter().zip(back()).zip(&theirs) {
            let ours = read(ours);
            close(&ours, theirs, format, &format!("gradients of {what}"));
            assert!(ours == read(again), "gradients of {what}: not the same twice");
        }
    }
    assert_eq!(fault(), None);
}

#[test]
#[ignore = "needs a GPU"]
fn roi_aligns_of_views_on_gpu() {
    let given = Given::new([2, 5, 7], &[[9, 11]], 24);
    for format in FORMATS {
        let wide = moved(&random([2, 9, 11, 5]).cast(format), &card());
        let view = wide.permute([0, 3, 1, 2]);
        let plain = moved(&Tensor::from_data(view.clone().into_data(), (&flex(), view.dtype())), &card());
        let regions = given.on_card();
        let align = |level: Tensor<4>| roi_align(&[level], &regions, &given.scales, 7).expect("possible");
        same(align(view), align(plain), "a view of features");
        // The first value is at an unaligned address.
        let long = moved(&random([25, 5, 7, 7]).cast(format), &card());
        let part = long.clone().slice([1..25, 0..5, 0..7, 0..7]);
        let plain = moved(&Tensor::from_data(part.clone().into_data(), (&flex(), part.dtype())), &card());
        let back =
            |slopes| roi_align_back(&slopes, &regions, &given.shapes(), &given.scales).expect("possible").remove(0);
        same(back(part), back(plain), "a view of slopes");
    }
}
