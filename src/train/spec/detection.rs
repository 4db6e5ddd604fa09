//! The specification of object detection: the model and its data.

use super::task::Size;
use super::{Fields, SpecError};
use crate::data::scenes::{self, class};
use std::path::PathBuf;

/// A detector and its data.
#[derive(Clone, Debug, PartialEq)]
pub struct DetectionSpec {
    /// The model.
    pub model: DetectionModel,
    /// The size of the model.
    pub size: Size,
    /// The number of object classes, without the background.
    pub classes: usize,
    /// The data.
    pub data: DetectionData,
}

/// The detector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DetectionModel {
    /// YOLOv3.
    YoloV3,
    /// Mask R-CNN.
    MaskRcnn,
}

/// The data of object detection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DetectionData {
    /// Generated scenes.
    Scenes {
        /// Seeds the scenes.
        seed: u64,
        /// Their height and width.
        side: usize,
        /// Number of training scenes.
        train: usize,
        /// Number of evaluation scenes.
        eval: usize,
    },
    /// Pictures and annotations in COCO's format.
    Coco {
        /// The directory that holds `annotations`, `train*` and `val*`.
        path: PathBuf,
        /// Height and width of the model's input.
        side: usize,
    },
}

/// The stride of the coarsest features of both models, in pixels.
const STRIDE: usize = 32;

impl Fields<'_> {
    pub(super) fn detect(&self, model: DetectionModel) -> Result<DetectionSpec, SpecError> {
        let (data, most, expected) = match self.data_name()?.as_str() {
            "scenes" => {
                self.generator_version(scenes::GENERATOR_VERSION)?;
                let side = self.strides("a multiple of 32, 64 to 1024", *scenes::SIDES.start())?;
                let (seed, train, eval) = (self.data_seed()?, self.train_count()?, self.eval_count()?);
                let expected = "a whole number, 2 to 80: `scenes` have no more";
                (DetectionData::Scenes { seed, side, train, eval }, *class::CLASSES.end(), expected)
            }
            "coco" => {
                let side = self.strides("a multiple of 32, 32 to 1024", STRIDE)?;
                (DetectionData::Coco { path: self.path()?, side }, 65_535, "a whole number, 2 to 65535")
            }
            other => return Err(self.mismatch(other, "`scenes` or `coco`")),
        };
        let classes = self.count("model.classes", expected, 2, most)?;
        Ok(DetectionSpec { model, size: self.size()?, classes, data })
    }

    /// `data.side`, a multiple of the coarsest stride.
    fn strides(&self, expected: &'static str, least: usize) -> Result<usize, SpecError> {
        self.need("data.side", expected, |value| {
            let side = value.as_int().and_then(|side| usize::try_from(side).ok());
            side.filter(|side| side.is_multiple_of(STRIDE) && (least..=1024).contains(side))
        })
    }
}
