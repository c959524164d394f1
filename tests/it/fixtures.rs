//! Repositories made by real restic, with every kind of lock, read from the local disk.
//!
//! `RESTIC_FIXTURES` names the folder of a manifest (`make-restic-fixtures.sh`). What its
//! `expected` says was written by whoever made the files, not by the code that reads them here.
#![allow(clippy::unwrap_used, reason = "a test that cannot set up has failed")]
#![allow(clippy::disallowed_methods, reason = "reads the manifest and where it is")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lock_exporter::location::Location;
use lock_exporter::lock::{LockEntry, LockMode};
use lock_exporter::scan::{ErrorClass, Look, ScanError};
use lock_exporter::secret::{EnvSpec, PasswordSpec, Secret};
use lock_exporter::source::restic::derivation::DerivationBudget;
use lock_exporter::source::{self, Context};
use lock_exporter::target::{PerMode, ResticSpec, SourceSpec, TargetName, TargetSpec};
use lock_exporter::telemetry::Telemetry;
use serde_json::Value;

fn manifest() -> Value {
    let folder = std::env::var_os("RESTIC_FIXTURES").map(PathBuf::from).expect(
        "RESTIC_FIXTURES must name a folder made by `make-restic-fixtures.sh FOLDER` \
         (needs restic and openssl; FIXTURE_ASK=0 halves its time); tests/run sets it",
    );
    let text = std::fs::read(folder.join("manifest.json"))
        .unwrap_or_else(|error| panic!("{}/manifest.json: {error}", folder.display()));
    serde_json::from_slice(&text).expect("the manifest is JSON")
}

fn context() -> Context {
    Context {
        telemetry: Arc::new(Telemetry::new(&["restic"], &["local"])),
        derivations: Arc::new(DerivationBudget::new(256 << 20)),
    }
}

/// The specification of one repository of the manifest; without a password it is sealed.
fn spec(repository: &Value, password: Option<&str>) -> TargetSpec {
    let path = repository["path"].as_str().unwrap();
    // Empty variables count as none: what runs the tests may have some of restic's own.
    let none = ["RESTIC_PASSWORD", "RESTIC_PASSWORD_FILE", "RESTIC_PASSWORD_COMMAND"];
    let mut env: BTreeMap<_, _> =
        none.into_iter().map(|name| (name.to_owned(), Secret::new(""))).collect();
    let password = match password {
        Some(password) => {
            env.insert("FIXTURE_PASSWORD".into(), Secret::new(password));
            PasswordSpec::Variable("FIXTURE_PASSWORD".into())
        }
        None => PasswordSpec::Inherit,
    };
    TargetSpec {
        name: TargetName::new(repository["name"].as_str().unwrap()).unwrap(),
        interval: Duration::from_secs(60),
        timeout: Duration::from_secs(30),
        hold_limit: PerMode::default(),
        stuck_limit: PerMode::default(),
        host: Arc::default(),
        source: SourceSpec::Restic(ResticSpec {
            repository: Location::parse(path).unwrap(),
            password,
            env: EnvSpec { env, env_file: None, env_dir: None },
            options: BTreeMap::new(),
            key_hint: None,
            cacert: vec![],
            insecure_tls: false,
        }),
    }
}

async fn look(
    repository: &Value,
    password: Option<&str>,
    context: &Context,
) -> Result<Look, ScanError> {
    let source = source::open(&spec(repository, password), context);
    source.ready().await;
    source.scan().await
}

/// Numbers in the manifest's own words.
fn count(look: &Look) -> BTreeMap<&'static str, u64> {
    let mut counts =
        BTreeMap::from([("shared", 0), ("exclusive", 0), ("invalid", 0), ("empty", 0)]);
    for entry in &look.entries {
        let word = match entry {
            LockEntry::Readable(lock) => match lock.mode {
                LockMode::Shared => "shared",
                LockMode::Exclusive => "exclusive",
            },
            LockEntry::Unreadable(..) => "invalid",
            LockEntry::Empty(_) => "empty",
            LockEntry::Sealed(..) => "sealed",
        };
        *counts.entry(word).or_default() += 1;
    }
    counts.insert("files", look.entries.len() as u64);
    counts.insert("foreign", look.ignored.count);
    counts
}

fn expected(repository: &Value) -> BTreeMap<&str, u64> {
    let numbers = repository["expected"].as_object().unwrap();
    numbers
        .iter()
        // Which of the locks are stale is for the judge to say.
        .filter(|(word, _)| *word != "stale")
        .map(|(word, number)| (word.as_str(), number.as_u64().unwrap()))
        .collect()
}

#[tokio::test]
async fn every_fixture_is_reported_as_its_maker_says() {
    let manifest = manifest();
    let context = context();
    let repositories = manifest["repositories"].as_array().unwrap();
    assert!(repositories.len() >= 20, "a manifest with {} repositories", repositories.len());
    for repository in repositories {
        let name = repository["name"].as_str().unwrap();
        for password in repository["passwords"].as_array().unwrap() {
            let result = look(repository, password.as_str(), &context).await;
            let class = match name {
                "wrong-password" => ErrorClass::WrongPassword,
                "no-config" => ErrorClass::Damaged,
                "not-a-repository" => ErrorClass::NotFound,
                _ => {
                    let look = result.unwrap_or_else(|error| panic!("{name}: {error}"));
                    assert_eq!(count(&look), expected(repository), "{name}");
                    let version = repository["format"].as_u64().unwrap().to_string();
                    assert_eq!(*look.facts.details["repository_version"], *version, "{name}");
                    let layout = if name == "s3legacy" { "s3legacy" } else { "default" };
                    assert_eq!(&*look.facts.details["layout"], layout, "{name}");
                    continue;
                }
            };
            let error = result.expect_err(name);
            assert_eq!(error.class, class, "{name}: {error}");
        }
    }
}

#[tokio::test]
async fn without_a_password_every_fixture_is_counted() {
    let context = context();
    for repository in manifest()["repositories"].as_array().unwrap() {
        let name = repository["name"].as_str().unwrap();
        let result = look(repository, None, &context).await;
        match name {
            "no-config" => assert_eq!(result.expect_err(name).class, ErrorClass::Damaged),
            "not-a-repository" => assert_eq!(result.expect_err(name).class, ErrorClass::NotFound),
            _ => {
                let look = result.unwrap_or_else(|error| panic!("{name}: {error}"));
                let (counts, expected) = (count(&look), expected(repository));
                assert!(look.facts.sealed, "{name}");
                for word in ["files", "empty", "foreign"] {
                    assert_eq!(counts[word], expected[word], "{name}: {word}");
                }
                assert_eq!(counts["shared"] + counts["exclusive"], 0, "{name}");
            }
        }
    }
}
