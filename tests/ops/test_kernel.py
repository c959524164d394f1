"""Lock files as the real kernel has them: beside lslocks and fuser, as other users, behind
namespaces and mounts, and over restarts of the exporter."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import checkout

from kernel_locks import (
    Process,
    check,
    fuser,
    holder,
    lslocks,
    own_mounts,
    pids,
    reuse_pid,
    run,
    shell,

)

NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
CAPABLE = (*NOBODY, "--inh-caps=+sys_ptrace", "--ambient-caps=+sys_ptrace")
NAMESPACE = ("unshare", "--pid", "--fork", "--mount", "--mount-proc")
SHELL_LOCK = 'exec 9<>"$1"; flock -x 9; echo $$; read -r end; true'
# The same in a shell whose parent ends first.
ALONE = f"exec 3<&0; bash -c '{SHELL_LOCK}' bash \"$1\" <&3 &"

def setUpModule():
    own_mounts()

class Kernel(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory())).resolve()
        self.folder.chmod(0o755)
        self.path = self.folder / "job.lock"
        self.path.touch()

    def hold(self, *kinds: str, path: Path | None = None) -> Process:
        return self.stack.enter_context(holder(path or self.path, *kinds))

    def look(self, *flags: str, path: Path | None = None, **how) -> dict:
        return check(self.folder, {"job": path or self.path}, *flags, **how)["job"]

    def mount(self, *words: str | Path) -> Path:
        place = self.folder / f"mount{len(list(self.folder.glob('mount*')))}"
        place.mkdir()
        run("mount", *words, place)
        self.stack.callback(run, "umount", "--lazy", place)
        return place

class Beside(Kernel):
    """What lslocks and fuser say of the same locks in the same moment."""

    def test_a_plain_lock_is_the_same_to_all(self):
        for kind, mode in [("flock", "exclusive"), ("shared", "shared"), ("posix", "exclusive")]:
            with self.subTest(kind), holder(self.path, kind) as process:
                ours = self.look()
                (theirs,) = lslocks(self.path)
                self.assertEqual((ours["state"], pids(ours)), (mode, [process.pid]))
                self.assertEqual(theirs["pid"], process.pid)
                self.assertEqual(theirs["mode"], "READ" if mode == "shared" else "WRITE")
                self.assertEqual(fuser(self.path), {process.pid})
                self.assertIn("taken_after", ours["details"])

    def test_of_a_lock_without_pid_only_we_name_the_holder(self):
        process = self.hold("ofd")
        self.assertEqual(pids(self.look()), [process.pid])
        (theirs,) = lslocks(self.path)
        self.assertIn(theirs["pid"], (-1, process.pid), "newer ones find it too")

    def test_fuser_lists_who_has_it_open_and_we_who_has_the_lock(self):
        process = self.hold("flock")
        other = os.open(self.path, os.O_RDONLY)
        self.addCleanup(os.close, other)
        self.assertEqual(fuser(self.path), {process.pid, os.getpid()})
        self.assertEqual(pids(self.look()), [process.pid])

    def test_a_taker_that_is_dead_is_not_named_and_its_child_is(self):
        process = self.hold("flock", "fork")
        process.kill()
        child = int(process.said)
        ours = self.look()
        self.assertEqual((pids(ours), ours["details"]["taker"]), ([child], "ended"))
        self.assertNotIn("taken_after", ours["details"])
        (theirs,) = lslocks(self.path)
        self.assertEqual(theirs["pid"], process.pid, "it lists the number that the kernel shows")
        self.assertEqual(fuser(self.path), {child})

    def test_a_shell_that_took_it_through_flock_is_no_child_of_it(self):
        for script in (SHELL_LOCK, ALONE):
            with self.subTest(script), shell(script, self.path) as process:
                ours = self.look()
                self.assertEqual(pids(ours), [int(process.said)])
                self.assertEqual(ours["details"]["taker"], "ended")
                self.assertNotIn("inherited", ours["details"])
                said = ours["findings"][0]["evidence"]
                self.assertIn("taken through another process, which has ended", said)

    def test_what_outlived_the_process_that_took_it(self):
        # By its session a process is known to come from another one.
        flock = ("flock", "-n", self.path, "sh", "-c", "echo $$; read -r end; true")
        flock = self.stack.enter_context(Process(*flock, start_new_session=True))
        flock.kill()
        ours = self.look()
        self.assertEqual((pids(ours), ours["details"]["inherited"]), ([int(flock.said)], "yes"))
        said = ours["findings"][0]["evidence"]
        self.assertIn("left by a process that had it before and has ended", said)

    def test_a_pid_that_was_given_again_is_not_named_either(self):
        script = self.stack.enter_context(shell(SHELL_LOCK, self.path))
        (row,) = lslocks(self.path)
        taker = row["pid"]
        self.assertNotEqual(taker, script.pid)
        bystander = reuse_pid(taker)
        self.addCleanup(bystander.wait)
        self.addCleanup(bystander.kill)
        ours = self.look()
        self.assertEqual(pids(ours), [script.pid])
        self.assertEqual(ours["locks"][0]["holder"]["command"], "bash")
        (row,) = lslocks(self.path)
        self.assertEqual((row["pid"], row["command"]), (bystander.pid, "sleep"))

    def test_a_file_that_was_deleted_under_its_lock(self):
        process = self.hold("flock")
        inode = self.path.stat().st_ino
        self.path.unlink()
        ours = self.look()
        self.assertEqual((ours["state"], ours["details"]["present"]), ("free", "no"))
        self.assertEqual([finding["topic"] for finding in ours["findings"]], ["replaced_file"])
        self.assertEqual([row["pid"] for row in lslocks(self.path, inode)], [process.pid])
        self.path.touch()
        second = self.hold("flock")
        ours = self.look()
        self.assertEqual(pids(ours), [second.pid])
        self.assertIn("replaced_file", [finding["topic"] for finding in ours["findings"]])

    def test_flock_and_what_it_starts(self):
        flock = Process("flock", "-n", self.path, "sh", "-c", "echo $$; read -r end; true")
        flock = self.stack.enter_context(flock)
        child = int(flock.said)
        self.assertEqual(pids(self.look()), [flock.pid])
        flock.process.send_signal(signal.SIGSTOP)
        self.assertEqual(pids(self.look()), [flock.pid])
        flock.kill()
        ours = self.look()
        self.assertEqual((pids(ours), ours["details"]["taker"]), ([child], "ended"))

    def test_dpkg(self):
        root = self.folder / "root"
        admin = root / "var/lib/dpkg"
        for name in ("info", "updates", "triggers"):
            (admin / name).mkdir(parents=True)
        for name in ("status", "available"):
            (admin / name).touch()
        control = self.folder / "package/DEBIAN"
        control.mkdir(parents=True)
        (control / "control").write_text(
            "Package: held\nVersion: 1\nArchitecture: all\n"
            "Maintainer: nobody <nobody@example.org>\nDescription: nothing\n"
        )
        script = control / "preinst"
        script.write_text("#!/bin/sh\necho unpacking\nread -r end\nexit 0\n")
        script.chmod(0o755)
        package = self.folder / "held.deb"
        run("dpkg-deb", "--build", control.parent, package)
        options = [f"--root={root}", "--force-script-chrootless", "--install", package]
        dpkg = subprocess.Popen(
            ["dpkg", *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with dpkg:
            while (line := dpkg.stdout.readline()).strip() != "unpacking":
                self.assertTrue(line, "dpkg ended")
            locks = {name: admin / name for name in ("lock", "lock-frontend")}
            for name, ours in check(self.folder, locks).items():
                with self.subTest(name):
                    self.assertEqual((ours["state"], pids(ours)), ("exclusive", [dpkg.pid]))
                    self.assertEqual(ours["details"]["class"], "posix")
            dpkg.communicate("\n", timeout=60)
        self.assertEqual(dpkg.returncode, 0)
        for ours in check(self.folder, locks).values():
            self.assertEqual((ours["state"], ours["details"]["present"]), ("free", "yes"))

class Sight(Kernel):
    """What may not be seen is unknown, and the rest is still told."""

    def test_users(self):
        program = self.folder / "lock_exporter"
        shutil.copy(checkout.exporter(), program)
        process = self.hold("flock")
        no_ptrace = ("setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace")
        for before, expected in [
            (NOBODY, [0]),
            (CAPABLE, [process.pid]),
            (no_ptrace, [0]),
        ]:
            with self.subTest(before):
                ours = self.look(before=before, program=str(program))
                self.assertEqual((ours["state"], pids(ours)), ("exclusive", expected))

    def test_a_folder_that_is_closed(self):
        program = self.folder / "lock_exporter"
        shutil.copy(checkout.exporter(), program)
        closed = self.folder / "closed"
        closed.mkdir(mode=0o700)
        ours = self.look(path=closed / "job.lock", before=NOBODY, program=str(program))
        self.assertEqual((ours["state"], ours["error"]["reason"]), ("unknown", "permission"))

    def test_a_pid_namespace_hides_what_is_outside(self):
        inside = (*NAMESPACE,)
        self.assertEqual(self.look(before=inside)["state"], "unknown")
        self.hold("flock")
        ours = self.look(before=inside)
        self.assertEqual((ours["state"], ours["findings"][0]["topic"]), ("unknown", "not_seen"))
        # lslocks lists nothing there, as of a file that is free.
        theirs = json.loads(run(*inside, "lslocks", "--json", "-o", "INODE") or "{}")
        rows = [row["inode"] for row in theirs.get("locks", [])]
        self.assertNotIn(self.path.stat().st_ino, rows)
        # The host's /proc inside of it shows all.
        host = self.mount("--bind", "/proc")
        ours = self.look(f"--path.procfs={host}", before=inside)
        self.assertEqual(ours["state"], "exclusive")

    def test_a_lock_from_inside_is_proven_by_its_descriptor(self):
        script = (
            'exec 9<>"$1"; flock -x 9; shift; "$@"'  # The taker has ended, so there is no row.
        )
        before = (*NAMESPACE, "bash", "-c", script, "bash", str(self.path))
        ours = self.look(before=before)
        self.assertEqual((ours["state"], pids(ours)), ("exclusive", [1]))

    def test_other_kinds_of_proc(self):
        alone = self.mount("-t", "proc", "-o", "subset=pid", "proc")
        hidden = self.mount("-t", "proc", "-o", "hidepid=2", "proc")
        program = self.folder / "lock_exporter"
        shutil.copy(checkout.exporter(), program)
        nobody = {"before": NOBODY, "program": str(program)}
        ours = self.look(f"--path.procfs={alone}")
        self.assertEqual((ours["state"], ours["error"]["reason"]), ("unknown", "unsupported"))
        self.assertEqual(self.look(f"--path.procfs={hidden}", **nobody)["state"], "unknown")
        process = self.hold("flock")
        self.assertEqual(pids(self.look(f"--path.procfs={alone}")), [process.pid])
        ours = self.look(f"--path.procfs={hidden}", **nobody)
        self.assertEqual((ours["state"], pids(ours)), ("exclusive", [0]))

    def test_a_root_that_is_mounted_elsewhere(self):
        root = self.folder / "host"
        (root / "run/lock").mkdir(parents=True)
        (root / "var").mkdir()
        (root / "var/lock").symlink_to("/run/lock")
        (root / "run/lock/job.lock").touch()
        process = self.hold("flock", path=root / "run/lock/job.lock")
        ours = self.look(f"--path.rootfs={root}", path=Path("/var/lock/job.lock"))
        self.assertEqual(pids(ours), [process.pid])

    def test_what_is_no_regular_file(self):
        fifo, device, folder = (self.folder / name for name in ("fifo", "device", "folder"))
        os.mkfifo(fifo)
        os.mknod(device, 0o600 | 0o020000, os.makedev(1, 3))
        folder.mkdir()
        paths = {"fifo": fifo, "device": device, "folder": folder}
        for name, ours in check(self.folder, paths).items():
            self.assertEqual(ours["state"], "free", name)
        for path in paths.values():
            self.hold("flock", path=path)
        for name, ours in check(self.folder, paths).items():
            self.assertEqual(ours["state"], "exclusive", name)
        for name, ours in check(self.folder, paths, format="pid").items():
            self.assertEqual(ours["findings"][0]["topic"], "not_seen", name)

class Mounts(Kernel):
    """The device that the kernel locks by is not always the one that `stat` shows."""

    def test_other_ways_to_the_file(self):
        process = self.hold("flock")
        bound = self.mount("--bind", self.folder) / "job.lock"
        hard, soft = self.folder / "hard.lock", self.folder / "soft.lock"
        os.link(self.path, hard)
        soft.symlink_to(self.path)
        paths = {"bound": bound, "hard": hard, "soft": soft}
        for name, ours in check(self.folder, paths).items():
            self.assertEqual(pids(ours), [process.pid], name)

    def test_overlay(self):
        lower = self.folder / "lower"
        lower.mkdir()
        (lower / "old.lock").touch()
        upper = self.mount("-t", "tmpfs", "tmpfs")
        for name in ("upper", "work"):
            (upper / name).mkdir()
        layers = f"lowerdir={lower},upperdir={upper / 'upper'},workdir={upper / 'work'}"
        merged = self.mount("-t", "overlay", "-o", layers, "overlay")
        new, old = merged / "new.lock", merged / "old.lock"
        new.touch()
        held = {"new": self.hold("flock", path=new), "old": self.hold("shared", path=old)}
        for name, ours in check(self.folder, {"new": new, "old": old}).items():
            with self.subTest(name):
                self.assertEqual(pids(ours), [held[name].pid])
                self.assertEqual(ours["details"]["file_system"], "overlay")
        # The layer below is another file.
        self.assertEqual(self.look(path=lower / "old.lock")["state"], "free")

    def test_btrfs_where_two_files_have_one_number(self):
        image = self.folder / "image"
        with image.open("wb") as file:
            file.truncate(128 << 20)
        run("mkfs.btrfs", "-q", image)
        place = self.mount("-o", "loop", image)
        paths = {}
        for name in ("one", "two"):
            run("btrfs", "-q", "subvolume", "create", place / name)
            paths[name] = place / name / "job.lock"
            paths[name].touch()
        place.chmod(0o755)
        self.assertEqual(*(path.stat().st_ino for path in paths.values()))
        one = self.hold("flock", path=paths["one"])
        ours = check(self.folder, paths)
        self.assertEqual((ours["one"]["state"], pids(ours["one"])), ("exclusive", [one.pid]))
        self.assertEqual(ours["two"]["state"], "free")
        two = self.hold("shared", path=paths["two"])
        ours = check(self.folder, paths)
        self.assertEqual((ours["one"]["state"], pids(ours["one"])), ("exclusive", [one.pid]))
        self.assertEqual((ours["two"]["state"], pids(ours["two"])), ("shared", [two.pid]))
        program = self.folder / "lock_exporter"
        shutil.copy(checkout.exporter(), program)
        for name, ours in check(self.folder, paths, before=NOBODY, program=str(program)).items():
            self.assertEqual(ours["state"], "unknown", f"{name}: whose it is may not be read")

class Number(Kernel):
    """A great many locks, and what a round costs."""

    def test_many_rows_and_many_paths(self):
        many = self.folder / "many"
        many.mkdir()
        script = (
            "import fcntl, resource, sys\n"
            "resource.setrlimit(resource.RLIMIT_NOFILE, (5000, 5000))\n"
            "held = [open(f'{sys.argv[1]}/{number}', 'w') for number in range(4000)]\n"
            "for file in held: fcntl.flock(file, fcntl.LOCK_EX)\n"
            "print('ready', flush=True)\nsys.stdin.read()\n"
        )
        command = (os.sys.executable, "-c", script, str(many))
        process = self.stack.enter_context(Process(*command))
        paths = {f"job-{number}": many / str(number) for number in range(199)}
        paths["free"] = self.path
        trace = self.folder / "trace"
        begun = time.monotonic()
        calls = "trace=openat,openat2,flock,fcntl,kill,tkill,tgkill,pidfd_send_signal"
        before = ("strace", "-f", "-qq", "-s", "200", "-e", calls, "-o", str(trace))
        found = check(self.folder, paths, before=before)
        took = time.monotonic() - begun
        self.assertEqual(found.pop("free")["state"], "free")
        for name, ours in found.items():
            self.assertEqual(pids(ours), [process.pid], name)
        lines = trace.read_text().splitlines()
        reads = [line for line in lines if '"/proc/locks"' in line]
        # One for the whole round; a reading is young enough for five seconds.
        self.assertGreaterEqual(len(reads), 1)
        self.assertLessEqual(len(reads), 1 + took / 5)
        watched = [line for line in lines if f"{many}/" in line and "openat" in line]
        self.assertEqual(len(watched), 199)
        # Its folder is listed once for each reading, whatever the number of files in it.
        listed = [line for line in lines if f'{many}"' in line and "openat" in line]
        self.assertLessEqual(len(listed), len(reads))
        for line in watched:
            self.assertIn("O_PATH", line)
        for line in lines:
            self.assertNotRegex(line, r"flock\(|F_(OFD_)?(SETLK|GETLK)|F_SETLEASE|kill\(|_signal\(")
        # Descriptors are read for all paths together: of who took the locks, and once of all
        # processes where somebody else has one.
        fdinfo = [line for line in lines if f"/proc/{process.pid}/fdinfo" in line]
        self.assertLessEqual(len(fdinfo), len(reads) * 2 * 4100)

