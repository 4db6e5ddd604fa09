//! Batch sizes with several GPUs: per GPU and in total.

use super::super::grid::Point;
use super::super::table::{LINE_SAMPLES, STAGED_MODELS};
use super::{Resolved, Resolver};

const EACH: &str = "training.batch_size";
const ALL: &str = "training.batch_global";
const MICRO: &str = "training.micro_batches";
/// The trainer's limit.
const LARGEST_BATCH: i64 = 65_536;

/// The GPUs or CPU ranks that share a step.
pub(super) struct Sharers {
    /// Number of sharers; 1 if the step is not shared.
    pub(super) count: i64,
    /// Number of parts of a batch. It is 1 for a pipeline, whose stages process the whole batch.
    pub(super) parts: i64,
    /// The key with their number.
    pub(super) key: &'static str,
    /// Their name in messages.
    pub(super) name: &'static str,
}

impl Sharers {
    /// Returns the GPUs, or on a CPU the threads that stand for GPUs.
    pub(super) fn of(out: &Resolved<'_>) -> Self {
        let (key, name) = match out.cell.text("hardware.device") {
            Some("cpu") => ("hardware.cpu_ranks", "ranks"),
            _ => ("hardware.gpus", "GPUs"),
        };
        let count = out.cell.int(key).unwrap_or(1);
        let parts = if out.cell.text("hardware.parallelism") == Some("pipeline") { 1 } else { count };
        Self { count, parts, key, name }
    }

    /// Whether their number is unknown because of a fault.
    pub(super) fn are_unknown(out: &Resolved<'_>) -> bool {
        ["hardware.gpus", "hardware.cpu_ranks", "hardware.device"].iter().any(|key| out.unknown.contains(key))
    }
}

impl Resolver<'_> {
    /// Checks the parallelism and adapts cells with one GPU.
    /// Several GPUs need a kind of parallelism. One GPU has none if other cells of the manifest use several; it keeps
    /// the micro-batches of a pipeline.
    pub(super) fn share_work(&self, point: &Point, out: &mut Resolved<'_>) {
        if Sharers::are_unknown(out) || out.unknown.contains("hardware.parallelism") {
            return;
        }
        let Sharers { count, key, .. } = Sharers::of(out);
        if count == 1 {
            out.cell.config.remove("hardware.cpu_ranks");
        }
        let parallelism = out.cell.text("hardware.parallelism").unwrap_or("none").to_owned();
        if count > 1 && parallelism == "none" {
            let staged = out.cell.text("model.name").is_some_and(|model| STAGED_MODELS.contains(&model));
            let ways = if self.draft.program.is_none() && !staged { "data" } else { "data or pipeline" };
            let rule = format!("{key} is {count}, but hardware.parallelism is none (it must be {ways})");
            out.fault(self.place(point, key), rule);
        } else if count == 1 && parallelism != "none" {
            let values = self.draft.given.iter().filter(|given| given.field.key == key).flat_map(|given| &given.items);
            let mut counts = values.filter_map(|item| item.value.as_ref()?.as_int());
            if counts.any(|count| count > 1) {
                out.cell.config.insert("hardware.parallelism".to_owned(), "none".into());
                out.cell.config.remove("training.learning_rate_scaling");
            } else {
                let rule =
                    format!("hardware.parallelism is {parallelism}, but {key} is not 2 or 4 (add {})", leaf(key));
                out.fault(self.place(point, "hardware.parallelism"), rule);
            }
        }
    }

    /// Computes the batch size per GPU from the global one, or vice versa.
    /// A cell with one GPU has no global batch size, so that equal work has an equal identity.
    pub(super) fn share_batch(&self, point: &Point, out: &mut Resolved<'_>) {
        if Sharers::are_unknown(out) || [EACH, ALL].iter().any(|key| out.unknown.contains(key)) {
            return;
        }
        let Sharers { parts, count, name, .. } = Sharers::of(out);
        // A program decides itself how pipeline stages use a batch.
        let count = if self.draft.program.is_some() { count } else { parts };
        let is_given = |key: &str| self.is_given(point, key);
        match (out.cell.int(ALL), is_given(EACH)) {
            (Some(_), true) => {
                let later = self.place(point, EACH).max(self.place(point, ALL));
                out.fault(later, "training has both batch_size and batch_global (give one of them)".to_owned());
            }
            (Some(all), false) if all % count != 0 => {
                let rule = format!("{ALL} is {all}, but {count} {name} share it (it must be a multiple of {count})");
                out.fault(self.place(point, ALL), rule);
                // The default is removed, so that no further faults are reported for it.
                out.cell.config.remove(EACH);
            }
            (Some(all), false) => {
                out.cell.config.insert(EACH.to_owned(), (all / count).into());
                if count == 1 {
                    out.cell.config.remove(ALL);
                }
            }
            (None, given) if count > 1 && self.draft.program.is_none() => {
                if !given && out.cell.text("model.name") == Some("linear") {
                    out.cell.config.insert(EACH.to_owned(), (LINE_SAMPLES / count).into());
                }
                if let Some(each) = out.cell.int(EACH) {
                    out.cell.config.insert(ALL.to_owned(), (each * count).into());
                }
            }
            (None, _) => {}
        }
    }

    /// Checks the batch size: `linear` trains on all its samples together, and generated data have a fixed number.
    pub(super) fn fit_batch(&self, point: &Point, model: &str, out: &mut Resolved<'_>) {
        let Some(each) = out.cell.int(EACH) else { return };
        let Sharers { parts: count, name, .. } = Sharers::of(out);
        let key_of_batch = if self.is_given(point, ALL) { ALL } else { EACH };
        if let Some(micro) = out.cell.int(MICRO).filter(|micro| *micro > each) {
            let given = self.is_given(point, MICRO);
            let (key, by) = if given { (MICRO, "") } else { ("hardware.parallelism", " by default") };
            let rule = format!(
                "{MICRO} is {micro}{by}, but {key_of_batch} is {each} (a micro-batch has at least one sample: give {each} micro-batches or fewer)"
            );
            out.fault(self.place(point, key), rule);
        }
        let all = each * count;
        let key = key_of_batch;
        let (found, of_all) = if key == ALL || count == 1 {
            (all.to_string(), all.to_string())
        } else {
            (format!("{each} on each of {count} {name}"), format!("{all} in all"))
        };
        if each > LARGEST_BATCH {
            let rule = format!("{key} is {found}, but the built-in trainer takes at most {LARGEST_BATCH} on each");
            out.fault(self.place(point, key), rule);
        } else if model == "linear" && all != LINE_SAMPLES {
            let use_this = if key == ALL { LINE_SAMPLES } else { LINE_SAMPLES / count };
            let rule = format!("{key} is {found}, but `linear` trains on its 4 samples together (use {use_this})");
            out.fault(self.place(point, key), rule);
        } else if let Some(samples) = out.cell.int("data.train_count").filter(|samples| all > *samples) {
            let what = if count == 1 { "a batch" } else { "the batch of all" };
            let of_all = if count == 1 { String::new() } else { format!(": {of_all}") };
            let rule =
                format!("{key} is {found}, but data.train_count is {samples} ({what} must fit into the data{of_all})");
            out.fault(self.place(point, key), rule);
        }
    }

    fn is_given(&self, point: &Point, key: &str) -> bool {
        let row = super::FIELDS.iter().position(|field| field.key == key);
        row.is_some_and(|row| point.fields[row].is_some())
    }
}

fn leaf(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}
