//! Transposes many matrices at once, converting between float32 and another number format.

use super::compile::Program;
use super::run::{Argument, Launcher, pair};
use super::{count, ready};
use crate::cuda::Fault;
use crate::cuda::library::Opaque;
use crate::cuda::plan::Format;
use burn::tensor::Tensor;
use std::ffi::CStr;

/// As in the kernel: matrices per launch, words per matrix, the side of a block's square, and its threads.
const ENTRIES: usize = 32;
const WORDS: usize = 4;
const SIDE: u32 = 32;
const THREADS: [u32; 2] = [32, 8];

/// The transposition of a row-major matrix into a row-major target.
#[derive(Clone, Copy, Debug)]
pub struct Transposition {
    /// The address of the matrix.
    pub from: u64,
    /// The address of the transpose.
    pub to: u64,
    /// Rows of the matrix.
    pub rows: u32,
    /// Columns of the matrix.
    pub columns: u32,
}

impl Transposition {
    fn blocks(self) -> Option<u32> {
        self.rows.div_ceil(SIDE).checked_mul(self.columns.div_ceil(SIDE))
    }
}

/// Whether [`transpose`] can run on the device of this tensor.
pub fn transposes<const D: usize>(tensor: &Tensor<D>) -> bool {
    ready(Program::Transpose, tensor)
}

/// Queues the transposes of non-empty matrices, converting each value from the first format to the second, of which one
/// is float32. Call it on the thread that talks to the GPU, with its context current.
pub fn transpose(card: usize, stream: Opaque, formats: [Format; 2], matrices: &[Transposition]) -> Result<(), Fault> {
    launch(&Launcher::of(Program::Transpose, card, stream)?, formats, matrices)
}

fn launch(card: &Launcher, formats: [Format; 2], matrices: &[Transposition]) -> Result<(), Fault> {
    let name = name(formats).ok_or(Fault::Absent)?;
    matrices.chunks(ENTRIES).try_for_each(|matrices| {
        let (table, blocks) = table(matrices).ok_or(Fault::Absent)?;
        let entries = Argument::U32(count(matrices.len()).unwrap_or(0));
        card.launch(name, [blocks, 1], THREADS, &[Argument::Words(&table), entries])
    })
}

fn name(formats: [Format; 2]) -> Option<&'static CStr> {
    match formats {
        [Format::F32, Format::F32] => Some(c"transpose_f32_f32"),
        [Format::F32, Format::F16] => Some(c"transpose_f32_f16"),
        [Format::F32, Format::Bf16] => Some(c"transpose_f32_bf16"),
        [Format::F16, Format::F32] => Some(c"transpose_f16_f32"),
        [Format::Bf16, Format::F32] => Some(c"transpose_bf16_f32"),
        _ => None,
    }
}

/// Returns the kernel's table and the number of blocks, or `None` if they cannot be counted.
fn table(matrices: &[Transposition]) -> Option<([u64; ENTRIES * WORDS], u32)> {
    let mut table = [0; ENTRIES * WORDS];
    let mut blocks = 0_u32;
    for (matrix, words) in matrices.iter().zip(table.chunks_exact_mut(WORDS)) {
        let Transposition { from, to, rows, columns } = *matrix;
        words.copy_from_slice(&[from, to, pair(rows, columns), pair(blocks, 0)]);
        blocks = blocks.checked_add(matrix.blocks()?)?;
    }
    Some((table, blocks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::fault;
    use crate::cuda::kernels::run::queue;
    use crate::cuda::kernels::{fresh, primitive, tensor};
    use burn::tensor::{DType, Device, FloatDType, TensorData};

    #[test]
    fn blocks_are_counted_from_matrix_to_matrix() {
        let matrix = |rows, columns| Transposition { from: 1, to: 2, rows, columns };
        let (words, blocks) = table(&[matrix(1, 33), matrix(64, 65), matrix(1, 1)]).expect("few");
        assert_eq!(blocks, 2 + 2 * 3 + 1);
        assert_eq!(words[..4], [1, 2, 1 | 33 << 32, 0]);
        assert_eq!([words[7], words[11]], [2, 8]);
        assert!(table(&[matrix(u32::MAX, u32::MAX)]).is_none());
    }

    /// Returns numbers of few digits, which every format can represent.
    fn numbers(len: usize) -> Vec<f32> {
        (0..len).map(|n| f32::from(u8::try_from(n * 37 % 251).expect("small")) - 125.0).collect()
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn matrices_are_transposed_on_gpu() {
        let (format, float) = ([Format::F32, Format::F16, Format::Bf16], [DType::F32, DType::F16, DType::BF16]);
        for (first, second) in [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0)] {
            // More than a launch can take.
            let sizes: Vec<[usize; 2]> = [[1, 1], [1, 48], [33, 65], [64, 32], [257, 3], [48, 1]].repeat(6);
            let values: Vec<Vec<f32>> = sizes.iter().map(|[rows, columns]| numbers(rows * columns)).collect();
            let of = |(size, values): (&[usize; 2], &Vec<f32>)| {
                // Rows of a matrix that is uploaded or converted as such may be padded.
                let flat = Tensor::<1>::from_data(TensorData::from(values.as_slice()), &Device::cuda(0));
                let tensor = flat.cast(FloatDType::from(float[first])).reshape(*size);
                primitive(&tensor).expect("on the card")
            };
            let inputs: Vec<_> = sizes.iter().zip(&values).map(of).collect();
            let formats = [format[first], format[second]];
            let room = |(input, [rows, columns]): (&_, &[usize; 2])| fresh(input, [*columns, *rows], float[second]);
            let made: Vec<_> = inputs.iter().zip(&sizes).map(room).collect();
            let handles: Vec<_> = inputs.iter().chain(&made).map(|tensor| &tensor.handle).collect();
            let shapes = sizes.clone();
            queue(Program::Transpose, &inputs[0], &handles, move |places, card| {
                let of = |(n, [rows, columns]): (usize, &[usize; 2])| Transposition {
                    from: places[n],
                    to: places[n + 36],
                    rows: count(*rows).expect("small"),
                    columns: count(*columns).expect("small"),
                };
                launch(card, formats, &shapes.iter().enumerate().map(of).collect::<Vec<_>>())
            });
            for ((made, values), [rows, columns]) in made.into_iter().zip(values).zip(sizes) {
                let found: Vec<f32> =
                    tensor::<2>(made).cast(FloatDType::F32).into_data().try_to_vec().expect("readable");
                let expected: Vec<f32> =
                    (0..columns).flat_map(|c| values[c..].iter().step_by(columns).take(rows).copied()).collect();
                assert_eq!(found, expected, "{formats:?}, {rows} rows, {columns} columns");
            }
        }
        assert_eq!(fault(), None);
    }
}
