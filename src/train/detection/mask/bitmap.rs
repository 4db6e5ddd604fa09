//! Conversion of masks from and to bitmaps, which are row-major with one byte per pixel.

use super::{Mask, Size};
use std::ops::Range;

/// Columns that are transposed at a time: few enough that a cache line of each row stays cached for the next column.
const BAND: usize = 64;

impl Mask {
    /// A mask from a bitmap: `pixels` has `width` × `height` bytes, row by row, and a pixel is set if its byte is not 0. Missing bytes are clear.
    #[cfg(test)]
    pub fn from_bitmap(size: Size, pixels: &[u8]) -> Self {
        Self::from_part(size, (0, 0), size.width, pixels)
    }

    /// A mask from a bitmap of this `width` at (`left`, `top`) in an image that is clear elsewhere. Pixels outside the image are cut
    /// off. Stores a predicted mask of a box without a bitmap of the whole image.
    pub fn from_part(size: Size, (left, top): (u16, u16), width: u16, pixels: &[u8]) -> Self {
        let stride = usize::from(width).max(1);
        let columns = usize::from(width.min(size.width.saturating_sub(left)));
        let rows = (pixels.len() / stride).min(usize::from(size.height.saturating_sub(top)));
        let mut runs: Vec<Range<u32>> = Vec::new();
        let mut turned = vec![0; rows * BAND];
        for band in (0..columns).step_by(BAND) {
            let wide = BAND.min(columns - band);
            for (row, line) in pixels.chunks_exact(stride).take(rows).enumerate() {
                for (column, pixel) in line[band..band + wide].iter().enumerate() {
                    turned[column * rows + row] = *pixel;
                }
            }
            let filled = turned.chunks_exact(rows.max(1)).take(wide);
            for (column, line) in (u32::from(left)..).skip(band).zip(filled) {
                column_runs(column * u32::from(size.height) + u32::from(top), line, &mut runs);
            }
        }
        Self::from_runs(size, runs)
    }

    /// The bitmap: `width` × `height` bytes, row by row, 1 where a pixel is set and 0 elsewhere.
    #[cfg(test)]
    pub fn to_bitmap(&self) -> Vec<u8> {
        let (width, height) = (usize::from(self.size.width), usize::from(self.size.height));
        let mut pixels = vec![0; width * height];
        let place = |at: u32| usize::try_from(at).unwrap_or(usize::MAX);
        for run in self.runs() {
            let (mut column, mut row) = (place(run.start) / height, place(run.start) % height);
            for _ in run {
                pixels[row * width + column] = 1;
                row += 1;
                if row == height {
                    (column, row) = (column + 1, 0);
                }
            }
        }
        pixels
    }
}

/// Adds the runs of set pixels of one column; `first` is the place of its first pixel.
fn column_runs(first: u32, column: &[u8], runs: &mut Vec<Range<u32>>) {
    // A column has at most 65,535 pixels.
    let place = |row: usize| first + u32::try_from(row).unwrap_or(0);
    let mut row = 0;
    while let Some(clear) = column[row..].iter().position(|pixel| *pixel != 0) {
        let start = row + clear;
        let set = column[start..].iter().position(|pixel| *pixel == 0);
        row = set.map_or(column.len(), |set| start + set);
        runs.push(place(start)..place(row));
    }
}
