//! A folder that looks like `/proc`, and the real one.
#![allow(clippy::disallowed_methods, reason = "makes what is read")]

use std::fs;
use std::path::Path;

use jiff::SignedDuration;

use super::*;
use crate::lock::GoneReason;

/// What a made-up process is like.
struct Fake<'a> {
    pid: i32,
    pids: &'a str,
    comm: &'a str,
    exe: Option<&'a str>,
    state: char,
    /// Seconds after the boot.
    started: u64,
}

const RESTIC: Fake<'_> =
    Fake { pid: 300, pids: "300", comm: "restic", exe: None, state: 'S', started: 10 };

fn write(root: &Path, fake: &Fake<'_>) {
    let folder = root.join(fake.pid.to_string());
    fs::create_dir_all(&folder).unwrap();
    let ticks = fake.started * rustix::param::clock_ticks_per_second();
    let Fake { pid, comm, state, pids, .. } = fake;
    let flags = if *comm == "kthreadd" { 0x20_0000 } else { 0 };
    let (before, after) = ("0 ".repeat(4), "0 ".repeat(12));
    let stat = format!("{pid} ({comm}) {state} 1 {before}{flags} {after}{ticks} 0\n");
    fs::write(folder.join("stat"), stat).unwrap();
    let status = format!("Name:\t{comm}\nTgid:\t{pid}\nUid:\t0\t0\t0\t0\nNSpid:\t{pids}\n");
    fs::write(folder.join("status"), status).unwrap();
    if let Some(exe) = fake.exe {
        std::os::unix::fs::symlink(exe, folder.join("exe")).unwrap();
    }
}

/// The second process has the name of a thread of the kernel, as any program may, and is none.
fn impostor(root: &Path) {
    let stat = format!("2 (kthreadd) S 1 {}0 0\n", "0 ".repeat(17));
    fs::write(root.join("2/stat"), stat).unwrap();
}

fn spec(root: &Path) -> MachineSpec {
    MachineSpec {
        names: vec!["web01".into()],
        unique: true,
        evidence: true,
        programs: Programs::default(),
        procfs: Procfs::new(root),
        ..MachineSpec::unknown()
    }
}

/// A host with these processes beside the two that every host has.
fn host(fakes: &[Fake<'_>]) -> (tempfile::TempDir, Machine) {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &Fake { pid: 1, pids: "1", comm: "systemd", ..RESTIC });
    write(folder.path(), &Fake { pid: 2, pids: "2", comm: "kthreadd", ..RESTIC });
    for fake in fakes {
        write(folder.path(), fake);
    }
    let machine = Machine::new(spec(folder.path()));
    mounted(&machine, 50);
    (folder, machine)
}

/// Says that `/proc` was mounted so many seconds after the boot, by the clock of then.
fn mounted(machine: &Machine, seconds: i64) {
    let folder = fs::File::open(machine.spec.procfs.root()).unwrap();
    let at = std::time::SystemTime::try_from(after_boot(machine, seconds)).unwrap();
    folder.set_modified(at).unwrap();
}

/// A moment so many seconds after the boot.
fn after_boot(machine: &Machine, seconds: i64) -> Timestamp {
    machine.spec.procfs.clock().boot() + SignedDuration::from_secs(seconds)
}

fn liveness(machine: &Machine, pid: i64, seconds: i64) -> Liveness {
    machine.liveness(pid, after_boot(machine, seconds), Instant::now())
}

#[test]
fn a_restic_of_this_host_is_found_by_its_pid() {
    let (_folder, machine) = host(&[RESTIC]);
    let time = machine.spec.procfs.clock().now;
    assert_eq!(machine.liveness(300, time, Instant::now()), Liveness::Alive);
    let gone = Liveness::Gone(GoneReason::Gone);
    assert_eq!(machine.liveness(301, time, Instant::now()), gone);
    assert_eq!(liveness(&machine, 300, -60), Liveness::Gone(GoneReason::Rebooted));
}

#[test]
fn a_pid_that_was_given_again_is_proof() {
    let (_folder, machine) = host(&[Fake { started: 700, ..RESTIC }]);
    assert_eq!(liveness(&machine, 300, 100), Liveness::Gone(GoneReason::Reused));
}

#[test]
fn a_clock_that_was_set_before_we_came_makes_no_holder_a_dead_one() {
    let (folder, machine) = host(&[Fake { started: 700, ..RESTIC }]);
    // An hour behind at the boot: the lock's time is of a clock that nobody watched.
    mounted(&machine, -3600);
    assert_eq!(liveness(&machine, 300, 100), Liveness::Ambiguous);
    assert_eq!(liveness(&machine, 300, -60), Liveness::Ambiguous);
    assert_eq!(liveness(&machine, 300, -9999), Liveness::Gone(GoneReason::Rebooted));
    assert_eq!(liveness(&machine, 301, 100), Liveness::Gone(GoneReason::Gone));
    assert!(!machine.is_before_boot(after_boot(&machine, -60)));
    // Of a time that is watched a later start is proof again.
    let later = machine.spec.procfs.clock().since_boot.as_secs() + 3600;
    write(folder.path(), &Fake { started: later, ..RESTIC });
    let now = machine.spec.procfs.clock().now;
    let reused = Liveness::Gone(GoneReason::Reused);
    assert_eq!(machine.liveness(300, now, Instant::now()), reused);
}

#[test]
fn the_pid_inside_a_container_counts_and_a_thread_does_not() {
    let inner = Fake { pid: 4000, pids: "4000\t17\t6", ..RESTIC };
    let (folder, machine) = host(&[inner]);
    let now = machine.spec.procfs.clock().now;
    let seen = Instant::now;
    assert_eq!(machine.liveness(6, now, seen()), Liveness::AliveNamespaced);
    assert_eq!(machine.liveness(17, now, seen()), Liveness::Gone(GoneReason::Gone));
    // What starts it in a container of containers may write it down by that container's number.
    assert_eq!(machine.liveness_of_any(17, now, seen()), Liveness::AliveNamespaced);
    write(folder.path(), &Fake { pid: 4001, pids: "4001\t6", ..RESTIC });
    let machine = Machine::new(spec(folder.path()));
    assert_eq!(machine.liveness(6, now, seen()), Liveness::Ambiguous);
}

#[test]
fn the_program_is_told_by_its_file_even_when_that_was_replaced() {
    let deleted = Fake { comm: "backup", exe: Some("/usr/bin/restic (deleted)"), ..RESTIC };
    let (_folder, machine) = host(&[deleted]);
    let now = machine.spec.procfs.clock().now;
    assert_eq!(machine.liveness(300, now, Instant::now()), Liveness::Alive);
    let (_folder, machine) = host(&[Fake { comm: "python3", ..RESTIC }]);
    assert_eq!(machine.liveness(300, now, Instant::now()), Liveness::OtherProgram);
    assert_eq!(machine.liveness_of_any(300, now, Instant::now()), Liveness::Alive);
}

#[test]
fn one_that_started_after_the_last_list_is_not_called_gone() {
    let (folder, machine) = host(&[]);
    let now = machine.spec.procfs.clock().now;
    let gone = Liveness::Gone(GoneReason::Gone);
    assert_eq!(machine.liveness(300, now, Instant::now()), gone);
    write(folder.path(), &RESTIC);
    // The list is young, yet it is not believed.
    assert_eq!(machine.liveness(300, now, Instant::now()), Liveness::Alive);
}

#[test]
fn nothing_is_proven_where_not_all_can_be_seen() {
    let (folder, machine) = host(&[]);
    let now = machine.spec.procfs.clock().now;
    impostor(folder.path());
    assert_eq!(machine.liveness(300, now, Instant::now()), Liveness::Unknown);
    let (folder, _) = host(&[]);
    let off = Machine::new(MachineSpec { evidence: false, ..spec(folder.path()) });
    assert_eq!(off.liveness(300, now, Instant::now()), Liveness::Unknown);
    let shared = Machine::new(MachineSpec { unique: false, ..spec(folder.path()) });
    let suspect = Liveness::Suspect(GoneReason::Gone);
    assert_eq!(shared.liveness(300, now, Instant::now()), suspect);
    assert!(shared.is_named("web01") && !shared.is_named("WEB01"));
    assert!(!shared.is_named("web01.example.org"));
}

#[test]
fn a_process_that_cannot_be_read_may_be_the_holder() {
    // As where this process may open no more files: whatever is there, it is no text.
    let unread = |name: &str| {
        let (folder, machine) = host(&[Fake { started: 700, ..RESTIC }]);
        fs::remove_file(folder.path().join("300").join(name)).unwrap();
        fs::create_dir(folder.path().join("300").join(name)).unwrap();
        (folder, machine)
    };
    for (name, pid) in [("status", 300), ("status", 301), ("stat", 300)] {
        let (_folder, machine) = unread(name);
        assert_eq!(liveness(&machine, pid, 100), Liveness::Unknown, "{name}");
        // That no process survives a boot needs no list.
        assert_eq!(liveness(&machine, pid, -60), Liveness::Gone(GoneReason::Rebooted));
        let spec = MachineSpec { show_holders: true, ..machine.spec };
        assert!(!Machine::new(spec).status().holders.unwrap().watched);
    }
    // It ended between one look and the next.
    let (folder, machine) = host(&[RESTIC]);
    fs::remove_file(folder.path().join("300/status")).unwrap();
    assert_eq!(liveness(&machine, 300, 100), Liveness::Gone(GoneReason::Gone));
}

#[test]
fn by_another_boot_time_clock_nobody_is_too_young_or_too_old() {
    let (folder, machine) = host(&[Fake { started: 700, ..RESTIC }]);
    let offsets = folder.path().join("self/timens_offsets");
    fs::create_dir(folder.path().join("self")).unwrap();
    mounted(&machine, 50);
    let mut said = Vec::new();
    for offset in ["0", "-3600", "3600"] {
        fs::write(&offsets, format!("monotonic 0 0\nboottime {offset} 0\n")).unwrap();
        let spec = MachineSpec { show_holders: true, ..machine.spec.clone() };
        let watched = Machine::new(spec).status().holders.unwrap().watched;
        said.push((liveness(&machine, 300, 100), liveness(&machine, 300, -60), watched));
    }
    let gone = Liveness::Gone;
    assert_eq!(said[0], (gone(GoneReason::Reused), gone(GoneReason::Rebooted), true));
    for unsure in &said[1..] {
        assert_eq!(*unsure, (Liveness::Ambiguous, Liveness::Ambiguous, false));
    }
    assert_eq!(liveness(&machine, 301, 100), gone(GoneReason::Gone));
}

#[test]
fn a_start_is_shown_by_the_clock_that_its_locks_were_written_by() {
    let (_folder, machine) = host(&[RESTIC]);
    let shown = Machine::new(MachineSpec { show_holders: true, ..machine.spec });
    let started = |machine: &Machine| machine.status().holders.unwrap().processes[0].started_at;
    let early = started(&shown);
    // An hour behind when it booted: the locks of then are older than their own holder by today's.
    mounted(&shown, -3600);
    let moved = started(&shown).duration_since(early) + SignedDuration::from_secs(3600);
    assert!(moved.abs() < SignedDuration::from_secs(1), "{moved:?}");
}

#[test]
fn users_have_names_or_numbers() {
    let users = users(b"root:x:0:0::/root:/bin/sh\ntoor:x:0:0::\n+\nb\xff:x:7:7\n::\nx:y:z:1\n");
    assert_eq!(users.len(), 2);
    assert_eq!(&*users[&0], "root");
    let machine = Machine::new(MachineSpec::unknown());
    assert_eq!(&*machine.user(4_000_000_000), "4000000000");
}

#[test]
fn processes_that_can_hold_locks_are_shown_under_every_pid() {
    let inner = Fake { pid: 4000, pids: "4000\t6", started: 50, ..RESTIC };
    let wrapper = Fake { pid: 301, pids: "301", comm: "resticprofile", ..RESTIC };
    let (folder, quiet) = host(&[RESTIC, inner, wrapper]);
    let shown = MachineSpec { show_holders: true, ..spec(folder.path()) };
    let machine = Machine::new(shown.clone());
    let status = machine.status();
    let holders = status.holders.unwrap();
    let pids: Vec<_> = holders.processes.iter().map(|process| process.pid).collect();
    assert_eq!(pids, [6, 300, 4000]);
    assert!(holders.watched);
    assert_eq!(&*holders.processes[0].command, "restic");
    let after_boot = holders.processes[0].started_at.duration_since(after_boot(&machine, 50));
    assert!(after_boot.abs() < SignedDuration::from_secs(1), "{after_boot:?}");
    assert!(status.capabilities.contains(&("initial_pid_namespace", true)));
    assert!(status.capabilities.contains(&("kernel_locks", false)));
    // What cannot be seen, or may be another machine's, is not watched.
    let shared = Machine::new(MachineSpec { unique: false, ..shown });
    assert!(!shared.status().holders.unwrap().watched);
    impostor(folder.path());
    assert!(!machine.status().holders.unwrap().watched);
    assert_eq!(quiet.status().holders, None);
}
