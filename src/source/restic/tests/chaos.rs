//! Random histories of a repository and a backend that fails in every way at any moment.
//!
//! Whatever happened before, a look that succeeds shows exactly the lock files that are there, and
//! when the backend behaves again everything is readable again.

use super::*;

const HISTORIES: u64 = 150;
const STEPS: usize = 25;

struct History {
    random: fastrand::Rng,
    fixture: Fixture,
    master: MasterKey,
    locks: Vec<String>,
    made: u8,
}

impl History {
    fn new(seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        let fixture = Fixture::with_password();
        Self { random, fixture, master: known::master(), locks: vec![], made: 0 }
    }

    fn change(&mut self) {
        match self.random.u8(..12) {
            0..=3 => {
                self.made = self.made.wrapping_add(1).max(1);
                let (path, bytes) = lock_with(&self.master, self.made);
                self.fixture.store.put(&path, bytes);
                self.locks.retain(|lock| *lock != path);
                self.locks.push(path);
            }
            4..=5 if !self.locks.is_empty() => {
                let lock = self.locks.swap_remove(self.random.usize(..self.locks.len()));
                self.fixture.store.remove(&lock);
            }
            6 if self.random.u8(..4) == 0 => self.make_anew(),
            7..=10 => self.misbehave(),
            _ => {}
        }
    }

    fn make_anew(&mut self) {
        self.master = MasterKey::from_derived(&[self.random.u8(1..); DERIVED_BYTES]);
        self.locks.clear();
        self.fixture.store.change(std::collections::BTreeMap::clear);
        let (path, bytes) = key_file(PASSWORD, 2, &self.master);
        self.fixture.store.put(&path, bytes);
        self.fixture.store.put("config", config(2, &self.master));
    }

    fn misbehave(&mut self) {
        let requests = [
            "list keys",
            "list key",
            "list locks",
            "stat config",
            "read config",
            "read keys/",
            "read locks/",
        ];
        let request = requests[self.random.usize(..requests.len())];
        let class = ErrorClass::ALL[self.random.usize(..ErrorClass::ALL.len())];
        let effect = match self.random.u8(..6) {
            0 => Effect::Hang,
            1 => Effect::Fail(StoreErrorKind::NotFound),
            2 => Effect::Fail(StoreErrorKind::Archived),
            3 => Effect::Serve(vec![1; self.random.usize(..100)].into()),
            _ => Effect::Fail(StoreErrorKind::Failed(class)),
        };
        self.fixture.store.rule(request, self.random.usize(1..4), effect);
    }

    /// Looks once, with patience or without, as a scanner would.
    async fn look(&mut self) -> Option<Look> {
        let wait = Duration::from_secs(self.random.u64(..700));
        tokio::time::advance(wait).await;
        if self.random.bool() {
            let _ = tokio::time::timeout(TIMEOUT * 3, self.fixture.source.ready()).await;
        }
        let scan = tokio::time::timeout(TIMEOUT, self.fixture.source.scan()).await;
        scan.ok()?.ok()
    }

    fn check(&self, look: &Look, seed: u64) {
        let mut seen: Vec<String> = look
            .entries
            .iter()
            .map(|entry| format!("locks/{}", entry.stub().id.as_str()))
            .collect();
        let mut there = self.locks.clone();
        seen.sort();
        there.sort();
        assert_eq!(seen, there, "seed {seed}");
        let readable = |entry: &LockEntry| matches!(entry, LockEntry::Readable(_));
        assert!(!look.facts.sealed || !look.entries.iter().any(readable), "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_that_succeeds_is_true_and_every_failure_passes() {
    let mut looks = 0;
    for seed in 0..HISTORIES {
        let mut history = History::new(seed);
        for _ in 0..STEPS {
            history.change();
            if let Some(look) = history.look().await {
                history.check(&look, seed);
                looks += 1;
            }
        }
        history.fixture.store.behave();
        let mut words = None;
        for _ in 0..3 {
            tokio::time::advance(cache::RETRY_AFTER).await;
            history.fixture.source.ready().await;
            let look = history.fixture.source.scan().await;
            words = Some(look.map(|look| words_of(&look)));
        }
        let words = words.unwrap().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(words, vec!["shared"; history.locks.len()], "seed {seed}");
    }
    // Most of them succeed, or little was checked.
    assert!(looks > HISTORIES as usize * STEPS / 4, "{looks} looks");
}

fn words_of(look: &Look) -> Vec<String> {
    words(look).into_iter().map(|word| word[5..].to_owned()).collect()
}
