//! Masks of images that are flipped, or scaled and placed in another image.

use super::{Mask, Size};
use std::ops::Range;

impl Mask {
    /// The mask of the horizontally flipped image.
    pub fn mirrored(&self) -> Self {
        let (height, last) = (u32::from(self.size.height), u32::from(self.size.width).saturating_sub(1));
        let stretches: Vec<(u32, Range<u32>)> = self.stretches().collect();
        let columns = stretches.chunk_by(|one, next| one.0 == next.0).rev();
        let runs = columns.flatten().map(|(column, rows)| {
            let begin = (last - column) * height;
            begin + rows.start..begin + rows.end
        });
        Self::from_runs(self.size, runs)
    }

    /// The mask after scaling the image to `extent` and placing it at (`left`, `top`) in an image of `size`, which is clear elsewhere.
    /// Pixels outside that image are cut off. A pixel is set if the source pixel under its centre was (nearest neighbour).
    pub fn scaled_into(&self, size: Size, extent: Size, (left, top): (u16, u16)) -> Self {
        let rows = sources(self.size.height, extent.height, size.height.saturating_sub(top));
        let columns = sources(self.size.width, extent.width, size.width.saturating_sub(left));
        let stretches: Vec<(u32, Range<u32>)> = self.stretches().collect();
        let (height, left, top) = (u32::from(size.height), u32::from(left), u32::from(top));
        let runs = (left..).zip(columns).flat_map(|(column, source)| {
            let first = stretches.partition_point(|(column, _)| *column < source);
            let in_column = stretches[first..].iter().take_while(move |(column, _)| *column == source);
            let begin = column * height + top;
            let rows = &rows;
            in_column.map(move |(_, set)| begin + place(rows, set.start)..begin + place(rows, set.end))
        });
        Self::from_runs(size, runs)
    }
}

/// For each of the first `kept` of `to` pixels, the pixel of `from` under its centre.
fn sources(from: u16, to: u16, kept: u16) -> Vec<u32> {
    let [from, to] = [from, to].map(u64::from);
    let source = |pixel: u16| u32::try_from((2 * u64::from(pixel) + 1) * from / (2 * to)).unwrap_or(u32::MAX);
    (0..kept.min(u16::try_from(to).unwrap_or(u16::MAX))).map(source).collect()
}

/// The first pixel whose source is not before this one.
fn place(sources: &[u32], source: u32) -> u32 {
    u32::try_from(sources.partition_point(|one| *one < source)).unwrap_or(u32::MAX)
}
