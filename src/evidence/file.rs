//! What is said of lock files, where being held is no fault and nobody refreshes anything; and
//! what this machine's processes say of any lock.
//!
//! Being held is what a lock is for, so a finding needs more: somebody who waits, a limit that is
//! passed, a daemon that does not hold it, a file that is no longer at its path.

use super::steps::Step;
use super::view::Evidence;
use super::{Finding, Severity, Topic, of_mode};
use crate::judge::State;
use crate::lock::{GoneReason, Liveness, Lock, Origin, Tenure};
use crate::scan::UnknownWhy;
use crate::status::Hold;
use crate::target::{FileFormat, FileSpec, Proof, Role, SourceSpec};

impl Evidence<'_> {
    pub(super) fn is_of_file(&self) -> bool {
        self.target.spec.proof() != Proof::Lease
    }

    fn detail(&self, name: &str) -> Option<&str> {
        self.seen.facts.details.get(name).map(|value| &**value)
    }

    /// Severity and topic of one hold of a lock file.
    pub(super) fn file_severity(&self, hold: &Hold) -> (Severity, Topic) {
        let waited_for = self.seen.facts.waiters.is_some_and(|waiters| waiters > 0);
        let limit = of_mode(&self.target.spec.stuck_limit, hold.mode);
        if hold.gone.is_some() {
            (Severity::Warning, Topic::OwnerGone)
        } else if waited_for && self.over(hold.held_since, limit) {
            (Severity::Warning, Topic::Stuck)
        } else {
            (Severity::Ok, Topic::Alive)
        }
    }

    /// What one lock of a lock file shows.
    pub(super) fn of_lock_file(&self, lock: &Lock) -> String {
        match lock.tenure {
            Tenure::Present { since } => {
                let written = format!("the file was written {}", self.ago(since));
                let process = match lock.liveness {
                    Liveness::Gone(GoneReason::Rebooted) => {
                        "owner gone: the machine has booted since".to_string()
                    }
                    Liveness::Gone(GoneReason::Gone) => {
                        "owner gone: the process that it names is not there any more".to_string()
                    }
                    Liveness::Gone(GoneReason::Reused) => {
                        "owner gone: the process of that pid started later".to_string()
                    }
                    Liveness::Alive | Liveness::AliveNamespaced | Liveness::AliveNotRefreshing => {
                        "alive".to_string()
                    }
                    Liveness::AliveStopped => "its process is stopped".to_string(),
                    Liveness::Suspect(_)
                    | Liveness::Foreign
                    | Liveness::OtherProgram
                    | Liveness::Ambiguous
                    | Liveness::Unknown => match lock.holder.pid {
                        Some(_) => "whether its process lives is not known".to_string(),
                        None => "held while the file is there, which names no process".to_string(),
                    },
                };
                format!("{process}; {written}")
            }
            Tenure::Kernel(origin) => self.of_kernel_lock(lock, origin),
            Tenure::Leased { .. } => self.of_kernel_lock(lock, Origin::Untold),
        }
    }

    fn of_kernel_lock(&self, lock: &Lock, origin: Origin) -> String {
        let class = self.detail("class").unwrap_or("kernel");
        let mut text = format!("held ({class})");
        text.push_str(match origin {
            _ if lock.holder.pid.is_none() && self.detail("holders_search").is_some() => {
                "; who has it is not known: not all processes could be looked at"
            }
            _ if lock.holder.pid.is_none() => {
                "; no process is seen to have it: handed on, mapped, or closed to us"
            }
            Origin::Left => "; left by a process that had it before and has ended",
            Origin::Through => "; taken through another process, which has ended",
            Origin::Untold => "",
        });
        match self.seen.facts.waiters {
            Some(0) => text.push_str("; nobody waits for it"),
            Some(1) => text.push_str("; 1 process waits for it"),
            Some(waiters) => text.push_str(&format!("; {waiters} processes wait for it")),
            None => {}
        }
        text
    }

    /// What to do about one lock of a lock file.
    pub(super) fn file_step(&self, lock: &Lock) -> Step {
        let path = &self.location;
        match (lock.holder.pid, lock.liveness.gone()) {
            (_, Some(_)) => Step::run(format!("rm -i {path}"))
                .but("look first whether its tool removes it by itself"),
            (Some(pid), None) => Step::run(format!("ps -o pid,ppid,stat,lstart,cmd -p {pid}")),
            (None, None) => Step::run(format!("fuser -v {path}")),
        }
    }

    /// What no single lock of a lock file shows.
    pub(super) fn of_file_target(&self, file: &FileSpec) -> Vec<Finding> {
        let fuser = || Step::run(format!("fuser -v {}", self.location));
        let mut findings = Vec::new();
        if let Some(why) = self.seen.facts.unknown {
            let text = format!("cannot be told ({}): {}", why.as_str(), unknown(why));
            findings.push(Finding::new(Severity::Unknown, Topic::NotSeen, text));
        }
        let cut = self.detail("orphans_search").is_some();
        if self.seen.facts.orphaned.is_none() && cut {
            let text = "whether a lock is held on a file that was deleted from this path is not \
                        known: not all descriptors could be looked at";
            findings.push(Finding::new(Severity::Ok, Topic::NotSeen, text.to_string()));
        }
        if let Some(count @ 1..) = self.seen.facts.orphaned {
            let least = if cut { "at least " } else { "" };
            let locks = if count == 1 { "lock is" } else { "locks are" };
            let text = format!(
                "{least}{count} {locks} held on a file that was deleted from or replaced at this \
                 path; two jobs may run at once"
            );
            let step = Step::run("lslocks -o PID,COMMAND,TYPE,MODE,INODE,PATH".to_string());
            findings.push(Finding::new(Severity::Warning, Topic::ReplacedFile, text).then(step));
        }
        if file.role == Role::Daemon && self.seen.state() == State::Free {
            let text = "not held, although a daemon should always hold it".to_string();
            findings.push(Finding::new(Severity::Warning, Topic::NotHeld, text).then(fuser()));
        }
        findings.extend(self.never_held(file));
        findings
    }

    /// Nothing tells a lock file that is free from one whose lock is of another kind.
    fn never_held(&self, file: &FileSpec) -> Option<Finding> {
        let counters = &self.target.counters;
        let (started, ended) = (&counters.holds_started, &counters.holds_ended);
        let seen = started.exclusive + started.shared + ended.exclusive + ended.shared;
        let facts = &self.seen.facts;
        let never = seen == 0
            && self.seen.holds.is_empty()
            && facts.unknown.is_none()
            && facts.orphaned.unwrap_or(0) == 0;
        let there = self.detail("present") == Some("yes");
        (never && there && file.format == FileFormat::Kernel && file.role == Role::Job).then(|| {
            let text = "exists and was never seen locked by the kernel: if its tool does not take \
                        kernel locks, its format is pid or exists";
            Finding::new(Severity::Ok, Topic::NeverHeld, text.to_string())
        })
    }

    pub(super) fn file(&self) -> Option<&FileSpec> {
        match &self.target.spec.source {
            SourceSpec::File(file) => Some(file),
            SourceSpec::Restic(_) | SourceSpec::Search(_) => None,
        }
    }
}

fn unknown(why: UnknownWhy) -> &'static str {
    match why {
        UnknownWhy::Namespace => {
            "locks of processes outside of this PID namespace are hidden; mount the host's /proc \
             and name it with --path.procfs"
        }
        UnknownWhy::RemoteFs => {
            "no lock is held through this machine, and those of other clients are not known here"
        }
        UnknownWhy::Ambiguous => {
            "two btrfs subvolumes have a file of this number, and whose the lock is may not be \
             read; the exporter needs CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH"
        }
        UnknownWhy::NotAFile => "the path is no regular file, so it names no process",
        UnknownWhy::Search => "it is a search, and holds no locks",
    }
}

/// What this machine's processes say of a repository's lock; nothing where they say nothing.
pub(super) fn of_process(lock: &Lock) -> Option<String> {
    let pid = lock.holder.pid?;
    Some(match lock.liveness {
        Liveness::Alive => format!("its process {pid} runs here"),
        Liveness::AliveNamespaced => format!("its process {pid} runs in a container here"),
        Liveness::AliveStopped => {
            format!(
                "its process {pid} is here and stopped: it cannot refresh until it is continued; do not unlock"
            )
        }
        Liveness::AliveNotRefreshing => format!(
            "its process {pid} is here and does not refresh: hung or cut off; look at it before \
             unlocking"
        ),
        Liveness::OtherProgram => {
            format!("pid {pid} is another program here, which proves nothing")
        }
        Liveness::Ambiguous => format!("several processes here are known by pid {pid}"),
        Liveness::Suspect(reason) => format!(
            "its process {pid} is not here ({}), but other machines share the host name",
            reason.as_str()
        ),
        Liveness::Gone(_) | Liveness::Foreign | Liveness::Unknown => return None,
    })
}
