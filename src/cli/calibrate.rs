//! `ledger calibrate`

use super::context::Context;
use super::failure::{Failure, exit};
use super::output::say;
use super::run::shim;
use super::trainer::has_load;
use super::watch::Interruption;
use crate::analysis::{Calibration, Sensor};
use crate::engine::{Calibrated, KeptCalibration, Load, Machine, calibrate};
use crate::gpu::{self, GpuInfo, Gpus};
use crate::host::environment;
use crate::record::{Table, Value};
use crate::report::{columns, sensors_text, sensors_value, table_of, timestamp};
use std::path::PathBuf;

/// Measure how the power sensors of the GPUs sample, and store the result
///
/// Applies load pulses to each visible GPU in turn, and reads its power and its energy counter as fast as possible.
/// The response gives each sensor's update interval, averaging window and delay, and the counter's step. This
/// calibration is stored for the GPU's model, firmware and driver. It narrows the energy intervals of later runs
/// (docs/energy.md). No GPU setting is changed. Run nothing else on the GPU meanwhile.
///
/// Your own program can be the load. It reads one line per pulse (seconds on, seconds off) and reports the phase
/// `load` (docs/protocol.md).
///
/// Example: ledger calibrate --gpu 0
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Calibrate only this visible GPU, counted from 0
    #[arg(long, value_name = "N", conflicts_with_all = ["list", "show"])]
    gpu: Option<usize>,

    /// Duration of the load on each GPU, in seconds
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u64).range(15..=600))]
    seconds: u64,

    /// List the stored calibrations
    #[arg(long, conflicts_with = "program")]
    list: bool,

    /// Show a stored calibration, by its key or a prefix of it
    #[arg(long, value_name = "KEY", conflicts_with_all = ["list", "program"])]
    show: Option<String>,

    /// The program that makes the load instead of the built-in kernel, with its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<String>,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    if args.list {
        return list(context);
    }
    match &args.show {
        Some(key) => show(context, key),
        None => measure(args, context),
    }
}

fn measure(args: &Args, context: &Context) -> Result<u8, Failure> {
    let library = Machine::default().nvml();
    let chosen = chosen(args.gpu, library.as_deref())?;
    let load = match args.program.as_slice() {
        [] if has_load() => Load::Kernel,
        [] => {
            let text = "this `ledger` was built without a load for GPUs (build with default features, or name a load program: `ledger calibrate -- PROGRAM`)";
            return Err(Failure::new(exit::USAGE, text));
        }
        program => Load::Program(program.to_vec()),
    };
    let (shim, interruption) = (shim()?, Interruption::install()?);
    let mut all = Vec::new();
    for gpu in &chosen {
        let (index, name, seconds) = (gpu.index, &gpu.name, args.seconds);
        say(&format!("GPU {index}, {name}: pulses of load for {seconds} s"));
        let ledger = context.store_as_it_is().dir();
        let one = calibrate(ledger, library.as_deref(), gpu, &load, 1000 * seconds, &shim, &interruption)?;
        if one.foreign > 0 {
            let processes = if one.foreign == 1 { "another process was" } else { "other processes were" };
            say(&format!(
                "warning: {processes} on GPU {index}: if it computed meanwhile, the calibration includes its load"
            ));
        }
        all.push(one);
    }
    context.answer(
        || all.iter().map(text).collect::<Vec<_>>().join("\n"),
        || table_of([("gpus", Value::List(all.iter().map(|one| Value::Table(members(one))).collect()))]),
    )?;
    Ok(if all.iter().all(|one| one.kept.is_some()) { exit::YES } else { exit::NO })
}

/// Returns the visible GPUs, or the one that is asked for.
fn chosen(number: Option<usize>, library: Option<&std::path::Path>) -> Result<Vec<GpuInfo>, Failure> {
    let usage = |error: Box<dyn std::error::Error>| Failure::new(exit::USAGE, error);
    let gpus = Gpus::load(library).map_err(|error| usage(error.into()))?;
    let visible = gpu::usable(&gpus, environment::text_var("CUDA_VISIBLE_DEVICES").as_deref());
    let mut visible = visible.map_err(|error| usage(error.into()))?;
    if visible.is_empty() {
        return Err(usage("no GPU is visible (`ledger doctor` shows what is missing)".into()));
    }
    let Some(number) = number else { return Ok(visible) };
    if number >= visible.len() {
        let last = visible.len() - 1;
        return Err(usage(format!("--gpu: no GPU {number} is visible (0 to {last} are)").into()));
    }
    Ok(vec![visible.swap_remove(number)])
}

fn text(one: &Calibrated) -> String {
    let GpuInfo { index, name, .. } = &one.gpu;
    let sensors = sensors_text(&one.sensors);
    let end = match &one.kept {
        Some(kept) => {
            let (key, digest): (_, String) = (&kept.key, kept.text("digest").chars().take(8).collect());
            let replaced = if one.replaced { ", replacing an older one" } else { "" };
            format!("stored as {key}, digest {digest}{replaced}")
        }
        None => "nothing was stored: energies still assume default sensor timing".to_owned(),
    };
    format!("GPU {index}, {name}\n{sensors}{end}\n")
}

fn members(one: &Calibrated) -> Table {
    let mut table = match &one.kept {
        Some(kept) => described(kept),
        None => sensors_value(&one.sensors),
    };
    table.insert("gpu".to_owned(), one.gpu.index.into());
    table.insert("uuid".to_owned(), one.gpu.uuid.as_str().into());
    table.insert("device".to_owned(), one.gpu.name.as_str().into());
    table.insert("kept".to_owned(), one.kept.is_some().into());
    table
}

fn described(kept: &KeptCalibration) -> Table {
    let mut table = kept.table.clone();
    table.remove("format");
    table.insert("key".to_owned(), kept.key.as_str().into());
    table.insert("path".to_owned(), kept.path.display().to_string().into());
    table
}

/// Returns the stored calibrations. Reports those that cannot be read.
fn kept(context: &Context) -> Result<Vec<KeptCalibration>, Failure> {
    let (found, faults) = KeptCalibration::list(context.store_as_it_is().dir())?;
    faults.iter().for_each(|fault| say(&format!("warning: {fault}")));
    Ok(found)
}

fn list(context: &Context) -> Result<u8, Failure> {
    let found = kept(context)?;
    let row = |kept: &KeptCalibration| {
        let digest = kept.text("digest").chars().take(8).collect();
        let words = ["device", "vbios", "driver"].map(|name| kept.text(name).to_owned());
        [vec![kept.key.clone()], words.to_vec(), vec![made(kept), digest]].concat()
    };
    let rows = || columns(&["KEY", "DEVICE", "VBIOS", "DRIVER", "MADE", "DIGEST"], found.iter().map(row));
    context.answer(
        || {
            if found.is_empty() {
                "no calibration is stored (`ledger calibrate` makes one)\n".to_owned()
            } else {
                rows()
            }
        },
        || table_of([("calibrations", Value::List(found.iter().map(|kept| described(kept).into()).collect()))]),
    )?;
    Ok(exit::YES)
}

fn made(kept: &KeptCalibration) -> String {
    kept.table.get("made_unix_ms").and_then(Value::as_int).map_or_else(String::new, timestamp)
}

fn show(context: &Context, key: &str) -> Result<u8, Failure> {
    let mut found: Vec<KeptCalibration> =
        kept(context)?.into_iter().filter(|kept| !key.is_empty() && kept.key.starts_with(key)).collect();
    if found.len() > 1 {
        let keys: Vec<String> = found.into_iter().map(|kept| kept.key).collect();
        let text = format!("`{key}` fits several calibrations: {} (give more digits)", keys.join(", "));
        return Err(Failure::new(exit::USAGE, text));
    }
    let Some(kept) = found.pop() else {
        let text = format!("no calibration has the key `{key}` (`ledger calibrate --list` lists the keys)");
        return Err(Failure::new(exit::NO, text));
    };
    let unknown = kept.table.get("unknown").and_then(Value::as_table);
    let sensor = |name: &'static str| {
        let found = kept.table.get(name).and_then(|sensor| Sensor::of(sensor.as_table()?));
        let reason =
            || unknown.and_then(|unknown| unknown.get(name)?.as_str()).unwrap_or("the calibration does not contain it");
        (name, found.ok_or_else(|| reason().to_owned()))
    };
    let head = || {
        let [device, vbios, driver, load, digest] =
            ["device", "vbios", "driver", "load", "digest"].map(|name| kept.text(name));
        let (made, path): (String, PathBuf) = (made(&kept), kept.path.clone());
        format!(
            "{device}, VBIOS {vbios}, driver {driver}\nmade {made} with the load: {load}\ndigest {digest}\n{}\n\n",
            path.display()
        )
    };
    context.answer(|| head() + &sensors_text(&Calibration::SENSORS.map(sensor)), || described(&kept))?;
    Ok(exit::YES)
}
