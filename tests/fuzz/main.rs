//! Mutated input for every parser of what others write. No input may make one panic, break what
//! must always be true of its result, or take more memory than the parser's bound.
//!
//! Valid samples lie in `corpus/PARSER/`, beside inputs that once found a fault. They are tried
//! first as they are, then changed at random; an input that gets a kind of answer nobody got before
//! becomes a sample too. With one seed the inputs are the same each time.
//!
//! ```text
//! cargo test --test fuzz [PART-OF-A-NAME...]
//! ```
//!
//! Environment: `LOCK_EXPORTER_FUZZ_INPUTS` is the number of inputs for each parser,
//! `LOCK_EXPORTER_FUZZ_SEED` the seed, a number or `random`. An input that fails is kept in
//! `target/tmp/fuzz`. What ends the whole process (a stack that overflows, memory that nobody has)
//! leaves its input in the file that `LOCK_EXPORTER_FUZZ_LAST` names, at the cost of speed.
//!
//! What C code allocates (zstd) is not counted; there the bound is that of the buffer it is given.
#![allow(clippy::disallowed_methods, reason = "reads samples, keeps findings, tells how long")]

mod listings;
mod mutate;
mod parsers;
mod requests;
mod state;
mod texts;

use std::collections::HashSet;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, fs};

use mutate::Mutator;
use parsers::{PARSERS, Parser};
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Inputs for each parser unless told otherwise: seconds in a debug build.
const INPUTS: usize = 300;
const SEED: u64 = 20260102;
/// Samples that are kept while running.
const SAMPLES_MAX: usize = 2_000;
/// A parser is given up after so many findings.
const FINDINGS_MAX: usize = 5;

/// What came of one parser.
#[derive(Default)]
struct Report {
    inputs: usize,
    answers: usize,
    findings: Vec<String>,
    /// Most bytes allocated at once, and by an input of how many bytes.
    largest: (usize, usize),
    slowest: Duration,
}

struct Run<'a> {
    parser: &'a Parser,
    report: Report,
    answers: HashSet<u64>,
    last: Option<PathBuf>,
}

impl Run<'_> {
    /// Tries an input; true when its kind of answer is new.
    fn try_one(&mut self, input: &[u8]) -> bool {
        if let Some(last) = &self.last {
            fs::write(last, input).expect("LOCK_EXPORTER_FUZZ_LAST can be written");
        }
        self.report.inputs += 1;
        MEMORY.reset_peak_usage();
        let before = MEMORY.current_usage();
        let started = Instant::now();
        let answer = panic::catch_unwind(AssertUnwindSafe(|| (self.parser.run)(input)));
        let took = started.elapsed();
        let taken = MEMORY.peak_usage().saturating_sub(before);
        self.report.slowest = self.report.slowest.max(took);
        if taken > self.report.largest.0 {
            self.report.largest = (taken, input.len());
        }
        let bound = self.parser.bound(input.len());
        match answer {
            Err(panic) => self.found(input, &words_of(&*panic)),
            Ok(_) if taken > bound => {
                self.found(input, &format!("{taken} bytes allocated, of {bound}"));
            }
            Ok(answer) => return self.answers.insert(answer),
        }
        false
    }

    fn found(&mut self, input: &[u8], what: &str) {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz");
        fs::create_dir_all(&folder).expect("target can be written");
        let number = self.report.findings.len();
        let kept = folder.join(format!("{}-{number}", self.parser.name));
        fs::write(&kept, input).expect("target can be written");
        self.report.findings.push(format!("{what}; input kept as {}", kept.display()));
    }
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("panic: {}", text.unwrap_or_default())
}

/// The saved samples of a parser, in the order of their names.
fn saved(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(name);
    let Ok(entries) = fs::read_dir(&folder) else { return Vec::new() };
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("can be listed").path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("can be read")).collect()
}

fn fuzz(parser: &Parser, inputs: usize, seed: u64) -> Report {
    let last = env::var_os("LOCK_EXPORTER_FUZZ_LAST").map(PathBuf::from);
    let mut run = Run { parser, report: Report::default(), answers: HashSet::new(), last };
    let mut samples = saved(parser.name);
    samples.extend((parser.samples)());
    assert!(!samples.is_empty(), "no samples of {}", parser.name);
    // What is set up once in a process does not count against an input.
    (parser.run)(&samples[0]);
    for sample in &samples {
        run.try_one(sample);
    }
    let mut mutator = Mutator::new(seed, parser.words);
    let mut input = Vec::new();
    while run.report.inputs < inputs && run.report.findings.len() < FINDINGS_MAX {
        mutator.make(&samples, &mut input);
        if run.try_one(&input) && samples.len() < SAMPLES_MAX {
            samples.push(input.clone());
        }
    }
    run.report.answers = run.answers.len();
    run.report
}

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

fn main() {
    let wanted: Vec<String> = env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let inputs = number("LOCK_EXPORTER_FUZZ_INPUTS").map_or(INPUTS, |number| number as usize);
    let seed = match env::var("LOCK_EXPORTER_FUZZ_SEED").as_deref() {
        Ok("random") => fastrand::u64(..),
        _ => number("LOCK_EXPORTER_FUZZ_SEED").unwrap_or(SEED),
    };
    println!("fuzz: seed {seed}");
    // Panics are findings, told once below.
    panic::set_hook(Box::new(|_| {}));
    let (mut passed, mut failed) = (0, 0);
    for parser in PARSERS {
        if !wanted.is_empty() && !wanted.iter().any(|word| parser.name.contains(&**word)) {
            continue;
        }
        let started = Instant::now();
        let report = fuzz(parser, inputs, seed);
        println!(
            "{:<18} {:>8} inputs {:>5} answers {:>7.1} s, slowest {:>6} us, \
             at most {:>8} bytes for {:>6}: {} findings",
            parser.name,
            report.inputs,
            report.answers,
            started.elapsed().as_secs_f64(),
            report.slowest.as_micros(),
            report.largest.0,
            report.largest.1,
            report.findings.len(),
        );
        for finding in &report.findings {
            println!("  {finding}");
        }
        if report.findings.is_empty() { passed += 1 } else { failed += 1 }
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {word}. {passed} passed; {failed} failed;");
    std::process::exit(i32::from(failed > 0));
}
