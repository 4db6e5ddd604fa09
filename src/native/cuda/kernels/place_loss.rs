//! The loss of a one-stage detector at each place and its gradient, and the boxes and scores of all places.

use super::compile::Program;
use super::run::{Argument, pair, queue};
use super::{count, fresh, of_format, primitive, ready, same_device, single, tensor};
use burn::tensor::{DType, Tensor};
use burn_cubecl::kernel::into_contiguous;

const THREADS: u32 = 256;
/// Entries of a place before its classes, planes of targets, and planes of places.
const ENTRIES: usize = 5;
const TARGETS: usize = 7;
const PLANES: usize = 5;

/// The targets of a batch, all in float32.
pub struct PlaceTargets<'a> {
    /// [rows, 7, places]: x, y, width, height, the weight of these, objectness (0 or 1), and the class.
    pub dense: &'a Tensor<3>,
    /// [rows, most, 4]: left, top, right and bottom of each object.
    pub boxes: &'a Tensor<3>,
    /// [1, 5, places]: column and row of the cell, its side, width and height of the anchor.
    pub planes: &'a Tensor<3>,
    /// A place without an object does not count if its box has a larger intersection over union with any object.
    pub ignored: f64,
    /// The maximum logarithm of a side divided by the anchor's side.
    pub largest: f64,
}

/// Returns, for outputs [rows, 5 + classes, places] in float32, the loss of each place, and 1 if its objectness counts,
/// otherwise 0; both [rows, places]. `None` if the kernel cannot run.
pub fn place_losses(answers: &Tensor<3>, targets: &PlaceTargets<'_>) -> Option<[Tensor<2>; 2]> {
    let sizes = Sizes::of(answers, targets.dense)?;
    let [rows, most, corners] = targets.boxes.dims();
    let fits = [rows, corners] == [sizes.rows, 4] && targets.planes.dims() == [1, PLANES, sizes.places];
    let others = [targets.boxes, targets.planes];
    let alike = others.iter().all(|other| other.dtype() == DType::F32 && same_device(*other, answers));
    if !fits || !alike {
        return None;
    }
    let given = [answers, targets.dense, targets.boxes, targets.planes].map(primitive);
    let [Some(answers), Some(dense), Some(boxes), Some(planes)] = given else { return None };
    let [answers, dense, boxes, planes] = [answers, dense, boxes, planes].map(into_contiguous);
    let made = [(); 2].map(|()| fresh(&answers, [sizes.rows, sizes.places], DType::F32));
    let words = sizes.words(count(most)?, [single(targets.ignored), single(targets.largest)])?;
    let blocks = sizes.blocks()?;
    let buffers = [&answers, &dense, &boxes, &planes, &made[0], &made[1]].map(|tensor| &tensor.handle);
    queue(Program::PlaceLoss, &answers, &buffers, move |places, card| {
        let arguments = places[..6].iter().map(|place| Argument::Address(*place));
        let arguments: Vec<_> = arguments.chain([Argument::Words(&words)]).collect();
        card.launch(c"place_loss", [blocks, 1], [THREADS, 1], &arguments)
    });
    Some(made.map(tensor))
}

/// Returns the gradient of the summed losses with respect to the outputs, times a factor of shape `[1]`. `counted` is
/// the second result of [`place_losses`]. `None` if the tensors do not fit.
pub fn place_losses_back(
    answers: &Tensor<3>,
    dense: &Tensor<3>,
    counted: &Tensor<2>,
    factor: &Tensor<1>,
) -> Option<Tensor<3>> {
    let sizes = Sizes::of(answers, dense)?;
    let fits = counted.dims() == [sizes.rows, sizes.places] && factor.dims() == [1];
    if !fits || [counted.dtype(), factor.dtype()] != [DType::F32; 2] || !same_device(factor, answers) {
        return None;
    }
    let given = [primitive(answers), primitive(dense), primitive(counted), primitive(factor)];
    let [Some(answers), Some(dense), Some(counted), Some(factor)] = given else { return None };
    let [answers, dense, counted, factor] = [answers, dense, counted, factor].map(into_contiguous);
    let made = fresh(&answers, [sizes.rows, ENTRIES + sizes.classes, sizes.places], DType::F32);
    let (words, blocks) = (sizes.words(0, [0.0; 2])?, sizes.blocks()?);
    let buffers = [&answers, &dense, &counted, &factor, &made].map(|tensor| &tensor.handle);
    queue(Program::PlaceLoss, &answers, &buffers, move |places, card| {
        let arguments = places[..5].iter().map(|place| Argument::Address(*place));
        let arguments: Vec<_> = arguments.chain([Argument::Words(&words)]).collect();
        card.launch(c"place_loss_back", [blocks, 1], [THREADS, 1], &arguments)
    });
    Some(tensor(made))
}

/// Boxes and scores of a network's outputs, one [rows, boxes · (5 + classes), side, side] for each level, all in one
/// format: left, top, right, bottom and the scores of the classes, [rows, places, 4 + classes]; and the best score of
/// each place, [rows, places]. Both are in float32. `planes` and `largest` are those of [`PlaceTargets`]. Returns
/// `None` if the kernel cannot be run.
pub fn place_scores(
    levels: &[Tensor<4>],
    boxes: usize,
    planes: &Tensor<3>,
    largest: f64,
) -> Option<(Tensor<3>, Tensor<2>)> {
    let first = levels.first()?;
    let [rows, channels, ..] = first.dims();
    let entries = channels.checked_div(boxes)?;
    let classes = entries.checked_sub(ENTRIES).filter(|classes| *classes > 0 && entries * boxes == channels)?;
    let places = planes.dims()[2];
    let cells = levels.iter().map(|level| level.dims()[2] * level.dims()[3]);
    let fits = cells.clone().all(|cells| cells > 0)
        && rows * places > 0
        && planes.dims() == [1, PLANES, places]
        && cells.clone().sum::<usize>() * boxes == places;
    let is_alike = |level: &Tensor<4>| {
        level.dims()[..2] == [rows, channels] && level.dtype() == first.dtype() && same_device(level, first)
    };
    let name = of_format(first.dtype(), [c"place_scores_f32", c"place_scores_f16", c"place_scores_bf16"])?;
    let alike = levels.iter().all(is_alike) && planes.dtype() == DType::F32 && same_device(planes, first);
    if !fits || !alike || !ready(Program::PlaceLoss, first) {
        return None;
    }
    let planes = into_contiguous(primitive(planes)?);
    let lines = fresh(&planes, [rows, places, 4 + classes], DType::F32);
    let best = fresh(&planes, [rows, places], DType::F32);
    let [rows, places, classes, boxes] = [count(rows)?, count(places)?, count(classes)?, count(boxes)?];
    let mut next = 0;
    let mut tasks = Vec::new();
    for (level, cells) in levels.iter().zip(cells) {
        // NHWC images already have this layout, so nothing is copied.
        let answers = into_contiguous(primitive(&level.clone().permute([0, 2, 3, 1]))?);
        let cells = count(cells)?;
        let words = [pair(rows, places), pair(classes, boxes), pair(cells, next), pair(single(largest).to_bits(), 0)];
        // A block has a warp for each of eight places.
        let blocks = rows.checked_mul(cells)?.checked_mul(boxes)?.div_ceil(THREADS / 32);
        next += cells * boxes;
        tasks.push((answers, words, blocks));
    }
    for (answers, words, blocks) in tasks {
        let buffers = [&answers, &planes, &lines, &best].map(|tensor| &tensor.handle);
        queue(Program::PlaceLoss, &answers, &buffers, move |places, card| {
            let arguments = places[..4].iter().map(|place| Argument::Address(*place));
            let arguments: Vec<_> = arguments.chain([Argument::Words(&words)]).collect();
            card.launch(name, [blocks, 1], [THREADS, 1], &arguments)
        });
    }
    Some((tensor(lines), tensor(best)))
}

#[derive(Clone, Copy)]
struct Sizes {
    rows: usize,
    classes: usize,
    places: usize,
}

impl Sizes {
    /// Returns `None` if the kernels cannot run.
    fn of(answers: &Tensor<3>, dense: &Tensor<3>) -> Option<Self> {
        let [rows, entries, places] = answers.dims();
        let classes = entries.checked_sub(ENTRIES)?;
        let alike = [answers.dtype(), dense.dtype()] == [DType::F32; 2] && same_device(dense, answers);
        let fits = rows * places > 0 && dense.dims() == [rows, TARGETS, places];
        (alike && fits && ready(Program::PlaceLoss, answers)).then_some(Self { rows, classes, places })
    }

    /// Returns the words of the kernels' structure.
    fn words(&self, most: u32, [ignored, largest]: [f32; 2]) -> Option<[u64; 3]> {
        let [rows, places, classes] = [count(self.rows)?, count(self.places)?, count(self.classes)?];
        Some([pair(rows, places), pair(classes, most), pair(ignored.to_bits(), largest.to_bits())])
    }

    fn blocks(&self) -> Option<u32> {
        count((self.rows * self.places).div_ceil(usize::try_from(THREADS).unwrap_or(1)))
    }
}
