//! The tables of the ledger file. Their names and types are part of format 1.

use redb::TableDefinition;

pub(super) type Id = [u8; 32];

/// `format`, `log_head`, `indexes`.
pub(super) const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
/// Run id to run.
pub(super) const RUNS: TableDefinition<Id, &[u8]> = TableDefinition::new("runs");
/// Attempt id to attempt.
pub(super) const ATTEMPTS: TableDefinition<Id, &[u8]> = TableDefinition::new("attempts");
/// Attempt id and series name to chunk; the empty name holds the phases.
pub(super) const CHUNKS: TableDefinition<(Id, &str), &[u8]> = TableDefinition::new("chunks");
/// Position to log entry, from 0.
pub(super) const LOG: TableDefinition<u64, &[u8]> = TableDefinition::new("log");

/// Digest of a text that runs were made from to the stored text. Older ledgers get this table with their next change.
pub(super) const SOURCES: TableDefinition<Id, &[u8]> = TableDefinition::new("sources");

// Everything below can be rebuilt from the tables above.

/// Run and attempt to the code of the attempt's outcome.
pub(super) const BY_RUN: TableDefinition<(Id, Id), u8> = TableDefinition::new("by_run");
/// Nonce to attempt.
pub(super) const NONCES: TableDefinition<[u8; 16], Id> = TableDefinition::new("nonces");
/// Start time and attempt to listing row.
pub(super) const RECENT: TableDefinition<(i64, Id), &[u8]> = TableDefinition::new("recent");
/// Group and attempt, concatenated, to the names and bits of the attempt's metrics. Attempts that do not count are left
/// out. Keys here and below are bytes, because most of the work of a merge is comparing them.
pub(super) const VALUES: TableDefinition<&[u8], &[u8]> = TableDefinition::new("measured");
/// Model, metric, ordered mean and group, as `place` joins them, to the number of values in the mean.
pub(super) const RANKING: TableDefinition<&[u8], u32> = TableDefinition::new("places");
/// The form of [`VALUES`] in versions 1 and 2 of the indexes.
pub(super) const OLD_VALUES: TableDefinition<(Id, &str, Id), u64> = TableDefinition::new("values");
/// The form of [`RANKING`] in versions 1 and 2 of the indexes.
pub(super) const OLD_RANKING: TableDefinition<(&str, &str, u64, Id), u32> = TableDefinition::new("ranking");
/// Model, standing and attempt to the reason of the standing: 0 counts, 1 failed, 2 interrupted, 3 tainted, 4 hidden.
pub(super) const BY_MODEL: TableDefinition<(&str, u8, Id), &str> = TableDefinition::new("by_model");
/// Model, metric and attempt to kind (0 missing, 1 not finite, 2 tainted) and reason, for attempts that count but not
/// in this metric.
pub(super) const UNMEASURED: TableDefinition<(&str, &str, Id), (u8, &str)> = TableDefinition::new("unmeasured");
/// Model and metric to the number of attempts that count. The empty metric has the number of all that count.
pub(super) const TOTALS: TableDefinition<(&str, &str), u64> = TableDefinition::new("totals");
/// Model and attempt to the row that conditions are evaluated on: digest of its names, run, group, replicate, values.
pub(super) const BRIEFS: TableDefinition<(&str, Id), &[u8]> = TableDefinition::new("briefs");
/// Model and digest of names to the names.
pub(super) const SHAPES: TableDefinition<(&str, Id), &[u8]> = TableDefinition::new("names");
/// The form of [`SHAPES`] in versions 3 to 7 of the indexes: digest of names to the names, for all models together.
pub(super) const OLD_SHAPES: TableDefinition<Id, &[u8]> = TableDefinition::new("shapes");
/// Model, metric and unit of every attempt, for its own metrics and for known metrics in an unusual unit.
pub(super) const UNITS: TableDefinition<(&str, &str, &str), ()> = TableDefinition::new("units");
/// Group to one of its runs.
pub(super) const GROUPS: TableDefinition<Id, Id> = TableDefinition::new("groups");
/// Tag to target: kind byte (0 run, 1 attempt) and digest.
pub(super) const TAGS: TableDefinition<&str, (u8, Id)> = TableDefinition::new("tags");
/// Target and log position to note.
pub(super) const NOTES: TableDefinition<(Id, u64), &str> = TableDefinition::new("notes");
/// The hidden runs and attempts.
pub(super) const HIDDEN: TableDefinition<Id, ()> = TableDefinition::new("hidden");
