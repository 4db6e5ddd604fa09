//! Faults on the device's own threads, which Burn reports only as log lines.
//!
//! A kernel that cannot be compiled or launched fails on a thread of the device. A thread that waits for its result may
//! then wait forever or read garbage. Therefore the log is watched.

use crate::device::shortened;
use log::{Level, LevelFilter, Log, Metadata, Record};

/// Another logger is installed already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a logger is installed already (watch the device once, at the start of the process)")]
pub struct WatchError;

/// A line that the device's runtime logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logged {
    /// A fault: work may be lost.
    Fault,
    /// A warning that changes no result, such as kernels that cannot be cached or memory that was compacted.
    Remark,
}

/// Modules that warn of problems which they have handled already. Some warnings come from several runs that share one
/// kernel cache.
const REMARKS: [&str; 6] = [
    "cubecl_environment",
    "cubecl_runtime::compiler",
    "cubecl_runtime::throughput",
    "cubecl_runtime::tune",
    "cubecl_runtime::memory_management",
    "cubecl_cuda::compute::command",
];

/// Calls `on_line` with every warning and error that Burn or its device runtime logs from now on, on any thread, when
/// it is logged. Allowed once a process.
pub fn watch_device_log(on_line: impl Fn(Logged, &str) + Send + Sync + 'static) -> Result<(), WatchError> {
    log::set_logger(Box::leak(Box::new(Watch(on_line)))).map_err(|_| WatchError)?;
    log::set_max_level(LevelFilter::Warn);
    Ok(())
}

struct Watch<F>(F);

impl<F: Fn(Logged, &str) + Send + Sync> Log for Watch<F> {
    fn enabled(&self, metadata: &Metadata) -> bool {
        metadata.level() <= Level::Warn && ["cubecl", "burn"].iter().any(|name| metadata.target().starts_with(name))
    }

    fn log(&self, record: &Record) {
        if self.enabled(record.metadata()) {
            let target = record.target();
            let remark = REMARKS.iter().any(|module| target.strip_prefix(module).is_some_and(begins_a_name));
            let logged = if remark { Logged::Remark } else { Logged::Fault };
            (self.0)(logged, &format!("{target}: {}", shortened(&record.args().to_string())));
        }
    }

    fn flush(&self) {}
}

/// Whether the rest of a log target after a module's path is empty or a submodule's path.
fn begins_a_name(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with("::")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn only_faults_and_remarks_of_the_device_are_reported() {
        let heard = Mutex::new(Vec::new());
        let watch = Watch(|logged, line: &str| heard.lock().expect("no panic").push((logged, line.to_owned())));
        for (level, target) in [
            (Level::Warn, "cubecl_runtime::server"),
            (Level::Error, "burn_cubecl"),
            (Level::Warn, "cubecl_runtime::tune::tune_cache"),
            (Level::Error, "cubecl_environment::persistence::sqlite"),
            (Level::Error, "cubecl_runtime::tuner"),
            (Level::Info, "cubecl_cuda"),
            (Level::Error, "other"),
        ] {
            watch.log(&Record::builder().level(level).target(target).args(format_args!("lost")).build());
        }
        let expected = [
            (Logged::Fault, "cubecl_runtime::server: lost"),
            (Logged::Fault, "burn_cubecl: lost"),
            (Logged::Remark, "cubecl_runtime::tune::tune_cache: lost"),
            (Logged::Remark, "cubecl_environment::persistence::sqlite: lost"),
            (Logged::Fault, "cubecl_runtime::tuner: lost"),
        ];
        assert_eq!(*heard.lock().expect("no panic"), expected.map(|(logged, line)| (logged, line.to_owned())));
    }
}
