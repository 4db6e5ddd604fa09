//! Turns predictions into detections.

use super::BOXES;
use super::boxes::{joined, off_tape, planes};
use super::places::Places;
use crate::detection::Detection;
use crate::detection::boxes::Xyxy;
use crate::detection::nms::{Suppression, nms};
use crate::forward_context::{ForwardContext, int_tensor};
use crate::models::detector::{HostTime, Prediction, ReadError};
use crate::number::{real_len, single};
use crate::ops::{class_logits, decoded, objectness, place_scores};
use burn::tensor::Tensor;
use burn::tensor::activation::sigmoid;
use rayon::prelude::*;

/// The limits of non-maximum suppression in an image.
const LIMITS: Suppression = Suppression { score: 0.005, iou: 0.45, max: 100 };
/// Maximum number of places of an image whose boxes and scores are read; the best ones.
const LOOKED_AT: usize = 1024;
/// Minimum number of places read, so that few sizes occur.
const FEWEST: usize = 16;

/// Decodes the three outputs of the network. Returns the corners of each place's box and the scores of its classes,
/// [rows, places, 4 + classes, 1], and the best score of each place, [rows, places, 1, 1], both in float32.
pub fn scored(ctx: &ForwardContext<'_>, outputs: Vec<Tensor<4>>, places: &Places) -> [Tensor<4>; 2] {
    let outputs: Vec<Tensor<4>> = outputs.iter().map(|output| off_tape(ctx, output)).collect();
    let planes = planes(ctx, places);
    let (lines, best) = place_scores(&outputs, BOXES, &planes).unwrap_or_else(|| {
        let answers = joined(outputs);
        let scores = sigmoid(class_logits(&answers)) * sigmoid(objectness(&answers));
        let best = scores.clone().max_dim(1).squeeze_dim(1);
        let table: Vec<Tensor<3>> = decoded(&answers, &planes).into_iter().chain([scores]).collect();
        (Tensor::cat(table, 1).swap_dims(1, 2), best)
    });
    [lines.unsqueeze_dim(3), best.unsqueeze_dims(&[2, 3])]
}

/// The detections of each row, best first, from the tensors of [`scored`].
///
/// A place has a candidate for every class whose probability times objectness is above 0.005: as in Darknet's
/// evaluation, one box may have several classes. Non-maximum suppression within a class drops candidates with an IoU
/// above 0.45. The best 100 of the rest are returned, clipped to the image.
///
/// There are two transfers: the best score of every place, then boxes and scores of the best places of each row. The
/// number of places per row is that of the row with the most candidates, rounded up to a power of two from 16 to 1,024.
/// The second transfer is skipped if there are no candidates.
pub fn detect(
    ctx: &ForwardContext<'_>,
    features: Vec<Tensor<4>>,
    side: usize,
    host: &mut HostTime,
) -> Result<Vec<Vec<Prediction>>, ReadError> {
    let Ok([table, best]) = <[_; 2]>::try_from(features) else { unreachable!("boxes and best scores") };
    let [rows, count, entries, _] = table.dims();
    let best: Vec<f32> = best.try_into_vec_as().map_err(ReadError::of("the scores of the places"))?;
    let chosen = host.during(|| best.par_chunks_exact(count).map(|row| chosen(row, LOOKED_AT)).collect::<Vec<_>>());
    let most = chosen.iter().map(Vec::len).max().unwrap_or(0);
    let looked_at = most.next_power_of_two().clamp(FEWEST, LOOKED_AT);
    if chosen.iter().all(Vec::is_empty) {
        return Ok(vec![Vec::new(); rows]);
    }
    let table = table.reshape([rows * count, entries]);
    let numbers = host.during(|| numbers(&chosen, count, looked_at));
    let lines = table.select(0, int_tensor(&numbers, [rows * looked_at], ctx.device()));
    let lines = lines.reshape([rows * looked_at * entries]).try_into_vec_as::<f32>();
    let lines = lines.map_err(ReadError::of("the boxes and their classes"))?;
    let of_rows = lines.par_chunks_exact(looked_at * entries).zip(&chosen);
    Ok(host.during(|| of_rows.map(|(lines, chosen)| found(lines, chosen.len(), entries, side)).collect()))
}

/// The places with a candidate, in ascending order: at most the `most` best ones, the first of equal ones.
fn chosen(best: &[f32], most: usize) -> Vec<usize> {
    let mut chosen: Vec<usize> = (0..best.len()).filter(|place| best[*place] > LIMITS.score).collect();
    if chosen.len() > most {
        chosen.sort_by(|a, b| best[*b].total_cmp(&best[*a]));
        chosen.truncate(most);
        chosen.sort_unstable();
    }
    chosen
}

/// The line numbers of the chosen places in a table of all rows' places, padded to `looked_at` per row with 0.
fn numbers(chosen: &[Vec<usize>], count: usize, looked_at: usize) -> Vec<i32> {
    let mut numbers = vec![0; chosen.len() * looked_at];
    for ((row, chosen), numbers) in chosen.iter().enumerate().zip(numbers.chunks_exact_mut(looked_at)) {
        for (place, number) in chosen.iter().zip(numbers) {
            // A batch with more places would not fit on a device.
            *number = i32::try_from(row * count + place).unwrap_or(0);
        }
    }
    numbers
}

/// The detections of a row from its lines of corners and scores; only the first `count` lines are used.
fn found(lines: &[f32], count: usize, entries: usize, side: usize) -> Vec<Prediction> {
    let mut candidates = Vec::new();
    for line in lines.chunks_exact(entries).take(count) {
        let (corners, scores) = line.split_at(4);
        let region = Xyxy { left: corners[0], top: corners[1], right: corners[2], bottom: corners[3] };
        let likely = scores.iter().enumerate().filter(|(_, score)| **score > LIMITS.score);
        candidates.extend(likely.map(|(class, score)| Detection { class, score: *score, region }));
    }
    let side = single(real_len(side));
    let told = |place: usize| {
        let Detection { class, score, region } = candidates[place];
        Prediction { class, score, bounds: region.clipped(side, side), mask: None }
    };
    nms(&candidates, LIMITS).into_iter().map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_places_are_chosen_in_ascending_order() {
        let best = [0.005, 0.3, f32::NAN, 0.9, 0.3, 0.006, 0.3];
        assert_eq!(chosen(&best, 7), [1, 3, 4, 5, 6]);
        assert_eq!(chosen(&best, 3), [1, 3, 4]);
        assert_eq!(chosen(&best[..1], 3), [0_usize; 0]);
    }

    #[test]
    fn line_numbers_count_through_all_rows() {
        assert_eq!(numbers(&[vec![2, 5], vec![], vec![0]], 10, 3), [2, 5, 0, 0, 0, 0, 20, 0, 0]);
    }

    #[test]
    fn suppression_applies_within_a_class_only() {
        // Boxes of 10 x 10 have an IoU of 80 / 120 if shifted by 2, and of 50 / 150 if shifted by 5.
        let lines = [
            [0.0, 0.0, 10.0, 10.0, 0.5, 0.9],
            [2.0, 0.0, 12.0, 10.0, 0.6, 0.8],
            [5.0, 0.0, 15.0, 10.0, 0.004, 0.7],
            [-4.0, 60.0, 8.0, 70.0, 0.005, 0.1],
            [0.0, 0.0, 10.0, 10.0, 1.0, 1.0],
        ];
        let found = found(&lines.concat(), 4, 6, 64);
        let told: Vec<(usize, f32, [f32; 4])> =
            found.iter().map(|found| (found.class, found.score, found.bounds.array())).collect();
        // In class 1 the first suppresses the second, and the third stays. The last line is beyond `count`.
        assert_eq!(
            told,
            [
                (1, 0.9, [0.0, 0.0, 10.0, 10.0]),
                (1, 0.7, [5.0, 0.0, 15.0, 10.0]),
                (0, 0.6, [2.0, 0.0, 12.0, 10.0]),
                (1, 0.1, [0.0, 60.0, 8.0, 64.0]),
            ]
        );
    }
}
