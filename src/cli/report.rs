//! `ledger report`

mod cells;
mod folder;
mod models;

use super::context::{self, Context};
use super::failure::{Failure, exit};
use super::output::say;
use super::picture::failed;
use super::plot::{Head, curved};
use super::recorded::energy_of;
use super::selection::{Ask, Found, Selected, Selection, decoded, in_parallel, read_trials, read_trials_where};
use crate::analysis::{self, Asked, Trial, unify_by_model};
use crate::manifest::{self, Manifest};
use crate::record::{AttemptId, Digest, GroupId, RunId, ValueKey, Why};
use crate::report::{
    self, AttemptNames, AttemptOf, AttemptPage, AttemptTable, Figure, ModelOf, Over, ReportOf, RunOf, count, table_of,
};
use crate::store::{Reader, Store, StoreError};
use cells::{CellId, Cells};
use folder::Folder;
use models::Judged;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::mpsc::sync_channel;

/// Write a report: web pages, Markdown for a paper's appendix, and the data of each figure
///
/// The folder works offline, without a server and without scripts. `index.html` ranks the configurations of each
/// model, and shows figures and every attempt. Each number links to the page of its run. `report.md` has the same
/// content for a paper. `figures` and `data` hold the plots (SVG) and their data (CSV). The folder is written
/// beside its place and moved there when it is complete.
///
/// Example: ledger report manifests/quickstart.toml -o quickstart-report
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Manifests: report the attempts of their runs, on any machine
    #[arg(value_name = "MANIFEST", conflicts_with_all = ["model", "all"], required_unless_present_any = ["model", "all"])]
    manifests: Vec<PathBuf>,

    /// Report every attempt of this model
    #[arg(long, value_name = "M", conflicts_with = "all")]
    model: Option<String>,

    /// Report every attempt of the ledger
    #[arg(long)]
    all: bool,

    /// The metrics to rank by; `score:maximize` states the better direction of a custom metric that was no objective
    /// [default: the objective, and the best known of quality, energy and time]
    #[arg(long, value_name = "X,Y,…", value_delimiter = ',')]
    metrics: Vec<String>,

    #[command(flatten)]
    selection: Selection,

    /// The title of the report
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,

    /// The folder, which must not exist yet or must be an unchanged report
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,

    /// Replace a folder that is not a report, or that has other files
    #[arg(long)]
    force: bool,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let manifests: Vec<Manifest> = args.manifests.iter().map(|path| manifest::load(path)).collect::<Result<_, _>>()?;
    let cells = (!manifests.is_empty()).then(|| Cells::of(&manifests));
    let mut folder = Folder::new(&args.output, args.force, context.store_as_it_is().dir())?;
    let store = context.store();
    let mut gathered = Gathered::default();
    let models = match &args.model {
        Some(model) => vec![model.clone()],
        None => store.if_there(|reader| reader.models())?.unwrap_or_default(),
    };
    let judged = Judged::new(&args.metrics, &manifests, &models, store)?;
    let mut held = None;
    if let Some(cells) = &cells {
        let is_meant = |trial: &Trial| !cells.of_run(&trial.run).is_empty();
        let trials = read_trials_where(store, None, &is_meant)?;
        held = Some(trials.iter().flat_map(|trial| cells.of_run(&trial.run)).collect::<BTreeSet<CellId>>());
        gathered.add_all(args.selection.select_of(trials)?, &judged, Some(cells), store)?;
    } else if args.selection.is_everything() || args.model.is_some() {
        for model in models {
            let ask =
                |names: &Selected<()>| Ok(Ask { fields: names.varied(), metrics: judged.names(), of_others: false });
            match args.selection.find(context, &model, &ask)? {
                Found::Briefs(selected) => gathered.add(&model, selected, &judged, store)?,
                Found::Records(selected) => gathered.add(&model, selected, &judged, store)?,
            }
        }
    } else {
        // Conditions may use the names of all models.
        gathered.add_all(args.selection.select_of(read_trials(store, None)?)?, &judged, None, store)?;
    }
    if gathered.rows.is_empty() {
        return Err(Failure::new(exit::NO, none_meant(args, held.as_ref())));
    }
    let planned = cells.as_ref().zip(held).map(|(cells, held)| Planned {
        all: cells.len(),
        held: held.len(),
        shown: gathered.cells.len(),
    });
    let (started, tags, head) =
        store.read(|reader| Ok((reader.started()?, context::tags(reader)?, reader.log_head()?)))?;
    gathered.rows.sort_by_key(|row| (Reverse(started.get(&row.id).copied().unwrap_or_default()), row.id));
    let paged = gathered.paged();
    let moment =
        |row: Option<&Meant>| row.and_then(|row| started.get(&row.id).copied()).map_or_else(String::new, report::when);
    let span = (moment(gathered.rows.last()), moment(gathered.rows.first()));
    let all_runs = gathered.rows.iter().map(|row| row.run).collect::<BTreeSet<RunId>>().len();
    let title = args.title.clone().unwrap_or_else(|| title(args, &manifests));
    let table = attempts(&gathered, (&title, &tags, &paged), &mut folder, store)?;
    let of = ReportOf {
        about: about(&manifests, (gathered.rows.len(), all_runs, span), args.selection.words(), planned.as_ref()),
        title,
        models: std::mem::take(&mut gathered.models),
        pages: gathered.rows.iter().filter(|row| paged.contains(&row.run)).map(|row| (row.id, row.run)).collect(),
        runs: paged,
        all: gathered.rows.len(),
        all_runs,
        table,
        head,
    };
    for (path, content) in of.files().map_err(failed)? {
        folder.write(&path, &content)?;
    }
    run_pages(&gathered.rows, &of.runs, &tags, &mut folder, store)?;
    folder.finish()?;
    let index = args.output.join("index.html");
    context.answer(
        || format!("{} ({}, {})\n", index.display(), count(all_runs, "run"), count(of.all, "attempt")),
        || {
            table_of([
                ("report", index.display().to_string().into()),
                ("runs", all_runs.into()),
                ("attempts", of.all.into()),
            ])
        },
    )?;
    Ok(exit::YES)
}

/// The largest number of runs that have a page, in addition to those of rankings: the newest.
const PAGES: usize = 1000;
/// The number of records that are read at a time; as many are being written meanwhile.
const SLICE: usize = 2048;
/// The number of runs whose pages are made at a time.
const PAGES_AT_ONCE: usize = 16;

/// A selected attempt.
struct Meant {
    id: AttemptId,
    run: RunId,
    group: GroupId,
}

/// The content of a report so far, and the attempts that it includes.
#[derive(Default)]
struct Gathered {
    rows: Vec<Meant>,
    models: Vec<ModelOf>,
    /// The fields in which runs of a model differ.
    differing: BTreeSet<String>,
    /// The values of all other fields, for the models so far.
    constant: BTreeMap<String, ValueKey>,
    /// The cells of manifests that have an attempt.
    cells: BTreeSet<CellId>,
}

impl Gathered {
    /// Adds attempts of several models, one model after the other.
    fn add_all(
        &mut self,
        selected: Selected,
        judged: &Judged,
        cells: Option<&Cells>,
        store: &Store,
    ) -> Result<(), Failure> {
        let mut by_model: BTreeMap<String, Vec<Trial>> = BTreeMap::new();
        for trial in selected.trials {
            by_model.entry(trial.run.model().to_owned()).or_default().push(trial);
        }
        for (model, trials) in by_model {
            let (names, admitted) = (selected.names.clone(), selected.admitted.clone());
            let of_model = Selected { trials, others: Vec::new(), names, admitted };
            if let Some(cells) = cells {
                let is_hidden = |trial: &&Trial| trial.is_hidden && !of_model.admitted.contains(&Why::Hidden);
                let shown = of_model.trials.iter().filter(|trial| !is_hidden(trial));
                self.cells.extend(shown.flat_map(|trial| cells.of_run(&trial.run)));
            }
            self.add(&model, of_model, judged, store)?;
        }
        Ok(())
    }

    /// Adds the attempts of a model.
    fn add<T: Asked>(
        &mut self,
        model: &str,
        mut selected: Selected<T>,
        judged: &Judged,
        store: &Store,
    ) -> Result<(), Failure> {
        // Attempts that were hidden by hand are not shown, unless they are asked for.
        selected.trials.retain(|trial| !trial.is_hidden() || selected.admitted.contains(&Why::Hidden));
        if selected.trials.is_empty() {
            return Ok(());
        }
        let of_model = models::model((self.models.len(), model), judged, &selected, store)?;
        self.models.push(of_model);
        let row = |trial: &T| Meant { id: trial.id(), run: trial.run_id(), group: trial.group() };
        self.rows.extend(selected.trials.iter().map(row));
        let all: Vec<&T> = selected.trials.iter().collect();
        self.differing.extend(analysis::differing_among(&all, &selected.names));
        for name in selected.varied() {
            let Some(value) = all.first().and_then(|trial| trial.field(&name)) else { continue };
            let key = value.into_key();
            if self.constant.entry(name.clone()).or_insert_with(|| key.clone()) != &key {
                self.differing.insert(name);
            }
        }
        Ok(())
    }

    /// Returns the runs that have a page.
    fn paged(&self) -> BTreeSet<RunId> {
        let places = self.models.iter().flat_map(|model| &model.rankings).flat_map(|(ranking, _)| &ranking.places);
        let behind: BTreeSet<AttemptId> =
            places.flat_map(|place| &place.contender.measured).map(|measured| measured.attempt).collect();
        let mut paged: BTreeSet<RunId> =
            self.rows.iter().filter(|row| behind.contains(&row.id)).map(|row| row.run).collect();
        let mut newest: BTreeSet<RunId> = BTreeSet::new();
        for row in &self.rows {
            if newest.len() == PAGES {
                break;
            }
            newest.insert(row.run);
        }
        paged.extend(newest);
        paged
    }
}

/// Writes the CSV of all attempts and the pages of their table. Returns the first page.
fn attempts(
    gathered: &Gathered,
    (title, tags, paged): (&str, &BTreeMap<Digest, Vec<String>>, &BTreeSet<RunId>),
    folder: &mut Folder,
    store: &Store,
) -> Result<String, Failure> {
    const CSV: &str = "data/attempts.csv";
    let ids: Vec<AttemptId> = gathered.rows.iter().map(|row| row.id).collect();
    let mut names = AttemptNames::default();
    for slice in ids.chunks(SLICE) {
        records(store, slice)?.iter().for_each(|trial| names.see(trial));
    }
    let ranked = gathered.models.iter().flat_map(|model| &model.rankings);
    let ranked: Vec<String> = ranked.map(|(ranking, _)| ranking.metric.clone()).collect();
    let differing = gathered.differing.iter().cloned().collect();
    let mut table = AttemptTable::new(title, &names, &ranked, differing, tags, paged);
    folder.append(CSV, names.csv_head().as_bytes())?;
    let mut first = String::new();
    let mut put = |table: &AttemptTable<'_>, page: AttemptPage, folder: &mut Folder| {
        if page.number == 1 {
            first = page.html;
            return Ok(());
        }
        let (path, content) = table.file(&page);
        folder.write(&path, &content)
    };
    let (sender, receiver) = sync_channel(0);
    std::thread::scope(|scope| -> Result<(), Failure> {
        let ids = &ids;
        scope.spawn(move || ids.chunks(SLICE).try_for_each(|slice| sender.send(records(store, slice))));
        for trials in receiver {
            let mut lines = String::new();
            for trial in &trials? {
                lines.push_str(&names.csv_line(trial));
                if let Some(page) = table.push(trial) {
                    put(&table, page, folder)?;
                }
            }
            folder.append(CSV, lines.as_bytes())?;
        }
        Ok(())
    })?;
    if let Some(page) = table.finish() {
        put(&table, page, folder)?;
    }
    Ok(first)
}

/// Reads these attempts from the records, with each metric in one unit.
fn records(store: &Store, ids: &[AttemptId]) -> Result<Vec<Trial>, StoreError> {
    let mut trials = store.read(|reader| decoded(reader, ids, &reader.hidden()?))?;
    unify_by_model(&mut trials);
    Ok(trials)
}

/// Writes the pages of runs.
fn run_pages(
    rows: &[Meant],
    paged: &BTreeSet<RunId>,
    tags: &BTreeMap<Digest, Vec<String>>,
    folder: &mut Folder,
    store: &Store,
) -> Result<(), Failure> {
    let mut runs: BTreeMap<RunId, Vec<&Meant>> = BTreeMap::new();
    let mut groups: BTreeMap<GroupId, BTreeSet<RunId>> = BTreeMap::new();
    for row in rows.iter().filter(|row| paged.contains(&row.run)) {
        runs.entry(row.run).or_default().push(row);
        groups.entry(row.group).or_default().insert(row.run);
    }
    let groups: BTreeMap<GroupId, Vec<RunId>> =
        groups.into_iter().map(|(group, runs)| (group, runs.into_iter().collect())).collect();
    let runs: Vec<(RunId, Vec<&Meant>)> = runs.into_iter().collect();
    for some in runs.chunks(PAGES_AT_ONCE) {
        let pages = store.read(|reader| {
            let hidden = reader.hidden()?;
            let page = |(id, rows): &(RunId, Vec<&Meant>)| {
                let ids: Vec<AttemptId> = rows.iter().map(|row| row.id).collect();
                let mut trials = decoded(reader, &ids, &hidden)?;
                unify_by_model(&mut trials);
                let (Some(first), Some(row)) = (trials.first(), rows.first()) else { return Ok(None) };
                let mut attempts = Vec::new();
                for trial in &trials {
                    let figures = figures(reader, trial)?;
                    attempts.push(AttemptOf { id: trial.id, attempt: trial.attempt.clone(), figures });
                }
                let digests: Vec<Digest> = trials.iter().map(|trial| trial.id.0).chain([id.0]).collect();
                let mut notes = Vec::new();
                for digest in &digests {
                    notes.extend(reader.notes(*digest)?);
                }
                let tags = digests.iter().filter_map(|digest| tags.get(digest)).flatten().cloned().collect();
                let repetitions = groups.get(&row.group).map_or(&[] as &[RunId], Vec::as_slice);
                Ok(Some((*id, report::run_page(&RunOf { run: &first.run, attempts, tags, notes, repetitions }))))
            };
            in_parallel(some, &page)
        })?;
        for (id, page) in pages.into_iter().flatten() {
            folder.write(&report::page_of(&id), page.map_err(failed)?.as_bytes())?;
        }
    }
    Ok(())
}

/// Returns the figures of an attempt's curves and energy, as far as it has them.
fn figures(reader: &Reader<'_>, trial: &Trial) -> Result<Vec<(String, Figure)>, StoreError> {
    let mut figures = Vec::new();
    if trial.attempt.series.is_empty() {
        return Ok(figures);
    }
    let Some((sealed, energy)) = energy_of(reader, trial.id)? else { return Ok(figures) };
    // A figure that cannot be drawn is left out: the page has the numbers and the reason.
    let head = Head { id: trial.id, run: sealed.run, attempt: sealed.attempt, living: None };
    let lines = curved(reader, &head, None)?;
    figures.extend(report::curves(&[lines], Over::Own).ok().map(|one| ("curves".to_owned(), one)));
    figures.extend(report::energy_figure(&[energy]).ok().map(|one| ("energy".to_owned(), one)));
    Ok(figures)
}

/// The number of cells in the manifests, of those with an attempt in the ledger, and of those shown.
struct Planned {
    all: usize,
    held: usize,
    shown: usize,
}

fn none_meant(args: &Args, held: Option<&BTreeSet<CellId>>) -> String {
    match (held, args.selection.words()) {
        (Some(held), _) if held.is_empty() => {
            "the ledger holds no attempt of a cell of the manifest (`ledger ls` lists attempts)".to_owned()
        }
        (_, Some(words)) => format!("no attempt of the ledger is selected: the selection is those {words}"),
        _ => "no attempt of the ledger is selected (`ledger ls` lists attempts)".to_owned(),
    }
}

fn title(args: &Args, manifests: &[Manifest]) -> String {
    match (&args.model, manifests) {
        (Some(model), _) => format!("Runs of {model}"),
        (None, []) => "All runs of the ledger".to_owned(),
        (None, many) => many.iter().map(|one| one.name.as_str()).collect::<Vec<_>>().join(", "),
    }
}

fn about(
    manifests: &[Manifest],
    (attempts, runs, (oldest, newest)): (usize, usize, (String, String)),
    selection: Option<String>,
    planned: Option<&Planned>,
) -> Vec<String> {
    let mut about: Vec<String> = manifests.iter().filter_map(|manifest| manifest.description.clone()).collect();
    about.push(format!(
        "{} of {}, from {oldest} to {newest} UTC. Configurations are ranked by the mean over their repetitions, which differ only in the seed; ± is the half-width of the mean's 95% interval.",
        count(attempts, "attempt"),
        count(runs, "run"),
    ));
    about.extend(selection.map(|words| format!("Selected: attempts {words}.")));
    if let Some(Planned { all, held, shown }) = planned {
        let cells = count(*all, "cell");
        if held < all {
            let lacking = all - held;
            say(&format!("note: the ledger holds no attempt of {lacking} of {cells} of the manifest"));
            about.push(format!("Without an attempt: {lacking} of {cells} that were planned."));
        }
        if shown < held {
            let hidden = held - shown;
            say(&format!(
                "note: left out: {hidden} of {cells} of the manifest (none of their attempts is selected and not hidden)"
            ));
            about.push(format!(
                "Left out: {hidden} of {cells} that were planned (none of their attempts is selected and not hidden)."
            ));
        }
    }
    about
}
