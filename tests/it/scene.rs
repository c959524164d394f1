//! Statuses of known situations, made by the real tracker from hand-written looks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lock_exporter::config::{self, ScanSettings};
use lock_exporter::location::Location;
use lock_exporter::lock::*;
use lock_exporter::scan::*;
use lock_exporter::secret::{EnvSpec, PasswordSpec};
use lock_exporter::source;
use lock_exporter::status::{HolderProcess, Holders, MachineStatus, Status};
use lock_exporter::target::*;
use lock_exporter::tracker::Tracker;

/// Every scene is looked at in this moment.
pub fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

pub fn ago(minutes: i64) -> Timestamp {
    now() - SignedDuration::from_mins(minutes)
}

pub fn spec(name: &str, location: &str) -> TargetSpec {
    let restic = ResticSpec {
        repository: Location::parse(location).unwrap(),
        password: PasswordSpec::Inherit,
        env: EnvSpec::default(),
        options: BTreeMap::new(),
        key_hint: None,
        cacert: Vec::new(),
        insecure_tls: false,
    };
    config::target(
        TargetName::new(name).unwrap(),
        SourceSpec::Restic(restic),
        &ScanSettings::default(),
        config::default_hold_limit(),
        config::default_stuck_limit(),
        "web01",
    )
}

/// A search for repositories.
pub fn search(name: &str, place: &str) -> TargetSpec {
    let mut spec = spec(name, place);
    let SourceSpec::Restic(each) = spec.source else { panic!("is a repository") };
    let (exclude, include) = (Vec::new(), Vec::new());
    let sought = Sought::Repositories(Repositories { each, depth: 1, exclude, include });
    spec.source = SourceSpec::Search(SearchSpec { sought, max: 10, is_shown: true });
    spec
}

/// What such a search finds at a path.
fn found(name: &str, path: &str) -> TargetSpec {
    let search = search("fleet", "s3:https://s3.example.com/backups");
    search.find(&TargetName::new(name).unwrap(), path.as_ref()).unwrap()
}

/// The end of a search that found so many.
fn searched(found: usize) -> Look {
    let mut ignored = Ignored::default();
    ignored.add("br\u{FFFD}ken");
    let details = BTreeMap::from([("found", found.to_string().into())]);
    let facts = Facts { unknown: Some(UnknownWhy::Search), details, ..Facts::default() };
    Look { facts, ignored, ..Look::default() }
}

/// A lock file of this machine.
pub fn lock_file(name: &str, path: &str, role: Role, format: FileFormat) -> TargetSpec {
    let limit = match role {
        Role::Job => Some(Duration::from_secs(4 * 3600)),
        Role::Daemon => None,
    };
    TargetSpec {
        name: TargetName::new(name).unwrap(),
        interval: Duration::from_secs(60),
        idle_interval: Duration::from_secs(60),
        timeout: Duration::from_secs(30),
        hold_limit: PerMode { exclusive: limit, shared: limit },
        stuck_limit: config::default_stuck_limit(),
        host: "web01".into(),
        source: SourceSpec::File(FileSpec { path: path.into(), role, format }),
    }
}

/// A look at a lock file: who has it, how many wait, how many hold a file that lost the path.
pub fn file_look(held: &[(LockMode, &str, Option<i64>)], waiters: u64, orphaned: u64) -> Look {
    let lock = |(mode, command, pid): &(LockMode, &str, Option<i64>)| {
        let id = format!("fe:0:12 flock {pid:?} {}", mode.as_str());
        let known = pid.is_some();
        let (hostname, username) = if known { ("web01", "backup") } else { ("", "") };
        LockEntry::Readable(Arc::new(Lock {
            stub: Stub { id: LockId::new(id.clone()), size: 0, stored_at: None },
            key: HoldKey::new(id),
            mode: *mode,
            holder: Holder {
                hostname: hostname.into(),
                username: username.into(),
                command: (*command).into(),
                pid: *pid,
                uid: None,
                gid: None,
            },
            tenure: Tenure::Kernel(Origin::Untold),
            liveness: Liveness::Unknown,
            doubt: None,
        }))
    };
    let details = BTreeMap::from([("class", "flock".into()), ("present", "yes".into())]);
    let (waiters, orphaned) = (Some(waiters), Some(orphaned));
    let facts = Facts { waiters, orphaned, details, ..Facts::default() };
    Look { entries: held.iter().map(lock).collect(), facts, ..Look::default() }
}

/// A look at a file that is a lock by existing since so many minutes.
pub fn present(minutes: i64, pid: Option<i64>, liveness: Liveness) -> Look {
    let id = "fe:0:77 pid";
    look(vec![LockEntry::Readable(Arc::new(Lock {
        stub: Stub { id: LockId::new(id), size: 0, stored_at: None },
        key: HoldKey::new(id),
        mode: LockMode::Exclusive,
        holder: Holder { hostname: "web01".into(), pid, ..Holder::default() },
        tenure: Tenure::Present { since: ago(minutes) },
        liveness,
        doubt: None,
    }))])
}

/// A file name made of one repeated hex digit pair.
pub fn id(byte: u8) -> LockId {
    LockId::new(format!("{byte:02x}").repeat(32))
}

pub fn stub(byte: u8, size: u64, stored_at: Option<Timestamp>) -> Stub {
    Stub { id: id(byte), size, stored_at }
}

pub fn lock(
    byte: u8,
    mode: LockMode,
    host: &str,
    user: &str,
    pid: i64,
    at: Timestamp,
) -> LockEntry {
    LockEntry::Readable(Arc::new(Lock {
        stub: stub(byte, 137, Some(at)),
        key: HoldKey::new(format!("{host} {user} {pid} {}", mode.as_str())),
        mode,
        holder: Holder {
            hostname: host.into(),
            username: user.into(),
            command: "".into(),
            pid: Some(pid),
            uid: None,
            gid: None,
        },
        tenure: Tenure::Leased { refreshed_at: Some(at) },
        liveness: Liveness::Unknown,
        doubt: None,
    }))
}

/// The same of a holder that is proven gone.
fn gone(byte: u8, host: &str, minutes: i64, reason: GoneReason) -> LockEntry {
    let LockEntry::Readable(lock) =
        lock(byte, LockMode::Exclusive, host, "root", 4242, ago(minutes))
    else {
        panic!("is readable")
    };
    LockEntry::Readable(Arc::new(Lock { liveness: Liveness::Gone(reason), ..Lock::clone(&lock) }))
}

pub fn look(entries: Vec<LockEntry>) -> Look {
    Look { entries, ..Look::default() }
}

pub fn sealed(entries: Vec<LockEntry>) -> Look {
    let facts = Facts { sealed: true, ..Facts::default() };
    Look { entries, facts, ..Look::default() }
}

/// A machine whose backups are shown, one of them in a container.
pub fn machine() -> MachineStatus {
    let process = |pid: i64, minutes| HolderProcess {
        pid,
        command: "restic".into(),
        started_at: ago(minutes),
    };
    let holders = Holders {
        hostnames: vec!["web01".into(), "web01.example.org".into(), "web\u{1}01".into()],
        watched: true,
        processes: vec![process(7, 90), process(7, 20), process(4711, 20)],
    };
    MachineStatus {
        capabilities: vec![("fdinfo", true), ("initial_pid_namespace", false)],
        holders: Some(holders),
    }
}

pub fn unknown(why: UnknownWhy) -> Look {
    let facts = Facts { unknown: Some(why), ..Facts::default() };
    Look { facts, ..Look::default() }
}

pub type Outcome = Result<Look, ScanError>;

/// The status after these scans: for each target its outcomes and how many minutes ago.
pub fn status(targets: Vec<(TargetSpec, Vec<(i64, Outcome)>)>) -> Status {
    let mut tracker = Tracker::new(source::policy, Duration::from_secs(15 * 60));
    tracker.retarget(&TargetSet::new(targets.iter().map(|(spec, _)| spec.clone())));
    for (spec, scans) in targets {
        for (minutes, outcome) in scans {
            tracker.apply(scan(&spec, minutes, outcome));
        }
    }
    tracker.status()
}

/// A scan that ended so many minutes ago.
pub fn scan(spec: &TargetSpec, minutes: i64, outcome: Outcome) -> Scan {
    let ended_at = ago(minutes);
    let took = Duration::from_millis(125);
    let started_at = ended_at - took;
    let boot = Duration::from_secs(ended_at.as_second().unsigned_abs());
    Scan { spec: Arc::new(spec.clone()), started_at, ended_at, boot, took, outcome }
}

fn failed(class: ErrorClass) -> Outcome {
    Err(ScanError::new(class, "list locks/", "asked for", ""))
}

/// The scenes by name. Together they show every family with every kind of value.
pub fn all() -> Vec<(&'static str, Status)> {
    use LockMode::{Exclusive, Shared};
    let s3 = || spec("s3.example.com/backups/db01", "s3:https://s3.example.com/backups/db01");
    let local = || spec("local", "/srv/restic/local");
    let hostile = "quote\" back\\slash\nnewline\u{0}\u{FFFD}";
    let many =
        || (0..25).map(|n| lock(n, Shared, &format!("host{n:02}"), "u", 7, ago(4))).collect();
    vec![
        ("free", status(vec![(s3(), vec![(1, Ok(look(vec![]))), (0, Ok(look(vec![])))])])),
        ("pending", status(vec![(s3(), vec![]), (local(), vec![])])),
        (
            "shared",
            status(vec![(
                local(),
                vec![
                    (6, Ok(look(vec![]))),
                    (5, Ok(look(vec![lock(1, Shared, "db01", "root", 4242, ago(5))]))),
                    (0, Ok(look(vec![lock(2, Shared, "db01", "root", 4242, ago(0))]))),
                ],
            )]),
        ),
        (
            "exclusive",
            status(vec![(
                s3(),
                vec![
                    (70, Ok(look(vec![lock(1, Exclusive, "prune01", "backup", 77, ago(71))]))),
                    (2, Ok(look(vec![lock(2, Exclusive, "prune01", "backup", 77, ago(2))]))),
                ],
            )]),
        ),
        (
            "stuck",
            status(vec![
                (
                    s3(),
                    vec![(
                        0,
                        Ok(look(vec![lock(1, Exclusive, "db01", "root", 802_602, ago(47_236))])),
                    )],
                ),
                (
                    local(),
                    vec![(
                        0,
                        Ok(look(vec![
                            lock(1, Shared, "web03", "backup", 512, ago(47)),
                            lock(2, Shared, "web04", "backup", 513, ago(1)),
                        ])),
                    )],
                ),
            ]),
        ),
        (
            "unreadable",
            status(vec![(
                s3(),
                vec![(
                    0,
                    Ok(look(vec![
                        LockEntry::Unreadable(stub(1, 60, Some(ago(20))), UnreadableWhy::Hash),
                        LockEntry::Empty(stub(2, 0, Some(ago(90)))),
                    ])),
                )],
            )]),
        ),
        (
            "sealed",
            status(vec![(
                s3(),
                vec![(
                    0,
                    Ok(sealed(vec![
                        LockEntry::Sealed(stub(1, 137, Some(ago(47))), SealedWhy::NoKey),
                        LockEntry::Sealed(stub(2, 137, Some(ago(3))), SealedWhy::NoKey),
                    ])),
                )],
            )]),
        ),
        (
            "failing",
            status(vec![
                (
                    s3(),
                    vec![
                        (10, Ok(look(vec![lock(1, Shared, "db01", "root", 1, ago(12))]))),
                        (0, failed(ErrorClass::Network)),
                    ],
                ),
                (
                    local(),
                    vec![
                        (20, Ok(look(vec![lock(1, Shared, "db01", "root", 1, ago(22))]))),
                        (0, failed(ErrorClass::Permission)),
                    ],
                ),
                (spec("never", "/srv/restic/never"), vec![(0, failed(ErrorClass::NotFound))]),
            ]),
        ),
        (
            "hostile",
            status(vec![(
                spec("töpf \"1\"", "/srv/with \"quotes\"\\and more"),
                vec![(
                    0,
                    Ok(look(vec![
                        lock(1, Exclusive, hostile, hostile, -1, ago(1)),
                        lock(2, Shared, &"é".repeat(5000), "DOMAIN\\u\"x", 4, ago(1)),
                        // Equal after cleaning, so one series.
                        lock(3, Shared, "a\u{1}b", "u", 5, ago(3)),
                        lock(4, Shared, "a\u{2}b", "u", 6, ago(2)),
                    ])),
                )],
            )]),
        ),
        (
            "files",
            status(vec![
                (
                    lock_file("nightly", "/run/lock/nightly.lock", Role::Job, FileFormat::Kernel),
                    vec![
                        (50, Ok(file_look(&[(Exclusive, "sh", Some(812))], 0, 0))),
                        (0, Ok(file_look(&[(Exclusive, "sh", Some(812))], 2, 1))),
                    ],
                ),
                (
                    lock_file("readers", "/run/lock/my readers", Role::Job, FileFormat::Kernel),
                    vec![(
                        0,
                        Ok(file_look(&[(Shared, "cargo", Some(9)), (Shared, "", None)], 0, 0)),
                    )],
                ),
                (
                    lock_file("agent", "/run/agent.lock", Role::Daemon, FileFormat::Kernel),
                    vec![(0, Ok(file_look(&[], 0, 0)))],
                ),
                (
                    lock_file("dnf", "/var/lib/dnf/rpmdb_lock.pid", Role::Job, FileFormat::Pid),
                    vec![(0, Ok(present(90, Some(4711), Liveness::Gone(GoneReason::Gone))))],
                ),
                (
                    lock_file("remote", "/mnt/nfs/job.lock", Role::Job, FileFormat::Kernel),
                    vec![(0, Ok(unknown(UnknownWhy::RemoteFs)))],
                ),
            ]),
        ),
        (
            "searches",
            status(vec![
                (search("fleet", "s3:https://s3.example.com/backups"), vec![(0, Ok(searched(2)))]),
                (found("fleet/db01", "db01"), vec![(0, Ok(look(vec![])))]),
                (
                    found("fleet/web?1~0a1b2c3d", "web\n1"),
                    vec![(0, Ok(look(vec![lock(1, Exclusive, "web1", "root", 1, ago(47))])))],
                ),
                (
                    search("disk", "/mnt/backup"),
                    vec![(10, Ok(searched(1))), (0, failed(ErrorClass::NotFound))],
                ),
                (search("new", "/srv/restic"), vec![]),
            ]),
        ),
        (
            "gone",
            status(vec![
                (local(), vec![(0, Ok(look(vec![gone(1, "web01", 3, GoneReason::Reused)])))]),
                (
                    spec("left", "/srv/restic/left"),
                    vec![(0, Ok(look(vec![gone(1, "web01", 3, GoneReason::Gone)])))],
                ),
                (
                    lock_file("pacman", "/var/lib/pacman/db.lck", Role::Job, FileFormat::Exists),
                    vec![(0, Ok(present(5, None, Liveness::Unknown)))],
                ),
            ]),
        ),
        ("many", status(vec![(local(), vec![(0, Ok(look(many())))])])),
    ]
}
