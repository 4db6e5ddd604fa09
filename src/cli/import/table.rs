//! `ledger import table`

use super::earlier::{Earlier, Replaced};
use crate::cli::context::Context;
use crate::cli::failure::{Failure, exit};
use crate::cli::output::say;
use crate::host::{clock, secrets};
use crate::interop::{Results, file_name, read_results};
use crate::record::{Digest, Sealed, Table, Value};
use crate::report::{columns, count, table_of};
use crate::store::{Added, Piece, StoreError};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::mpsc::sync_channel;

/// Import a table of results: each row becomes a run
///
/// A map (TOML) names the field or metric of each column, and its unit. A map can also compute values by formulas,
/// join another table, and mark rows that cannot be right. Such rows are imported as tainted, and `best` leaves
/// them out. `docs/import.md` lists every key. File, digest, line and cells are recorded with each run. Rows that
/// the ledger already holds stay unchanged.
///
/// The newest import of each row counts: results of an earlier import with another map are hidden. A row that was
/// hidden by hand stays hidden.
///
/// Example: ledger import table summary_power_v100.csv --map docs/examples/zeus/energy.toml
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The table: text with a header, separated by commas or as the map says
    file: PathBuf,

    /// The map that describes the columns
    #[arg(long, value_name = "MAP")]
    map: PathBuf,

    /// The device that was measured, instead of the one in the map
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    device: Option<String>,

    /// Also count the results of earlier imports of the same rows
    #[arg(long)]
    keep_earlier: bool,

    /// Hide the rows of an earlier version of this file (same name, other content) that this version has too
    #[arg(long, conflicts_with = "keep_earlier")]
    replace: bool,
}

/// The number of rows per piece. Three pieces are in memory at a time: one is made, one waits, and one is written.
const AT_ONCE: usize = 3_000;

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let store = context.store();
    let earlier = store.if_there(Earlier::read)?.unwrap_or_default();
    let source = format!("{} by {}", file_name(&args.file), file_name(&args.map));
    let now = clock::unix_ms();
    let (sender, receiver) = sync_channel::<(Results, Result<Piece, StoreError>)>(1);
    let (of_all, taken) = std::thread::scope(|scope| -> Result<_, Failure> {
        let earlier = &earlier;
        let writer = scope.spawn(move || {
            let mut taken = Taken::default();
            let mut importer = store.importer(now);
            while let Some((mut results, piece)) = importer.next_of(&receiver)? {
                let (sealed, added) = importer.add(piece?)?;
                results.sealed = sealed;
                taken.replaced.add(earlier.replaced(&results, &added));
                taken.count(&results, &added);
            }
            // If the import is interrupted after this point, the same command completes it.
            importer.finish()?;
            Ok::<_, StoreError>(taken)
        });
        let (mut secrets, mut copies, mut of_all) = (Secrets::default(), Copies::default(), None);
        let mut send = |results: &mut Results| -> Result<(), Failure> {
            secrets.redact(results);
            copies.see(results);
            let without_rows = results.clone_without_rows();
            if of_all.is_none() {
                tell(args, results);
                of_all = Some(without_rows.clone());
            }
            // The writer fails if a row cannot be encoded, so that its transaction is not committed.
            let piece = Piece::of(std::mem::take(&mut results.sealed));
            // A writer that ended returns its own error.
            sender.send((without_rows, piece)).map_err(|_| Failure::new(exit::NO, "the ledger could not be written"))
        };
        let read = read_results(&args.file, &args.map, args.device.as_deref(), AT_ONCE, &mut send);
        drop(sender);
        let taken = writer.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        read?;
        secrets.tell();
        copies.tell();
        Ok((of_all, taken))
    })?;
    let Some(results) = of_all else { return Ok(exit::NO) };
    let Taken { models, mut replaced } = taken;
    if args.keep_earlier {
        replaced = replaced.beside();
    } else if args.replace {
        replaced.replace_versions();
    }
    store.write_many(|writer| replaced.write(writer, &source, now))?;
    let beside = replaced.beside_versions();
    if beside > 0 && !args.keep_earlier {
        say(&format!(
            "warning: {} of an earlier version of {} {} beside this version (--replace hides them)",
            count(beside, "row"),
            file_name(&args.file),
            if beside == 1 { "counts" } else { "count" },
        ));
    }
    let (shared, files) = &replaced.shared;
    if *shared > 0 {
        let files: Vec<String> = files.iter().map(|file| format!("`{file}`")).collect();
        say(&format!(
            "note: {} {} runs of {} (if this file describes another device, import it again with --device NAME)",
            count(*shared, "new row"),
            if *shared == 1 { "repeats" } else { "repeat" },
            files.join(", ")
        ));
    }
    context.answer(|| text(args, &results, &models, &replaced), || value(&results, &models, &replaced))?;
    Ok(if models.is_empty() { exit::NO } else { exit::YES })
}

/// Reports the notes and the rows left out, before the first row is imported.
fn tell(args: &Args, results: &Results) {
    for note in &results.notes {
        say(&format!("note: {}: {note}", args.map.display()));
    }
    if results.left_out > 0 {
        let verb = if results.left_out == 1 { "does" } else { "do" };
        say(&format!("note: {} {verb} not meet the map's condition", count(results.left_out, "row")));
    }
    if results.alone > 0 {
        say(&format!(
            "note: {} of `{}` {} no partner in the joined table",
            count(results.alone, "row"),
            args.file.display(),
            if results.alone == 1 { "has" } else { "have" }
        ));
    }
}

/// The rows imported so far.
#[derive(Default)]
struct Taken {
    models: BTreeMap<String, Model>,
    replaced: Replaced,
}

/// Rows that repeat an earlier row of the same table, in every cell that the map takes.
#[derive(Default)]
struct Copies {
    seen: BTreeSet<Digest>,
    lines: Vec<i64>,
    count: usize,
}

impl Copies {
    fn see(&mut self, results: &Results) {
        for sealed in &results.sealed {
            let Sealed { run, attempt, .. } = sealed;
            let metrics =
                attempt.metrics.iter().map(|(name, metric)| format!("{name} {:?}", metric.value.map(f64::to_bits)));
            let text =
                format!("{} {} {} {:?}", run.id, attempt.started_unix_ms, attempt.wall_ns, metrics.collect::<Vec<_>>());
            if !self.seen.insert(Digest::of(text.as_bytes())) {
                self.count += 1;
                let import = attempt.facts.get("import").and_then(Value::as_table);
                let line = import.and_then(|import| import.get("line")).and_then(Value::as_int);
                self.lines.extend(line.filter(|_| self.lines.len() < 5));
            }
        }
    }

    fn tell(&self) {
        if self.count == 0 {
            return;
        }
        let lines: Vec<String> = self.lines.iter().map(i64::to_string).collect();
        let more = if self.count > lines.len() { " and others" } else { "" };
        say(&format!(
            "note: {} the cells of an earlier row, and each counts as a sample: line {}{more} (remove copies, or map `seed`)",
            if self.count == 1 { "1 row repeats".to_owned() } else { format!("{} rows repeat", self.count) },
            lines.join(", "),
        ));
    }
}

/// The secrets found so far.
#[derive(Default)]
struct Secrets {
    /// The number of rows whose cells contained secrets.
    redacted: usize,
    /// Fields of the run identity that seem to contain a secret.
    fields: BTreeSet<String>,
}

impl Secrets {
    /// Removes secrets from the recorded cells.
    fn redact(&mut self, results: &mut Results) {
        for sealed in &mut results.sealed {
            self.fields.extend(secrets::places(sealed.run.config()));
            if let Some(import) = sealed.attempt.facts.get_mut("import") {
                let clean = secrets::cleaned(import, &secrets::redacted);
                self.redacted += usize::from(clean != *import);
                *import = clean;
            }
        }
    }

    /// Reports that secrets were removed, and warns of those that became a part of a run's identity.
    fn tell(&self) {
        if self.redacted > 0 {
            let rows = count(self.redacted, "row");
            say(&format!("note: secrets were removed from the recorded cells of {rows}"));
        }
        for field in &self.fields {
            say(&format!("warning: `{field}` may hold a secret and is recorded unchanged (leave it out of the map)"));
        }
    }
}

impl Taken {
    fn count(&mut self, results: &Results, added: &[Added]) {
        for (sealed, added) in results.sealed.iter().zip(added) {
            let model = self.models.entry(sealed.run.model().to_owned()).or_default();
            match added {
                Added::New(_) => model.new += 1,
                Added::Known(_) | Added::Restored(_) => model.known += 1,
            }
            model.tainted += usize::from(!sealed.attempt.taints().is_empty());
        }
    }
}

/// The numbers of a model's rows.
#[derive(Default)]
struct Model {
    new: usize,
    known: usize,
    tainted: usize,
}

fn text(args: &Args, results: &Results, models: &BTreeMap<String, Model>, replaced: &Replaced) -> String {
    let rows = models.iter().map(|(name, model)| {
        vec![name.clone(), model.new.to_string(), model.known.to_string(), model.tainted.to_string()]
    });
    let mut text = columns(&["MODEL", ">NEW", ">KNOWN", ">TAINTED"], rows);
    for (reason, attempts) in &results.taints {
        text.push_str(&format!("tainted: {} because {reason}\n", count(*attempts, "attempt")));
    }
    if replaced.rows > 0 {
        let file = args.file.display();
        text.push_str(&format!(
            "replaces {} of an earlier import of the same content (hidden; to count them again, import {file} with the earlier map)\n",
            count(replaced.rows, "row")
        ));
    }
    if replaced.version_rows > 0 {
        text.push_str(&format!(
            "replaces {} of an earlier version of {} (hidden; `ledger hide --undo ID` counts one again)\n",
            count(replaced.version_rows, "row"),
            args.file.display()
        ));
    }
    if replaced.kept_hidden() > 0 {
        let (kept, are) = (replaced.kept_hidden(), if replaced.kept_hidden() == 1 { "stays" } else { "stay" });
        text.push_str(&format!(
            "{} {are} hidden, since an earlier result of the same row was hidden by hand (`ledger hide --undo ID` counts one)\n",
            count(kept, "new row")
        ));
    }
    if replaced.hidden_before > 0 {
        text.push_str(&format!(
            "{} hidden before, and not counted now (`ledger ls --hidden` lists them, `ledger hide --undo ID` counts one again)\n",
            match replaced.hidden_before {
                1 => "1 known row was".to_owned(),
                known => format!("{known} known rows were"),
            }
        ));
    }
    text
}

fn value(results: &Results, models: &BTreeMap<String, Model>, replaced: &Replaced) -> Table {
    let models = models.iter().map(|(name, model)| {
        Value::Table(table_of([
            ("model", name.as_str().into()),
            ("new", model.new.into()),
            ("known", model.known.into()),
            ("tainted", model.tainted.into()),
        ]))
    });
    let files = results.sources.iter().map(|source| {
        Value::Table(table_of([
            ("file", source.path.display().to_string().into()),
            ("digest", source.digest.to_string().into()),
            ("rows", source.rows.into()),
        ]))
    });
    let (hidden, shown) = replaced.counts();
    let taints: Table = results.taints.iter().map(|(reason, count)| (reason.clone(), (*count).into())).collect();
    table_of([
        ("name", results.name.as_str().into()),
        ("models", Value::List(models.collect())),
        ("files", Value::List(files.collect())),
        ("left_out", results.left_out.into()),
        ("without_partner", results.alone.into()),
        ("taints", taints.into()),
        ("replaced", hidden.into()),
        ("restored", shown.into()),
        ("hidden_before", replaced.hidden_before.into()),
        ("kept_hidden", replaced.kept_hidden().into()),
        ("repeats_of_other_files", replaced.shared.0.into()),
        ("beside_earlier_versions", replaced.beside_versions().into()),
        ("notes", results.notes.clone().into()),
    ])
}
