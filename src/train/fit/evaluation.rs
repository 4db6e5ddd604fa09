//! Evaluation after epochs, timed inference, and the summary at the end. The first rank does all of it except for the
//! weights digest.

use super::Trainer;
use crate::TrainError;
use crate::device::caught;
use crate::device::peak::matmul_tflops;
use crate::native::memory::read;
use crate::number::{real, real_len, wide};
use crate::parallel::Pace;
use crate::parameters::ParamSpec;
use crate::task::evaluate::enough;
use burn::tensor::TensorData;
use ledger_record::{Digest, EventKind, PhaseEdge};

/// The fact that lists which batches of timed inference are replayed, or why they are not.
const GRAPH: &str = "inference_graph";

impl Trainer<'_> {
    /// Evaluates on the first rank while the others wait, so that its measurements are not disturbed and the others do
    /// not time out. Pipeline stages all take part.
    pub(super) fn evaluation(&mut self, epoch: u64) -> Result<(), TrainError> {
        if self.task.is_full_batch() {
            return Ok(());
        }
        if self.group.is_leader() || self.group.pipelined() {
            self.evaluated(epoch)?;
        }
        self.sink.doing("eval", epoch, None);
        // The first rank arrives last and waits only briefly.
        let pace = if self.group.is_leader() { Pace::Steady } else { Pace::Alone };
        Ok(self.group.barrier("eval", epoch, pace)?)
    }

    fn evaluated(&mut self, epoch: u64) -> Result<(), TrainError> {
        self.heartbeat.begin("eval", epoch, self.group.timeouts());
        self.emit_phase("eval", epoch, PhaseEdge::Start);
        let score = self.task.evaluate(&self.parameters, &mut self.heartbeat)?;
        self.heartbeat.answered();
        self.place.check()?;
        self.emit_phase("eval", epoch, PhaseEdge::Stop);
        if let Some(score) = score.clone() {
            let values = score.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
            self.sink.emit(EventKind::Step { step: self.plan.last_of(epoch), duration_ns: None, values });
        }
        if epoch < self.plan.epochs {
            return Ok(());
        }
        for (name, value) in score.into_iter().flatten() {
            // The loss of the last step has the name `loss`.
            self.metric(if name == "eval_loss" { name } else { name.trim_start_matches("eval_") }, value, "");
        }
        self.inference()
    }

    /// Emits a phase on the first rank only. Other ranks still report progress by heartbeats.
    fn emit_phase(&self, name: &'static str, index: u64, edge: PhaseEdge) {
        if self.group.is_leader() {
            self.sink.emit(EventKind::Phase { name: name.to_owned(), index, edge });
        }
    }

    /// Times inference for each requested batch size. If the manifest gives sizes, each size has a phase of its own.
    fn inference(&mut self) -> Result<(), TrainError> {
        let Some(usual) = self.task.inference_rows() else { return Ok(()) };
        let sizes = self.spec.inference.clone();
        self.metric("inference_batch_size", real_len(*sizes.first().unwrap_or(&usual)), "");
        let mut graphs = Vec::new();
        if sizes.is_empty() {
            graphs.extend(self.answers(usual)?);
        }
        for rows in sizes {
            self.emit_phase("inference_batch", wide(rows), PhaseEdge::Start);
            graphs.extend(self.answers(rows)?);
            self.emit_phase("inference_batch", wide(rows), PhaseEdge::Stop);
        }
        if !graphs.is_empty() {
            self.sink.emit(EventKind::Fact { name: GRAPH.to_owned(), value: graphs.join("; ").into() });
        }
        Ok(())
    }

    /// Times one batch after the other, each in a phase of its own, after a warm-up batch. Returns whether the batches
    /// were replayed, if the task tries that.
    fn answers(&mut self, rows: usize) -> Result<Option<String>, TrainError> {
        let may_replay = !self.group.pipelined();
        self.heartbeat.begin("inference", 1, self.group.timeouts());
        self.heartbeat.beat(rows);
        self.task.prepare_inference(0, rows)?;
        self.task.infer(&self.parameters, &self.heartbeat, may_replay)?;
        let (start_ns, mut answered_ns) = (self.sink.now_ns(), 0_u64);
        for done in 0.. {
            let all_ns = self.sink.now_ns().saturating_sub(start_ns);
            let mine = [f64::from(u8::from(enough(done, answered_ns, all_ns)))];
            let first = if self.group.pipelined() {
                let limit = self.heartbeat.wait_limit().unwrap_or_default();
                let said = self.group.broadcast_numbers("inference", done + 1, Pace::Within(limit), mine.to_vec())?;
                self.heartbeat.answered();
                said
            } else {
                mine.to_vec()
            };
            if first != [0.0] {
                break;
            }
            self.heartbeat.host();
            self.task.prepare_inference(done + 1, rows)?;
            let asked_ns = self.sink.now_ns();
            self.emit_phase("inference", done + 1, PhaseEdge::Start);
            self.heartbeat.begin("inference", done + 1, self.group.timeouts());
            self.heartbeat.beat(rows);
            self.task.infer(&self.parameters, &self.heartbeat, may_replay)?;
            self.emit_phase("inference", done + 1, PhaseEdge::Stop);
            answered_ns = answered_ns.saturating_add(self.sink.now_ns().saturating_sub(asked_ns));
        }
        Ok(self.task.inference_graph().map(|outcome| format!("batch {rows}: {outcome}")))
    }

    /// Reports the results of training. All ranks must have the same weights.
    pub(super) fn summary(&mut self) -> Result<(), TrainError> {
        self.summing(1, Pace::Steady);
        self.metric("loss", self.last_loss, "");
        if let Some(scaler) = self.scaler {
            self.metric("skipped_steps", real(scaler.skipped()), "");
        }
        let mut values = Vec::new();
        for parameter in &self.parameters {
            self.summing(1, Pace::reading(parameter.shape().num_elements()));
            values.push(read(parameter).map_err(|source| TrainError::read("the parameters", source))?);
        }
        self.place.check()?;
        for (name, value) in self.task.metrics(&values) {
            self.metric(name, value, "");
        }
        // Twice the limit of a wait between ranks, so that the ranks that wait name the missing one.
        let last = self.group.timeouts().limits().last;
        self.summing(2, Pace::Within(last.saturating_mul(2)));
        let Some((param_specs, values)) = self.task.whole_model(values)? else { return Ok(()) };
        let weights = weights_digest(&param_specs, &values);
        self.group.check_equal("weights", weights)?;
        if self.group.shards() > 1 {
            let name = format!("shard.{}", self.group.rank());
            self.sink.emit(EventKind::Digest { name, digest: self.seen });
        }
        if self.group.is_leader() {
            self.sink.emit(EventKind::Digest { name: "weights".to_owned(), digest: weights });
            self.sink.emit(EventKind::Digest { name: "data".to_owned(), digest: self.task.digest() });
        }
        Ok(())
    }

    /// Reports progress of the summary and its time limit. `index` is 1 while the rank reads its weights, 2 while it
    /// may wait for those of others.
    fn summing(&self, index: u64, pace: Pace) {
        self.sink.doing("summary", index, self.group.limit(pace, 1).filter(|_| self.group.ranks() > 1));
    }

    /// Reports the device's peak throughput, last of all. If it fails, for example because the GPU's memory is full,
    /// the run is not affected.
    pub(super) fn peak(&self) {
        self.emit_phase("peak", 1, PhaseEdge::Start);
        let found = caught(|| {
            let pace = if self.drained { Pace::Steady } else { Pace::First };
            self.sink.doing("peak", 1, self.group.limit(pace, 1).filter(|_| self.group.ranks() > 1));
            matmul_tflops(self.place, self.spec.precision, self.sink)
        });
        self.emit_phase("peak", 1, PhaseEdge::Stop);
        match found.and_then(|found| found.map_err(|error| error.to_string())) {
            Ok(peak) => self.metric("matmul_tflops", peak, "TFLOP/s"),
            Err(problem) => self.status(format!("`mfu` is not told, since large products failed: {problem}")),
        }
    }
}

/// Hashes every parameter in order: name, shape, and the bytes of its values. They are little-endian on every machine
/// that has CUDA.
fn weights_digest(param_specs: &[ParamSpec], values: &[TensorData]) -> Digest {
    let shape = |spec: &ParamSpec| spec.shape.iter().flat_map(|size| wide(*size).to_le_bytes()).collect();
    let shapes: Vec<Vec<u8>> = param_specs.iter().map(shape).collect();
    let pieces = param_specs.iter().zip(&shapes).zip(values);
    let pieces = pieces.flat_map(|((spec, shape), values)| [spec.name.as_bytes(), shape, values.as_bytes()]);
    Digest::of_pieces("ledger weights v1", &pieces.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::Init;

    #[test]
    fn the_digest_of_weights_is_that_of_names_shapes_and_bytes() {
        let param_specs =
            [ParamSpec::new("a", &[2, 1], Init::Constant(0.0)), ParamSpec::new("b", &[1], Init::Constant(0.0))];
        let digest = weights_digest(&param_specs, &[TensorData::from([1.0_f32, -2.5]), TensorData::from([0.5_f32])]);
        let pieces: [&[u8]; 6] = [
            b"a",
            &[2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
            &[0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0],
            b"b",
            &[1, 0, 0, 0, 0, 0, 0, 0],
            &[0, 0, 0, 0x3f],
        ];
        assert_eq!(digest, Digest::of_pieces("ledger weights v1", &pieces));
    }
}
