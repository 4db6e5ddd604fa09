//! RGB pictures as bytes in planes.
//!
//! A picture is its red plane, then its green and its blue one, each row by row: the order of NCHW. Knows nothing of a
//! picture's source.

use rayon::prelude::*;

/// Red, green and blue.
pub const CHANNELS: usize = 3;

/// ImageNet's mean per channel, of values from 0 to 1, as in torchvision's models.
pub const MEAN: [f32; CHANNELS] = [0.485, 0.456, 0.406];

/// ImageNet's standard deviation per channel, as in torchvision's models.
pub const DEVIATION: [f32; CHANNELS] = [0.229, 0.224, 0.225];

/// Returns the number of bytes of a picture.
pub fn size(side: usize) -> usize {
    CHANNELS * side * side
}

/// Exchanges left and right.
pub fn mirror(planes: &mut [u8], side: usize) {
    planes.chunks_exact_mut(side).for_each(<[u8]>::reverse);
}

/// Makes a row of planes for each index, on several threads. `fill` writes the planes of a picture and returns its target.
/// Returns all planes and all targets.
pub fn fill_rows<T: Send, E: Send>(
    side: usize,
    indices: &[usize],
    fill: impl Fn(usize, &mut [u8]) -> Result<T, E> + Sync,
) -> Result<(Vec<u8>, Vec<T>), E> {
    let size = size(side);
    let mut pixels = vec![0_u8; indices.len() * size];
    let rows = pixels.par_chunks_exact_mut(size).zip(indices);
    let targets: Vec<Result<T, E>> = rows.map(|(planes, index)| fill(*index, planes)).collect();
    // The first error in the order of the rows, not of the threads.
    let targets = targets.into_iter().collect::<Result<Vec<T>, E>>()?;
    Ok((pixels, targets))
}

/// Pads `source` with `pad` black pixels and cuts a picture of the same side out of it. `top` and `left` are at most 2
/// `pad` and count from the padded corner.
pub fn cut_padded(source: &[u8], side: usize, pad: usize, (top, left): (usize, usize), out: &mut [u8]) {
    out.fill(0);
    let from = |start: usize| start.saturating_sub(pad)..(start + side).saturating_sub(pad).min(side);
    let (rows, columns) = (from(top), from(left));
    let (down, right) = (pad.saturating_sub(top), pad.saturating_sub(left));
    for (plane, out) in source.chunks_exact(side * side).zip(out.chunks_exact_mut(side * side)) {
        let kept = plane.chunks_exact(side).skip(rows.start).take(rows.len());
        for (row, out) in kept.zip(out.chunks_exact_mut(side).skip(down)) {
            out[right..right + columns.len()].copy_from_slice(&row[columns.clone()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirror_exchanges_left_and_right_in_every_plane() {
        let mut planes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
        mirror(&mut planes, 2);
        assert_eq!(planes, [2, 1, 4, 3, 6, 5, 8, 7, 10, 9, 12, 11]);
    }

    #[test]
    fn a_padded_cut_moves_the_picture_and_is_black_where_there_was_none() {
        let source: Vec<u8> = (1..=27).collect();
        let cut = |at| {
            let mut out = vec![99; 27];
            cut_padded(&source, 3, 1, at, &mut out);
            out
        };
        assert_eq!(cut((1, 1)), source);
        assert_eq!(cut((0, 0))[..9], [0, 0, 0, 0, 1, 2, 0, 4, 5]);
        assert_eq!(cut((2, 1))[..9], [4, 5, 6, 7, 8, 9, 0, 0, 0]);
        assert_eq!(cut((1, 2))[18..], [20, 21, 0, 23, 24, 0, 26, 27, 0]);
    }
}
