//! `ledger doctor`

use super::context::Context;
use super::failure::{Failure, exit};
use super::trainer::trainer;
use crate::engine::Machine;
use crate::gpu::{self, LibraryEnv};
use crate::host::{self, environment};
use crate::record::Check;
use crate::report;

/// Say what this machine can do, and the fix for each thing that it cannot
///
/// Nothing is changed and nothing is started.
///
/// Example: ledger doctor
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

pub(super) fn run(_args: &Args, context: &Context) -> Result<u8, Failure> {
    let library_path = environment::var("LD_LIBRARY_PATH");
    let cuda_path = environment::var("CUDA_PATH");
    let env = LibraryEnv::usual(library_path.as_deref(), cuda_path.as_deref());
    let visible = environment::text_var("CUDA_VISIBLE_DEVICES");
    let mut checks = vec![trainer_check()];
    checks.extend(host::checks(context.store_as_it_is().dir()));
    checks.extend(gpu::checks(Machine::default().nvml().as_deref(), &env, visible.as_deref()));
    context.answer(|| report::checks_text(&checks), || report::checks_value(&checks))?;
    Ok(exit::YES)
}

fn trainer_check() -> Check {
    match trainer() {
        Some(trainer) if trainer.cuda.is_some() => Check::ok("trainer", "built in, for the CPU and CUDA"),
        Some(_) => {
            Check::warning("trainer", "built in, for the CPU", "no run uses a GPU", "build with default features")
        }
        None => Check::missing(
            "trainer",
            "not built in",
            "only manifests with a [program] can be run",
            "build with default features",
        ),
    }
}
