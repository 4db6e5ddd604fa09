//! A fake NVML for a test: `tests/fake_nvml/`, compiled once, with a script of the test's own.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// A library that answers as its script says; gone after the test.
pub struct Fake {
    dir: tempfile::TempDir,
}

impl Fake {
    /// One with all functions. `tests/fake_nvml/nvml.rs` has the script's directives.
    pub fn new(script: &str) -> Self {
        Self::without(&[], script)
    }

    /// One that lacks these functions, as an old driver's does.
    pub fn without(functions: &[&str], script: &str) -> Self {
        let fake = Self { dir: tempfile::tempdir().unwrap() };
        // A copy and no link: the loader knows libraries by their inode, and each has one state.
        fs::copy(built(functions), fake.path()).unwrap();
        fs::write(fake.beside("script"), script).unwrap();
        fake
    }

    /// The library.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("libnvidia-ml.so.1")
    }

    /// The calls that would have changed a card: `GPU FUNCTION ARGUMENTS = CODE`, a line each.
    pub fn log(&self) -> String {
        fs::read_to_string(self.beside("log")).unwrap_or_default()
    }

    fn beside(&self, ending: &str) -> PathBuf {
        self.dir.path().join(format!("libnvidia-ml.so.1.{ending}"))
    }
}

/// The library, compiled unless an earlier test did so from the same source.
fn built(without: &[&str]) -> PathBuf {
    static BUILD: Mutex<()> = Mutex::new(());
    let _one = BUILD.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_nvml");
    let mut sources: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    sources.sort();
    let mut hasher = DefaultHasher::new();
    for source in sources {
        fs::read(source).unwrap().hash(&mut hasher);
    }
    without.hash(&mut hasher);
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let library = target.join(format!("fake-nvml-{:016x}.so", hasher.finish()));
    if !library.exists() {
        // Other processes may build the same: each under a name of its own, and the last one stands.
        let building = tempfile::tempdir_in(target).unwrap();
        let output = building.path().join("built.so");
        let mut rustc = Command::new(rustc());
        rustc.args([
            "--edition",
            "2024",
            "--crate-type",
            "cdylib",
            "--crate-name",
            "fake_nvml",
            "-O",
            "-D",
            "warnings",
        ]);
        rustc.args(["-C", "panic=abort", "-C", "strip=symbols", "--check-cfg", "cfg(without, values(any()))"]);
        // What a function needs is not used where it is left out.
        rustc.args([if without.is_empty() { "-Dwarnings" } else { "-Awarnings" }]);
        for function in without {
            rustc.args(["--cfg", &format!("without=\"{function}\"")]);
        }
        let status = rustc.arg("-o").arg(&output).arg(folder.join("nvml.rs")).status().unwrap();
        assert!(status.success(), "the fake NVML does not compile");
        fs::rename(&output, &library).unwrap();
    }
    library
}

/// The compiler that compiles the tests, as far as cargo tells.
fn rustc() -> PathBuf {
    if let Some(rustc) = std::env::var_os("RUSTC") {
        return rustc.into();
    }
    let beside = std::env::var_os("CARGO").map(|cargo| Path::new(&cargo).with_file_name("rustc"));
    beside.filter(|rustc| rustc.exists()).unwrap_or_else(|| "rustc".into())
}
