//! Texts of `/proc`, and tables of processes and what they say of a lock.

use proptest::prelude::*;

use super::*;

/// Booted 100,000 s ago, 100 ticks in a second.
fn clock() -> Clock {
    Clock {
        now: "2026-03-01T12:00:00Z".parse().unwrap(),
        since_boot: Duration::from_secs(100_000),
        ticks: 100,
    }
}

fn ago(seconds: i64) -> Timestamp {
    clock().now - SignedDuration::from_secs(seconds)
}

fn process(program: &str, started_ago: u64, state: char) -> Candidate {
    let start = (100_000 - started_ago) * 100;
    let command = program.into();
    let stat = Stat { command, state, parent: 1, session: 1, of_kernel: false, start };
    Candidate { namespaced: false, stat, program: program.into() }
}

fn weighed(candidates: &[Candidate], time: Timestamp) -> Liveness {
    late(candidates, time, 0)
}

/// The same where the lock's time may be too early by so many seconds.
fn late(candidates: &[Candidate], time: Timestamp, lag: i64) -> Liveness {
    let lag = SignedDuration::from_secs(lag);
    weigh(candidates, time, clock(), lag, Some(&Programs::default()))
}

#[test]
fn a_name_with_parentheses_does_not_shift_the_fields() {
    let tail = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 7777 20 21";
    let stat = parse_stat(format!("6373 (a) b (c) {tail}\n").as_bytes()).unwrap();
    assert_eq!(&*stat.command, "a) b (c");
    assert_eq!((stat.state, stat.parent, stat.session, stat.start), ('S', 1, 3, 7777));
    assert!(!stat.of_kernel);
    assert_eq!(parse_stat(b"6373 (a"), None);
    assert_eq!(parse_stat(b"6373 )a( S 1"), None);
}

#[test]
fn a_thread_of_the_kernel_is_known_by_its_flag() {
    let tail = "0 0 0 0 0 0 0 0 20 0 1 0 6 0 0";
    for (flags, expected) in [("2129984", true), ("69238880", true), ("4194560", false)] {
        let stat = parse_stat(format!("2 (kthreadd) S 0 0 0 0 -1 {flags} {tail}").as_bytes());
        assert_eq!(stat.unwrap().of_kernel, expected, "{flags}");
    }
}

#[test]
fn a_name_that_is_cut_in_a_character_is_text() {
    let mut text = b"7 (inner-job-\xe5\x90\x8c\xe6\xad) ".to_vec();
    text.extend(b"S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20");
    assert_eq!(&*parse_stat(&text).unwrap().command, "inner-job-同\u{FFFD}");
}

#[test]
fn numbers_of_all_namespaces_are_read() {
    let text = b"Name:\tbash\nTgid:\t26133\nUid:\t1000\t0\t0\t0\nNSpid:\t26133\t6\n";
    let numbers = parse_status(text).unwrap();
    assert_eq!((numbers.group, numbers.uid), (26133, 1000));
    assert_eq!(numbers.pids, [26133, 6]);
    assert_eq!(parse_status(b"Name:\tbash\n"), None);
}

#[test]
fn the_boot_time_of_a_time_namespace_is_read() {
    let text = b"monotonic           0         0\nboottime        -3600         5\n";
    assert_eq!(parse_boot_offset(text), Some((-3600, 5)));
    assert_eq!(parse_boot_offset(b"1 0 0\n7 9 0\n"), Some((9, 0)));
    for junk in [&b""[..], b"boottime", b"boottime x y", b"boottime 1", b"\xff"] {
        assert_eq!(parse_boot_offset(junk), None);
    }
}

#[test]
fn starts_are_dated_by_the_clock_since_the_boot() {
    assert_eq!(clock().boot(), ago(100_000));
    assert_eq!(clock().at_ticks(150), ago(100_000) + SignedDuration::from_millis(1_500));
    assert_eq!(clock().at_ticks(u64::MAX), Timestamp::MAX);
}

#[test]
fn a_restic_that_started_before_the_lock_was_written_is_its_holder() {
    assert_eq!(weighed(&[process("restic", 900, 'S')], ago(60)), Liveness::Alive);
    // Clocks differ a little.
    assert_eq!(weighed(&[process("restic", 57, 'S')], ago(60)), Liveness::Alive);
}

#[test]
fn a_process_that_started_later_is_not_the_holder() {
    let reused = Liveness::Gone(GoneReason::Reused);
    assert_eq!(weighed(&[process("restic", 60, 'S')], ago(660)), reused);
}

#[test]
fn nobody_and_the_dead_hold_nothing() {
    let gone = Liveness::Gone(GoneReason::Gone);
    assert_eq!(weighed(&[], ago(60)), gone);
    assert_eq!(weighed(&[process("restic", 900, 'Z')], ago(60)), gone);
}

#[test]
fn no_holder_survives_a_boot_whoever_has_its_pid_now() {
    let rebooted = Liveness::Gone(GoneReason::Rebooted);
    assert_eq!(weighed(&[process("restic", 900, 'S')], ago(100_010)), rebooted);
    assert_ne!(weighed(&[process("restic", 99_999, 'S')], ago(99_999)), rebooted);
}

#[test]
fn a_clock_that_may_have_been_set_forward_kills_nobody() {
    // The lock says an hour before its holder began, or before the boot.
    let holder = [process("restic", 60, 'S')];
    assert_eq!(late(&holder, ago(3660), 3600), Liveness::Ambiguous);
    assert_eq!(late(&holder, ago(100_010), 100_000), Liveness::Ambiguous);
    assert_eq!(late(&[process("python3", 60, 'S')], ago(3660), 3600), Liveness::OtherProgram);
    // More than any clock explains.
    assert_eq!(late(&holder, ago(3660), 3500), Liveness::Gone(GoneReason::Reused));
    assert_eq!(late(&holder, ago(103_606), 3600), Liveness::Gone(GoneReason::Rebooted));
    // Nobody is there, whatever the clock says; and a holder that fits as it stands is one.
    assert_eq!(late(&[], ago(3660), i64::MAX), Liveness::Gone(GoneReason::Gone));
    assert_eq!(late(&[process("restic", 90, 'S')], ago(60), i64::MAX), Liveness::Alive);
}

#[test]
fn another_program_proves_nothing() {
    assert_eq!(weighed(&[process("python3", 900, 'S')], ago(60)), Liveness::OtherProgram);
    let any = weigh(&[process("python3", 900, 'S')], ago(60), clock(), SignedDuration::ZERO, None);
    assert_eq!(any, Liveness::Alive);
}

#[test]
fn a_container_may_hold_it_and_two_of_them_leave_it_open() {
    let inner = Candidate { namespaced: true, ..process("restic", 900, 'S') };
    assert_eq!(weighed(std::slice::from_ref(&inner), ago(60)), Liveness::AliveNamespaced);
    assert_eq!(weighed(&[inner.clone(), inner], ago(60)), Liveness::Ambiguous);
    // One that cannot be it leaves nothing open.
    let two = [process("restic", 900, 'S'), process("bash", 900, 'S')];
    assert_eq!(weighed(&two, ago(60)), Liveness::Alive);
}

#[test]
fn a_holder_that_cannot_refresh_is_told_from_one_that_does() {
    assert_eq!(weighed(&[process("restic", 900, 'T')], ago(60)), Liveness::AliveStopped);
    let silent = weighed(&[process("restic", 9000, 'S')], ago(1801));
    assert_eq!(silent, Liveness::AliveNotRefreshing);
}

#[test]
fn only_restic_itself_holds_locks() {
    let programs = Programs { others: vec!["rustic".into()] };
    for (program, expected) in [
        ("restic", true),
        ("restic_0.18.1_l", true),
        ("restic.real", true),
        ("rustic", true),
        ("resticprofile", false),
        ("restic-exporter", false),
        ("rest-server", false),
        ("autorestic", false),
        ("python3", false),
        ("", false),
    ] {
        assert_eq!(programs.hold_locks(program), expected, "{program}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_no_panic(text in prop::collection::vec(any::<u8>(), 0..500)) {
        parse_stat(&text);
        parse_status(&text);
    }

    #[test]
    fn only_proof_is_proof(
        started_ago in 0_u64..100_000, lock_ago in 0_i64..99_000, lag in 0_i64..99_000,
    ) {
        let one = process("restic", started_ago, 'S');
        let verdict = late(&[one], ago(lock_ago), lag);
        let later = started_ago as i64 + 5 + lag < lock_ago;
        prop_assert_eq!(verdict.gone().is_some(), later, "{:?}", verdict);
    }
}
