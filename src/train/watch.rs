//! Faults of the device's own threads, which Burn reports as log lines and nowhere else.
//!
//! A kernel that cannot be compiled or launched fails on a thread of the device; whoever waits for its result may then wait
//! for ever or read rubbish. So the lines are watched.

use log::{Level, LevelFilter, Log, Metadata, Record};

/// Another logger is installed already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a logger is installed already (watch the device once, at the start of the process)")]
pub struct WatchError;

/// Calls `on_fault` with every warning and error that Burn or its device runtime logs from now on, on whatever thread. Once a process.
pub fn watch_device_log(on_fault: impl Fn(&str) + Send + Sync + 'static) -> Result<(), WatchError> {
    log::set_logger(Box::leak(Box::new(Watch(on_fault)))).map_err(|_| WatchError)?;
    log::set_max_level(LevelFilter::Warn);
    Ok(())
}

struct Watch<F>(F);

impl<F: Fn(&str) + Send + Sync> Log for Watch<F> {
    fn enabled(&self, metadata: &Metadata) -> bool {
        metadata.level() <= Level::Warn && ["cubecl", "burn"].iter().any(|name| metadata.target().starts_with(name))
    }

    fn log(&self, record: &Record) {
        if self.enabled(record.metadata()) {
            (self.0)(&format!("{}: {}", record.target(), record.args()));
        }
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn faults_of_the_device_are_told_and_nothing_else_is() {
        let heard = Mutex::new(Vec::new());
        let watch = Watch(|line: &str| heard.lock().expect("no panic").push(line.to_owned()));
        for (level, target) in [
            (Level::Warn, "cubecl_runtime::server"),
            (Level::Error, "burn_fusion"),
            (Level::Info, "cubecl_cuda"),
            (Level::Error, "other"),
        ] {
            watch.log(&Record::builder().level(level).target(target).args(format_args!("lost")).build());
        }
        assert_eq!(*heard.lock().expect("no panic"), ["cubecl_runtime::server: lost", "burn_fusion: lost"]);
    }
}
