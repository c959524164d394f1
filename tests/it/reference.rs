//! What is written from the code and committed beside it: the reference tables of `docs/`, the
//! manual page, the completions of shells.
//!
//! `LOCK_EXPORTER_GOLDEN=write cargo test reference` writes them anew; read the difference. What a
//! configuration key means is written by hand, and compared with the keys that are understood.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use clap::{Arg, CommandFactory};
use clap_complete::Shell;
use lock_exporter::cli::Cli;
use lock_exporter::config::{self, Overrides};
use lock_exporter::exposition::metrics::{FAMILIES, Kind};
use regex::Regex;

fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file)
}

fn read(file: &str) -> String {
    std::fs::read_to_string(path(file)).unwrap_or_default()
}

fn compare(file: &str, text: &str) {
    if std::env::var_os("LOCK_EXPORTER_GOLDEN").is_some() {
        std::fs::create_dir_all(path(file).parent().unwrap()).unwrap();
        std::fs::write(path(file), text).unwrap();
    }
    assert!(
        text == read(file),
        "{file} differs: LOCK_EXPORTER_GOLDEN=write cargo test --test it reference"
    );
}

/// Tests of one page may not write it at the same time, or read it half written.
static PAGE: Mutex<()> = Mutex::new(());

/// Compares what stands between `<!-- NAME -->` and `<!-- /NAME -->`.
pub(crate) fn compare_block(file: &str, name: &str, text: &str) {
    let _alone = PAGE.lock().unwrap_or_else(PoisonError::into_inner);
    let page = read(file);
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->"));
    let (before, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("{file}: no {begin}"));
    let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("{file}: no {end}"));
    compare(file, &format!("{before}{begin}{text}{end}{after}"));
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn code(words: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    words.into_iter().map(|word| format!("`{}`", word.as_ref())).collect::<Vec<_>>().join(", ")
}

fn family_row(name: &str, kind: &str, labels: &[String], help: &str) -> String {
    format!("| `{name}` | {kind} | {} | {} |\n", code(labels), cell(help))
}

const FAMILY_HEAD: &str = "| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n";

#[test]
fn every_metric_of_a_target_is_in_the_reference() {
    let mut text = FAMILY_HEAD.to_owned();
    for family in FAMILIES {
        let labels: Vec<_> = family.labels.iter().map(|label| (*label).to_owned()).collect();
        let kind = match family.kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
        };
        text += &family_row(family.name, kind, &labels, family.help);
    }
    compare_block("docs/metrics.md", "targets", &text);
}

/// The families of the exporter itself, as the committed pages show them.
#[test]
fn every_metric_of_the_exporter_is_in_the_reference() {
    let of_targets: BTreeSet<_> = FAMILIES.iter().map(|family| family.name).collect();
    let line = Regex::new(r"(?m)^# (HELP|TYPE) (\S+) (.*)$").unwrap();
    let label = Regex::new(r#"[{,](\w+)=""#).unwrap();
    let mut families: BTreeMap<String, (String, String, Vec<String>)> = BTreeMap::new();
    for entry in std::fs::read_dir(path("tests/golden/metrics")).unwrap() {
        let page = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for found in line.captures_iter(&page) {
            if of_targets.contains(&found[2]) {
                continue;
            }
            let family = families.entry(found[2].to_owned()).or_default();
            match &found[1] {
                "HELP" => family.0 = found[3].to_owned(),
                _ => family.1 = found[3].to_owned(),
            }
        }
        for sample in page.lines().filter(|line| !line.starts_with('#')) {
            let name = sample.split(['{', ' ']).next().unwrap();
            let parts = ["_bucket", "_sum", "_count"];
            let base = parts.iter().find_map(|part| name.strip_suffix(part)).unwrap_or(name);
            let known = [name, base].into_iter().find(|name| families.contains_key(*name));
            let Some(family) = known.and_then(|name| families.get_mut(name)) else { continue };
            for found in label.captures_iter(sample) {
                if &found[1] != "le" && !family.2.contains(&found[1].to_owned()) {
                    family.2.push(found[1].to_owned());
                }
            }
        }
    }
    let mut text = FAMILY_HEAD.to_owned();
    for (name, (help, kind, labels)) in &families {
        text += &family_row(name, kind, labels, help);
    }
    compare_block("docs/metrics.md", "exporter", &text);
}

/// A flag's row: how it is written, what it is without, which variable sets it.
fn flag_row(arg: &Arg) -> Option<String> {
    let long = arg.get_long()?;
    if arg.is_hide_set() || matches!(long, "help" | "version") {
        return None;
    }
    let value = match arg.get_value_names() {
        Some([name, ..]) if arg.get_action().takes_values() => format!("={name}"),
        _ => String::new(),
    };
    let short = arg.get_short().map_or(String::new(), |short| format!("`-{short}`, "));
    let defaults = arg.get_default_values().iter().map(|value| value.to_string_lossy());
    let default = if arg.get_action().takes_values() { code(defaults) } else { String::new() };
    let variable = code(arg.get_env().map(|name| name.to_string_lossy()));
    let help = cell(&arg.get_help().map(ToString::to_string).unwrap_or_default());
    Some(format!("| {short}`--{long}{value}` | {default} | {variable} | {help} |\n"))
}

#[test]
fn every_flag_is_in_the_reference() {
    let cli = Cli::command();
    let mut text = String::new();
    let mut heading = None;
    for arg in cli.get_arguments() {
        let Some(row) = flag_row(arg) else { continue };
        if heading != arg.get_help_heading() {
            heading = arg.get_help_heading();
            let words = heading.unwrap_or("Others");
            write!(text, "\n**{words}**\n\n| flag | default | variable | meaning |\n").unwrap();
            text += "| --- | --- | --- | --- |\n";
        }
        text += &row;
    }
    for command in cli.get_subcommands() {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        write!(text, "\n**`{}`**: {about}\n\n", command.get_name()).unwrap();
        let own = command.get_arguments().filter(|arg| arg.get_help_heading().is_none());
        let rows: Vec<_> = own.filter_map(flag_row).collect();
        if !rows.is_empty() {
            text += "| flag | default | variable | meaning |\n| --- | --- | --- | --- |\n";
            text += &rows.concat();
        }
    }
    compare_block("docs/configuration.md", "flags", &(text + "\n"));
}

/// The keys that the reader of the file names when it meets another one at this place.
fn keys_known_at(config: &str) -> BTreeSet<String> {
    let error = config::parse(config, &Overrides::default(), "host").unwrap_err();
    let hint = "unknown key; known keys: ";
    let found = error.0.iter().find_map(|problem| problem.message.split_once(hint));
    let (_, keys) = found.unwrap_or_else(|| panic!("{config}: {error}"));
    keys.split(", ").map(str::to_owned).collect()
}

/// Each table below a heading `### PLACE` has the keys of one place in its first column.
#[test]
fn every_key_of_the_file_is_in_the_reference() {
    const ODD: &str = "qqqqqqqqqqqqqqqqqqqqqqqqqqqqqq: 1";
    let page = {
        let _alone = PAGE.lock().unwrap_or_else(PoisonError::into_inner);
        read("docs/configuration.md")
    };
    let target = |inner: &str| format!("targets: [{{name: a, {inner}}}]");
    let places = [
        ("the file", format!("{{{ODD}}}")),
        ("`scan`", format!("scan: {{{ODD}}}")),
        ("`hold_limits`", format!("hold_limits: {{{ODD}}}")),
        ("`hold_limits.file`", format!("hold_limits: {{file: {{{ODD}}}}}")),
        ("`labels`", format!("labels: {{{ODD}}}")),
        ("`labels.hostname_rewrite[]`", format!("labels: {{hostname_rewrite: [{{{ODD}}}]}}")),
        ("`targets[]`", target(ODD)),
        ("`targets[].restic`", target(&format!("restic: {{{ODD}}}"))),
        ("`targets[].file`", target(&format!("file: {{{ODD}}}"))),
        ("`targets[].hold_limit`", target(&format!("hold_limit: {{{ODD}}}"))),
    ];
    let row = Regex::new(r"(?m)^\| ((?:`\w+`(?:, )?)+) \|").unwrap();
    let key = Regex::new(r"`(\w+)`").unwrap();
    for (place, config) in places {
        let heading = format!("\n### {place}\n");
        let (_, rest) = page
            .split_once(&heading)
            .unwrap_or_else(|| panic!("docs/configuration.md has no heading {place}"));
        let section = rest.split_once("\n## ").map_or(rest, |(section, _)| section);
        let section = section.split_once("\n### ").map_or(section, |(section, _)| section);
        let written: BTreeSet<_> = row
            .captures_iter(section)
            .flat_map(|row| {
                key.captures_iter(row.get(1).unwrap().as_str())
                    .map(|key| key[1].to_owned())
                    .collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(written, keys_known_at(&config), "docs/configuration.md, {place}");
    }
}

#[test]
fn manual_page_and_completions_are_those_of_the_program() {
    let mut manual = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut manual).unwrap();
    compare("packaging/man/lock_exporter.1", &String::from_utf8(manual).unwrap());
    for (shell, file) in [
        (Shell::Bash, "lock_exporter.bash"),
        (Shell::Zsh, "_lock_exporter"),
        (Shell::Fish, "lock_exporter.fish"),
    ] {
        let mut out = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "lock_exporter", &mut out);
        let file = format!("packaging/completions/{file}");
        compare(&file, &String::from_utf8(out).unwrap());
    }
}
