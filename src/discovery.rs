//! Searches for targets: repositories below a folder or prefix, lock files that match a pattern.
//!
//! A search is scanned by the same loops as a target, so it has their time limit, back-off and log;
//! what it finds goes to the [`Roster`], which makes targets of it. It never looks into `data/`,
//! and lists folders one level at a time.
#![allow(clippy::disallowed_methods, reason = "searches run between scans")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use self::walk::{LISTINGS_AT_ONCE, Memory, find};
use crate::roster::{Change, Roster, Sight};
use crate::scan::{ErrorClass, Facts, Ignored, Look, ScanError, UnknownWhy};
use crate::scanner::Open;
use crate::secret::Environment;
use crate::source::file::Matches;
use crate::source::{self, Context, LockSource};
use crate::store::{self, ReadStore};
use crate::target::{Files, Repositories, Sought, TargetSpec};

mod walk;

/// Makes the reader of every target, searches included, whose finds go to this roster.
pub fn opener(roster: &Arc<Roster>) -> Open {
    let roster = Arc::clone(roster);
    Arc::new(move |spec: &TargetSpec, context: &Context| match spec.search() {
        None => source::open(spec, context),
        Some(_) => Box::new(Search::new(spec.clone(), Arc::clone(&roster), context)),
    })
}

/// One search.
struct Search {
    entry: TargetSpec,
    roster: Arc<Roster>,
    context: Context,
    /// The open backend, once for each listing at the same time.
    stores: Mutex<Vec<Arc<dyn ReadStore>>>,
    memory: Memory,
    matches: Matches,
}

/// What one search saw, with what could not be part of it.
struct Seen {
    sight: Sight,
    ignored: Ignored,
    /// The first folder that it may not look into, as a failure.
    closed: Option<ScanError>,
}

impl Search {
    fn new(entry: TargetSpec, roster: Arc<Roster>, context: &Context) -> Self {
        let matches = Matches::new(entry.timeout, context);
        let (stores, memory, context) = (Mutex::default(), Memory::default(), context.clone());
        Self { entry, roster, context, stores, memory, matches }
    }

    async fn search(&self) -> Result<Look, ScanError> {
        let Some(search) = self.entry.search() else {
            return Err(ScanError::new(ErrorClass::Internal, "search", "this is no search", ""));
        };
        let seen = match &search.sought {
            Sought::Repositories(sought) => self.repositories(sought, search.max).await?,
            Sought::Files(sought) => self.files(sought, search.max).await?,
        };
        let change = self.roster.saw(&self.entry, &seen.sight);
        if change != Change::default() {
            let Change { new, gone } = change;
            let (target_name, found) = (&self.entry.name, seen.sight.found.len());
            tracing::info!(%target_name, found, new, gone, "search: targets have changed");
        }
        if let Some(error) = seen.closed {
            return Err(error);
        }
        let found = seen.sight.found.len().to_string();
        // Configured targets and other exporters' are not ours to make.
        let targets = self.roster.targets();
        let targets = targets.iter().filter(|spec| self.entry.name.is_above(spec.name.as_str()));
        let targets = targets.count().to_string();
        let facts = Facts {
            unknown: Some(UnknownWhy::Search),
            details: [("found", found.into()), ("targets", targets.into())].into(),
            ..Facts::default()
        };
        Ok(Look { facts, ignored: seen.ignored, ..Look::default() })
    }

    async fn repositories(&self, sought: &Repositories, max: usize) -> Result<Seen, ScanError> {
        let stores = self.open(sought).await?;
        let found = find(&stores, sought, max, &self.memory).await.inspect_err(|_| self.close())?;
        if found.repositories.is_empty() && found.closed.is_empty() {
            // A disk that is not mounted and a slip of the pen look the same.
            return Err(ScanError::new(
                ErrorClass::NotFound,
                "search for repositories",
                &format!("there is none in {}", self.entry.location()),
                "Check the place, and that its file system is mounted; raise depth if they are \
                 deeper.",
            ));
        }
        let paths = |paths: BTreeSet<String>| paths.into_iter().map(PathBuf::from).collect();
        let more = found.closed.len().saturating_sub(1);
        let closed = found.first_closed.map(|error| {
            let cause = match more {
                0 => error.cause,
                more => format!("{} (and {more} more folders)", error.cause),
            };
            let advice = format!(
                "{}{}Or pass over it with exclude.",
                error.advice,
                if error.advice.is_empty() { "" } else { " " }
            );
            ScanError::new(error.kind.class(), &error.doing, &cause, &advice)
        });
        // A file system that is not mounted leaves a bare folder: what was found there is not gone.
        let kept = found.closed.into_iter().chain(found.bare).collect();
        let sight = Sight { found: paths(found.repositories), kept: paths(kept) };
        Ok(Seen { sight, ignored: found.odd, closed })
    }

    async fn files(&self, sought: &Files, max: usize) -> Result<Seen, ScanError> {
        let found = self.matches.find(&sought.glob, max).await?;
        let relative = |path: PathBuf| sought.glob.relative(&path).map(PathBuf::from);
        let sight = Sight {
            found: found.paths.into_iter().filter_map(relative).collect(),
            kept: found.closed.into_iter().filter_map(relative).collect(),
        };
        Ok(Seen { sight, ignored: Ignored::default(), closed: found.error })
    }

    async fn open(&self, sought: &Repositories) -> Result<Vec<Arc<dyn ReadStore>>, ScanError> {
        let known = self.stores().clone();
        if !known.is_empty() {
            return Ok(known);
        }
        let start = sought.start();
        let environment = Environment::load(&start.env).await.map_err(|error| {
            ScanError::new(ErrorClass::Config, &error.doing, &error.cause, &error.advice)
        })?;
        let (timeout, telemetry) = (self.entry.timeout, &self.context.telemetry);
        let stores = (0..LISTINGS_AT_ONCE)
            .map(|_| store::open(&start, &environment, timeout, telemetry))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| walk::failed(&error))?;
        self.stores().clone_from(&stores);
        Ok(stores)
    }

    fn stores(&self) -> MutexGuard<'_, Vec<Arc<dyn ReadStore>>> {
        self.stores.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Secrets may have changed; they are read when it is opened.
    fn close(&self) {
        self.stores().clear();
    }
}

#[async_trait]
impl LockSource for Search {
    async fn scan(&self) -> Result<Look, ScanError> {
        // Also when the time limit drops this.
        let _searched = Searched(self);
        self.search().await
    }

    async fn ready(&self) {}
}

struct Searched<'a>(&'a Search);

impl Drop for Searched<'_> {
    fn drop(&mut self) {
        self.0.roster.searched(&self.0.entry.name);
    }
}
