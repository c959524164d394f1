//! The file source against locks that the kernel really has: who holds them, who waits, what
//! becomes of them when processes die, fork or hand descriptors on, and what cannot be known.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use lock_exporter::judge;
use lock_exporter::lock::{GoneReason, Liveness, Lock, LockEntry, LockMode, Origin, Tenure};
use lock_exporter::proc::machine::{Machine, MachineSpec};
use lock_exporter::proc::procfs::Procfs;
use lock_exporter::scan::{ErrorClass, Look, ScanError, UnknownWhy};
use lock_exporter::source::file::LockFile;
use lock_exporter::source::{Context, LockSource};
use lock_exporter::target::{FileFormat, FileSpec, Role};

/// Takes locks as it is told by its arguments, says `ready`, and ends with its standard input.
const HOLDER: &str = r#"
import fcntl, mmap, os, socket, struct, sys
path, *steps = sys.argv[1:]
fd = None
def opened():
    return os.open(path, os.O_RDONLY if os.path.isdir(path) else os.O_RDWR)
def posix(kind, start=0, length=0, command=fcntl.F_SETLK):
    fcntl.fcntl(fd, command, struct.pack("hhqqi4x", kind, 0, start, length, 0))
for step in steps:
    if fd is None:
        fd = opened()
    if step == "flock": fcntl.flock(fd, fcntl.LOCK_EX)
    elif step == "shared": fcntl.flock(fd, fcntl.LOCK_SH)
    elif step == "say": print("ready", flush=True)
    elif step == "posix": posix(fcntl.F_WRLCK)
    elif step == "ranges": posix(fcntl.F_WRLCK, 10, 5); posix(fcntl.F_RDLCK, 100, 1)
    elif step == "ofd": posix(fcntl.F_WRLCK, command=37)
    elif step == "lease": fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    elif step == "again": os.close(opened())
    elif step == "mmap": os.write(fd, b"x"); held = mmap.mmap(fd, 1); os.closerange(3, 64)
    elif step == "send":
        a, b = socket.socketpair(); socket.send_fds(a, [b"x"], [fd]); os.close(fd)
    elif step == "leave":
        if os.fork(): os._exit(0)
    elif step == "name":
        with open("/proc/self/comm", "wb") as comm: comm.write(b"inner-job-\xe5\x90\x8c\xe6\xad")
print("ready", os.getpid(), flush=True)
sys.stdin.read()
"#;

/// A process that has locks, until it is dropped.
struct Holder {
    child: Child,
    pid: i64,
    lines: BufReader<std::process::ChildStdout>,
}

impl Holder {
    fn start(path: &Path, steps: &[&str]) -> Self {
        let mut child = Command::new("python3")
            .args(["-c", HOLDER])
            .arg(path)
            .args(steps)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 takes the locks of these tests");
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, pid: 0, lines }
    }

    /// Waits until it says that it has what it was told to take.
    fn ready(mut self) -> Self {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        self.pid = line.trim().strip_prefix("ready ").expect(&line).parse().unwrap();
        self
    }

    /// Waits until it says that it is about to.
    fn says(mut self) -> Self {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "ready");
        self.pid = self.child.id().into();
        self
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // A child that it left behind ends with the pipe.
        drop(self.child.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn holder(path: &Path, steps: &[&str]) -> Holder {
    Holder::start(path, steps).ready()
}

fn machine(procfs: &str) -> MachineSpec {
    MachineSpec {
        names: vec!["web01".into()],
        unique: true,
        evidence: true,
        procfs: Procfs::new(procfs),
        locks_age_max: Duration::ZERO,
        ..MachineSpec::unknown()
    }
}

fn source(path: &Path, format: FileFormat, machine: MachineSpec) -> LockFile {
    opened(path, format, &Arc::new(Machine::new(machine)))
}

fn opened(path: &Path, format: FileFormat, machine: &Arc<Machine>) -> LockFile {
    let context = Context { machine: Arc::clone(machine), ..crate::target::context() };
    let spec = FileSpec { path: path.to_owned(), role: Role::Job, format };
    LockFile::new(spec, Duration::from_secs(600), &context)
}

struct Watch {
    path: PathBuf,
    machine: Arc<Machine>,
    source: LockFile,
    _folder: tempfile::TempDir,
}

impl Watch {
    fn new() -> Self {
        Self::of(FileFormat::Kernel)
    }

    fn of(format: FileFormat) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = fs::canonicalize(folder.path()).unwrap().join("job \"1\"\n.lock");
        fs::write(&path, "").unwrap();
        let machine = Arc::new(Machine::new(machine("/proc")));
        let source = opened(&path, format, &machine);
        Self { path, machine, source, _folder: folder }
    }

    fn look(&self) -> Look {
        self.scan().unwrap()
    }

    fn scan(&self) -> Result<Look, ScanError> {
        scan(&self.source)
    }

    /// Looks until so many wait, which no process can tell for itself.
    fn look_with_waiters(&self, waiters: u64) -> Look {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let look = self.look();
            if look.facts.waiters == Some(waiters) {
                return look;
            }
            assert!(Instant::now() < until, "{:?}", look.facts);
            std::thread::yield_now();
        }
    }
}

fn scan(source: &LockFile) -> Result<Look, ScanError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(source.scan())
}

fn locks(look: &Look) -> Vec<Arc<Lock>> {
    let lock = |entry: &LockEntry| match entry {
        LockEntry::Readable(lock) => Arc::clone(lock),
        other => panic!("{other:?}"),
    };
    look.entries.iter().map(lock).collect()
}

fn pids(look: &Look) -> Vec<Option<i64>> {
    let mut pids: Vec<_> = locks(look).iter().map(|lock| lock.holder.pid).collect();
    pids.sort_unstable();
    pids
}

fn detail<'a>(look: &'a Look, name: &str) -> Option<&'a str> {
    look.facts.details.get(name).map(|value| &**value)
}

#[test]
fn a_file_that_nobody_has_locked_is_free_whether_it_is_there_or_not() {
    let watch = Watch::new();
    for present in ["yes", "no"] {
        let look = watch.look();
        assert!(look.entries.is_empty());
        assert_eq!(detail(&look, "present"), Some(present));
        assert_eq!((look.facts.waiters, look.facts.orphaned), (Some(0), Some(0)));
        assert_eq!(look.facts.unknown, None);
        let _ = fs::remove_file(&watch.path);
    }
}

#[test]
fn every_kind_of_lock_has_its_holder() {
    for (steps, class, mode, count) in [
        (&["flock"][..], "flock", LockMode::Exclusive, 1),
        (&["shared"], "flock", LockMode::Shared, 1),
        (&["posix"], "posix", LockMode::Exclusive, 1),
        (&["ranges"], "posix", LockMode::Exclusive, 1),
        (&["ofd"], "ofd", LockMode::Exclusive, 1),
        (&["flock", "posix"], "mixed", LockMode::Exclusive, 2),
    ] {
        let watch = Watch::new();
        let holder = holder(&watch.path, steps);
        let look = watch.look();
        let locks = locks(&look);
        assert_eq!(locks.len(), count, "{steps:?} {locks:?}");
        assert_eq!((locks[0].mode, detail(&look, "class")), (mode, Some(class)), "{steps:?}");
        assert_eq!(locks[0].holder.pid, Some(holder.pid), "{steps:?}");
        assert_eq!(&*locks[0].holder.hostname, "web01");
        // An open file's lock may have been taken by anybody.
        assert_eq!(detail(&look, "taken_after").is_some(), class != "ofd", "{steps:?}");
        assert!(locks[0].holder.command.starts_with("python"), "{:?}", locks[0].holder);
        drop(holder);
        assert!(watch.look().entries.is_empty(), "{steps:?}");
    }
}

#[test]
fn shared_holders_are_all_there_and_exclusive_ones_wait() {
    let watch = Watch::new();
    let a = holder(&watch.path, &["shared"]);
    let b = holder(&watch.path, &["shared"]);
    let _waiter = Holder::start(&watch.path, &["say", "flock"]).says();
    let look = watch.look_with_waiters(1);
    let mut both = [Some(a.pid), Some(b.pid)];
    both.sort_unstable();
    assert_eq!(pids(&look), both);
    // The kernel is not fair: one more reader gets in before the writer.
    let _c = holder(&watch.path, &["shared"]);
    assert_eq!(watch.look_with_waiters(1).entries.len(), 3);
}

#[test]
fn the_next_one_in_the_queue_has_a_lock_of_its_own() {
    let watch = Watch::new();
    let mut a = holder(&watch.path, &["flock"]);
    let b = Holder::start(&watch.path, &["say", "flock"]).says();
    watch.look_with_waiters(1);
    let c = Holder::start(&watch.path, &["say", "shared"]).says();
    let before = watch.look_with_waiters(2);
    assert_eq!(pids(&before), [Some(a.pid)]);
    a.kill();
    let b = b.ready();
    let after = watch.look_with_waiters(1);
    assert_eq!(pids(&after), [Some(b.pid)]);
    assert_ne!(locks(&before)[0].key, locks(&after)[0].key);
    drop(c);
}

#[test]
fn a_child_that_inherited_the_lock_is_named_in_place_of_its_dead_parent() {
    for steps in [&["flock", "leave"][..], &["ofd", "leave"]] {
        let watch = Watch::new();
        let mut child = holder(&watch.path, steps);
        assert_ne!(child.pid, i64::from(child.child.id()));
        // Waiting closes what is left here, and with it the child would end.
        let _input = child.child.stdin.take();
        child.child.wait().unwrap();
        let look = watch.look();
        assert_eq!(pids(&look), [Some(child.pid)], "{steps:?}");
        // It may have been there before: whose child it is, nobody can tell any more.
        let taker = (steps[0] == "flock").then_some("ended");
        assert_eq!((detail(&look, "taker"), detail(&look, "inherited")), (taker, None));
    }
    // A POSIX lock is its process's alone.
    let watch = Watch::new();
    let _child = holder(&watch.path, &["posix", "leave"]);
    assert!(watch.look().entries.is_empty());
}

#[test]
fn the_shell_that_holds_by_a_descriptor_is_found_and_after_it_its_child() {
    let watch = Watch::new();
    let script = r#"exec 9>"$1"; flock -x 9; sh -c 'echo $$; read -r end'; true"#;
    let mut shell = Command::new("bash")
        .args(["-c", script, "bash"])
        .arg(&watch.path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = String::new();
    BufReader::new(shell.stdout.take().unwrap()).read_line(&mut child).unwrap();
    let child: i64 = child.trim().parse().unwrap();
    let look = watch.look();
    assert_eq!(pids(&look), [Some(shell.id().into())]);
    assert_eq!(detail(&look, "holders"), Some("2"));
    assert_eq!((detail(&look, "taker"), detail(&look, "inherited")), (Some("ended"), None));
    let key = locks(&look)[0].key.clone();
    let mut input = shell.stdin.take().unwrap();
    shell.kill().unwrap();
    shell.wait().unwrap();
    let look = watch.look();
    assert_eq!(pids(&look), [Some(child)]);
    assert_eq!(locks(&look)[0].key, key, "the same lock, so the same hold");
    assert_eq!(locks(&look)[0].tenure, Tenure::Kernel(Origin::Left));
    // It is remembered who had it first, also by another process, and by none that knows nothing.
    let known = serde_json::to_string(&watch.machine.traces.save()).unwrap();
    let later = Arc::new(Machine::new(machine("/proc")));
    later.traces.restore(serde_json::from_str(&known).unwrap());
    for (machine, inherited) in
        [(later, Some("yes")), (Arc::new(Machine::new(machine("/proc"))), None)]
    {
        let look = scan(&opened(&watch.path, FileFormat::Kernel, &machine)).unwrap();
        assert_eq!(detail(&look, "inherited"), inherited);
    }
    input.write_all(b"\n").unwrap();
}

#[test]
fn a_posix_lock_is_lost_by_any_close_of_the_file() {
    let watch = Watch::new();
    let _holder = holder(&watch.path, &["posix", "again"]);
    assert!(watch.look().entries.is_empty());
}

#[test]
fn nobody_is_named_when_no_descriptor_shows_the_lock() {
    for step in ["mmap", "send"] {
        let watch = Watch::new();
        let _holder = holder(&watch.path, &["flock", step]);
        let look = watch.look();
        assert_eq!(pids(&look), [None], "{step}");
        assert_eq!(&*locks(&look)[0].holder.hostname, "");
    }
}

#[test]
fn locks_on_files_that_lost_the_path_are_counted() {
    // Deleted; replaced with what holds it known from before; moved away before the first look
    // would be seen by nobody, for no name leads there.
    let watch = Watch::new();
    let _first = holder(&watch.path, &["flock"]);
    fs::remove_file(&watch.path).unwrap();
    let look = watch.look();
    assert_eq!((look.entries.len(), look.facts.orphaned), (0, Some(1)));
    fs::write(&watch.path, "").unwrap();
    let second = holder(&watch.path, &["flock"]);
    let look = watch.look();
    assert_eq!((pids(&look), look.facts.orphaned), (vec![Some(second.pid)], Some(1)));
    // Also where everything else that is locked has its name in the folder, and after a replacement.
    let next = watch.path.with_extension("next");
    fs::write(&next, "").unwrap();
    fs::rename(&next, &watch.path).unwrap();
    let again = source(&watch.path, FileFormat::Kernel, machine("/proc"));
    assert_eq!(scan(&again).unwrap().facts.orphaned, Some(2));

    let watch = Watch::new();
    let mut first = holder(&watch.path, &["flock"]);
    watch.look();
    fs::rename(&watch.path, watch.path.with_extension("old")).unwrap();
    fs::write(&watch.path, "").unwrap();
    for _ in 0..3 {
        let look = watch.look();
        assert_eq!((look.entries.len(), look.facts.orphaned), (0, Some(1)));
    }
    // Another exporter that remembers what this one saw knows it too.
    let traces = watch.machine.traces.save();
    let text = serde_json::to_string(&traces).unwrap();
    let next = Arc::new(Machine::new(machine("/proc")));
    next.traces.restore(serde_json::from_str(&text).unwrap());
    let again = opened(&watch.path, FileFormat::Kernel, &next);
    assert_eq!(scan(&again).unwrap().facts.orphaned, Some(1));
    first.kill();
    assert_eq!(watch.look().facts.orphaned, Some(0));
}

#[test]
fn a_number_that_went_to_another_file_is_no_lock_that_was_left() {
    let watch = Watch::new();
    let first = holder(&watch.path, &["flock"]);
    watch.look();
    // The same process, the same kind of lock and, for all that the list says, the same file: only
    // that one was made at another time.
    let mut traces = serde_json::to_value(watch.machine.traces.save()).unwrap();
    let path = watch.path.to_str().unwrap();
    assert_eq!(traces[path][0]["taker"], first.pid);
    traces[path][0]["born_at"] = "2001-01-01T00:00:00Z".into();
    let next = Arc::new(Machine::new(machine("/proc")));
    next.traces.restore(serde_json::from_value(traces).unwrap());
    let elsewhere = opened(&watch.path, FileFormat::Kernel, &next);
    fs::rename(&watch.path, watch.path.with_extension("old")).unwrap();
    fs::write(&watch.path, "").unwrap();
    assert_eq!(scan(&elsewhere).unwrap().facts.orphaned, Some(0));
    assert_eq!(watch.look().facts.orphaned, Some(1));
}

#[test]
fn other_names_of_the_file_and_folders_are_the_same() {
    let watch = Watch::new();
    let holder_of_file = holder(&watch.path, &["flock"]);
    let hard = watch.path.with_extension("hard");
    let soft = watch.path.with_extension("soft");
    fs::hard_link(&watch.path, &hard).unwrap();
    std::os::unix::fs::symlink(&watch.path, &soft).unwrap();
    for path in [hard, soft] {
        let look = scan(&source(&path, FileFormat::Kernel, machine("/proc"))).unwrap();
        assert_eq!(pids(&look), [Some(holder_of_file.pid)], "{path:?}");
    }
    let folder = watch.path.parent().unwrap();
    let holder_of_folder = holder(folder, &["flock"]);
    let look = scan(&source(folder, FileFormat::Kernel, machine("/proc"))).unwrap();
    assert_eq!(pids(&look), [Some(holder_of_folder.pid)]);
}

#[test]
fn a_lease_is_no_lock_and_looking_does_not_break_it() {
    let watch = Watch::new();
    let _holder = holder(&watch.path, &["lease"]);
    for _ in 0..3 {
        let look = watch.look();
        assert!(look.entries.is_empty());
        assert_eq!(detail(&look, "lease"), Some("active"));
    }
}

#[test]
fn looking_makes_no_attempt_of_a_job_fail() {
    let watch = Watch::new();
    let script = "import fcntl, sys\nf = open(sys.argv[1])\nfor _ in range(20000):\n    \
                  fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)\n    fcntl.flock(f, fcntl.LOCK_UN)\n";
    let mut job = Command::new("python3").args(["-c", script]).arg(&watch.path).spawn().unwrap();
    let status = loop {
        watch.look();
        if let Some(status) = job.try_wait().unwrap() {
            break status;
        }
    };
    assert!(status.success(), "an attempt was refused");
}

#[test]
fn a_name_that_is_cut_in_a_character_is_shown() {
    let watch = Watch::new();
    let _holder = holder(&watch.path, &["name", "flock"]);
    let look = watch.look();
    assert_eq!(&*locks(&look)[0].holder.command, "inner-job-同\u{FFFD}");
}

#[test]
fn what_lslocks_lists_of_this_file_we_list_too() {
    let watch = Watch::new();
    let holder = holder(&watch.path, &["flock", "posix"]);
    let out = Command::new("lslocks").args(["-n", "-r", "-o", "PID,TYPE"]).output().unwrap();
    let theirs = String::from_utf8_lossy(&out.stdout).into_owned();
    let mine = format!("{} ", holder.pid);
    let theirs = theirs.lines().filter(|line| line.starts_with(&mine)).count();
    assert_eq!(watch.look().entries.len(), theirs);
}

#[test]
fn strange_places_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let ring = folder.path().join("ring");
    std::os::unix::fs::symlink(&ring, &ring).unwrap();
    let error = scan(&source(&ring, FileFormat::Kernel, machine("/proc"))).unwrap_err();
    assert_eq!(error.class, ErrorClass::Config);
    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    assert!(scan(&source(&fifo, FileFormat::Kernel, machine("/proc"))).unwrap().entries.is_empty());
    // Opening it would wait for a writer for ever.
    let look = scan(&source(&fifo, FileFormat::Pid, machine("/proc"))).unwrap();
    assert_eq!(look.facts.unknown, Some(UnknownWhy::NotAFile));
    let below = folder.path().join("fifo/below");
    assert!(
        scan(&source(&below, FileFormat::Kernel, machine("/proc"))).unwrap().entries.is_empty()
    );
}

#[test]
fn without_a_list_of_locks_only_descriptors_prove_any() {
    // As when /proc is mounted with subset=pid: everything but the list.
    let proc = tempfile::tempdir().unwrap();
    let watch = Watch::new();
    let holder = holder(&watch.path, &["flock"]);
    let pid = holder.pid.to_string();
    let link = proc.path().join(&pid);
    std::os::unix::fs::symlink(Path::new("/proc").join(&pid), &link).unwrap();
    let blind = source(&watch.path, FileFormat::Kernel, machine(proc.path().to_str().unwrap()));
    assert_eq!(pids(&scan(&blind).unwrap()), [Some(holder.pid)]);
    fs::remove_file(&link).unwrap();
    assert_eq!(scan(&blind).unwrap_err().class, ErrorClass::Unsupported);
}

#[test]
fn outside_of_the_first_namespace_no_row_is_not_free() {
    let proc = tempfile::tempdir().unwrap();
    fs::write(proc.path().join("locks"), "").unwrap();
    let watch = Watch::new();
    let inner = source(&watch.path, FileFormat::Kernel, machine(proc.path().to_str().unwrap()));
    let look = scan(&inner).unwrap();
    assert_eq!(look.facts.unknown, Some(UnknownWhy::Namespace));
    assert_eq!((look.facts.waiters, look.facts.orphaned), (None, None));
}

#[test]
fn absolute_links_of_a_mounted_root_stay_inside() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("run/lock")).unwrap();
    fs::create_dir_all(root.path().join("var")).unwrap();
    std::os::unix::fs::symlink("/run/lock", root.path().join("var/lock")).unwrap();
    let file = root.path().join("run/lock/job");
    fs::write(&file, "").unwrap();
    let holder = holder(&file, &["flock"]);
    let inside = MachineSpec { rootfs: Some(root.path().to_owned()), ..machine("/proc") };
    let look = scan(&source(Path::new("/var/lock/job"), FileFormat::Kernel, inside)).unwrap();
    assert_eq!(pids(&look), [Some(holder.pid)]);
}

#[test]
fn a_file_that_names_a_process_is_held_and_stale_when_that_is_gone() {
    let watch = Watch::of(FileFormat::Pid);
    let judged = |look: &Look| {
        let lock = locks(look).remove(0);
        let now = jiff::Timestamp::now();
        let policy = lock_exporter::source::file::KIND.policy;
        (lock.liveness, judge::judge(&lock, now, &policy, now).is_stale())
    };
    let mut process = Command::new("sleep").arg("600").spawn().unwrap();
    fs::write(&watch.path, format!("{}\n", process.id())).unwrap();
    let look = watch.look();
    assert_eq!(judged(&look), (Liveness::Alive, false));
    assert_eq!(&*locks(&look)[0].holder.command, "sleep");
    // Said to be written long before that process began: whoever may write can say so.
    let hour = SystemTime::now() - Duration::from_secs(3600);
    fs::File::options().write(true).open(&watch.path).unwrap().set_modified(hour).unwrap();
    assert_eq!(judged(&watch.look()), (Liveness::Alive, false));
    process.kill().unwrap();
    process.wait().unwrap();
    fs::write(&watch.path, format!("{}\n", process.id())).unwrap();
    assert_eq!(judged(&watch.look()), (Liveness::Gone(GoneReason::Gone), true));
    // Half written: held, and nobody is called dead.
    fs::write(&watch.path, "").unwrap();
    assert_eq!(judged(&watch.look()), (Liveness::Unknown, false));
    fs::remove_file(&watch.path).unwrap();
    assert!(watch.look().entries.is_empty());
}

#[test]
fn a_file_that_holds_by_existing_is_alive_while_it_is_open() {
    let watch = Watch::of(FileFormat::Exists);
    let liveness = |look: &Look| locks(look)[0].liveness;
    let open = fs::File::open(&watch.path).unwrap();
    assert_eq!(liveness(&watch.look()), Liveness::Alive);
    drop(open);
    assert_eq!(liveness(&watch.look()), Liveness::Unknown);
    // As old as it says, and yet made after the boot.
    let file = fs::File::options().write(true).open(&watch.path).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(86_400)).unwrap();
    drop(file);
    let look = watch.look();
    assert_eq!(liveness(&look), Liveness::Unknown);
    assert_eq!(look.entries[0].refreshed_at().unwrap().as_second(), 86_400);
    fs::remove_file(&watch.path).unwrap();
    assert!(watch.look().entries.is_empty());
}
