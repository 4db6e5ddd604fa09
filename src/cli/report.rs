//! `ledger report`

mod cells;
mod folder;
mod models;

use super::context::{Context, say};
use super::failure::{Failure, exit};
use super::picture::failed;
use super::plot::{Head, curved, energy_state};
use super::selection::{Selection, read_trials};
use crate::analysis::{Trial, portions};
use crate::manifest::{self, Manifest};
use crate::record::{AttemptId, Digest, RunId, Target};
use crate::report::{self, AttemptOf, EnergyOf, Figure, Over, ReportOf, RunOf, count, table_of};
use crate::store::{Reader, StoreError};
use cells::{CellId, Cells};
use folder::Folder;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Write a report: pages for a browser, Markdown for a paper's appendix, and the numbers behind each figure
///
/// The folder needs no network and no server, and works without scripts: `index.html` ranks the configurations of each model, shows figures and every
/// attempt, and each number leads to the page of the run behind it. `report.md` says the same for a paper; `figures` and `data` hold its pictures
/// (SVG) and their numbers (CSV). It is written beside its place and moved there when it is whole.
///
/// Example: ledger report manifests/quickstart.toml -o quickstart-report
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Manifests: the attempts of their runs, on whatever machine they were executed
    #[arg(value_name = "MANIFEST", conflicts_with_all = ["model", "all"], required_unless_present_any = ["model", "all"])]
    manifests: Vec<PathBuf>,

    /// Every attempt of that model
    #[arg(long, value_name = "M", conflicts_with = "all")]
    model: Option<String>,

    /// Every attempt of the ledger
    #[arg(long)]
    all: bool,

    /// The metrics to rank by, of your own with the way they are better: `score:maximize` [default: the best known of quality, energy and time]
    #[arg(long, value_name = "X,Y,…", value_delimiter = ',')]
    metrics: Vec<String>,

    #[command(flatten)]
    selection: Selection,

    /// What stands above it
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,

    /// The folder, which must not exist yet, or be a report in which nothing was changed
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,

    /// Replace a folder that is no report, or holds files that are not of it
    #[arg(long)]
    force: bool,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let manifests: Vec<Manifest> = args.manifests.iter().map(|path| manifest::load(path)).collect::<Result<_, _>>()?;
    let cells = (!manifests.is_empty()).then(|| Cells::of(&manifests));
    let mut folder = Folder::new(&args.output, args.force, context.store_as_it_is().dir())?;
    let store = context.store();
    let trials = read_trials(store, args.model.as_deref())?;
    let held = cells.as_ref().map(|cells| of_cells(cells, &trials));
    let mut selected = args.selection.select_of(trials)?;
    if let Some(cells) = &cells {
        selected.trials.retain(|trial| !cells.of_run(&trial.run).is_empty());
    }
    // What was taken out by hand is not shown, unless it is asked for.
    selected.trials.retain(|trial| !trial.is_hidden || selected.admitted.contains(&crate::record::Why::Hidden));
    if selected.trials.is_empty() {
        return Err(Failure::new(exit::NO, none_meant(args, held.as_ref())));
    }
    let planned = cells.as_ref().zip(held).map(|(cells, held)| Planned {
        all: cells.len(),
        held: held.len(),
        shown: of_cells(cells, &selected.trials).len(),
    });
    selected.trials.sort_by_key(|trial| (std::cmp::Reverse(trial.attempt.started_unix_ms), trial.id));
    let (tags, head) = store.read(|reader| Ok((tags(reader)?, reader.log_head()?)))?;
    let mut of = ReportOf {
        title: args.title.clone().unwrap_or_else(|| title(args, &manifests)),
        about: about(&manifests, &selected.trials, args.selection.words(), planned.as_ref()),
        models: Vec::new(),
        trials: Vec::new(),
        tags,
        head,
    };
    of.models = models::models(&args.metrics, &manifests, &selected, store)?;
    of.trials = selected.trials;
    let (attempts, runs) = write(&of, &mut folder, store)?;
    folder.finish()?;
    let index = args.output.join("index.html");
    context.answer(
        || format!("{} ({}, {})\n", index.display(), count(runs, "run"), count(attempts, "attempt")),
        || {
            table_of([
                ("report", index.display().to_string().into()),
                ("runs", runs.into()),
                ("attempts", attempts.into()),
            ])
        },
    )?;
    Ok(exit::YES)
}

/// Writes every file, and gives the numbers of attempts and runs.
fn write(of: &ReportOf, folder: &mut Folder, store: &crate::store::Store) -> Result<(usize, usize), Failure> {
    for (path, content) in of.files().map_err(failed)? {
        folder.write(&path, &content)?;
    }
    let mut runs: BTreeMap<RunId, Vec<&Trial>> = BTreeMap::new();
    of.trials.iter().for_each(|trial| runs.entry(trial.run.id).or_default().push(trial));
    let repetitions = of.repetitions();
    for (id, trials) in &runs {
        let Some(first) = trials.first() else { continue };
        let page = store.read(|reader| {
            let mut attempts = Vec::new();
            for trial in trials {
                attempts.push(AttemptOf {
                    id: trial.id,
                    attempt: trial.attempt.clone(),
                    figures: figures(reader, trial)?,
                });
            }
            let digests: Vec<Digest> = trials.iter().map(|trial| trial.id.0).chain([id.0]).collect();
            let mut notes = Vec::new();
            for digest in &digests {
                notes.extend(reader.notes(*digest)?);
            }
            let tags = digests.iter().filter_map(|digest| of.tags.get(digest)).flatten().cloned().collect();
            let same = repetitions.get(&first.run.parts.group_id()).map_or(&[] as &[RunId], Vec::as_slice);
            let page = RunOf { run: &first.run, attempts, tags, notes, repetitions: same };
            Ok(report::run_page(&page))
        })?;
        folder.write(&report::page_of(id), page.map_err(failed)?.as_bytes())?;
    }
    Ok((of.trials.len(), runs.len()))
}

/// Curves and energy of an attempt, where it has any.
fn figures(reader: &Reader<'_>, trial: &Trial) -> Result<Vec<(String, Figure)>, StoreError> {
    let mut figures = Vec::new();
    if trial.attempt.series.is_empty() {
        return Ok(figures);
    }
    let Some(sealed) = reader.timed(trial.id)? else { return Ok(figures) };
    let energy = EnergyOf {
        attempt: trial.id,
        run: sealed.run.clone(),
        state: energy_state(&sealed),
        portions: portions(&sealed),
    };
    // What cannot be drawn is not missed: the page has the numbers, and why there are none.
    drop(sealed.series);
    let head = Head { id: trial.id, run: sealed.run, attempt: sealed.attempt, living: None };
    let lines = curved(reader, &head, None)?;
    figures.extend(report::curves(&[lines], Over::Own).ok().map(|one| ("curves".to_owned(), one)));
    figures.extend(report::energy_figure(&[energy]).ok().map(|one| ("energy".to_owned(), one)));
    Ok(figures)
}

/// How many cells the manifests have, of how many the ledger holds an attempt, and of how many one is shown.
struct Planned {
    all: usize,
    held: usize,
    shown: usize,
}

fn of_cells(cells: &Cells, trials: &[Trial]) -> BTreeSet<CellId> {
    trials.iter().flat_map(|trial| cells.of_run(&trial.run)).collect()
}

fn none_meant(args: &Args, held: Option<&BTreeSet<CellId>>) -> String {
    match (held, args.selection.words()) {
        (Some(held), _) if held.is_empty() => {
            "the ledger holds no attempt of a cell of the manifest (`ledger ls` lists what there is)".to_owned()
        }
        (_, Some(words)) => format!("no attempt of the ledger is meant: selected were those {words}"),
        _ => "no attempt of the ledger is meant (`ledger ls` lists what there is)".to_owned(),
    }
}

fn tags(reader: &Reader<'_>) -> Result<BTreeMap<Digest, Vec<String>>, StoreError> {
    let mut found: BTreeMap<Digest, Vec<String>> = BTreeMap::new();
    for (name, target) in reader.tags()? {
        let digest = match target {
            Target::Run(RunId(digest)) | Target::Attempt(AttemptId(digest)) => digest,
        };
        found.entry(digest).or_default().push(name);
    }
    Ok(found)
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
    trials: &[Trial],
    selection: Option<String>,
    planned: Option<&Planned>,
) -> Vec<String> {
    let mut about: Vec<String> = manifests.iter().filter_map(|manifest| manifest.description.clone()).collect();
    let runs: BTreeSet<RunId> = trials.iter().map(|trial| trial.run.id).collect();
    let moment =
        |trial: Option<&Trial>| trial.map_or_else(String::new, |one| report::when(one.attempt.started_unix_ms));
    about.push(format!(
        "{} of {}, from {} to {} UTC. Configurations stand by the mean over their repetitions, which differ in their seed alone; \
         ± is half the width of the mean's 95% interval.",
        count(trials.len(), "attempt"),
        count(runs.len(), "run"),
        moment(trials.last()),
        moment(trials.first()),
    ));
    about.extend(selection.map(|words| format!("Selected: attempts {words}.")));
    if let Some(Planned { all, held, shown }) = planned {
        let cells = count(*all, "cell");
        if held < all {
            let lacking = all - held;
            say(&format!("note: the ledger holds no attempt of {lacking} of {cells} of the manifest"));
            about.push(format!("Of {cells} that were planned, without an attempt: {lacking}."));
        }
        if shown < held {
            let hidden = held - shown;
            say(&format!(
                "note: left out: {hidden} of {cells} of the manifest (none of their attempts is selected and not hidden)"
            ));
            about.push(format!(
                "Of {cells} that were planned, left out for want of an attempt that is selected and not hidden: {hidden}."
            ));
        }
    }
    about
}
