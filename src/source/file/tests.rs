//! Lock files of places that a test cannot mount, and files that say that they are older than they
//! are.
#![allow(clippy::disallowed_methods, reason = "makes what is read")]

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use super::*;
use crate::lock::GoneReason;
use crate::proc::kernel::KernelLocks;
use crate::proc::machine::MachineSpec;
use crate::proc::procfs::Procfs;
use crate::target::Role;

/// A pid that no process can have.
const NOBODY: &str = "4194304\n";

fn machine(procfs: &Path) -> Machine {
    Machine::new(MachineSpec {
        names: vec!["web01".into()],
        unique: true,
        evidence: true,
        procfs: Procfs::new(procfs),
        ..MachineSpec::unknown()
    })
}

/// A `/proc` of a machine on which nothing runs.
fn quiet() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (pid, comm) in [("1", "systemd"), ("2", "kthreadd")] {
        let process = folder.path().join(pid);
        fs::create_dir_all(process.join("fdinfo")).unwrap();
        let flags = if pid == "2" { 0x20_0000 } else { 0 };
        let (before, after) = ("0 ".repeat(4), "0 ".repeat(13));
        let stat = format!("{pid} ({comm}) S 0 {before}{flags} {after}0\n");
        fs::write(process.join("stat"), stat).unwrap();
        fs::write(process.join("status"), format!("Tgid:\t{pid}\nUid:\t0\n")).unwrap();
    }
    fs::write(folder.path().join("locks"), "").unwrap();
    folder
}

/// What is said of a file in a file system of this kind.
fn said(path: &Path, format: FileFormat, kind: &str, machine: &Machine) -> Liveness {
    let spec = FileSpec { path: path.to_owned(), role: Role::Job, format };
    let mut found = Root(None).find(path, false).unwrap().found.unwrap();
    found.mount.kind = kind.into();
    let look = present(&spec, &Root(None), Some(found), machine).unwrap();
    let [LockEntry::Readable(lock)] = &look.entries[..] else { panic!("{look:?}") };
    lock.liveness
}

#[test]
fn a_file_of_a_server_may_name_a_process_of_another_machine() {
    let (procfs, folder) = (quiet(), tempfile::tempdir().unwrap());
    let path = folder.path().join("job.pid");
    fs::write(&path, NOBODY).unwrap();
    let machine = machine(procfs.path());
    let gone = Liveness::Gone(GoneReason::Gone);
    assert_eq!(said(&path, FileFormat::Pid, "ext4", &machine), gone);
    for kind in ["nfs4", "cifs", "fuse.sshfs", "9p", "virtiofs"] {
        assert_eq!(said(&path, FileFormat::Pid, kind, &machine), Liveness::Unknown, "{kind}");
        assert_eq!(said(&path, FileFormat::Exists, kind, &machine), Liveness::Unknown, "{kind}");
    }
}

#[test]
fn a_file_that_only_says_that_it_is_old_is_not_from_before_the_boot() {
    // Copied with its time, moved or linked here, or set: its content is younger than it says.
    let (procfs, folder) = (quiet(), tempfile::tempdir().unwrap());
    let path = folder.path().join("job.lock");
    fs::write(&path, "1\n").unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(86_400)).unwrap();
    drop(file);
    let machine = machine(procfs.path());
    // The clock of this `/proc` is watched from its mount on.
    let boot = SystemTime::try_from(machine.spec.procfs.clock().boot()).unwrap();
    fs::File::open(procfs.path()).unwrap().set_modified(boot).unwrap();
    assert_eq!(said(&path, FileFormat::Exists, "ext4", &machine), Liveness::Unknown);
    assert_eq!(said(&path, FileFormat::Pid, "ext4", &machine), Liveness::Alive);
    let (_, written_at) = Root(None).read(&path).unwrap().unwrap();
    assert!(written_at.duration_since(boot.try_into().unwrap()).is_positive());
}

#[test]
fn a_list_that_is_cut_frees_nobody() {
    let (procfs, folder) = (quiet(), tempfile::tempdir().unwrap());
    let path = folder.path().join("job.lock");
    fs::write(&path, "").unwrap();
    let machine = machine(procfs.path());
    let picture = |cut: bool| {
        let locks = KernelLocks::new(machine.spec.procfs.clone(), Duration::ZERO);
        let read = locks.picture().unwrap();
        drop(locks);
        let mut picture = Arc::into_inner(read).unwrap();
        picture.cut = cut;
        picture
    };
    let root = Root(None);
    let place = root.find(&path, true).unwrap();
    let look = |cut| kernel(&root, &place, &picture(cut), &machine, &mut Vec::new());
    assert!(look(false).unwrap().entries.is_empty());
    assert_eq!(look(true).unwrap_err().class, ErrorClass::Incomplete);
}

#[test]
fn a_folder_tells_the_numbers_of_its_files() {
    for place in ["/tmp", "/dev/shm"] {
        let folder = tempfile::tempdir_in(place).unwrap();
        for number in 0..100 {
            fs::write(folder.path().join(number.to_string()), "").unwrap();
        }
        let found = Root(None).find(&folder.path().join("7"), true).unwrap().found.unwrap();
        if !found.mount.has_plain_numbers() {
            continue;
        }
        let numbers = Root(None).numbers(folder.path()).unwrap();
        let key = found.key;
        assert_eq!((numbers.major, numbers.minor), (key.major, key.minor));
        assert!(numbers.inodes.contains(&key.inode), "{place}");
        assert_eq!(numbers.inodes.len(), 102, "{place}");
    }
}
