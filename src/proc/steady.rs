//! How far times that this machine wrote down earlier may be behind its wall clock as it is now.
//!
//! A process's start is known by the boot-time clock, a lock's time by the wall clock of when it
//! was written. To compare them is proof only while nobody set the wall clock forward in between,
//! as a machine without a battery does when it first hears of the right time: a lock from before
//! that seems older than its own holder, or than the boot. Pure; what nobody watched is bounded by
//! the time of the mount of `/proc`, and without that by nothing.

use jiff::{SignedDuration, Timestamp};

use super::process::Clock;

/// Less than this is no step: reading two clocks takes its time.
const STEP_MIN: SignedDuration = SignedDuration::from_secs(2);
/// Every machine has mounted `/proc` when it runs for so long. One that is mounted later tells
/// nothing of the boot.
const MOUNTED_WITHIN: SignedDuration = SignedDuration::from_secs(60);

/// What was seen of the wall clock against the boot-time clock, which never steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Steady {
    /// When the machine booted, by the wall clock of the latest reading.
    boot: Timestamp,
    /// From then on nobody set it forward.
    since: Timestamp,
    /// By how much it was set forward before, as far as that was seen.
    forward: SignedDuration,
}

impl Steady {
    /// The first reading.
    pub fn new(clock: Clock) -> Self {
        Self { boot: clock.boot(), since: clock.now, forward: SignedDuration::ZERO }
    }

    /// Takes in a later reading.
    pub fn read(&mut self, clock: Clock) {
        let by = clock.boot().duration_since(self.boot);
        if by > STEP_MIN {
            self.since = clock.now;
            self.forward = self.forward.saturating_add(by);
        }
        if by.abs() > STEP_MIN {
            self.boot = clock.boot();
        }
    }

    /// By how much the clock was set forward after this time, as far as that shows.
    pub fn stepped(&self, time: Timestamp, mounted: Option<Timestamp>) -> SignedDuration {
        if time >= self.since {
            return SignedDuration::ZERO;
        }
        // `/proc` cannot have been mounted before the boot but by a clock that was behind.
        let before_boot = mounted.map(|mounted| self.boot.duration_since(mounted));
        self.forward.max(before_boot.unwrap_or_default()).max(SignedDuration::ZERO)
    }

    /// By how much a time that was written down may be too early, by the clock as it is now.
    /// `mounted` is when `/proc` was mounted, by the clock of then.
    pub fn lag(&self, time: Timestamp, mounted: Option<Timestamp>) -> SignedDuration {
        if time >= self.since {
            return SignedDuration::ZERO;
        }
        let after_boot = mounted.map(|mounted| mounted.duration_since(self.boot));
        match after_boot {
            Some(after_boot) if after_boot <= MOUNTED_WITHIN => {
                MOUNTED_WITHIN.saturating_sub(after_boot).max(self.forward)
            }
            Some(_) | None => SignedDuration::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const HOUR: i64 = 3600;

    /// A machine that has run for an hour; its clock was set forward by this meanwhile.
    fn clock(ran: i64, set_forward: i64) -> Clock {
        Clock {
            now: at(ran + set_forward),
            since_boot: Duration::from_secs(ran.unsigned_abs()),
            ticks: 100,
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).unwrap()
    }

    fn seconds(seconds: i64) -> SignedDuration {
        SignedDuration::from_secs(seconds)
    }

    #[test]
    fn what_was_watched_is_sure_and_before_it_the_mount_of_proc_tells() {
        let steady = Steady::new(clock(HOUR, 0));
        assert_eq!(steady.lag(at(HOUR), None), SignedDuration::ZERO);
        // Mounted two seconds after the boot: nobody can have set the clock by more than the rest
        // of the minute that may take.
        assert_eq!(steady.lag(at(HOUR - 1), Some(at(2))), seconds(58));
        assert_eq!(steady.lag(at(HOUR - 1), Some(at(60))), SignedDuration::ZERO);
        // Mounted by a container, or not known.
        assert_eq!(steady.lag(at(HOUR - 1), Some(at(61))), SignedDuration::MAX);
        assert_eq!(steady.lag(at(HOUR - 1), None), SignedDuration::MAX);
    }

    #[test]
    fn a_clock_that_was_set_before_we_came_shows_by_the_mount_of_proc() {
        // It booted in 1970 as far as it knew.
        let steady = Steady::new(clock(HOUR, 1000 * HOUR));
        assert!(steady.lag(at(2), Some(at(2))) >= seconds(1000 * HOUR));
        assert_eq!(steady.stepped(at(2), Some(at(2))), seconds(1000 * HOUR - 2));
        assert_eq!(steady.stepped(at(2), None), SignedDuration::ZERO);
        assert_eq!(steady.lag(at(1001 * HOUR), Some(at(2))), SignedDuration::ZERO);
    }

    #[test]
    fn a_clock_that_is_set_while_we_watch_spoils_what_was_written_before() {
        let mut steady = Steady::new(clock(HOUR, 0));
        steady.read(clock(2 * HOUR, -HOUR));
        // Back: what was written before seems younger, which proves nobody dead.
        assert_eq!(steady.lag(at(HOUR), Some(at(60))), SignedDuration::ZERO);
        // Forward again: as at the boot, and yet an hour of locks is early by an hour.
        steady.read(clock(3 * HOUR, 0));
        assert_eq!(steady.lag(at(2 * HOUR), Some(at(60))), seconds(HOUR));
        assert_eq!(steady.lag(at(3 * HOUR), Some(at(60))), SignedDuration::ZERO);
        // So the starts of processes of before are, and no later ones; a container tells nothing.
        assert_eq!(steady.stepped(at(2 * HOUR), Some(at(60))), seconds(HOUR));
        assert_eq!(steady.stepped(at(2 * HOUR), Some(at(9 * HOUR))), seconds(HOUR));
        assert_eq!(steady.stepped(at(3 * HOUR), Some(at(60))), SignedDuration::ZERO);
        // No step at all.
        let before = steady;
        steady.read(clock(4 * HOUR, 1));
        assert_eq!(steady, before);
    }
}
