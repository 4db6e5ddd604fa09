//! Passes facts known only at build time to the program: the compiler, its target and its profile.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Cargo reruns this script if the compiler, which these variables name, changes.
    for name in ["RUSTC", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = Command::new(rustc).arg("-V").output().ok().filter(|output| output.status.success());
    let version = said.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    println!("cargo:rustc-env=LEDGER_RUSTC={}", version.unwrap_or_else(|| "unknown".to_owned()));
    let variable = |name: &str| env::var(name).unwrap_or_else(|_| "unknown".to_owned());
    println!("cargo:rustc-env=LEDGER_TARGET={}", variable("TARGET"));
    println!("cargo:rustc-env=LEDGER_PROFILE={} opt-level={}", variable("PROFILE"), variable("OPT_LEVEL"));
}
