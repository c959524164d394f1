//! What one look shows of each file, in words.

use jiff::{SignedDuration, Timestamp};

use super::file::of_process;
use super::signed;
use super::words::{ago, in_words, plain, quoted};
use crate::judge::{self, StaleReason, Verdict};
use crate::lock::{
    GoneReason, LeasePolicy, Liveness, Lock, LockEntry, LockId, LockMode, SealedWhy, Stub,
    UnreadableWhy,
};
use crate::status::{ClockStep, Hold, Phase, Seen, SeenEntry, TargetStatus};

/// What the last successful look shows about one target. Make it once for all its files.
#[derive(Debug)]
pub struct Evidence<'a> {
    pub(super) target: &'a TargetStatus,
    pub(super) seen: &'a Seen,
    pub(super) policy: &'a LeasePolicy,
    /// When it is read. Verdicts are as of the look, ages in words as of this moment: a page
    /// shows every age by one clock.
    pub(super) now: Timestamp,
    /// Quoted for a shell.
    pub(super) location: String,
    /// A file that restic takes for stale and that may be a living holder's: while it is there,
    /// `unlock` is dangerous to it.
    pub(super) endangered: Option<&'a SeenEntry>,
}

impl<'a> Evidence<'a> {
    /// Weighs one look, which is of this target, to be read at `now`.
    pub fn new(target: &'a TargetStatus, seen: &'a Seen, now: Timestamp) -> Self {
        let location = quoted(&target.spec.location());
        let policy = &target.policy;
        let mut this = Self { target, seen, policy, now, location, endangered: None };
        this.endangered = seen.entries.iter().find(|entry| match &entry.entry {
            LockEntry::Readable(_) => this.may_be_stale(entry) && !this.is_dead(entry),
            LockEntry::Sealed(..) | LockEntry::Empty(_) | LockEntry::Unreadable(..) => false,
        });
        this
    }

    /// Whether restic takes it for stale on this machine, or on one with another clock that may
    /// be the right one.
    fn may_be_stale(&self, entry: &SeenEntry) -> bool {
        let limit = signed(self.policy.stale_limit);
        let stepped = self.recent_step().map_or(SignedDuration::ZERO, |step| signed(step.together));
        let old = |own: Timestamp| {
            let seen_for = self.since(entry.not_before.unwrap_or(entry.first_seen));
            let by_storage = entry.entry.stub().stored_at.map(|at| at.duration_since(own));
            let by_storage = by_storage.map(|age| age.saturating_add(seen_for));
            self.since(own).saturating_add(stepped) > limit || by_storage > Some(limit)
        };
        let keeps_old_time =
            self.keeps_old_time(entry).is_some_and(|hold| self.since(hold.held_since) > limit);
        self.verdict(entry).is_stale()
            || keeps_old_time
            || entry.entry.refreshed_at().is_some_and(old)
    }

    /// The verdict on one file as of the look.
    pub fn verdict(&self, entry: &SeenEntry) -> Verdict {
        judge::judge_entry(&entry.entry, entry.first_seen, self.policy, self.seen.at)
    }

    /// How long ago it was at the look: what is judged.
    pub(super) fn since(&self, then: Timestamp) -> SignedDuration {
        self.seen.at.duration_since(then)
    }

    /// How long ago it is: what is said.
    pub(super) fn until_now(&self, then: Timestamp) -> SignedDuration {
        self.now.duration_since(then)
    }

    /// `3 min ago`, or `3 min ahead`.
    pub(super) fn ago(&self, then: Timestamp) -> String {
        ago(self.until_now(then))
    }

    /// Whether the look is the last attempt, so that what it saw is how it is.
    pub(super) fn is_current(&self) -> bool {
        matches!(self.target.phase, Phase::Seen(_))
    }

    fn entry(&self, id: &LockId) -> Option<&'a SeenEntry> {
        let found = self.seen.entries.binary_search_by(|seen| seen.entry.stub().id.cmp(id));
        found.ok().map(|index| &self.seen.entries[index])
    }

    pub(super) fn newest(&self, hold: &Hold) -> Option<&'a SeenEntry> {
        self.entry(hold.files.first()?)
    }

    /// The hold whose newest file this is, when that has the same old time as the one before.
    fn keeps_old_time(&self, entry: &SeenEntry) -> Option<&'a Hold> {
        let id = &entry.entry.stub().id;
        self.seen.holds.iter().find(|hold| hold.keeps_old_time && hold.files.first() == Some(id))
    }

    fn is_old(&self, time: Timestamp) -> bool {
        self.since(time) > signed(self.policy.stale_limit)
    }

    /// The last step of this machine's clock, as long as it spoils ages by other clocks.
    pub(super) fn recent_step(&self) -> Option<ClockStep> {
        self.target.clock_step.filter(|step| self.since(step.at) <= ClockStep::SPOILS)
    }

    /// `jumped 31 min forward 2 min ago`.
    pub(super) fn jumped(&self, step: ClockStep) -> String {
        let side = if step.by.is_negative() { "back" } else { "forward" };
        let when = self.until_now(step.at).max(SignedDuration::ZERO);
        format!("jumped {} {side} {}", in_words(step.by), ago(when))
    }

    /// Whether a time of another clock is so old that no step of this machine's clock explains it.
    fn is_old_by_any_clock(&self, time: Timestamp) -> bool {
        let stepped = self.recent_step().map_or(SignedDuration::ZERO, |step| signed(step.together));
        self.since(time) > signed(self.policy.stale_limit).saturating_add(stepped)
    }

    /// Whether the evidence says that nobody refreshes this lock any more: its owner is gone, its
    /// name has been seen for too long, or it is too old by every clock that dates it.
    pub fn is_dead(&self, entry: &SeenEntry) -> bool {
        let own = entry.entry.refreshed_at();
        let stored = entry.entry.stub().stored_at;
        let old = |time: Timestamp| self.is_old_by_any_clock(time);
        if let LockEntry::Readable(lock) = &entry.entry
            && lock.liveness.is_alive()
        {
            // It may be hung, but it is there: to take its lock away is dangerous.
            return false;
        }
        match self.verdict(entry) {
            Verdict::Stale(StaleReason::Owner(GoneReason::Gone) | StaleReason::Unrefreshed) => true,
            // When a host booted and a process began is told by this machine's clock.
            Verdict::Stale(StaleReason::Owner(GoneReason::Rebooted | GoneReason::Reused)) => {
                self.recent_step().is_none() || self.is_old(entry.first_seen)
            }
            Verdict::Stale(StaleReason::Age) => {
                // A time from before a look that did not see the name is proof of a wrong clock.
                let written = own.or(stored);
                let is_possible = |written: Timestamp| {
                    // As the clocks were when the name was first seen.
                    let written = written.checked_add(entry.clock_moved).unwrap_or(written);
                    entry.not_before.is_none_or(|before| written >= before)
                };
                self.is_old(entry.first_seen)
                    || (written.is_some_and(is_possible)
                        && own.is_none_or(old)
                        && stored.is_none_or(old))
            }
            Verdict::Fresh | Verdict::Overdue | Verdict::Doomed | Verdict::Unjudged => false,
        }
    }

    /// What one file shows: one sentence without an end mark, on one line, safe to print.
    pub fn sentence(&self, entry: &SeenEntry) -> String {
        let said = match &entry.entry {
            LockEntry::Readable(lock) => self.readable(lock, entry),
            LockEntry::Sealed(stub, why) => self.sealed(stub, why, entry),
            LockEntry::Empty(_) => "empty: a file of 0 bytes is no lock and blocks nobody".into(),
            LockEntry::Unreadable(stub, why) => self.unreadable(stub, *why),
        };
        match self.is_current() {
            true => said,
            false => format!("when last seen, {}: {said}", self.ago(self.seen.at)),
        }
    }

    fn name_seen_for(&self, entry: &SeenEntry) -> String {
        in_words(self.until_now(entry.first_seen))
    }

    fn readable(&self, lock: &Lock, entry: &SeenEntry) -> String {
        if self.is_of_file() {
            return self.of_lock_file(lock);
        }
        let mut text = match self.verdict(entry) {
            Verdict::Stale(StaleReason::Owner(reason)) => match self.recent_step() {
                Some(step) if !self.is_dead(entry) => format!(
                    "{}, or so it seems: this machine's clock {}; look again before unlocking",
                    owner_gone(reason),
                    self.jumped(step)
                ),
                Some(_) | None => owner_gone(reason).to_string(),
            },
            Verdict::Stale(StaleReason::Unrefreshed) => format!(
                "stale: same file name for {}; restic's own rule does not see it, because the \
                 lock's time is {}",
                self.name_seen_for(entry),
                entry.entry.refreshed_at().map_or("missing".into(), |own| self.ago(own)),
            ),
            Verdict::Stale(StaleReason::Age) => self.aged(entry),
            verdict @ (Verdict::Fresh | Verdict::Overdue | Verdict::Doomed) => {
                self.alive(lock, entry, verdict)
            }
            Verdict::Unjudged => "no lock".to_string(),
        };
        if let Some(process) = of_process(lock) {
            text.push_str("; ");
            text.push_str(&process);
        }
        if let Some(doubt) = lock.doubt {
            text.push_str("; probably not a lock at all: ");
            text.push_str(doubt);
        }
        text
    }

    /// Stale by restic's rule; whether the other evidence agrees.
    fn aged(&self, entry: &SeenEntry) -> String {
        let Some(own) = entry.entry.refreshed_at() else {
            return format!(
                "stale by restic's rule, because it states no time; this name was first seen {}",
                self.ago(entry.first_seen)
            );
        };
        if self.is_old(entry.first_seen) {
            let name = self.name_seen_for(entry);
            return format!("stale: same file name for {name}; restic's own rule agrees");
        }
        if self.is_dead(entry) {
            return format!("stale by age: last refresh {} by the holder's clock", self.ago(own));
        }
        if let Some(step) = self.recent_step()
            && !self.is_old_by_any_clock(own)
        {
            return format!(
                "restic's rule says stale on this machine, but its clock {}: ages are not reliable \
                 until the next refresh; do not unlock",
                self.jumped(step)
            );
        }
        // The clock that contradicts: a look without this name, or the storage.
        let (what, when) = match (entry.not_before, entry.entry.stub().stored_at) {
            (Some(_), _) => ("this name appeared", entry.first_seen),
            (None, Some(stored)) => ("the file was stored", stored),
            (None, None) => ("this name appeared", entry.first_seen),
        };
        if self.keeps_old_time(entry).is_some() {
            return format!(
                "restic's rule says stale, but {what} {} with the same old time as the one \
                 before: a client of restic 0.9.6 or older refreshes like this; do not unlock",
                self.ago(when)
            );
        }
        if entry.entry.stub().stored_at.is_some_and(|stored| self.is_old(stored)) {
            return format!(
                "restic's rule says stale and the storage's time agrees, but {what} {}: a copied \
                 file or a listing that came late; look again before unlocking",
                self.ago(when)
            );
        }
        let behind = in_words(entry.clock_skew().unwrap_or_else(|| own.duration_since(when)));
        format!(
            "restic's rule says stale, but {what} {}: the holder's clock is about {behind} \
             behind; do not unlock",
            self.ago(when)
        )
    }

    fn alive(&self, lock: &Lock, entry: &SeenEntry, verdict: Verdict) -> String {
        let mode = lock.mode.as_str();
        // What another clock contradicts is not said.
        let written = entry.written_by();
        let refreshed = self.ago(written);
        let seen_for = self.since(entry.first_seen);
        let late = judge::by_silence(self.since(written), seen_for, self.policy);
        if matches!(verdict, Verdict::Overdue | Verdict::Doomed) && late == Verdict::Fresh {
            return format!(
                "{mode} and alive: refreshed {refreshed}; late by the lock's own time alone, which \
                 is {}",
                self.ago(entry.entry.refreshed_at().unwrap_or(written))
            );
        }
        match (verdict, lock.mode) {
            (Verdict::Overdue, _) => format!("{mode}, overdue: last refresh {refreshed}"),
            (Verdict::Doomed, _) => format!(
                "{mode}, very likely lost: last refresh {refreshed}; its host sleeps, it hangs, or it \
                 died"
            ),
            // Its process says the rest.
            (Verdict::Fresh, _) if lock.liveness == Liveness::AliveStopped => {
                format!("{mode}, stopped: last refresh {refreshed}")
            }
            (_, LockMode::Exclusive) => {
                format!("{mode} and alive: refreshed {refreshed}; a healthy prune looks like this")
            }
            (_, LockMode::Shared) => {
                format!("{mode} and alive: refreshed {refreshed}; a healthy backup looks like this")
            }
        }
    }

    fn sealed(&self, stub: &Stub, why: &SealedWhy, entry: &SeenEntry) -> String {
        let why = match why {
            SealedWhy::NoKey => "no password given".to_string(),
            SealedWhy::KeyPending => "its key is still being derived".to_string(),
            SealedWhy::Permission(what) => format!("reading is refused: {}", plain(what)),
            SealedWhy::Archived => "it lies in an archive tier".to_string(),
            SealedWhy::NotServed => "listed, but not found when read".to_string(),
        };
        let when = match stub.stored_at {
            Some(at) => format!("stored {}", self.ago(at)),
            None => format!("first seen {}", self.ago(entry.first_seen)),
        };
        let verdict = match self.verdict(entry) {
            Verdict::Stale(StaleReason::Unrefreshed) => {
                format!("; stale: same file name for {}", self.name_seen_for(entry))
            }
            Verdict::Stale(_) => match self.recent_step() {
                Some(step) if !self.is_dead(entry) => format!(
                    "; stale by the storage's time, but this machine's clock {}",
                    self.jumped(step)
                ),
                Some(_) | None => "; stale: no refresh since".to_string(),
            },
            Verdict::Fresh | Verdict::Overdue | Verdict::Doomed | Verdict::Unjudged => {
                String::new()
            }
        };
        format!("sealed: {why}; listed size {}, {when}{verdict}", stub.size)
    }

    fn unreadable(&self, stub: &Stub, why: UnreadableWhy) -> String {
        let what = match why {
            UnreadableWhy::Hash => "name is not the SHA-256 of the bytes",
            UnreadableWhy::Short => "shorter than any encrypted file",
            UnreadableWhy::Mac => "encrypted with another key, or damaged",
            UnreadableWhy::Encoding => "neither JSON nor the compression that restic writes",
            UnreadableWhy::Json => "its content is not a lock",
            UnreadableWhy::TooLarge => "larger than any lock; not downloaded",
            UnreadableWhy::Name => "restic takes the name for a lock's and cannot load it",
            UnreadableWhy::Missing => "the storage lists it and does not serve it",
        };
        let stored = match stub.stored_at {
            Some(at) => format!(", stored {}", self.ago(at)),
            None => String::new(),
        };
        let why = why.as_str();
        format!(
            "unreadable ({why}): {what}; size {}{stored}; blocks every command of restic 0.15 \
             and later",
            stub.size
        )
    }
}

fn owner_gone(reason: GoneReason) -> &'static str {
    match reason {
        GoneReason::Rebooted => "owner gone: its host booted after the last refresh",
        GoneReason::Gone => "owner gone: no process has its pid any more",
        GoneReason::Reused => "owner gone: its pid belongs to a process that started later",
    }
}
