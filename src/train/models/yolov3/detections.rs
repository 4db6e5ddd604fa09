//! From answers to what was found.

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

/// What stays of a picture's candidates.
const LIMITS: Suppression = Suppression { score: 0.005, iou: 0.45, max: 100 };
/// Boxes and scores are read of at most this many places of a picture, the best ones.
const LOOKED_AT: usize = 1024;
/// And of at least this many, so that few lengths occur.
const FEWEST: usize = 16;

/// From the three outputs of the network: the corners of each place's box and the scores of its classes, [rows, places, 4 + classes, 1];
/// and the best score of each place, [rows, places, 1, 1]. Both are in float32.
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

/// The predictions of each row, best first, from the tensors of [`scored`].
///
/// A place has a candidate for every class whose probability times that of objectness is above 0.005, as in Darknet's evaluation, which lets one box have several classes. Of those of one class that overlap by
/// more than 0.45 the best one stays; of all that stay the best 100 are told, within the picture.
///
/// Two transfers: the best score of every place; then boxes and scores of the best places of each row. Their number is that of the row
/// with the most candidates, rounded up to a power of two from 16 to 1,024. Nothing more is read where no place has a candidate.
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

/// The places with a candidate, at most so many: the best ones, of equal ones the first. In their order.
fn chosen(best: &[f32], most: usize) -> Vec<usize> {
    let mut chosen: Vec<usize> = (0..best.len()).filter(|place| best[*place] > LIMITS.score).collect();
    if chosen.len() > most {
        chosen.sort_by(|a, b| best[*b].total_cmp(&best[*a]));
        chosen.truncate(most);
        chosen.sort_unstable();
    }
    chosen
}

/// The lines of the chosen places in a table of all rows' places; what is missing to `looked_at` is filled up with the first line.
fn numbers(chosen: &[Vec<usize>], count: usize, looked_at: usize) -> Vec<i32> {
    let mut numbers = vec![0; chosen.len() * looked_at];
    for ((row, chosen), numbers) in chosen.iter().enumerate().zip(numbers.chunks_exact_mut(looked_at)) {
        for (place, number) in chosen.iter().zip(numbers) {
            // A batch with more places would not fit into a device.
            *number = i32::try_from(row * count + place).unwrap_or(0);
        }
    }
    numbers
}

/// What is found in a row with these boxes and scores, of which the first `count` lines count.
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
    fn the_best_places_are_chosen_in_their_order() {
        let best = [0.005, 0.3, f32::NAN, 0.9, 0.3, 0.006, 0.3];
        assert_eq!(chosen(&best, 7), [1, 3, 4, 5, 6]);
        assert_eq!(chosen(&best, 3), [1, 3, 4]);
        assert_eq!(chosen(&best[..1], 3), [0_usize; 0]);
    }

    #[test]
    fn lines_are_those_of_their_rows() {
        assert_eq!(numbers(&[vec![2, 5], vec![], vec![0]], 10, 3), [2, 5, 0, 0, 0, 0, 20, 0, 0]);
    }

    #[test]
    fn classes_are_candidates_of_their_own_and_overlap_suppresses_within_a_class() {
        // Boxes of 10 x 10 shifted by 2 overlap by 80 / 120, by 5 by 50 / 150.
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
        // In class 1 the second is suppressed by the first and the third, 50 / 150 from the first, stays; the last line is beyond what counts.
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
