//! The structure of the crate: who imports whom, how large files are, what no file may hold.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Modules by line: a file may import lines below its own, never its own or higher ones.
const LINES: &[(&str, u8)] = &[
    ("lock", 0),
    ("secret", 0),
    ("location", 0),
    ("label", 0),
    ("pattern", 0),
    ("target", 1),
    ("judge", 2),
    ("scan", 2),
    ("shard", 2),
    ("roster", 3),
    ("status", 3),
    ("tracker", 4),
    ("config", 4),
    ("telemetry", 4),
    ("evidence", 4),
    ("proc", 5),
    ("state", 6),
    ("store", 5),
    ("exposition", 5),
    ("source", 6),
    ("reload", 6),
    ("scanner", 7),
    ("discovery", 8),
    ("web", 7),
    ("supervisor", 8),
    ("app", 9),
    ("cli", 9),
    ("cmd", 10),
];

/// Imports inside one line that are allowed, because the one is the other's vocabulary.
const SIBLINGS: &[(&str, &str)] = &[("web", "scanner"), ("app", "cli"), ("web", "cli")];

/// Modules that know no clock, no file, no network and no task.
const PURE: &[&str] = &[
    "lock",
    "location",
    "label",
    "pattern",
    "shard",
    "judge",
    "scan",
    "target",
    "config",
    "status",
    "tracker",
    "evidence",
    "exposition",
];

/// What a pure module never names. Clocks and the environment are banned by clippy already.
const IMPURE: &[&str] =
    &["tokio::", "std::fs", "std::net", "std::process", "tracing::", "fastrand"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &Path, ending: &str, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, ending, out);
        } else if path.to_string_lossy().ends_with(ending) {
            out.push(path);
        }
    }
}

fn sources() -> Vec<(String, String)> {
    let mut paths = Vec::new();
    files(&root().join("src"), ".rs", &mut paths);
    assert!(paths.len() > 20, "the source was not found");
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
            (name, text)
        })
        .collect()
}

/// The top-level module that a file belongs to: `src/store/s3.rs` → `store`.
fn module(file: &str) -> &str {
    let inner = file.strip_prefix("src/").unwrap();
    inner.split(['/', '.']).next().unwrap()
}

fn is_test(file: &str) -> bool {
    file.ends_with("tests.rs") || file.contains("/tests/") || file.contains("/simulation/")
}

/// The code of a file without its tests and comments.
fn code(file: &str, text: &str) -> String {
    if is_test(file) {
        return String::new();
    }
    text.split("#[cfg(test)]\nmod ")
        .next()
        .unwrap()
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Top-level modules that a text names with `crate::`, single or in a braced list.
fn imports(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for part in code.split("crate::").skip(1) {
        let names = if let Some(list) = part.strip_prefix('{') {
            list.split('}').next().unwrap_or_default().to_owned()
        } else {
            part.to_owned()
        };
        let first_only = !part.starts_with('{');
        for name in names.split(',') {
            let word: String = name
                .trim()
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                .collect();
            if !word.is_empty() {
                found.push(word);
            }
            if first_only {
                break;
            }
        }
    }
    found
}

#[test]
fn imports_go_down_only() {
    let lines: BTreeMap<&str, u8> = LINES.iter().copied().collect();
    let mut wrong = Vec::new();
    for (file, text) in sources() {
        let own = module(&file);
        if matches!(own, "lib" | "main") {
            continue;
        }
        let line = *lines.get(own).unwrap_or_else(|| panic!("{file}: which line is {own} on?"));
        for import in imports(&code(&file, &text)) {
            let Some(other) = lines.get(import.as_str()) else { continue };
            let sibling = SIBLINGS.contains(&(own, import.as_str()));
            if import != own && *other >= line && !sibling {
                wrong.push(format!("{file} ({line}) imports {import} ({other})"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn one_source_never_imports_another() {
    let kinds: Vec<String> = std::fs::read_dir(root().join("src/source"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().replace(".rs", ""))
        .filter(|name| name != "mod")
        .collect();
    for (file, text) in sources() {
        let Some(inner) = file.strip_prefix("src/source/") else { continue };
        let own = inner.split(['/', '.']).next().unwrap();
        if own == "mod" {
            continue;
        }
        for kind in kinds.iter().filter(|kind| *kind != own) {
            let code = code(&file, &text);
            assert!(!code.contains(&format!("source::{kind}")), "{file} imports {kind}");
        }
    }
}

#[test]
fn pure_modules_do_no_input_or_output() {
    for (file, text) in sources() {
        if !PURE.contains(&module(&file)) {
            continue;
        }
        let code = code(&file, &text);
        for word in IMPURE {
            assert!(!code.contains(word), "{file} names {word}");
        }
        assert!(!code.contains("clippy::disallowed_methods"), "{file} allows what clippy bans");
    }
}

#[test]
fn nothing_but_demo_and_tests_can_reach_the_writer_of_repositories() {
    for (file, text) in sources() {
        if !file.starts_with("src/cmd/demo/") {
            assert!(!code(&file, &text).contains("demo::writer"), "{file} uses the writer");
        }
    }
}

#[test]
fn every_file_says_what_it_is_for_and_stays_readable() {
    for (file, text) in sources() {
        let length = text.lines().count();
        assert!(length <= 900, "{file} has {length} lines");
        if is_test(&file) {
            continue;
        }
        assert!(text.starts_with("//! "), "{file} does not begin with what it is for");
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap();
        for (number, line) in code.lines().enumerate() {
            let columns = line.chars().count();
            let number = number + 1;
            // Texts for people, such as HELP lines, are not broken.
            let in_text = line.contains('"') || line.ends_with('\\');
            assert!(columns <= 100 || in_text, "{file}:{number} has {columns} columns");
        }
    }
}

#[test]
fn no_code_is_unsafe() {
    for (file, text) in sources() {
        assert!(!code(&file, &text).contains("unsafe "), "{file}");
    }
}

#[test]
fn every_top_level_folder_is_there() {
    for name in ["Cargo.toml", "src", "dashboards", "alerts", "tests", "helm"] {
        assert!(root().join(name).exists(), "{name} is missing");
    }
}
