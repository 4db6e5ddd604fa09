//! Encodes boxes relative to anchors (Girshick et al. 2014, "Rich feature hierarchies for accurate object detection and
//! semantic segmentation", appendix C).
//!
//! Knows only the transformation of one box, in both directions, and nothing of the matching of anchors with objects.

use super::boxes::{Cxcywh, Xyxy};

/// The transformation with its weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Deltas {
    /// Factors of the shifts in x and y and of the logarithms of width and height.
    pub weights: [f32; 4],
}

/// The weights of a region proposal network (Ren et al. 2015).
pub const PROPOSAL: Deltas = Deltas { weights: [1.0; 4] };

/// The weights of the second stage of Fast, Faster and Mask R-CNN: the reciprocals of the targets' typical standard deviations.
pub const HEAD: Deltas = Deltas { weights: [10.0, 10.0, 5.0, 5.0] };

/// Maximum ratio of a box's size to its anchor's (1000/16), as the exponential of an untrained model's output could overflow.
const MAX_GROWTH: f32 = 62.5;

impl Deltas {
    /// The four deltas from `anchor` to `target`. Neither may be empty, as the logarithm of 0 is infinite.
    pub fn encode(self, anchor: Xyxy, target: Xyxy) -> [f32; 4] {
        let (from, to) = (Cxcywh::from(anchor), Cxcywh::from(target));
        let [x, y, width, height] = self.weights;
        [
            x * (to.x - from.x) / from.width,
            y * (to.y - from.y) / from.height,
            width * (to.width / from.width).ln(),
            height * (to.height / from.height).ln(),
        ]
    }

    /// Applies four deltas to `anchor`. The result is at most 62.5 times as wide and as high.
    pub fn decode(self, anchor: Xyxy, deltas: [f32; 4]) -> Xyxy {
        let from = Cxcywh::from(anchor);
        let [x, y, width, height] = [0, 1, 2, 3].map(|n| deltas[n] / self.weights[n]);
        let growth = |logarithm: f32| logarithm.min(MAX_GROWTH.ln()).exp();
        Cxcywh {
            x: from.x + x * from.width,
            y: from.y + y * from.height,
            width: from.width * growth(width),
            height: from.height * growth(height),
        }
        .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The anchor has the centre (20, 15) and the size 40 × 10, the target (30, 20) and 20 × 20: shifts of a quarter and a half,
    /// half as wide and twice as high.
    #[test]
    fn deltas_match_a_box_computed_by_hand() {
        let (anchor, target) = (Xyxy::new([0.0, 10.0, 40.0, 20.0]), Xyxy::new([20.0, 10.0, 40.0, 30.0]));
        let ln2 = std::f32::consts::LN_2;
        assert_eq!(PROPOSAL.encode(anchor, target), [0.25, 0.5, -ln2, ln2]);
        assert_eq!(HEAD.encode(anchor, target), [2.5, 5.0, -5.0 * ln2, 5.0 * ln2]);
        for coder in [PROPOSAL, HEAD] {
            let back = coder.decode(anchor, coder.encode(anchor, target)).array();
            assert!(back.iter().zip(target.array()).all(|(a, b)| (a - b).abs() < 1e-4), "{back:?}");
        }
    }

    #[test]
    fn growth_is_bounded() {
        let grown = PROPOSAL.decode(Xyxy::new([0.0, 0.0, 16.0, 16.0]), [0.0, 0.0, 1e9, f32::INFINITY]);
        assert!((grown.width() - 1000.0).abs() < 0.01 && (grown.height() - 1000.0).abs() < 0.01);
    }
}
