//! Which targets are this exporter's, when several share the work.
//!
//! By the name alone, so that every shard comes to the same answer without asking the others. Pure.

use crate::target::TargetName;

/// One of several exporters that have the same configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shard {
    ordinal: u32,
    total: u32,
}

impl Default for Shard {
    /// The only one.
    fn default() -> Self {
        Self { ordinal: 0, total: 1 }
    }
}

impl Shard {
    /// The shard of this number, from 0, of so many.
    ///
    /// # Errors
    /// What is wrong with the numbers, in words.
    pub fn new(ordinal: u32, total: u32) -> Result<Self, String> {
        if total == 0 {
            Err("--total-shards must be at least 1".into())
        } else if ordinal >= total {
            Err(format!(
                "--shard is {ordinal}, and of {total} shards the last one is {}",
                total - 1
            ))
        } else {
            Ok(Self { ordinal, total })
        }
    }

    /// The number at the end of a pod's name, as a `StatefulSet` gives it.
    ///
    /// # Errors
    /// When it does not end with one.
    pub fn ordinal_of(pod: &str) -> Result<u32, String> {
        let (_, digits) = pod.rsplit_once('-').unwrap_or(("", ""));
        let only_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|_| only_digits).ok_or_else(|| {
            format!(
                "POD_NAME is {pod:?}, which does not end with - and a number: --shard=auto is \
                 for the pods of a StatefulSet; elsewhere give the number itself"
            )
        })
    }

    /// Its number, from 0.
    pub fn ordinal(self) -> u32 {
        self.ordinal
    }

    /// Of how many.
    pub fn total(self) -> u32 {
        self.total
    }

    /// Whether a target of this name is this shard's.
    pub fn owns(self, name: &TargetName) -> bool {
        jump(fnv64a(name.as_str().as_bytes()), self.total) == self.ordinal
    }
}

/// The hash of Fowler, Noll and Vo, 64 bits, variant a.
fn fnv64a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Jump consistent hash: Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm",
/// arXiv 1406.2294, figure 1. With one bucket more, 1/n of the keys move, all of them into it.
fn jump(mut key: u64, buckets: u32) -> u32 {
    let mut bucket = 0;
    let mut next: u64 = 0;
    while next < u64::from(buckets) {
        // Below `buckets`, which has 32 bits.
        bucket = next as u32;
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        let scale = (1_u64 << 31) as f64 / ((key >> 33) + 1) as f64;
        next = ((f64::from(bucket) + 1.0) * scale) as u64;
    }
    bucket
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &TargetName, total: u32) -> u32 {
        let owns = |ordinal: &u32| Shard::new(*ordinal, total).expect("is one").owns(name);
        let owners: Vec<u32> = (0..total).filter(owns).collect();
        assert_eq!(owners.len(), 1, "{name} of {total} has exactly one shard");
        owners[0]
    }

    #[test]
    fn a_new_shard_takes_its_part_and_nothing_moves_between_the_old_ones() {
        let name = |n| TargetName::new(&format!("fleet/host{}/repo{n}", n % 37)).expect("a name");
        let names: Vec<TargetName> = (0..5_000).map(name).collect();
        for total in 1..8 {
            let moved: Vec<(u32, u32)> = names
                .iter()
                .map(|name| (owner(name, total), owner(name, total + 1)))
                .filter(|(before, after)| before != after)
                .collect();
            assert!(moved.iter().all(|(_, after)| *after == total), "only to the new one");
            let expected = names.len() / (total as usize + 1);
            let (least, most) = (expected * 8 / 10, expected * 12 / 10);
            assert!((least..=most).contains(&moved.len()), "{total}: {}", moved.len());
        }
    }

    /// From the page of the hash's authors, and from the test of Go's `dgryski/go-jump`, which
    /// kube-state-metrics uses.
    #[test]
    fn both_hashes_are_those_that_others_compute() {
        assert_eq!(fnv64a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv64a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv64a(b"foobar"), 0x8594_4171_f739_67e8);
        for (key, buckets, bucket) in [
            (1, 1, 0),
            (42, 57, 43),
            (0xdead_10cc, 1, 0),
            (0xdead_10cc, 666, 361),
            (256, 1024, 520),
        ] {
            assert_eq!(jump(key, buckets), bucket, "{key} {buckets}");
        }
    }

    #[test]
    fn numbers_that_contradict_each_other_are_refused() {
        assert!(Shard::new(0, 0).is_err());
        assert!(Shard::new(3, 3).is_err());
        assert!(Shard::new(2, 3).is_ok());
        assert_eq!(Shard::ordinal_of("lock-exporter-12"), Ok(12));
        for pod in ["", "lock-exporter", "12", "lock-exporter-", "lock-exporter-+1", "x-7f"] {
            assert!(Shard::ordinal_of(pod).is_err(), "{pod}");
        }
    }
}
