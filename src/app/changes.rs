//! Whether any file that the configuration is made of has changed: a hash over each of them.
//! What a change leads to is not known here.
#![allow(clippy::disallowed_methods, reason = "the files that a configuration names are read here")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::{Interval, MissedTickBehavior};

use super::configured;
use crate::cli::Cli;
use crate::config::Config;
use crate::secret::PasswordSpec;
use crate::target::{SearchSpec, Sought, SourceSpec};
use crate::web::guard::Guard;

/// How often is looked when the flags do not say it.
const EVERY: Duration = Duration::from_secs(30);
/// And never more often than this.
const EVERY_MIN: Duration = Duration::from_millis(100);
/// A file system that takes longer hangs, and changes nothing.
const LIMIT: Duration = Duration::from_secs(60);
/// Of a larger file only the start is looked at; none that is read as configuration is larger.
const BYTES_MAX: u64 = 16 << 20;
/// Files of one folder of variables.
const FILES_MAX: usize = 10_000;

/// Looks at the files of a configuration from time to time, when the flags say so.
#[derive(Debug)]
pub struct Watch<'a> {
    cli: &'a Cli,
    ticks: Option<Interval>,
    seen: Prints,
}

/// A hash over names and contents for each file or folder.
type Prints = BTreeMap<PathBuf, [u8; 32]>;

impl<'a> Watch<'a> {
    /// Knows no file yet.
    pub fn new(cli: &'a Cli) -> Self {
        let ticks = cli.watch.auto_reload.then(|| {
            let every = cli.watch.auto_reload_interval.unwrap_or(EVERY).max(EVERY_MIN);
            let mut ticks = tokio::time::interval(every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        });
        Self { cli, ticks, seen: Prints::new() }
    }

    /// Takes the files that a configuration is made of in, as they are now; what is known of
    /// others stays, so that no change of them is missed.
    pub async fn learn(&mut self, config: &Config, guard: &Guard) {
        if self.ticks.is_some() {
            let now = self.look(config, guard).await;
            // Nothing at all was seen when a file system hangs.
            if now.is_empty() {
                return;
            }
            self.seen.retain(|place, _| now.contains_key(place));
            for (place, print) in now {
                self.seen.entry(place).or_insert(print);
            }
        }
    }

    /// Ends when a known file has changed since the last time, which is forgotten by that.
    pub async fn changed(&mut self, config: &Config, guard: &Guard) {
        loop {
            match &mut self.ticks {
                Some(ticks) => ticks.tick().await,
                None => std::future::pending().await,
            };
            let now = self.look(config, guard).await;
            let differs = |(place, print): (&PathBuf, &[u8; 32])| {
                self.seen.get(place).is_some_and(|known| known != print)
            };
            let changed = now.iter().any(differs);
            self.seen.extend(now);
            if changed {
                tracing::info!("a file of the configuration has changed");
                return;
            }
        }
    }

    async fn look(&self, config: &Config, guard: &Guard) -> Prints {
        let places = places(self.cli, config, guard.files());
        let looking = tokio::task::spawn_blocking(move || prints(places));
        // A fault there would be logged by its hook; nothing has changed then, as far as it shows.
        match tokio::time::timeout(LIMIT, looking).await {
            Ok(looked) => looked.unwrap_or_default(),
            Err(_) => Prints::new(),
        }
    }
}

/// Every file and folder that a configuration was read from or names.
fn places(cli: &Cli, config: &Config, web: Vec<PathBuf>) -> Vec<PathBuf> {
    let watch = &cli.watch;
    let mut places: Vec<PathBuf> = configured::file(watch).into_iter().chain(web).collect();
    places.extend(watch.repository_file.clone());
    for spec in &config.targets {
        let restic = match &spec.source {
            SourceSpec::Restic(restic) => restic.clone(),
            SourceSpec::Search(SearchSpec { sought: Sought::Repositories(sought), .. }) => {
                sought.start()
            }
            SourceSpec::Search(_) | SourceSpec::File(_) => continue,
        };
        match &restic.password {
            PasswordSpec::File(path) | PasswordSpec::MasterKeyFile(path) => {
                places.push(path.clone());
            }
            PasswordSpec::Inherit
            | PasswordSpec::Command(_)
            | PasswordSpec::Variable(_)
            | PasswordSpec::Empty => {}
        }
        places.extend(restic.cacert.iter().cloned());
        places.extend(restic.env.env_file.clone());
        places.extend(restic.env.env_dir.clone());
    }
    places.sort();
    places.dedup();
    places
}

/// What cannot be read counts as such, so that its coming back is a change too.
fn prints(places: Vec<PathBuf>) -> Prints {
    let print = |place: PathBuf| {
        let mut hash = Sha256::new();
        if place.is_dir() {
            add_folder(&mut hash, &place);
        } else {
            add_file(&mut hash, &place);
        }
        (place, hash.finalize().into())
    };
    places.into_iter().map(print).collect()
}

fn add_folder(hash: &mut Sha256, folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return add_file(hash, folder) };
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).take(FILES_MAX).collect();
    files.sort();
    for file in files {
        add_file(hash, &file);
    }
}

fn add_file(hash: &mut Sha256, path: &Path) {
    let mut content = Sha256::new();
    // Pipes and devices would be waited for, or never end.
    let is_file = std::fs::metadata(path).is_ok_and(|meta| meta.is_file());
    let read = is_file
        && File::open(path)
            .and_then(|file| std::io::copy(&mut file.take(BYTES_MAX), &mut Hashing(&mut content)))
            .is_ok();
    let name = path.as_os_str().as_encoded_bytes();
    hash.update((name.len() as u64).to_be_bytes());
    hash.update(name);
    hash.update([u8::from(read)]);
    hash.update(content.finalize());
}

struct Hashing<'a>(&'a mut Sha256);

impl std::io::Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_change_of_a_file_or_in_a_folder_is_another_print() {
        let folder = tempfile::tempdir().unwrap();
        let (file, dir) = (folder.path().join("file"), folder.path().join("dir"));
        fs::create_dir(&dir).unwrap();
        let prints = || prints(vec![file.clone(), dir.clone()]);
        let changes: [&dyn Fn(); 6] = [
            &|| fs::write(&file, "a").unwrap(),
            &|| fs::write(&file, "b").unwrap(),
            &|| fs::write(dir.join("KEY"), "b").unwrap(),
            &|| fs::write(dir.join("KEY"), "").unwrap(),
            &|| fs::rename(dir.join("KEY"), dir.join("OTHER")).unwrap(),
            &|| fs::remove_file(&file).unwrap(),
        ];
        let mut before = prints();
        for (number, change) in changes.iter().enumerate() {
            change();
            let after = prints();
            assert_ne!(before, after, "change {number}");
            assert_eq!(after, prints());
            before = after;
        }
    }
}
