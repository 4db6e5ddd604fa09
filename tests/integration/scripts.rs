//! The scripts of `tests/gpu`, as far as they decide something without a GPU.

use std::io;
use std::path::Path;
use std::process::Command;

#[test]
fn what_measures_several_gpus_runs_unattended() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gpu/test_scripts.py");
    let output = match Command::new("python3").arg(tests).output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            println!("skipped: no python3 here");
            return;
        }
        output => output.unwrap(),
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
