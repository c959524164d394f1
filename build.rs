//! Puts the revision and the compiler's version into the binary.
#![allow(clippy::disallowed_methods, reason = "a build script is told by its environment")]

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=LOCK_EXPORTER_REVISION");
    for file in ["HEAD", "logs/HEAD"] {
        // A file that is not there would count as changed in every build.
        if let Some(path) = first_line("git", &["rev-parse", "--git-path", file])
            && Path::new(&path).exists()
        {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    set("LOCK_EXPORTER_REVISION", "git", &["rev-parse", "--short=12", "HEAD"]);
    set("LOCK_EXPORTER_BRANCH", "git", &["rev-parse", "--abbrev-ref", "HEAD"]);
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    set("LOCK_EXPORTER_RUSTC", &rustc, &["--version"]);
}

/// The variable as it is given from outside, else the first line that a command prints.
fn set(name: &str, program: &str, args: &[&str]) {
    let given = std::env::var(name).ok();
    let value = given.or_else(|| first_line(program, args)).unwrap_or_else(|| "unknown".into());
    println!("cargo:rustc-env={name}={}", value.trim_start_matches("rustc "));
}

fn first_line(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    Some(String::from_utf8(output.stdout).ok()?.lines().next()?.to_owned())
}
