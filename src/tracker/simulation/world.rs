//! A model of restic processes and of what looks at their repository return. It knows the truth.
//!
//! Times are milliseconds since the start of a history. The processes follow restic
//! `internal/repository/lock.go` and `lock_file.go`: check, write, wait 200 ms, check again;
//! every 5 minutes write a new file, then delete the old one; after 22.5 minutes without a
//! refresh make a last one if the own file is still there.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use fastrand::Rng;

use crate::lock::LockMode;

pub const SECOND: i64 = 1000;
pub const MINUTE: i64 = 60 * SECOND;
pub const HOUR: i64 = 60 * MINUTE;

/// Kinds of faults that a history may have; each can be switched off to find a smaller history.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    ClocksOff,
    Suspend,
    LostDeletes,
    OldClient,
    Twins,
    Ignorant,
    Unlock,
    Remake,
    Eventual,
    EmptyListing,
    FailedScans,
    Sealed,
    Restart,
    NoStorageTimes,
    ClockSteps,
}

impl Fault {
    pub const ALL: [Fault; 15] = [
        Fault::ClocksOff,
        Fault::Suspend,
        Fault::LostDeletes,
        Fault::OldClient,
        Fault::Twins,
        Fault::Ignorant,
        Fault::Unlock,
        Fault::Remake,
        Fault::Eventual,
        Fault::EmptyListing,
        Fault::FailedScans,
        Fault::Sealed,
        Fault::Restart,
        Fault::NoStorageTimes,
        Fault::ClockSteps,
    ];
}

/// What is left out of a history, to find the smallest that still fails.
#[derive(Clone, Default, Debug)]
pub struct Without {
    pub processes: BTreeSet<usize>,
    pub faults: BTreeSet<Fault>,
    pub scans_from: Option<usize>,
}

/// One lock file that is or was.
#[derive(Clone, Debug)]
pub struct File {
    pub name: String,
    pub process: usize,
    /// By the holder's clock.
    pub own: i64,
    pub written: i64,
    pub deleted: Option<i64>,
    /// By the storage's clock.
    pub stored: Option<i64>,
}

/// One restic process.
#[derive(Clone, Debug)]
pub struct Process {
    pub host: String,
    pub pid: i64,
    pub mode: LockMode,
    /// What its clock adds to the true time.
    pub offset: i64,
    pub old_client: bool,
    /// Starts without looking for other locks, as if its storage listed late.
    ignorant: bool,
    lost_deletes: f64,
    start: i64,
    end: i64,
    crashes: bool,
    suspends: Vec<(i64, i64)>,
    current: Option<usize>,
    asleep_until: i64,
    refreshed: i64,
    pub running: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Act {
    Start(usize),
    Recheck(usize),
    Refresh(usize),
    Delete(usize),
    End(usize),
    Unlock,
    Remake,
}

/// Everything true about one history.
pub struct World {
    rng: Rng,
    pub seed: u64,
    pub files: Vec<File>,
    pub processes: Vec<Process>,
    acts: BinaryHeap<Reverse<(i64, u64, Act)>>,
    acts_made: u64,
    storage_times: bool,
    pub refreshes: u64,
    /// Refreshes that nobody can tell from a start: late ones beside an older file of the same
    /// key, and the first one after somebody took the lock away.
    pub ambiguous: u64,
    pub starts: u64,
    pub log: Vec<(i64, String)>,
}

/// A generator that does not change when something else is left out.
pub fn stream(seed: u64, what: u64) -> Rng {
    Rng::with_seed(
        seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ what.wrapping_mul(0xD1B5_4A32_D192_ED03),
    )
}

/// Happens once in so many times.
pub fn chance(rng: &mut Rng, one_in: u32) -> bool {
    rng.u32(0..one_in) == 0
}

/// Whether a history has a kind of fault at all.
pub fn has(seed: u64, without: &Without, fault: Fault) -> bool {
    let one_in = match fault {
        Fault::Remake | Fault::OldClient => 6,
        Fault::Sealed | Fault::Restart => 4,
        Fault::ClockSteps => 3,
        Fault::ClocksOff
        | Fault::Suspend
        | Fault::LostDeletes
        | Fault::Twins
        | Fault::Ignorant
        | Fault::Unlock
        | Fault::Eventual
        | Fault::EmptyListing
        | Fault::FailedScans
        | Fault::NoStorageTimes => 2,
    };
    let drawn = chance(&mut stream(seed, 1000 + fault as u64), one_in);
    drawn && !without.faults.contains(&fault)
}

impl World {
    pub fn new(seed: u64, without: &Without, length: i64) -> Self {
        let mut rng = stream(seed, 1);
        let has = |fault| has(seed, without, fault);
        let mut world = Self {
            seed,
            files: Vec::new(),
            processes: Vec::new(),
            acts: BinaryHeap::new(),
            acts_made: 0,
            storage_times: !has(Fault::NoStorageTimes),
            refreshes: 0,
            ambiguous: 0,
            starts: 0,
            log: Vec::new(),
            rng: stream(seed, 2),
        };
        for index in 0..rng.usize(1..6) {
            let process = world.process(index, &has, length);
            let start = process.start;
            world.processes.push(process);
            if !without.processes.contains(&index) {
                world.at(start, Act::Start(index));
            }
        }
        if has(Fault::Unlock) {
            for _ in 0..rng.usize(1..4) {
                world.at(rng.i64(0..length), Act::Unlock);
            }
        }
        if has(Fault::Remake) {
            world.at(rng.i64(0..length), Act::Remake);
        }
        world
    }

    fn process(&self, index: usize, has: &dyn Fn(Fault) -> bool, length: i64) -> Process {
        let rng = &mut stream(self.seed, 100 + index as u64);
        let offset = match rng.u32(0..6) {
            0 => 3 * HOUR,
            1 => -3 * HOUR,
            2 => -45 * MINUTE,
            3 => rng.i64(-HOUR..HOUR),
            _ => 0,
        };
        // Some were there long before the first look.
        let start = if chance(rng, 4) { rng.i64(-5 * HOUR..0) } else { rng.i64(0..length) };
        let lasts = match rng.u32(0..3) {
            0 => rng.i64(SECOND..2 * MINUTE),
            1 => rng.i64(MINUTE..HOUR),
            _ => rng.i64(MINUTE..6 * HOUR),
        };
        let suspends = (0..rng.usize(0..3)).map(|_| {
            let long = if chance(rng, 2) { 3 * HOUR } else { 20 * MINUTE };
            (start + rng.i64(0..lasts), rng.i64(MINUTE..long))
        });
        let suspends: Vec<_> = suspends.collect();
        let mode = if chance(rng, 2) { LockMode::Exclusive } else { LockMode::Shared };
        let mut process = Process {
            host: format!("h{index}"),
            pid: 100 + index as i64,
            mode,
            offset: if has(Fault::ClocksOff) { offset } else { 0 },
            old_client: has(Fault::OldClient) && chance(rng, 3),
            ignorant: has(Fault::Ignorant) && chance(rng, 2),
            lost_deletes: if has(Fault::LostDeletes) {
                [0.0, 0.1, 1.0][rng.usize(0..3)]
            } else {
                0.0
            },
            start,
            end: start + lasts,
            crashes: chance(rng, 3),
            suspends: if has(Fault::Suspend) { suspends } else { Vec::new() },
            current: None,
            asleep_until: 0,
            refreshed: 0,
            running: false,
        };
        process.suspends.sort_unstable();
        if index > 0 && has(Fault::Twins) && chance(rng, 2) {
            // The same host name and pid: containers. Or one process with two modes.
            let twin = &self.processes[rng.usize(0..index)];
            (process.host, process.pid) = (twin.host.clone(), twin.pid);
        }
        process
    }

    fn at(&mut self, time: i64, act: Act) {
        self.acts_made += 1;
        self.acts.push(Reverse((time, self.acts_made, act)));
    }

    pub fn key(&self, process: usize) -> String {
        let Process { host, pid, mode, .. } = &self.processes[process];
        format!("{host} {pid} {}", mode.as_str())
    }

    /// How many processes have this key.
    pub fn sharing(&self, key: &str) -> usize {
        (0..self.processes.len()).filter(|process| self.key(*process) == key).count()
    }

    /// Lets everything happen that happens until a moment.
    pub fn run_until(&mut self, until: i64) {
        while let Some(Reverse((time, ..))) = self.acts.peek() {
            if *time > until {
                return;
            }
            if let Some(Reverse((time, _, act))) = self.acts.pop() {
                self.act(time, act);
            }
        }
    }

    fn act(&mut self, now: i64, act: Act) {
        match act {
            Act::Start(p) => self.start(now, p),
            Act::Recheck(p) => {
                let own = self.processes[p].current;
                if !self.processes[p].ignorant && self.conflicts(p, own) {
                    self.log(now, format!("{} meets another lock and leaves", self.key(p)));
                    self.stop(now, p, true);
                }
            }
            Act::Refresh(p) => self.refresh(now, p),
            Act::Delete(file) => self.delete(now, file),
            Act::End(p) if self.processes[p].asleep_until > now => {
                self.at(self.processes[p].asleep_until + SECOND, Act::End(p));
            }
            Act::End(p) => {
                let (crashes, lost) = (self.processes[p].crashes, self.processes[p].lost_deletes);
                let lost = self.rng.f64() < lost;
                self.log(now, format!("{} ends, crashes: {crashes}", self.key(p)));
                self.stop(now, p, !crashes && !lost);
            }
            Act::Unlock => {
                self.log(now, "unlock".into());
                for file in self.unlocked(now, 0) {
                    // A living process whose lock is taken away seems to start at its refresh.
                    self.ambiguous += u64::from(self.processes[self.files[file].process].running);
                    self.delete(now, file);
                }
            }
            Act::Remake => {
                self.log(now, "the repository is made anew".into());
                for p in 0..self.processes.len() {
                    self.stop(now, p, true);
                }
                for file in self.there(now) {
                    self.delete(now, file);
                }
            }
        }
    }

    fn start(&mut self, now: i64, p: usize) {
        if !self.processes[p].ignorant && self.conflicts(p, None) {
            self.log(now, format!("{} is refused", self.key(p)));
            return;
        }
        self.starts += 1;
        let file = self.write(now, p, now + self.processes[p].offset);
        let process = &mut self.processes[p];
        (process.current, process.refreshed, process.running) = (Some(file), now, true);
        let end = process.end;
        self.at(now + 200, Act::Recheck(p));
        self.at(now + 5 * MINUTE, Act::Refresh(p));
        self.at(end.max(now + 300), Act::End(p));
    }

    fn conflicts(&self, p: usize, own: Option<usize>) -> bool {
        self.files.iter().enumerate().any(|(index, file)| {
            let both_shared = self.processes[p].mode == LockMode::Shared
                && self.processes[file.process].mode == LockMode::Shared;
            file.deleted.is_none() && Some(index) != own && !both_shared
        })
    }

    fn refresh(&mut self, now: i64, p: usize) {
        if !self.processes[p].running {
            return;
        }
        let nap = self.processes[p].suspends.first().copied().filter(|(from, _)| *from <= now);
        if let Some((from, long)) = nap {
            self.processes[p].suspends.remove(0);
            let wake = from + long;
            if wake > now {
                self.log(now, format!("{} sleeps until {wake}", self.key(p)));
                self.processes[p].asleep_until = wake;
                return self.at(wake, Act::Refresh(p));
            }
        }
        let Some(old) = self.processes[p].current else { return };
        let late = now - self.processes[p].refreshed;
        if late > 22 * MINUTE + 30 * SECOND && self.files[old].deleted.is_some() {
            self.log(now, format!("{} finds its lock gone and gives up", self.key(p)));
            return self.stop(now, p, false);
        }
        let own = match self.processes[p].old_client {
            true => self.files[old].own,
            false => now + self.processes[p].offset,
        };
        self.refreshes += 1;
        let new = self.write(now, p, own);
        let process = &mut self.processes[p];
        (process.current, process.refreshed) = (Some(new), now);
        self.ambiguous += u64::from(late > 29 * MINUTE);
        if self.rng.f64() < self.processes[p].lost_deletes {
            self.log(now, format!("delete of {} is lost", self.files[old].name));
        } else {
            let after = self.rng.i64(20..3000);
            self.at(now + after, Act::Delete(old));
        }
        self.at(now + 5 * MINUTE, Act::Refresh(p));
    }

    fn write(&mut self, now: i64, process: usize, own: i64) -> usize {
        let name = format!("{:016x}", stream(self.seed, 1 << 32 | self.files.len() as u64).u64(..));
        let stored = self.storage_times.then_some(now);
        self.log(now, format!("{} writes {name}, own time {own}", self.key(process)));
        self.files.push(File { name, process, own, written: now, deleted: None, stored });
        self.files.len() - 1
    }

    fn delete(&mut self, now: i64, file: usize) {
        if self.files[file].deleted.is_none() {
            self.log(now, format!("{} is deleted", self.files[file].name));
            self.files[file].deleted = Some(now);
        }
    }

    fn stop(&mut self, now: i64, p: usize, cleanly: bool) {
        if self.processes[p].running {
            self.processes[p].running = false;
            if let Some(file) = self.processes[p].current.filter(|_| cleanly) {
                self.delete(now, file);
            }
        }
    }

    /// The files that exist at a moment that has passed.
    pub fn there(&self, at: i64) -> Vec<usize> {
        let there = |file: &File| file.written <= at && file.deleted.is_none_or(|then| then > at);
        (0..self.files.len()).filter(|index| there(&self.files[*index])).collect()
    }

    /// What `restic unlock` would delete on a host whose clock is off by so much.
    pub fn unlocked(&self, now: i64, off: i64) -> Vec<usize> {
        let mut files = self.there(now);
        files.retain(|file| now + off - self.files[*file].own > 30 * MINUTE);
        files
    }

    /// Whether a process still lives by this file and wrote it within the stale limit.
    pub fn is_alive(&self, file: usize, now: i64) -> bool {
        let process = &self.processes[self.files[file].process];
        process.running
            && process.current == Some(file)
            && now - self.files[file].written <= 30 * MINUTE
    }

    pub fn log(&mut self, now: i64, line: String) {
        self.log.push((now, line));
    }
}

/// What one look returned: the files by name, whether each is sealed, and the files gone.
#[derive(Clone, Debug, Default)]
pub struct Returned {
    pub began: i64,
    pub ended: i64,
    pub files: BTreeMap<String, (usize, bool)>,
    pub vanished: u32,
    /// The listing was exactly what existed when it was made.
    pub honest: bool,
    pub listed: i64,
    /// How far the exporter's clock was from true time.
    pub off: i64,
}
