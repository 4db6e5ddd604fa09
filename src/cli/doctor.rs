//! `ledger doctor`

mod secrets;

use super::context::{self, Context};
use super::failure::{Failure, exit};
use super::output::say;
use super::trainer::trainer;
use crate::engine::{self, Held, HeldState, Machine, Place, Recovered, Restored, calibration_check};
use crate::gpu::{self, Gpus, LibraryEnv};
use crate::host::{self, environment};
use crate::record::Check;
use crate::report;
use std::path::{Path, PathBuf};

/// The advice for an unreadable file of GPU settings.
const REMOVE: &str = "check `nvidia-smi -q -d POWER,CLOCK`, reset with `nvidia-smi -pl`, `-rgc` and `-rmc`, and remove that file, if no newer ledger is running";

/// Show the capabilities of this machine, and the fix for each missing one
///
/// Only --restore and --seal change anything. With --secrets, ledger searches the ledger for secrets instead; the
/// exit code is 1 if it finds any.
///
/// Example: ledger doctor
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// First restore the GPU settings that killed attempts have left
    #[arg(long)]
    restore: bool,

    /// First seal the attempt of another host's journal as interrupted; use this only if that host's command is
    /// gone for good
    #[arg(long, value_name = "JOURNAL")]
    seal: Option<PathBuf>,

    /// Search all records, notes and stored texts for passwords, tokens and keys; print only their places
    #[arg(long, conflicts_with_all = ["restore", "seal"])]
    secrets: bool,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    if args.secrets {
        return secrets::run(context);
    }
    let failed = args.restore && !restore();
    args.seal.as_deref().map_or(Ok(()), |journal| seal(journal, context))?;
    let library_path = environment::var("LD_LIBRARY_PATH");
    let cuda_path = environment::var("CUDA_PATH");
    let env = LibraryEnv::usual(library_path.as_deref(), cuda_path.as_deref());
    let visible = environment::text_var("CUDA_VISIBLE_DEVICES");
    let mut checks = vec![trainer_check()];
    let nvml = Machine::default().nvml();
    checks.extend(settings_checks(&Place::usual(), nvml.as_deref()));
    checks.extend(host::checks(context.store_as_it_is().dir()));
    checks.extend(gpu::checks(cfg!(feature = "train"), nvml.as_deref(), &env, visible.as_deref()));
    checks.push(privileges(host::machine::has_sys_admin(), engine::zeusd_socket().as_deref()));
    checks.extend(calibrated(context, nvml.as_deref(), visible.as_deref()));
    context.answer(|| report::checks_text(&checks), || report::checks_value(&checks))?;
    Ok(if failed { exit::NO } else { exit::YES })
}

/// Seals the attempt that a command on another host left behind. The journal is found by its name among those of the ledger.
fn seal(journal: &Path, context: &Context) -> Result<(), Failure> {
    let store = context.store_as_it_is();
    let name = journal.file_name().unwrap_or_default();
    match engine::recover_left(store, name)? {
        Some(Recovered::Sealed(id)) => say(&format!("sealed {}", id.0.prefix(8))),
        Some(Recovered::Removed(path)) => say(&format!("removed `{}`: its attempt had not started", path.display())),
        Some(Recovered::Unreadable(path, fault)) => {
            return Err(Failure::new(exit::LEDGER, format!("`{}`: {fault}", path.display())));
        }
        Some(Recovered::Elsewhere(_)) | None => {
            let (name, folder) = (name.display(), store.journals());
            let text = format!(
                "there is no abandoned journal `{name}` in `{}` (the journal of a running command cannot be sealed)",
                folder.display()
            );
            return Err(Failure::new(exit::NO, text));
        }
    }
    Ok(())
}

/// Restores the GPU settings that were left changed. Returns whether all are restored.
fn restore() -> bool {
    let Ok(found) = context::restore() else { return false };
    for one in &found {
        // Other commands do not report it, because each command on a machine without GPUs would.
        if let Restored::Unasked(path) = one {
            let path = path.display();
            say(&format!(
                "note: `{path}` belongs to another machine, or to an earlier start of this one: its settings do not apply here (a command on the machine with its GPUs restores them)"
            ));
        }
    }
    !found.iter().any(|one| matches!(one, Restored::Failed(..) | Restored::Unreadable { is_old: false, .. }))
}

/// Describes who may change GPU settings. Whether the driver permits it is known only after a try.
fn privileges(sys_admin: bool, zeusd: Option<&Path>) -> Check {
    match (sys_admin, zeusd) {
        (true, _) => Check::ok("privileges", "CAP_SYS_ADMIN"),
        (false, Some(socket)) => Check::ok("privileges", format!("zeusd at {}", socket.display())),
        (false, None) => Check::missing(
            "privileges",
            "neither CAP_SYS_ADMIN nor zeusd",
            "manifests that set a power limit or clocks are refused without --observe-only",
            "run as root outside of containers, or start zeusd (docs/hardware.md); nothing else needs it",
        ),
    }
}

/// Checks for GPU settings that attempts changed and have not restored.
fn settings_checks(place: &Place, nvml: Option<&Path>) -> Vec<Check> {
    const NAME: &str = "GPU settings";
    let held = match engine::held(place, nvml) {
        Ok(held) => held,
        Err(error) => {
            let fix = "let only this user write to that folder, or name another one by LEDGER_RESTORE";
            return vec![Check::warning(
                NAME,
                error.to_string(),
                "whether GPUs still have settings of killed attempts is unknown",
                fix,
            )];
        }
    };
    let mut checks = Vec::new();
    for one in &held {
        // Unreadable settings cannot be restored.
        match &one.state {
            HeldState::Unreadable { why, is_old: false } => {
                let nothing = "GPUs may still have its settings, and nothing restores them";
                checks.push(Check::warning(NAME, why.as_str(), nothing, REMOVE));
            }
            HeldState::Unreadable { why, is_old: true } => {
                let nothing = "it is older than this machine's start, so its settings no longer apply here";
                checks.push(Check::warning(
                    NAME,
                    why.as_str(),
                    nothing,
                    "remove it, unless it belongs to another machine",
                ));
            }
            _ => {}
        }
    }
    let files = |state: &HeldState| -> Option<(String, &Held)> {
        let those: Vec<&Held> = held.iter().filter(|held| held.state == *state).collect();
        those.first().map(|first| (report::count(those.len(), "file"), *first))
    };
    if let Some((count, first)) = files(&HeldState::Left) {
        checks.push(Check::warning(
            NAME,
            format!("{count} of attempts that are gone: `{}`", first.file.display()),
            "GPUs may have power limits or clocks that nothing restores",
            "`ledger doctor --restore`; every command that opens a ledger tries it too",
        ));
    }
    for (state, what) in [
        (HeldState::Lives, "of attempts that run now"),
        (HeldState::Forgotten, "from before this machine's start, which reset all of it (the next command removes it)"),
        (HeldState::Elsewhere, "for GPUs of another machine (a command there restores them)"),
        (HeldState::Unasked, "from another machine or from before this one's start, so its settings do not apply here"),
    ] {
        checks.extend(files(&state).map(|(count, _)| Check::ok(NAME, format!("{count} {what}"))));
    }
    checks
}

/// Checks whether the sensors of the visible GPUs are calibrated. Returns `None` without GPUs.
fn calibrated(context: &Context, nvml: Option<&Path>, visible: Option<&str>) -> Option<Check> {
    let gpus = Gpus::load(nvml).ok()?;
    let used = gpu::usable(&gpus, visible).ok()?;
    (!used.is_empty()).then(|| calibration_check(context.store_as_it_is().dir(), &gpus, &used))
}

fn trainer_check() -> Check {
    match trainer() {
        Some(_) => Check::ok("trainer", "built in, for the CPU and CUDA"),
        None => Check::missing(
            "trainer",
            "not built in",
            "only manifests with a [program] can be run",
            "build with default features",
        ),
    }
}
