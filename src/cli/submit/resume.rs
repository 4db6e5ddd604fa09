//! `ledger submit --resume`

use super::wait::{Awaited, answer_and_wait};
use super::{Args, catch_up, hand_on_calibrations, look, not_refused, take_turn, tell_left_out};
use crate::cli::cluster::{PATIENCE, ask, bring, spool};
use crate::cli::context::Context;
use crate::cli::failure::{Failure, exit};
use crate::cluster::{Again, Folder, Placed, Slurm, Submitted, again, resume, stand, under_way};
use crate::record::{Table, Value};
use crate::report::{self, table_of};

/// Submits the tasks of a submission again whose cells have missing attempts.
pub(super) fn resume_one(args: &Args, context: &Context, text: &str) -> Result<u8, Failure> {
    let turn = if args.dry_run { None } else { Some(take_turn(context)?) };
    let spool = spool(context, None);
    let folder = match text {
        "" => spool.all()?.pop().ok_or_else(|| Failure::new(exit::NO, "nothing was submitted from this ledger"))?,
        text => spool.find(text)?,
    };
    let asked = ask(std::slice::from_ref(&folder))?;
    let Some(tasks) = asked.of(&folder) else {
        return Err(Failure::new(exit::SCHEDULER, "the cells to resume are unknown without Slurm"));
    };
    let store = context.store_as_it_is();
    let (standing, busy) = if args.dry_run {
        (stand(&folder, Some(tasks))?, look(&spool)?)
    } else {
        let busy = catch_up(context, &spool)?;
        (bring(context, &folder, Some(tasks), PATIENCE)?.1, busy)
    };
    let busy = under_way(busy.iter().map(|(_, standing)| standing));
    let again = again(&standing, &folder, (store, &spool), &busy)?;
    let placed = if args.dry_run || again.tasks.is_empty() {
        Placed { jobs: Vec::new(), refused: None }
    } else {
        hand_on_calibrations(context, &folder);
        folder.close(false)?;
        let placed = resume(&standing, &again, &folder, Slurm);
        // Another command that found it complete may have closed it meanwhile.
        folder.close(false)?;
        placed?
    };
    drop(turn);
    let (text, members) = told_again(&folder, &again, (!args.dry_run).then_some(&placed.jobs));
    tell_left_out(again.sealed, again.under_way, "another");
    if args.wait && !args.dry_run && placed.refused.is_none() {
        return answer_and_wait(context, text, members, &[Awaited { folder, cells: None }]);
    }
    context.answer(|| text, || members)?;
    not_refused(placed.refused, &folder)
}

/// Describes what was submitted again; without jobs, what would be.
fn told_again(folder: &Folder, again: &Again, jobs: Option<&Vec<Submitted>>) -> (String, Table) {
    let name = folder.name();
    let members = |list: Vec<Value>, key: &str| {
        let (sealed, under_way) = (again.sealed.into(), again.under_way.into());
        let mut table = table_of([("submission", name.as_str().into()), ("sealed", sealed), ("under_way", under_way)]);
        table.insert(key.to_owned(), Value::List(list));
        table
    };
    match jobs {
        Some(jobs) => {
            let lines: Vec<(String, usize)> =
                jobs.iter().map(|submitted| (submitted.job.clone(), submitted.tasks.len())).collect();
            let job = |(job, tasks): &(String, usize)| {
                Value::Table(table_of([("job", job.as_str().into()), ("tasks", (*tasks).into())]))
            };
            (report::resume_text(&name, &lines), members(lines.iter().map(job).collect(), "jobs"))
        }
        None => {
            let array = |(array, tasks): (&usize, &Vec<u32>)| {
                let script = folder.script(*array).display().to_string();
                Value::Table(table_of([("script_path", script.into()), ("tasks", tasks.clone().into())]))
            };
            (report::resumable_text(&name, &again.tasks), members(again.tasks.iter().map(array).collect(), "arrays"))
        }
    }
}
