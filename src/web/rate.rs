//! A bucket of requests: full after a pause, one more after every interval. Which requests take
//! from it is not known here, nor what time it is.

use std::time::{Duration, Instant};

use crate::config::web::RateLimit;

/// How many requests may be answered now.
#[derive(Debug)]
pub struct Bucket {
    limit: RateLimit,
    left: u32,
    /// As of when `left` is right.
    counted: Instant,
}

impl Bucket {
    /// A full bucket.
    pub fn new(limit: RateLimit, now: Instant) -> Self {
        Self { limit, left: limit.burst, counted: now }
    }

    /// Takes one request out, if there is one. `now` never goes backwards.
    pub fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.counted).as_nanos();
        let interval = self.limit.interval.as_nanos().max(1);
        let more = passed / interval;
        let room = u128::from(self.limit.burst - self.left);
        if more >= room {
            (self.left, self.counted) = (self.limit.burst, now);
        } else {
            // Less than the room, which is a u32.
            let more = u32::try_from(more).unwrap_or(u32::MAX);
            self.left += more;
            self.counted += self.limit.interval.saturating_mul(more);
        }
        let taken = self.left > 0;
        self.left -= u32::from(taken);
        taken
    }

    /// The time after which one more is there, for `Retry-After`.
    pub fn interval(&self) -> Duration {
        self.limit.interval
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "some instant to count from")]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_burst_then_one_for_every_interval() {
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        let limit = RateLimit { interval: Duration::from_secs(1), burst: 2 };
        let mut bucket = Bucket::new(limit, start);
        let taken: Vec<_> = [0, 0, 0, 500, 1000, 1001, 2999, 2999, 60_000, 60_000, 60_000]
            .map(|millis| bucket.take(at(millis)))
            .into();
        let expected = [true, true, false, false, true, false, true, false, true, true, false];
        assert_eq!(taken, expected);
    }

    #[test]
    fn a_bucket_without_room_gives_nothing_ever() {
        let start = Instant::now();
        let mut bucket =
            Bucket::new(RateLimit { interval: Duration::from_secs(1), burst: 0 }, start);
        assert!(!bucket.take(start) && !bucket.take(start + Duration::from_secs(3600)));
    }
}
