//! Asks the linker for a smaller command, if a program linked this way runs here.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// Merge functions with the same code, and store relocations in one bit each instead of 24 bytes,
/// which needs glibc 2.36.
const OPTIONS: [&str; 2] = ["-Wl,--icf=all", "-Wl,-z,pack-relative-relocs"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        for option in OPTIONS.into_iter().filter(|option| runs(option) == Some(true)) {
            println!("cargo::rustc-link-arg-bins={option}");
        }
    }
}

/// Whether a program linked with this option runs, for the target and with the linker of this
/// build.
fn runs(option: &str) -> Option<bool> {
    let directory = env::var_os("OUT_DIR")?;
    let (source, program) =
        (Path::new(&directory).join("probe.rs"), Path::new(&directory).join("probe"));
    fs::write(&source, "fn main() {}").ok()?;
    let mut rustc = Command::new(env::var_os("RUSTC")?);
    rustc.arg("--target").arg(env::var_os("TARGET")?).arg(format!("-Clink-arg={option}"));
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.arg(format!("-Clinker={linker}"));
    }
    let linked = rustc.arg(&source).arg("-o").arg(&program).output().ok()?.status.success();
    Some(linked && Command::new(&program).status().ok()?.success())
}
