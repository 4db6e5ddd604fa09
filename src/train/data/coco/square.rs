//! Scales an image and its objects to a square of fixed size: without distortion, in the middle of a grey frame.
//!
//! Knows one image's geometry and pixels; nothing of files. Scaling is that of [`folder`](crate::data::folder): bilinear with
//! antialiasing.

use super::{Instance, Outline};
use crate::data::objects::object::Object;
use crate::data::planes::{CHANNELS, size};
use crate::detection::boxes::{Xywh, Xyxy};
use crate::detection::mask::{Mask, Size};
use crate::number::whole;
use image::RgbImage;
use image::imageops::{self, FilterType};

/// The frame around an image: ImageNet's mean colour.
pub(super) const FRAME: [u8; CHANNELS] = [124, 116, 104];

/// The place of an image in its square.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Square {
    /// The square itself.
    whole: Size,
    /// The size of the scaled image.
    extent: Size,
    left: u16,
    top: u16,
    /// The factors of x and y.
    scale: [f64; 2],
}

impl Square {
    /// The place of an image in a square of `side` pixels. The longer side fills the square. The shorter one is rounded
    /// to whole pixels and centred, with an odd pixel to the right or below.
    pub fn new(image: Size, side: u16) -> Self {
        let longer = f64::from(image.width.max(image.height));
        let fitted = |length: u16| {
            let exact = f64::from(length) * f64::from(side) / longer;
            u16::try_from(whole(exact.round())).unwrap_or(side).clamp(1, side)
        };
        let extent = Size { width: fitted(image.width), height: fitted(image.height) };
        let scale = |to: u16, from: u16| f64::from(to) / f64::from(from);
        Self {
            whole: Size { width: side, height: side },
            extent,
            left: (side - extent.width) / 2,
            top: (side - extent.height) / 2,
            scale: [scale(extent.width, image.width), scale(extent.height, image.height)],
        }
    }

    /// Returns an object of the image in the square's coordinates, with its box unclipped.
    pub fn object(&self, instance: &Instance) -> Object {
        let [across, down] = self.scale;
        Object {
            class: instance.class,
            bounds: self.bounds(instance.bounds),
            area: instance.area * across * down,
            crowd: instance.crowd,
            mask: instance.outline.as_ref().map(|outline| self.mask(outline)),
        }
    }

    /// Returns the part of an object's box that lies in the image, in the square's coordinates.
    pub fn clipped(&self, bounds: Xywh) -> Xyxy {
        let Self { left, top, extent, .. } = *self;
        let [x, y, width, height] = [left, top, extent.width, extent.height].map(f32::from);
        let [from, above, to, below] = self.bounds(bounds).array();
        let within = Xyxy::new([from - x, above - y, to - x, below - y]).clipped(width, height);
        Xyxy::new([within.left + x, within.top + y, within.right + x, within.bottom + y])
    }

    fn bounds(&self, Xywh { left, top, width, height }: Xywh) -> Xyxy {
        let [across, down] = self.scale;
        let (x, y) = (left * across + f64::from(self.left), top * down + f64::from(self.top));
        Xywh::new([x, y, width * across, height * down]).into()
    }

    /// Polygons are scaled and drawn again, which is more exact than scaling a drawn mask.
    fn mask(&self, outline: &Outline) -> Mask {
        let Self { whole, extent, left, top, scale: [across, down] } = *self;
        match outline {
            Outline::Runs(mask) => mask.scaled_into(whole, extent, (left, top)),
            Outline::Polygons(polygons) => {
                let corner = |corner: &[f64]| [corner[0] * across + f64::from(left), corner[1] * down + f64::from(top)];
                let moved = |polygon: &Vec<f64>| polygon.chunks_exact(2).flat_map(corner).collect::<Vec<f64>>();
                Mask::from_polygons(whole, &polygons.iter().map(moved).collect::<Vec<_>>())
            }
        }
    }

    /// Writes the image's planes and the frame around it.
    pub fn paint(&self, image: &RgbImage, planes: &mut [u8]) {
        let Self { whole, extent, left, top, .. } = *self;
        let side = usize::from(whole.width);
        debug_assert_eq!(planes.len(), size(side));
        let scaled = imageops::resize(image, extent.width.into(), extent.height.into(), FilterType::Triangle);
        let width = usize::from(extent.width);
        for ((channel, plane), frame) in planes.chunks_exact_mut(side * side).enumerate().zip(FRAME) {
            plane.fill(frame);
            let lines = plane.chunks_exact_mut(side).skip(usize::from(top));
            for (line, pixels) in lines.zip(scaled.as_raw().chunks_exact(width * CHANNELS)) {
                let inside = line[usize::from(left)..].iter_mut();
                inside.zip(pixels.chunks_exact(CHANNELS)).for_each(|(byte, pixel)| *byte = pixel[channel]);
            }
        }
    }
}

#[cfg(test)]
mod tests;
