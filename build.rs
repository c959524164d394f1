//! Puts the revision and the compiler's version into the binary.
#![allow(clippy::disallowed_methods, reason = "a build script is told by its environment")]

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=.git/HEAD");
    println!("cargo:rerun-if-changed=.git/logs/HEAD");
    println!("cargo:rerun-if-env-changed=LOCK_EXPORTER_REVISION");
    set("LOCK_EXPORTER_REVISION", "git", &["rev-parse", "--short=12", "HEAD"]);
    set("LOCK_EXPORTER_BRANCH", "git", &["rev-parse", "--abbrev-ref", "HEAD"]);
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    set("LOCK_EXPORTER_RUSTC", &rustc, &["--version"]);
}

/// The variable as it is given from outside, else the first line that a command prints.
fn set(name: &str, program: &str, args: &[&str]) {
    let given = std::env::var(name).ok();
    let asked = || {
        let output = Command::new(program).args(args).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        Some(text.lines().next()?.trim_start_matches("rustc ").to_owned())
    };
    let value = given.or_else(asked).unwrap_or_else(|| "unknown".into());
    println!("cargo:rustc-env={name}={value}");
}
