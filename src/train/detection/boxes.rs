//! Axis-aligned boxes in the three usual formats, and their overlaps.
//!
//! Knows only coordinates. x grows to the right and y downwards; a pixel is one wide, so a box from 0 to 1 is one pixel. Models use
//! float32; COCO's format is float64, as in its evaluation.

use crate::number::single;

/// A box by its left upper and its right lower corner, in pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Xyxy {
    /// x of the left edge.
    pub left: f32,
    /// y of the upper edge.
    pub top: f32,
    /// x of the right edge.
    pub right: f32,
    /// y of the lower edge.
    pub bottom: f32,
}

/// A box by its centre and its extent, in pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cxcywh {
    /// x of the centre.
    pub x: f32,
    /// y of the centre.
    pub y: f32,
    /// From the left to the right edge.
    pub width: f32,
    /// From the upper to the lower edge.
    pub height: f32,
}

/// A box by its left upper corner and its extent, in pixels: COCO's `bbox`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Xywh {
    /// x of the left edge.
    pub left: f64,
    /// y of the upper edge.
    pub top: f64,
    /// From the left to the right edge.
    pub width: f64,
    /// From the upper to the lower edge.
    pub height: f64,
}

impl Xyxy {
    /// A box of `[left, top, right, bottom]`.
    pub fn new([left, top, right, bottom]: [f32; 4]) -> Self {
        Self { left, top, right, bottom }
    }

    /// `[left, top, right, bottom]`.
    pub fn array(self) -> [f32; 4] {
        [self.left, self.top, self.right, self.bottom]
    }

    /// From the left to the right edge.
    pub fn width(self) -> f32 {
        self.right - self.left
    }

    /// From the upper to the lower edge.
    pub fn height(self) -> f32 {
        self.bottom - self.top
    }

    /// Width times height, in square pixels.
    pub fn area(self) -> f32 {
        self.width() * self.height()
    }

    /// Whether the box is empty: an edge lies on or beyond its opposite, or is NaN.
    pub fn is_empty(self) -> bool {
        !(self.right > self.left && self.bottom > self.top)
    }

    /// The part of the box inside an image of this width and height; empty if there is none.
    pub fn clipped(self, width: f32, height: f32) -> Self {
        let within = |coordinate, last| lesser(greater(coordinate, 0.0), last);
        Self {
            left: within(self.left, width),
            top: within(self.top, height),
            right: within(self.right, width),
            bottom: within(self.bottom, height),
        }
    }

    /// The box in a horizontally flipped image of this width.
    pub fn mirrored(self, width: f32) -> Self {
        Self { left: width - self.right, right: width - self.left, ..self }
    }

    /// The area of the intersection, in square pixels.
    #[cfg(test)]
    pub fn intersection(self, other: Self) -> f32 {
        let width = lesser(self.right, other.right) - greater(self.left, other.left);
        let height = lesser(self.bottom, other.bottom) - greater(self.top, other.top);
        greater(width, 0.0) * greater(height, 0.0)
    }

    /// Intersection over union, 0 to 1; 0 if both are empty.
    #[cfg(test)]
    pub fn iou(self, other: Self) -> f32 {
        let common = self.intersection(other);
        if common > 0.0 { common / (self.area() + other.area() - common) } else { 0.0 }
    }

    /// Intersection over union with each of many boxes, 0 to 1; 0 if both are empty.
    pub fn ious(self, others: &[Self]) -> Vec<f32> {
        let area = self.area();
        // Branch-free: most boxes do not overlap.
        let iou = |other: &Self| {
            let width = greater(lesser(self.right, other.right) - greater(self.left, other.left), 0.0);
            let height = greater(lesser(self.bottom, other.bottom) - greater(self.top, other.top), 0.0);
            let common = width * height;
            let share = common / (area + other.area() - common);
            if common > 0.0 { share } else { 0.0 }
        };
        others.iter().map(iou).collect()
    }
}

/// The smaller of two numbers. Compiles to one instruction, unlike `f32::min`, which treats NaN specially.
pub(super) fn lesser(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

/// The larger of two numbers; see [`lesser`].
pub(super) fn greater(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

impl Xywh {
    /// A box of `[left, top, width, height]`.
    pub fn new([left, top, width, height]: [f64; 4]) -> Self {
        Self { left, top, width, height }
    }

    /// `[left, top, width, height]`.
    #[cfg(test)]
    pub fn array(self) -> [f64; 4] {
        [self.left, self.top, self.width, self.height]
    }

    /// Width times height, in square pixels.
    pub fn area(self) -> f64 {
        self.width * self.height
    }

    /// Intersection over union, 0 to 1, with `other` from the ground truth. For a crowd, intersection over the area of this box. 0
    /// if the boxes do not overlap.
    pub fn iou(self, other: Self, crowd: bool) -> f64 {
        let width = (self.left + self.width).min(other.left + other.width) - self.left.max(other.left);
        let height = (self.top + self.height).min(other.top + other.height) - self.top.max(other.top);
        if !(width > 0.0 && height > 0.0) {
            return 0.0;
        }
        let common = width * height;
        let whole = if crowd { self.area() } else { self.area() + other.area() - common };
        common / whole
    }
}

impl From<Xyxy> for Cxcywh {
    fn from(corners: Xyxy) -> Self {
        let (width, height) = (corners.width(), corners.height());
        Self { x: corners.left + width / 2.0, y: corners.top + height / 2.0, width, height }
    }
}

impl From<Cxcywh> for Xyxy {
    fn from(Cxcywh { x, y, width, height }: Cxcywh) -> Self {
        let (half_width, half_height) = (width / 2.0, height / 2.0);
        Self { left: x - half_width, top: y - half_height, right: x + half_width, bottom: y + half_height }
    }
}

impl From<Xyxy> for Xywh {
    fn from(corners: Xyxy) -> Self {
        let [left, top, right, bottom] = corners.array().map(f64::from);
        Self { left, top, width: right - left, height: bottom - top }
    }
}

impl From<Xywh> for Xyxy {
    /// Rounds each edge to float32.
    fn from(Xywh { left, top, width, height }: Xywh) -> Self {
        Self::new([left, top, left + width, top + height].map(single))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole_box() -> impl Strategy<Value = Xyxy> {
        (0_u8..60, 0_u8..60, 1_u8..40, 1_u8..40)
            .prop_map(|(left, top, width, height)| Xyxy::new([left, top, left + width, top + height].map(f32::from)))
    }

    /// Counts the pixels of intersection and union, which is exact for integer coordinates.
    fn counted(a: Xyxy, b: Xyxy) -> (f32, f32) {
        let holds =
            |bounds: Xyxy, x: f32, y: f32| x >= bounds.left && x < bounds.right && y >= bounds.top && y < bounds.bottom;
        let (mut both, mut any) = (0.0, 0.0);
        for (x, y) in (0_u8..100).flat_map(|x| (0_u8..100).map(move |y| (f32::from(x), f32::from(y)))) {
            let (in_a, in_b) = (holds(a, x, y), holds(b, x, y));
            both += if in_a && in_b { 1.0 } else { 0.0 };
            any += if in_a || in_b { 1.0 } else { 0.0 };
        }
        (both, any)
    }

    proptest! {
        #[test]
        fn overlaps_match_counted_pixels(a in whole_box(), b in whole_box()) {
            let (both, any) = counted(a, b);
            prop_assert_eq!(a.intersection(b), both);
            prop_assert_eq!(a.iou(b), both / any);
            prop_assert_eq!(a.ious(&[b, a, b]), vec![both / any, 1.0, both / any]);
            prop_assert_eq!(Xywh::from(a).iou(b.into(), false), f64::from(both) / f64::from(any));
            prop_assert_eq!(Xywh::from(a).iou(b.into(), true), f64::from(both) / f64::from(a.area()));
        }

        #[test]
        fn conversions_between_formats_round_trip(corners in whole_box()) {
            prop_assert_eq!(Xyxy::from(Cxcywh::from(corners)), corners);
            prop_assert_eq!(Xyxy::from(Xywh::from(corners)), corners);
        }
    }

    #[test]
    fn one_box_in_all_formats() {
        let corners = Xyxy::new([10.0, 20.0, 13.0, 24.0]);
        assert_eq!(Cxcywh::from(corners), Cxcywh { x: 11.5, y: 22.0, width: 3.0, height: 4.0 });
        assert_eq!(Xywh::from(corners), Xywh::new([10.0, 20.0, 3.0, 4.0]));
        assert_eq!((corners.width(), corners.height(), corners.area()), (3.0, 4.0, 12.0));
    }

    /// Squares of side 3 and 4 share 2 × 2 pixels: the IoU is 4 / (9 + 16 − 4), and 4 / 9 of the first lie in a crowd.
    #[test]
    fn iou_with_a_crowd_is_relative_to_the_detection() {
        let (found, there) = (Xywh::new([0.0, 0.0, 3.0, 3.0]), Xywh::new([1.0, 1.0, 4.0, 4.0]));
        assert_eq!(found.iou(there, false), 4.0 / 21.0);
        assert_eq!(found.iou(there, true), 4.0 / 9.0);
        assert_eq!(there.iou(found, true), 4.0 / 16.0);
    }

    #[test]
    fn touching_and_empty_boxes_do_not_overlap() {
        let (left, right) = (Xyxy::new([0.0, 0.0, 2.0, 2.0]), Xyxy::new([2.0, 0.0, 4.0, 2.0]));
        let empty = Xyxy::new([1.0, 1.0, 1.0, 1.0]);
        assert_eq!([left.iou(right), empty.iou(empty), empty.iou(left)], [0.0; 3]);
        assert_eq!(empty.ious(&[empty, left, right]), [0.0; 3]);
        assert_eq!(Xywh::from(empty).iou(empty.into(), true), 0.0);
        assert!(empty.is_empty() && !left.is_empty() && Xyxy::new([0.0, 0.0, f32::NAN, 1.0]).is_empty());
    }

    #[test]
    fn a_mirrored_box_has_the_same_distance_from_the_other_side() {
        assert_eq!(Xyxy::new([1.0, 2.0, 4.0, 6.0]).mirrored(10.0), Xyxy::new([6.0, 2.0, 9.0, 6.0]));
    }

    #[test]
    fn a_box_is_clipped_to_the_image() {
        let clip = |array| Xyxy::new(array).clipped(10.0, 8.0);
        assert_eq!(clip([-3.0, 2.0, 11.0, 9.0]), Xyxy::new([0.0, 2.0, 10.0, 8.0]));
        assert!(clip([12.0, 0.0, 14.0, 3.0]).is_empty());
    }
}
