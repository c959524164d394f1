//! Since when a new lock of each mode would have been refused at every look.
//!
//! Only a look that finds the mode free ends such a run. A look that cannot tell neither ends nor
//! begins one, and a failed scan is no look at all.

use std::time::Duration;

use jiff::Timestamp;

use super::held::Held;
use super::memory::{LookTime, per_mode, signed};
use crate::judge;
use crate::lock::{LockEntry, LockMode};
use crate::status::SeenEntry;
use crate::target::PerMode;

/// The runs of one target.
#[derive(Default)]
pub(super) struct Runs(pub PerMode<Option<Run>>);

#[derive(Clone, Copy)]
pub(super) struct Run {
    pub since: Timestamp,
    /// The same by what every clock agrees upon.
    pub surely_since: Timestamp,
    /// End of its first look, as long as files of that look are sealed: they may show earlier
    /// times once they are opened.
    pub undated: Option<Timestamp>,
    /// End of the last look that found the mode blocked.
    pub last: Timestamp,
}

impl Runs {
    /// Takes in one look: its files, and the holds behind the readable ones. Returns since when
    /// each mode is blocked, and by what every clock agrees upon.
    ///
    /// Nobody knows what happened in a pause of more than `hold` between two looks, so it ends a
    /// run, unless something that blocks now was there before it.
    pub fn look<'a>(
        &mut self,
        time: LookTime,
        entries: &[SeenEntry],
        holds: impl Iterator<Item = &'a Held> + Clone,
        hold: Duration,
    ) -> (PerMode<Option<Timestamp>>, PerMode<Option<Timestamp>>) {
        let blocked = judge::blocked(entries.iter().map(|seen| &seen.entry));
        let (mut shown, mut surely_shown) = Default::default();
        for mode in LockMode::ALL {
            let run = per_mode(&mut self.0, mode);
            match blocked.of(mode) {
                Some(false) => *run = None,
                None => {}
                Some(true) => {
                    let files = entries
                        .iter()
                        .filter(|seen| judge::blocks(&seen.entry, mode) == Some(true));
                    let holders = holds.clone().filter(|held| blocks(held.mode, mode));
                    let was_there = |last: Timestamp| {
                        files.clone().any(|seen| seen.first_seen <= last)
                            || holders.clone().any(|held| held.first_look <= last)
                    };
                    let unbroken = run.filter(|run| {
                        time.ended.duration_since(run.last) <= signed(hold) || was_there(run.last)
                    });
                    let begins = || {
                        let unheld = files.clone().filter(|seen| !is_readable(&seen.entry));
                        let begins = unheld.map(written);
                        let held = |held: &Held| (held.held_since, held.surely_since);
                        begins.chain(holders.clone().map(held)).reduce(earlier)
                    };
                    let ((since, surely_since), undated) = match unbroken {
                        None => (begins().unwrap_or((time.ended, time.ended)), Some(time.ended)),
                        Some(Run { since, surely_since, undated, .. }) => {
                            let began = |seen: &&SeenEntry| {
                                undated.is_some_and(|began| seen.first_seen <= began)
                            };
                            let first = files.clone().filter(began).map(written);
                            (first.fold((since, surely_since), earlier), undated)
                        }
                    };
                    let sealed = |began: &Timestamp| {
                        let mut first = files.clone().filter(|seen| seen.first_seen <= *began);
                        first.any(|seen| matches!(seen.entry, LockEntry::Sealed(..)))
                    };
                    let undated = undated.filter(sealed);
                    *run = Some(Run { since, surely_since, undated, last: time.ended });
                    *per_mode(&mut shown, mode) = Some(since);
                    *per_mode(&mut surely_shown, mode) = Some(surely_since);
                }
            }
        }
        (shown, surely_shown)
    }
}

/// When a file was written, and by when at the latest.
fn written(seen: &SeenEntry) -> (Timestamp, Timestamp) {
    (seen.refreshed_at(), seen.written_by())
}

fn earlier(a: (Timestamp, Timestamp), b: (Timestamp, Timestamp)) -> (Timestamp, Timestamp) {
    (a.0.min(b.0), a.1.min(b.1))
}

/// Whether a hold of one mode refuses a new lock of another.
fn blocks(held: LockMode, new: LockMode) -> bool {
    match (held, new) {
        (LockMode::Exclusive, _) | (LockMode::Shared, LockMode::Exclusive) => true,
        (LockMode::Shared, LockMode::Shared) => false,
    }
}

fn is_readable(entry: &LockEntry) -> bool {
    match entry {
        LockEntry::Readable(_) => true,
        LockEntry::Sealed(..) | LockEntry::Empty(_) | LockEntry::Unreadable(..) => false,
    }
}
