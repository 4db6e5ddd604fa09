//! The inputs of `fuzz/corpus`, each of which reached code that no other one had reached: what the fuzz targets check holds of them.

#[path = "../../fuzz/src/lib.rs"]
#[expect(clippy::expect_used, reason = "a check fails by a panic")]
mod checks;

use crate::sandbox::repository;
use std::fs;
use std::process::Command;

type Check<'c> = &'c dyn Fn(&[u8]);

#[test]
fn what_the_fuzz_targets_check_holds_of_their_corpus() {
    let as_text = |check: fn(&str)| move |bytes: &[u8]| str::from_utf8(bytes).map_or((), check);
    let targets: [(&str, Check<'_>); 7] = [
        ("chunk", &checks::chunk),
        ("event", &checks::event),
        ("expression", &as_text(checks::expression)),
        ("journal", &checks::journal),
        ("manifest", &as_text(checks::manifest)),
        ("pack", &checks::pack),
        ("record", &checks::record),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (target, check) in targets {
        let archive = repository(&format!("fuzz/corpus/{target}.tar.gz"));
        let unpacked = Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(folder.path()).status().unwrap();
        assert!(unpacked.success());
        let inputs: Vec<_> =
            fs::read_dir(folder.path().join(target)).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(inputs.len() > 100, "{target}: {} inputs", inputs.len());
        for input in inputs {
            let bytes = fs::read(&input).unwrap();
            let holds = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&bytes)));
            assert!(holds.is_ok(), "{target}: {}", input.display());
        }
    }
}
