//! The memory layout of a tensor as cuBLASLt reads it: column-major, with a distance between columns and one between
//! matrices.

use super::Cube;
use burn_cubecl::kernel::into_contiguous;

/// The alignment in bytes that allows a kernel to read 16 bytes at once.
const PIECE: u32 = 16;

/// A matrix of a row-major tensor, or as many as its leading axes count, in column-major order: Burn's rows are columns
/// here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Matrix {
    /// The number of contiguous values.
    pub rows: u64,
    pub columns: u64,
    /// The distance between columns, in values.
    pub distance: i64,
    /// The distance between matrices, in values.
    pub apart: i64,
    /// Whether the contiguous values are the tensor's columns, because it is a transposed view.
    pub transposed: bool,
}

/// Returns a tensor as matrices, and their number. `None` if two distances do not describe the layout, so that it would
/// have to be copied first.
pub fn matrices(shape: &[usize], strides: &[usize]) -> Option<(Matrix, i32)> {
    let ([before @ .., high, wide], [steps @ .., down, along]) = (shape, strides) else { return None };
    if shape.len() != strides.len() || shape.contains(&0) {
        return None;
    }
    let (count, apart) = batch(before, steps)?;
    // The stride of an axis of length one has no meaning.
    let next_to = |length: usize, step: usize| length == 1 || step == 1;
    let distance = |length: usize, step: usize, other: usize| if other == 1 { length } else { step };
    let rows_lie = next_to(*wide, *along) && distance(*wide, *down, *high) >= *wide;
    let columns_lie = next_to(*high, *down) && distance(*high, *along, *wide) >= *high;
    let (rows, columns, distance, transposed) = if rows_lie {
        (*wide, *high, distance(*wide, *down, *high), false)
    } else if columns_lie {
        (*high, *wide, distance(*high, *along, *wide), true)
    } else {
        return None;
    };
    let matrix = Matrix {
        rows: u64::try_from(rows).ok()?,
        columns: u64::try_from(columns).ok()?,
        distance: i64::try_from(distance).ok()?,
        apart: i64::try_from(apart).ok()?,
        transposed,
    };
    Some((matrix, count))
}

/// Returns the number of matrices along the leading axes and their distance, if the distance is uniform.
fn batch(shape: &[usize], strides: &[usize]) -> Option<(i32, usize)> {
    let mut axes = shape.iter().zip(strides).rev().filter(|(length, _)| **length != 1);
    let Some((first, apart)) = axes.next() else { return Some((1, 0)) };
    let mut count = *first;
    for (length, step) in axes {
        if *step != apart.checked_mul(count)? {
            return None;
        }
        count = count.checked_mul(*length)?;
    }
    Some((i32::try_from(count).ok()?, *apart))
}

/// Returns the alignment in bytes of an address at this offset in an allocation. Allocations are aligned to 512, and no
/// kernel requires more than 256.
pub fn alignment(offset: u64) -> u32 {
    (0..=8).rev().map(|power| 1 << power).find(|bytes| offset.is_multiple_of(u64::from(*bytes))).unwrap_or(1)
}

/// Returns the tensor contiguous and aligned to 16 bytes, copied if necessary.
pub fn packed(tensor: Cube) -> Cube {
    let tensor = into_contiguous(tensor);
    if alignment(tensor.handle.offset_start.unwrap_or(0)) < PIECE { into_contiguous(tensor.copy()) } else { tensor }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(rows: u64, columns: u64, distance: i64, apart: i64, transposed: bool) -> Matrix {
        Matrix { rows, columns, distance, apart, transposed }
    }

    #[test]
    fn contiguous_rows_or_columns_are_matrices() {
        assert_eq!(matrices(&[3, 5], &[5, 1]), Some((matrix(5, 3, 5, 0, false), 1)));
        assert_eq!(matrices(&[3, 5], &[8, 1]), Some((matrix(5, 3, 8, 0, false), 1)), "padded rows");
        assert_eq!(matrices(&[5, 3], &[1, 5]), Some((matrix(5, 3, 5, 0, true), 1)));
        assert_eq!(matrices(&[3, 5], &[10, 2]), None);
        assert_eq!(matrices(&[3, 5], &[0, 1]), None, "a row that is repeated");
    }

    #[test]
    fn axes_of_one_value() {
        assert_eq!(matrices(&[1, 5], &[77, 1]), Some((matrix(5, 1, 5, 0, false), 1)));
        assert_eq!(matrices(&[5, 1], &[1, 77]), Some((matrix(1, 5, 1, 0, false), 1)));
        assert_eq!(matrices(&[5, 1], &[3, 1]), Some((matrix(1, 5, 3, 0, false), 1)));
        assert_eq!(matrices(&[1, 5], &[1, 3]), Some((matrix(1, 5, 3, 0, true), 1)));
    }

    #[test]
    fn batches() {
        assert_eq!(matrices(&[2, 4, 3, 5], &[60, 15, 5, 1]), Some((matrix(5, 3, 5, 15, false), 8)));
        // The heads of an attention, before they are concatenated.
        assert_eq!(matrices(&[2, 4, 3, 5], &[60, 5, 20, 1]), None);
        assert_eq!(matrices(&[1, 4, 3, 5], &[60, 5, 20, 1]), Some((matrix(5, 3, 20, 5, false), 4)));
        assert_eq!(matrices(&[4, 3, 5], &[0, 5, 1]), Some((matrix(5, 3, 5, 0, false), 4)), "one for all");
        assert_eq!(matrices(&[0, 3, 5], &[15, 5, 1]), None);
    }

    #[test]
    fn alignments() {
        assert_eq!([0, 512, 96, 4, 6, 7].map(alignment), [256, 256, 32, 4, 2, 1]);
    }
}
