mod batch_norm;
mod bias;
mod buckets;
mod fused_attention;
mod gradients;
mod nhwc;
mod roi_align;

use super::residual_norm::{ResidualNorm, residual_norm};
use super::*;
use crate::cuda::fault;
use burn::tensor::activation::{log_softmax, softmax};
use burn::tensor::{Device, Distribution, FloatDType, Int, IntDType, TensorData};

pub(super) const FORMATS: [FloatDType; 3] = [FloatDType::F32, FloatDType::F16, FloatDType::BF16];

fn flex() -> Device {
    Device::flex()
}

pub(super) fn card() -> Device {
    Device::cuda(0)
}

/// Returns random numbers in [-1, 1) on the host.
fn random<const D: usize>(shape: [usize; D]) -> Tensor<D> {
    Tensor::random(shape, Distribution::Uniform(-1.0, 1.0), &flex())
}

/// Returns integers below a bound, which depend on the seed.
fn whole_numbers(count: usize, below: i32, seed: i32) -> Vec<i32> {
    (0..).take(count).map(|n: i32| (n.wrapping_mul(7919).wrapping_add(seed) ^ (n >> 3)).rem_euclid(below)).collect()
}

fn ints(values: &[i32], device: &Device) -> Tensor<1, Int> {
    Tensor::<1, Int>::from_data(TensorData::from(values), (device, DType::I32))
}

/// Copies a tensor to another device.
fn moved<const D: usize>(tensor: &Tensor<D>, device: &Device) -> Tensor<D> {
    let dtype = tensor.dtype();
    Tensor::from_data(tensor.clone().into_data(), (device, dtype))
}

pub(super) fn read<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.cast(FloatDType::F32).into_data().try_to_vec().expect("readable")
}

#[track_caller]
pub(super) fn near<const D: usize>(ours: Tensor<D>, theirs: Tensor<D>, tolerance: f32, what: &str) {
    assert_eq!(ours.dims(), theirs.dims(), "{what}");
    let (ours, theirs) = (read(ours), read(theirs));
    let largest = theirs.iter().fold(0.0_f32, |largest, value| largest.max(value.abs())).max(1e-30);
    for (place, (a, b)) in ours.iter().zip(&theirs).enumerate() {
        assert!((a - b).abs() <= tolerance * largest, "{what}, value {place}: {a} and not {b}");
    }
    assert_eq!(fault(), None, "{what}");
}

fn same<const D: usize>(ours: Tensor<D>, theirs: Tensor<D>, what: &str) {
    near(ours, theirs, 0.0, what);
}

/// Returns the error of a rounding, relative to the largest value.
fn rounding(format: FloatDType) -> f32 {
    match format {
        FloatDType::F16 => 1.0e-3,
        FloatDType::BF16 => 8.0e-3,
        _ => 2.0e-6,
    }
}

#[test]
fn kernels_refuse_host_tensors() {
    let (x, gain, targets) = (random([2, 3]), random([3]), ints(&[0, 1], &flex()));
    assert!(drop(&x, 1, 0.5).is_none());
    assert!(layer_norm(x.clone(), &gain, &gain, 1e-5, FloatDType::F32).is_none());
    assert!(cross_entropy(&x, &targets, 3).is_none());
    assert!(embedding_back(&targets, &x, 5).is_none());
    let state =
        State { parameters: vec![random([3])], gradients: vec![random([3])], memory: vec![[random([1]), random([1])]] };
    assert!(update(Step::Sgd { rate: 0.1 }, &[Decay::None], 1.0, &state).is_none());
    assert!(square_sum(&state.gradients).is_none());
    assert!(multiplied(&state.gradients, Factor::Given(0.5)).is_none());
    assert!(gathered(&[random([3])], &[(0, 3)], 64, 1.0).is_none());
    assert!(scattered(&random([64]), &[(0, 3)]).is_none());
    let config = AttentionConfig { causal: true, key: 0, share: 0.0 };
    assert!(attention_softmax(random([1, 2, 3, 3]), config, FloatDType::F32).is_none());
    let shape = AttentionShape { rows: 1, width: 3, heads: 2, features: 64 };
    assert!(fused_attention(&random([3, 384]).cast(FloatDType::BF16), shape, config).is_none());
    let (x, gain) = (random([3, 8]), random([8]));
    assert!(curve(Curve::Gelu, &x).is_none());
    assert!(curve_back(Curve::GeluTanh, &x, &x).is_none());
    let how = ResidualNorm { post: true, epsilon: 1e-5, key: 0, share: 0.0 };
    assert!(residual_norm(x.clone(), x, &gain, &gain, how).is_none());
}

/// One step by tensor operations, as the optimiser does it.
fn reference(
    step: Step,
    decay: Decay,
    factor: f32,
    p: Tensor<1>,
    g: Tensor<1>,
    [m, v]: [Tensor<1>; 2],
) -> [Tensor<1>; 3] {
    let g = if factor == 1.0 { g } else { g * factor };
    let (p, g) = match decay {
        Decay::None => (p, g),
        Decay::Add(amount) => (p.clone(), g + p * amount),
        Decay::Shrink(amount) => (p * amount, g),
    };
    match step {
        Step::Sgd { rate } => [p - g * rate, m, v],
        Step::Momentum { rate, momentum } => {
            let b = m * momentum + g;
            [p - b.clone() * rate, b, v]
        }
        Step::Adam { rate, keep1, beta2, keep2, root, epsilon } => {
            let m = m.clone() + (g.clone() - m) * keep1;
            let v = v * beta2 + g.clone() * g * keep2;
            [p - m.clone() / (v.clone().sqrt() / root + epsilon) * rate, m, v]
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn updates_on_gpu() {
    let rules = [
        Step::Sgd { rate: 0.01 },
        Step::Momentum { rate: 0.01, momentum: 0.9 },
        Step::Adam { rate: 0.01, keep1: 0.1, beta2: 0.999, keep2: 0.001, root: 0.5, epsilon: 1e-8 },
    ];
    let decays = [Decay::None, Decay::Add(0.1), Decay::Shrink(0.99)];
    // More parameters than a launch can take, with lengths below, at and above a block's.
    let lengths: Vec<usize> =
        (0..100).map(|n| [1, 3, 4, 255, 1024, 8191, 8192, 8193, 20_000, 100_003][n % 10] + n / 10).collect();
    let decays: Vec<Decay> = (0..lengths.len()).map(|n| decays[n % 3]).collect();
    for (step, held) in rules.into_iter().flat_map(|step| [(step, false), (step, true)]) {
        let zeros = |length: &usize| [(); 2].map(|()| Tensor::<1>::zeros([*length], &flex()));
        let mut theirs: Vec<[Tensor<1>; 3]> = lengths
            .iter()
            .map(|length| {
                let [m, v] = zeros(length);
                [random([*length]), m, v]
            })
            .collect();
        let mut parameters: Vec<Tensor<1>> = theirs.iter().map(|[p, ..]| moved(p, &card())).collect();
        let mut memory: Vec<[Tensor<1>; 2]> =
            theirs.iter().map(|[_, m, v]| [moved(m, &card()), moved(v, &card())]).collect();
        for turn in 0..3_u8 {
            let factor = if turn == 0 { 1.0 } else { 1.0 / 1024.0 };
            let gradients: Vec<Tensor<1>> =
                lengths.iter().map(|length| random([*length]) / f64::from(factor)).collect();
            // A shared tensor must not be overwritten.
            let before = held.then(|| (parameters.clone(), parameters.iter().cloned().map(read).collect::<Vec<_>>()));
            let state = State { parameters, gradients: gradients.iter().map(|g| moved(g, &card())).collect(), memory };
            let Some(update) = update(step, &decays, factor, &state) else { panic!("{step:?} is refused") };
            (parameters, memory) = update(state);
            for ((theirs, gradient), decay) in theirs.iter_mut().zip(gradients).zip(&decays) {
                let [p, m, v] = theirs.clone();
                *theirs = reference(step, *decay, factor, p, gradient, [m, v]);
            }
            if let Some((tensors, values)) = before {
                for (tensor, values) in tensors.into_iter().zip(values) {
                    assert!(read(tensor) == values, "{step:?}: a parameter that was held has changed");
                }
            }
        }
        for (place, (theirs, (p, [m, v]))) in theirs.into_iter().zip(parameters.into_iter().zip(memory)).enumerate() {
            for ((theirs, ours), what) in theirs.into_iter().zip([p, m, v]).zip(["p", "first", "second"]) {
                near(ours, theirs, 1e-6, &format!("{step:?}, {what} of {place}, held {held}"));
            }
        }
    }
}

fn mixed(mut h: u32) -> u32 {
    h ^= h >> 16;
    h = h.wrapping_mul(0x85eb_ca6b);
    h ^= h >> 13;
    h = h.wrapping_mul(0xc2b2_ae35);
    h ^ (h >> 16)
}

/// Returns the factors of the values.
fn mask<const D: usize>(shape: [usize; D], key: u32, share: f64) -> Tensor<D> {
    let threshold = share * 16_777_216.0;
    let kept = |n: u32| f64::from(mixed(mixed(n.wrapping_mul(0x9e37_79b9)).wrapping_add(key)) >> 8) >= threshold;
    let values: Vec<f32> = (0..).take(shape.iter().product()).map(|n| if kept(n) { 1.0 } else { 0.0 }).collect();
    (Tensor::<1>::from_data(TensorData::from(values.as_slice()), &flex()) * (1.0 / (1.0 - share))).reshape(shape)
}

#[test]
#[ignore = "needs a GPU"]
fn dropout_on_gpu() {
    for format in FORMATS {
        for shape in [[1, 1], [1, 7], [3, 8], [257, 33], [1024, 768]] {
            for (key, share) in [(0, 0.1), (0xdead_beef, 0.5), (7, 0.9)] {
                let x = random(shape).cast(format);
                let theirs = x.clone() * mask(shape, key, share).cast(format);
                let what = format!("{format:?} {shape:?} {share}");
                let on_card = moved(&x, &card());
                let Some(kernel) = drop(&on_card, key, share) else { panic!("{what} is refused") };
                same(kernel(on_card.clone()), theirs.clone(), &what);
                same(on_card.clone(), x, &what);
                // Once more in place, and after another operation.
                let Some(kernel) = drop(&on_card, key, share) else { panic!("{what} is refused") };
                same(kernel(on_card * 1.0), theirs, &what);
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn dropout_of_views_on_gpu() {
    let x = random([40, 50]);
    let (view, on_card) = (x.clone().transpose(), moved(&x, &card()).transpose());
    let Some(kernel) = drop(&on_card, 5, 0.3) else { panic!("refused") };
    same(kernel(on_card), view * mask([50, 40], 5, 0.3), "transposed");
    let (view, on_card) = (x.clone().slice([3..21, 0..50]), moved(&x, &card()).slice([3..21, 0..50]));
    let Some(kernel) = drop(&on_card, 5, 0.3) else { panic!("refused") };
    same(kernel(on_card), view * mask([18, 50], 5, 0.3), "a part of the rows");
    let (view, on_card) = (x.clone().slice([0..40, 1..48]), moved(&x, &card()).slice([0..40, 1..48]));
    let Some(kernel) = drop(&on_card, 5, 0.3) else { panic!("refused") };
    same(kernel(on_card), view * mask([40, 47], 5, 0.3), "a part of the columns");
}

#[test]
#[ignore = "needs a GPU"]
fn gradients_of_tables_on_gpu() {
    for [n, rows, features] in
        [[1, 1, 1], [5, 3, 7], [4096, 2, 64], [4097, 100, 33], [9000, 3001, 256], [16_384, 50_304, 768]]
    {
        // Half of the ids are from a few values, as tokens are.
        let mut ids = whole_numbers(n, i32::try_from(rows).expect("small"), 3);
        ids.iter_mut().step_by(2).for_each(|id| *id %= 5);
        let dy = random([n, features]);
        let values = read(dy.clone());
        let mut table = vec![0.0_f32; rows * features];
        for (id, from) in ids.iter().zip(values.chunks(features)) {
            let start = usize::try_from(*id).expect("positive") * features;
            table[start..start + features].iter_mut().zip(from).for_each(|(to, from)| *to += from);
        }
        let theirs = Tensor::<1>::from_data(TensorData::from(table.as_slice()), &flex()).reshape([rows, features]);
        let what = format!("{n} ids, {rows} rows, {features} features");
        let (ids, dy) = (ints(&ids, &card()), moved(&dy, &card()));
        for ids in [ids.clone(), ids.cast(IntDType::I64)] {
            let Some(ours) = embedding_back(&ids, &dy, rows) else { panic!("{what} is refused") };
            same(ours, theirs.clone(), &what);
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn cross_entropies_on_gpu() {
    for format in FORMATS {
        for [rows, columns, classes] in [[1, 1, 1], [3, 10, 10], [7, 65, 61], [33, 1000, 1000], [129, 50_304, 50_257]] {
            for (factor, scaled) in [(1.0, false), (65_536.0, false), (0.25, true)] {
                let answers = (random([rows, columns]) * 8.0).cast(format);
                let mut targets = whole_numbers(rows, i32::try_from(classes).expect("small"), 11);
                targets.iter_mut().skip(1).step_by(3).for_each(|target| *target = -100);
                let exact = answers.clone().cast(FloatDType::F32).slice([0..rows, 0..classes]);
                let on_host = ints(&targets, &flex());
                let counts = on_host.clone().greater_equal_elem(0).float();
                let chosen = on_host.clone().clamp_min(0).reshape([rows, 1]);
                let picked = log_softmax(exact.clone(), 1).gather(1, chosen.clone()).reshape([rows]);
                let loss = -(picked * counts.clone()).reshape([1, rows]).sum_dim(1).reshape([1]);
                let places: Tensor<2, Int> =
                    Tensor::<1, Int>::arange(0..i64::try_from(classes).expect("small"), &flex()).unsqueeze();
                let hits = places.cast(IntDType::I32).equal(chosen.cast(IntDType::I32)).float();
                let gradient =
                    (softmax(exact, 1) - hits) * counts.reshape([rows, 1]) * factor * if scaled { 3.0 } else { 1.0 };
                let padding = Tensor::zeros([rows, columns - classes], &flex());
                let gradient = if columns > classes { Tensor::cat(vec![gradient, padding], 1) } else { gradient };
                let upstream = Tensor::<1>::full([1], if scaled { 3.0 } else { 1.0 }, &card());
                let what = format!("{format:?} {rows} rows, {classes} of {columns} classes, factor {factor}");
                for held in [false, true] {
                    let on_card = moved(&answers, &card());
                    let keep = held.then(|| on_card.clone());
                    let single_factor = single(factor);
                    let right = ints(&targets, &card());
                    let Some((our_loss, rows)) = cross_entropy(&on_card, &right, classes) else {
                        panic!("{what} is refused")
                    };
                    let Some(our_gradient) =
                        cross_entropy_back(on_card, &right, classes, rows, single_factor, &upstream)
                    else {
                        panic!("{what} is refused")
                    };
                    near(our_loss, loss.clone(), 1e-5, &what);
                    // The largest value may exceed binary16, where it becomes infinite on both sides.
                    if format == FloatDType::F16 && factor > 60_000.0 {
                        continue;
                    }
                    near(our_gradient, gradient.clone(), rounding(format).max(1e-5), &what);
                    if let Some(keep) = keep {
                        same(keep, answers.clone(), &what);
                    }
                }
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn layer_norms_on_gpu() {
    for [rows, features] in [[1, 1], [3, 5], [9, 64], [130, 768], [1000, 1023], [4096, 256]] {
        for format in FORMATS {
            let what = format!("{format:?} {rows} rows of {features}");
            let x = random([rows, features]) * 3.0 + 1.0;
            let (gain, bias) = (random([features]), random([features]));
            let dy = random([rows, features]).cast(format);
            let centred = x.clone() - x.clone().mean_dim(1);
            let variance = (centred.clone() * centred.clone()).mean_dim(1);
            let inverse = (variance + 1e-5).sqrt().recip();
            let hat = centred * inverse.clone();
            let y = hat.clone() * gain.clone().unsqueeze() + bias.clone().unsqueeze();
            let slope = dy.clone().cast(FloatDType::F32);
            let dgain = (slope.clone() * hat.clone()).sum_dim(0).reshape([features]);
            let dbias = slope.clone().sum_dim(0).reshape([features]);
            let slope = slope * gain.clone().unsqueeze();
            let along = (slope.clone() * hat.clone()).mean_dim(1);
            let dx = (slope.clone() - slope.mean_dim(1) - hat * along) * inverse;
            let [gain, bias] = [gain, bias].map(|vector| moved(&vector, &card()));
            let on_card = moved(&x, &card());
            let Some(normed) = layer_norm(on_card.clone(), &gain, &bias, 1e-5, format) else {
                panic!("{what} is refused")
            };
            near(normed.y, y, rounding(format).max(1e-5), &what);
            let Some((our_dx, our_dgain, our_dbias)) =
                layer_norm_back(on_card, moved(&dy, &card()), &gain, &normed.mean, &normed.inverse)
            else {
                panic!("{what} is refused")
            };
            // With a single feature, the gradient consists of rounding errors divided by a very small deviation.
            if features > 1 {
                near(our_dx, dx, 2e-5, &what);
            }
            near(our_dgain, dgain, 2e-5, &what);
            near(our_dbias, dbias, 2e-5, &what);
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn softmax_of_attention_on_gpu() {
    let formats = [
        (FloatDType::F32, FloatDType::F32),
        (FloatDType::F32, FloatDType::F16),
        (FloatDType::F32, FloatDType::BF16),
        (FloatDType::F16, FloatDType::F16),
        (FloatDType::BF16, FloatDType::BF16),
    ];
    for (from, into) in formats {
        for dims in [[1, 1, 1, 1], [2, 3, 5, 5], [2, 4, 64, 64], [1, 2, 257, 257], [2, 1, 512, 512]] {
            for (causal, share) in [(false, 0.0), (true, 0.1), (false, 0.3)] {
                let width = dims[3];
                let what = format!("{from:?} into {into:?}, {dims:?}, causal {causal}, dropped {share}");
                let scores = (random(dims) * 6.0).cast(from);
                let dy = random(dims).cast(into);
                let end = i64::try_from(width).expect("small");
                let places = Tensor::<1, Int>::arange(0..end, &flex());
                let after = places.clone().unsqueeze_dim::<2>(0) - places.unsqueeze_dim::<2>(1);
                let exact = scores.clone().cast(FloatDType::F32);
                let seen = if causal { exact + (after.clamp(0, 1).float() * -1.0e30).unsqueeze() } else { exact };
                let p = softmax(seen, 3);
                let kept = if share > 0.0 { mask(dims, 99, share) } else { Tensor::ones(dims, &flex()) };
                let dropped = p.clone() * kept.clone();
                let slope = dy.clone().cast(FloatDType::F32) * kept;
                let along = (slope.clone() * p.clone()).sum_dim(3);
                let gradient = p * (slope - along);
                let config = AttentionConfig { causal, key: 99, share };
                let on_card = moved(&scores, &card());
                let Some((ours, rest)) = attention_softmax(on_card.clone(), config, into) else {
                    panic!("{what} is refused")
                };
                near(ours, dropped.clone(), rounding(into).max(1e-5), &what);
                // In place.
                let Some((ours, _)) = attention_softmax(moved(&scores, &card()), config, into) else {
                    panic!("{what} is refused")
                };
                near(ours, dropped, rounding(into).max(1e-5), &what);
                let Some(ours) = attention_softmax_back(on_card, moved(&dy, &card()), &rest, config) else {
                    panic!("{what} is refused")
                };
                // With one place there are only rounding errors.
                if width > 1 {
                    near(ours, gradient, rounding(from).max(2e-5), &what);
                }
            }
        }
    }
}
