//! Batch normalisation on a GPU against the formulas in double precision on the host.

use super::*;
use crate::cuda::dnn::Storage;
use crate::number::real_len;

/// Creates a view with another layout.
type View = fn(Tensor<4>) -> Tensor<4>;

const EPSILON: f64 = 1e-5;
const SHARE: f64 = 0.1;

/// A residual, whether it is added after the activation, and the factor of negative values.
#[derive(Clone, Copy, Debug)]
struct Follow {
    residual: bool,
    last: bool,
    leak: Option<f64>,
}

const fn follow(residual: bool, last: bool, leak: Option<f64>) -> Follow {
    Follow { residual, last, leak }
}

const FOLLOW: [Follow; 8] = [
    follow(false, false, None),
    follow(false, false, Some(0.0)),
    follow(true, false, None),
    follow(true, false, Some(0.0)),
    follow(false, false, Some(0.1)),
    follow(true, true, Some(0.1)),
    follow(true, false, Some(0.1)),
    follow(true, true, Some(0.0)),
];

impl Follow {
    fn norm<'a>(self, channels: &'a [Tensor<1>; 4], residual: &'a Tensor<4>) -> BatchNorm<'a> {
        let residual = self.residual.then_some(residual);
        BatchNorm {
            channels: channels.each_ref(),
            epsilon: EPSILON,
            residual,
            residual_last: self.last,
            leak: self.leak,
        }
    }

    fn bent(self, value: f64) -> f64 {
        match self.leak {
            Some(leak) if value < 0.0 => value * f64::from(single(leak)),
            _ => value,
        }
    }

    /// Applies the activation and the residual to a normalised value.
    fn apply(self, normed: f64, residual: f64) -> f64 {
        match (self.residual, self.last) {
            (false, _) => self.bent(normed),
            (true, false) => self.bent(normed + residual),
            (true, true) => self.bent(normed) + residual,
        }
    }
}

/// Returns numbers in [-1, 1) with 16 digits, which depend on the seed.
fn numbers(len: usize, seed: u32) -> Vec<f32> {
    let digits = |n: u32| u16::try_from(mixed(n.wrapping_mul(0x9e37_79b9).wrapping_add(seed)) >> 16).expect("16 bits");
    (0..).take(len).map(|n| f32::from(digits(n)) / 32768.0 - 1.0).collect()
}

fn vector(values: &[f32]) -> Tensor<1> {
    Tensor::from_data(TensorData::from(values), &card())
}

/// The inputs, on the GPU and as read by the host.
struct Given {
    dims: [usize; 4],
    x: Tensor<4>,
    residual: Tensor<4>,
    dy: Tensor<4>,
    /// Gain, bias, running mean, running variance.
    channels: [Vec<f32>; 4],
}

impl Given {
    fn new(dims: [usize; 4], format: FloatDType, mean: f32) -> Self {
        let all = dims.iter().product();
        let images = |seed: u32, middle: f32| {
            let values: Vec<f32> = numbers(all, seed).into_iter().map(|value| value + middle).collect();
            vector(&values).cast(format).reshape(dims)
        };
        let channels = [(1.0, 0.5), (0.0, 1.0), (0.0, 1.0), (1.0, 0.5)];
        let mut seed = 10;
        let channels = channels.map(|(middle, bound): (f32, f32)| {
            seed += 1;
            numbers(dims[1], seed).into_iter().map(|value| middle + bound * value).collect()
        });
        Self { dims, x: images(1, mean), residual: images(2, 0.0), dy: images(3, 0.0), channels }
    }

    /// Converts the images to NHWC.
    fn nhwc(self) -> Self {
        let laid = |images| Storage::Nhwc.laid(images).expect("on the card");
        Self { x: laid(self.x), residual: laid(self.residual), dy: laid(self.dy), ..self }
    }

    fn on_card(&self) -> [Tensor<1>; 4] {
        self.channels.each_ref().map(|values| vector(values))
    }

    /// A training step on the GPU: the output, the running statistics, and the gradients of images, gain, bias and
    /// residual.
    fn ours(&self, follow: Follow) -> Vec<Vec<f32>> {
        let channels = self.on_card();
        let norm = follow.norm(&channels, &self.residual);
        let Some(BatchNormed { y, running: [mean, variance], kept }) = batch_norm(&self.x, &norm, SHARE) else {
            panic!("{:?} is refused", self.dims)
        };
        let found = batch_norm_back(self.dy.clone(), None, kept).expect("it fits");
        let mut all = vec![read(y), read(mean), read(variance), read(found.x), read(found.gain), read(found.bias)];
        assert_eq!(found.residual.is_some(), follow.residual);
        all.extend(found.residual.map(read));
        all
    }

    /// The same by the formulas. The sign of a value is read from the GPU's output, before a residual that is last,
    /// because an almost-zero value may be rounded to either side.
    fn theirs(&self, follow: Follow, bent: &[f32]) -> Vec<Vec<f64>> {
        let doubled = |values: Vec<f32>| -> Vec<f64> { values.into_iter().map(f64::from).collect() };
        let [x, beside, dy] = [&self.x, &self.residual, &self.dy].map(|tensor| doubled(read(tensor.clone())));
        // The gradient of the residual is rounded before it is passed on to the images.
        let less = self.dy.clone().cast(FloatDType::F32) * single(follow.leak.unwrap_or(1.0));
        let less = if follow.residual && !follow.last { less.cast(FloatDType::from(self.dy.dtype())) } else { less };
        let less = doubled(read(less));
        let [gain, bias, old_mean, old_variance] = self.channels.clone().map(doubled);
        let [rows, channels, height, width] = self.dims;
        let plane = height * width;
        let count = real_len(rows * plane);
        let mut made = vec![vec![0.0; x.len()], vec![], vec![], vec![0.0; x.len()], vec![], vec![], vec![0.0; x.len()]];
        for c in 0..channels {
            let places = || (0..rows).flat_map(move |row| (0..plane).map(move |n| (row * channels + c) * plane + n));
            let mean = places().map(|n| x[n]).sum::<f64>() / count;
            let variance = places().map(|n| (x[n] - mean).powi(2)).sum::<f64>() / count;
            let inverse = 1.0 / (variance + EPSILON).sqrt();
            let slope = |n: usize| if bent[n] <= 0.0 { less[n] } else { dy[n] };
            let dbias = places().map(slope).sum::<f64>();
            let dgain = places().map(|n| slope(n) * (x[n] - mean) * inverse).sum::<f64>();
            for n in places() {
                let normed = (x[n] - mean) * inverse;
                made[0][n] = follow.apply(normed * gain[c] + bias[c], beside[n]);
                made[3][n] = gain[c] * inverse * (slope(n) - dbias / count - normed * dgain / count);
                made[6][n] = if follow.last { dy[n] } else { slope(n) };
            }
            made[1].push(old_mean[c] * (1.0 - SHARE) + mean * SHARE);
            let samples = variance * count / (count - 1.0).max(1.0);
            made[2].push(old_variance[c] * (1.0 - SHARE) + samples * SHARE);
            made[4].push(dgain);
            made[5].push(dbias);
        }
        made.truncate(if follow.residual { 7 } else { 6 });
        made
    }
}

/// Returns the largest difference, relative to the largest value.
fn off(ours: &[f32], theirs: &[f64]) -> f64 {
    assert_eq!(ours.len(), theirs.len());
    let largest = theirs.iter().fold(1e-30_f64, |largest, value| largest.max(value.abs()));
    let apart = |(a, b): (&f32, &f64)| if a.is_nan() { f64::INFINITY } else { (f64::from(*a) - b).abs() };
    ours.iter().zip(theirs).map(apart).fold(0.0, f64::max) / largest
}

/// Compares a training step. Images are rounded to the format; everything else is float32.
fn compare(given: &Given, follow: Follow, image: f64, exact: f64) {
    const NAMES: [&str; 7] = ["y", "running mean", "running variance", "dx", "dgain", "dbias", "dresidual"];
    let what = format!("{:?} {:?}, {follow:?}", given.x.dtype(), given.dims);
    let ours = given.ours(follow);
    assert_eq!(fault(), None, "{what}");
    let bent = follow.last.then(|| given.ours(Follow { residual: false, ..follow }).remove(0));
    let theirs = given.theirs(follow, bent.as_ref().unwrap_or(&ours[0]));
    for ((ours, theirs), name) in ours.iter().zip(&theirs).zip(NAMES) {
        let (apart, close) = (off(ours, theirs), if ours.len() > given.dims[1] { image } else { exact });
        assert!(apart <= close, "{name} of {what}: {apart:.1e} off");
    }
}

fn rounds(format: FloatDType) -> f64 {
    match format {
        FloatDType::F16 => 6e-4,
        FloatDType::BF16 => 5e-3,
        _ => 3e-6,
    }
}

#[test]
#[ignore = "needs a GPU"]
fn batch_norms_on_gpu() {
    // Covers all code paths: whole channels, parts, packs of one channel and of two, single values.
    let small = [[2, 3, 5, 7], [1, 3, 1, 5], [17, 8, 1, 1], [5, 64, 28, 28], [33, 16, 14, 14], [3, 2, 61, 67]];
    let large = [[4, 64, 112, 112], [3, 2048, 7, 7], [32, 256, 14, 14], [128, 512, 7, 7]];
    for dims in small.into_iter().chain(large) {
        for format in FORMATS {
            let given = Given::new(dims, format, 0.25);
            for follow in FOLLOW {
                compare(&given, follow, rounds(format), 5e-6);
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn batch_norms_in_nhwc_on_gpu() {
    // One to eight packs of channels per block, in one part and in many, and channels that do not fill whole packs.
    let small = [[2, 8, 5, 7], [2, 24, 3, 1], [5, 64, 28, 28], [33, 16, 14, 14], [3, 96, 61, 67], [2, 12, 9, 9]];
    let large = [[4, 64, 112, 112], [3, 2048, 7, 7], [128, 512, 7, 7]];
    for dims in small.into_iter().chain(large) {
        for format in FORMATS {
            let given = Given::new(dims, format, 0.25).nhwc();
            for follow in FOLLOW {
                compare(&given, follow, rounds(format), 5e-6);
                let first = given.ours(follow);
                assert!(first == given.ours(follow), "{format:?} {dims:?}: other bits");
            }
        }
    }
    for mean in [100.0, -10_000.0] {
        let given = Given::new([4, 64, 112, 112], FloatDType::F32, mean).nhwc();
        FOLLOW.into_iter().for_each(|follow| compare(&given, follow, 3e-6, 5e-6));
    }
}

#[test]
#[ignore = "needs a GPU"]
fn batch_norms_keep_the_storage_on_gpu() {
    let given = Given::new([2, 64, 5, 7], FloatDType::BF16, 0.0).nhwc();
    let channels = given.on_card();
    let norm = FOLLOW[3].norm(&channels, &given.residual);
    let found = batch_norm(&given.x, &norm, SHARE).expect("not refused");
    let gradients = batch_norm_back(given.dy.clone(), None, found.kept).expect("it fits");
    let answer = batch_norm_answer(&given.x, &norm).expect("not refused");
    for images in [found.y, gradients.x, gradients.residual.expect("there is one"), answer] {
        assert_eq!(Storage::of(&images), Storage::Nhwc);
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gradients_of_batch_norms_in_two_parts_on_gpu() {
    // In packs, in single values, with a whole channel in one block, and in many parts.
    for (dims, is_nhwc) in [
        ([5, 64, 28, 28], true),
        ([128, 8, 28, 28], true),
        ([128, 8, 28, 28], false),
        ([33, 16, 14, 14], false),
        ([2, 3, 5, 7], false),
    ] {
        for format in FORMATS {
            let given = Given::new(dims, format, 1.0);
            let given = if is_nhwc { given.nhwc() } else { given };
            let (channels, second) = (given.on_card(), given.residual.clone());
            for follow in FOLLOW {
                let kept = || batch_norm(&given.x, &follow.norm(&channels, &given.residual), SHARE).expect("runs").kept;
                let all = |dy: Tensor<4>, second| {
                    let found = batch_norm_back(dy, second, kept()).expect("it fits");
                    [Some(read(found.x)), Some(read(found.gain)), Some(read(found.bias)), found.residual.map(read)]
                };
                let parts = all(given.dy.clone(), Some(second.clone()));
                // The first part is not shared here, so the result overwrites it.
                assert!(parts == all(given.dy.clone() * 1.0, Some(second.clone())), "{format:?} {dims:?}: in place");
                assert!(parts == all(given.dy.clone() + second.clone(), None), "{format:?} {dims:?}");
                assert!(parts != all(given.dy.clone(), None), "{format:?} {dims:?}: without the second part");
                // The images are not shared, so their gradient overwrites them.
                let alone = || {
                    let storage = Storage::of(&given.x);
                    let x = storage.named(storage.lying(given.x.clone()) * 1.0);
                    batch_norm(&x, &follow.norm(&channels, &given.residual), SHARE).expect("runs").kept
                };
                let found = batch_norm_back(given.dy.clone(), Some(second.clone()), alone()).expect("it fits");
                assert!(parts[0] == Some(read(found.x)), "{format:?} {dims:?}: over the images");
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn batch_norms_with_a_large_mean_on_gpu() {
    for dims in [[2, 3, 5, 7], [4, 64, 112, 112], [3, 2048, 7, 7], [32, 256, 14, 14], [128, 8, 28, 28]] {
        for mean in [100.0, -10_000.0] {
            let given = Given::new(dims, FloatDType::F32, mean);
            for follow in FOLLOW {
                compare(&given, follow, 3e-6, 5e-6);
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn batch_norms_of_views_on_gpu() {
    for format in FORMATS {
        let dims = [[6, 9, 7, 8], [6, 9, 7, 6], [6, 9, 7, 8], [7, 16, 4, 4], [4, 1, 3, 3]];
        let [nhwc, last, turned, long, odd] = dims.map(|dims| Given::new(dims, format, 0.0));
        let views: [(Given, View); 5] = [
            (nhwc, |tensor| tensor.permute([0, 3, 1, 2])),
            // The channels do not fill whole packs.
            (last, |tensor| tensor.permute([0, 3, 1, 2])),
            (turned, |tensor| tensor.permute([0, 2, 3, 1])),
            (long, |tensor| tensor.slice([1..7, 0..16, 0..4, 0..4])),
            // The tensor begins at an unaligned address.
            (odd, |tensor| tensor.slice([1..4, 0..1, 0..3, 0..3])),
        ];
        for (given, view) in views {
            let view = |tensor: Tensor<4>| view(tensor * 1.0);
            let (x, residual, dy) = (view(given.x), view(given.residual), view(given.dy));
            let dims = x.dims();
            let channels = given.channels.map(|values| values.into_iter().cycle().take(dims[1]).collect());
            let given = Given { dims, x, residual, dy, channels };
            for follow in FOLLOW {
                compare(&given, follow, rounds(format), 5e-6);
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn batch_norms_are_the_same_twice_on_gpu() {
    for dims in [[2, 3, 5, 7], [32, 64, 56, 56], [128, 512, 7, 7], [32, 256, 14, 14]] {
        for format in FORMATS {
            let given = Given::new(dims, format, 0.25);
            for follow in FOLLOW {
                let first = given.ours(follow);
                for _ in 0..3 {
                    assert!(first == given.ours(follow), "{format:?} {dims:?}");
                }
            }
        }
    }
    assert_eq!(fault(), None);
}

#[test]
#[ignore = "needs a GPU"]
fn batch_norms_by_running_statistics_on_gpu() {
    let shapes = [[2, 3, 5, 7], [1, 64, 112, 112], [3, 2048, 7, 7], [32, 256, 14, 14]];
    for (dims, nhwc) in shapes.into_iter().flat_map(|dims| [(dims, false), (dims, true)]) {
        for format in FORMATS {
            let given = Given::new(dims, format, 0.25);
            let given = if nhwc { given.nhwc() } else { given };
            let channels = given.on_card();
            let [gain, bias, mean, variance] = given.channels.clone();
            let [x, beside] = [&given.x, &given.residual].map(|tensor| read(tensor.clone()));
            for follow in FOLLOW {
                let norm = follow.norm(&channels, &given.residual);
                let Some(y) = batch_norm_answer(&given.x, &norm) else { panic!("{dims:?} is refused") };
                let value = |n: usize| {
                    let c = n / (dims[2] * dims[3]) % dims[1];
                    let [x, gain, bias, mean, variance] = [x[n], gain[c], bias[c], mean[c], variance[c]].map(f64::from);
                    follow.apply((x - mean) / (variance + EPSILON).sqrt() * gain + bias, f64::from(beside[n]))
                };
                let theirs: Vec<f64> = (0..x.len()).map(value).collect();
                let apart = off(&read(y), &theirs);
                assert!(apart <= rounds(format), "{format:?} {dims:?}, {follow:?}, NHWC {nhwc}: {apart:.1e} off");
            }
        }
    }
    assert_eq!(fault(), None);
}

#[test]
#[ignore = "needs a GPU"]
fn what_is_no_number_stays_none_on_gpu() {
    for (dims, nhwc) in [([3, 8, 14, 14], false), ([3, 8, 56, 56], false), ([3, 8, 14, 14], true)] {
        let mut values = numbers(dims.iter().product(), 1);
        values[dims[2] * dims[3] + 3] = f32::NAN;
        let x = vector(&values).reshape(dims);
        let given = Given { x, ..Given::new(dims, FloatDType::F32, 0.0) };
        let given = if nhwc { given.nhwc() } else { given };
        let y = &given.ours(FOLLOW[3])[0];
        let all = |row: usize, channel: usize| {
            let start = (row * dims[1] + channel) * dims[2] * dims[3];
            y[start..start + dims[2] * dims[3]].iter()
        };
        assert!((0..3).all(|row| all(row, 1).all(|value| value.is_nan())), "the channel of the NaN");
        assert!((0..3).all(|row| all(row, 0).chain(all(row, 2)).all(|value| value.is_finite())), "its neighbours");
    }
}
