use super::*;
use crate::cuda::dnn::tests::spread as values;
use crate::cuda::fault;
use crate::cuda::kernels::tests::{FORMATS, card, near, read};
use burn::tensor::Device;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Serialises tests, because failures are recorded in one place for all threads.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(available(), "no cuBLASLt");
    assert_eq!(fault(), None);
    alone
}

/// Returns values between -1 and 1 with 15 digits, rounded to a format and back, on the host.
fn spread<const D: usize>(shape: [usize; D], seed: u32, format: FloatDType) -> Tensor<D> {
    Tensor::<D>::from_data(values(shape, seed), &Device::flex()).cast(format).cast(FloatDType::F32)
}

fn moved<const D: usize>(tensor: &Tensor<D>) -> Tensor<D> {
    Tensor::from_data(tensor.clone().into_data(), (&card(), tensor.dtype()))
}

/// Returns the relative error of a rounding and of sums in another order, relative to the largest value.
fn rounding(format: FloatDType) -> f32 {
    match format {
        FloatDType::F16 => 1.0e-3,
        FloatDType::BF16 => 8.0e-3,
        _ => SUMS,
    }
}

/// The relative error of sums in another order and of the truncation in tensor cores.
const SUMS: f32 = 5e-5;

/// Maps of one shape.
#[derive(Clone, Copy, Debug)]
struct Case {
    rows: usize,
    inputs: usize,
    outputs: usize,
    parts: usize,
    table: bool,
    columns: usize,
    biased: bool,
}

const PLAIN: Case = Case { rows: 0, inputs: 0, outputs: 0, parts: 1, table: false, columns: 0, biased: true };

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for [rows, inputs, outputs] in [[3, 5, 7], [1, 1, 1], [1, 8, 3], [129, 24, 40], [4096, 768, 768]] {
        for biased in [true, false] {
            let plain = Case { rows, inputs, outputs, columns: outputs, biased, ..PLAIN };
            cases.push(plain);
            cases.extend([2, 3].map(|parts| Case { parts, columns: parts * outputs, ..plain }));
            cases.push(Case { table: true, ..plain });
            cases.push(Case { table: true, columns: (outputs + 1).next_multiple_of(64), ..plain });
        }
    }
    cases.push(Case { rows: 4096, inputs: 768, outputs: 3072, columns: 3072, ..PLAIN });
    cases
}

/// All results of a case, from the GPU.
struct Found {
    y: Tensor<2>,
    slopes: AffineGradients,
}

/// Returns the shape of a weight.
fn shape(case: Case) -> [usize; 2] {
    if case.table { [case.outputs, case.inputs] } else { [case.inputs, case.outputs] }
}

fn flat(weight: &Tensor<2>) -> Tensor<1> {
    weight.clone().flatten(0, 1)
}

fn by_card(case: Case, format: FloatDType, of_x: FloatDType, given: &Given) -> Found {
    let weights: Vec<_> = given.weights.iter().map(|weight| moved(&flat(weight))).collect();
    let biases: Vec<_> = given.biases.iter().map(moved).collect();
    let how = Affine { shape: shape(case), table: case.table, columns: case.columns, tf32: false };
    let x = moved(&given.x).cast(format);
    let Some(Mapped { y, kept }) = affine(&x, &weights, &biases, how) else { panic!("{case:?} is refused") };
    let dy = moved(&given.dy).cast(format);
    let Some(slopes) = affine_back(dy, kept, Some(of_x), true) else { panic!("{case:?} is refused backward") };
    Found { y, slopes }
}

/// The inputs on the host, in float32, with values that the format can represent.
struct Given {
    x: Tensor<2>,
    weights: Vec<Tensor<2>>,
    biases: Vec<Tensor<1>>,
    dy: Tensor<2>,
}

impl Given {
    fn of(case: Case, format: FloatDType) -> Self {
        let Case { rows, inputs, outputs, parts, columns, biased, .. } = case;
        let parts = 0..u32::try_from(parts).unwrap();
        Self {
            x: spread([rows, inputs], 1, format),
            weights: parts.clone().map(|part| spread(shape(case), 10 + part, format)).collect(),
            biases: parts.filter(|_| biased).map(|part| spread([outputs], 20 + part, format)).collect(),
            dy: spread([rows, columns], 2, format),
        }
    }

    /// Returns the output, and the gradients of x, of the weights and of the biases.
    fn answers(&self, case: Case) -> Found {
        let Case { rows, inputs, outputs, parts, table, columns, .. } = case;
        let (mut ys, mut weights, mut biases) = (Vec::new(), Vec::new(), Vec::new());
        let mut of_x = Tensor::zeros([rows, inputs], &Device::flex());
        for part in 0..parts {
            let weight = self.weights[part].clone();
            let weight = if table { weight.transpose() } else { weight };
            let y = self.x.clone().matmul(weight.clone());
            ys.push(match self.biases.get(part) {
                Some(bias) => y + bias.clone().unsqueeze(),
                None => y,
            });
            let dy = self.dy.clone().narrow(1, part * outputs, outputs);
            of_x = of_x + dy.clone().matmul(weight.transpose());
            let of_weight = self.x.clone().transpose().matmul(dy.clone());
            weights.push(flat(&if table { of_weight.transpose() } else { of_weight }));
            if self.biases.get(part).is_some() {
                biases.push(dy.sum_dim(0).reshape([outputs]));
            }
        }
        if columns > parts * outputs {
            ys.push(Tensor::zeros([rows, columns - parts * outputs], &Device::flex()));
        }
        Found { y: Tensor::cat(ys, 1), slopes: AffineGradients { x: Some(of_x), weights, biases } }
    }
}

#[test]
fn affine_maps_refuse_host_tensors() {
    let x = Tensor::<2>::ones([2, 3], &Device::flex());
    let how = Affine { shape: [3, 4], table: false, columns: 4, tf32: false };
    assert!(affine(&x, &[Tensor::ones([12], &Device::flex())], &[], how).is_none(), "no card is asked for");
}

#[test]
#[ignore = "needs a GPU"]
fn maps_of_all_shapes_on_gpu() {
    let _alone = alone();
    for case in cases() {
        for format in FORMATS {
            let given = Given::of(case, format);
            let theirs = given.answers(case);
            for of_x in [FloatDType::F32, format] {
                let what = |part: &str| format!("{part} in {format:?}, x in {of_x:?}, {case:?}");
                let ours = by_card(case, format, of_x, &given);
                near(ours.y, theirs.y.clone(), rounding(format), &what("y"));
                let AffineGradients { x, weights, biases } = ours.slopes;
                near(x.unwrap(), theirs.slopes.x.clone().unwrap(), rounding(of_x), &what("dx"));
                assert_eq!(weights.len(), theirs.slopes.weights.len());
                for (ours, theirs) in weights.into_iter().zip(&theirs.slopes.weights) {
                    near(ours, theirs.clone(), SUMS, &what("dW"));
                }
                assert_eq!(biases.len(), theirs.slopes.biases.len());
                for (ours, theirs) in biases.into_iter().zip(&theirs.slopes.biases) {
                    near(ours, theirs.clone(), SUMS, &what("db"));
                }
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn maps_on_gpu_have_the_same_bits_every_time() {
    let _alone = alone();
    let case = Case { rows: 4096, inputs: 768, outputs: 768, parts: 3, columns: 2304, ..PLAIN };
    for case in [case, Case { parts: 1, outputs: 3072, columns: 3072, ..case }] {
        for format in FORMATS {
            let given = Given::of(case, format);
            let all = || {
                let Found { y, slopes } = by_card(case, format, format, &given);
                let mut all = vec![read(y), read(slopes.x.unwrap())];
                all.extend(slopes.weights.into_iter().map(read));
                all.extend(slopes.biases.into_iter().map(read));
                all
            };
            let first = all();
            for _ in 0..3 {
                assert!(all() == first, "{format:?} {case:?}");
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn maps_of_views_and_parts_of_gradients_on_gpu() {
    let _alone = alone();
    let case = Case { rows: 40, inputs: 24, outputs: 16, columns: 16, ..PLAIN };
    let given = Given::of(case, FloatDType::F32);
    let theirs = given.answers(case);
    let how = Affine { shape: [24, 16], table: false, columns: 16, tf32: false };
    // x and dy as transposed views.
    let turned = |tensor: &Tensor<2>| moved(&(tensor.clone().transpose() * 1.0)).transpose();
    let map = |x| affine(&x, &[moved(&flat(&given.weights[0]))], &[moved(&given.biases[0])], how).unwrap();
    let Mapped { y, kept } = map(turned(&given.x));
    near(y, theirs.y, SUMS, "y");
    let slopes = affine_back(turned(&given.dy), kept, None, true).unwrap();
    assert!(slopes.x.is_none());
    near(slopes.weights[0].clone(), theirs.slopes.weights[0].clone(), SUMS, "dW");
    near(slopes.biases[0].clone(), theirs.slopes.biases[0].clone(), SUMS, "db");
    let slopes = affine_back(moved(&given.dy), map(moved(&given.x)).kept, Some(FloatDType::F32), false).unwrap();
    assert!(slopes.weights.is_empty() && slopes.biases.is_empty());
    near(slopes.x.unwrap(), theirs.slopes.x.unwrap(), SUMS, "dx");
}

/// Sums over rows by the fallback kernel, for when no product can compute them.
fn sums_by_kernel(x: &Tensor<2>) -> Tensor<1> {
    tensor(summed(&into_contiguous(primitive(x).unwrap())))
}

#[test]
#[ignore = "needs a GPU"]
fn sums_over_rows_on_gpu() {
    let _alone = alone();
    for format in FORMATS {
        for shape in [[1, 1], [3, 7], [8, 8], [129, 40], [1000, 1023], [4096, 2304], [20_000, 8]] {
            let x = spread(shape, 5, format);
            let on_card = moved(&x).cast(format);
            let theirs = x.sum_dim(0).reshape([shape[1]]);
            near(sums_by_kernel(&on_card), theirs, SUMS, &format!("{format:?} {shape:?}"));
            assert!(read(sums_by_kernel(&on_card)) == read(sums_by_kernel(&on_card)), "{format:?} {shape:?}");
        }
    }
}
