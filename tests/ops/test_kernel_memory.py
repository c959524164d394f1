"""What the exporter remembers of lock files over restarts, who may have its state folder, and file
systems that do not answer."""

import contextlib
import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import checkout
import exporter
import servers
from kernel_locks import check, holder, own_mounts, reuse_pid, run

MINUTES = datetime.timedelta(minutes=40)
TIME = re.compile(r'"(\d{4}-\d\d-\d\dT[^"]+Z)"')
SFTP_SERVER = "/usr/lib/openssh/sftp-server"
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def setUpModule():
    own_mounts()


def earlier(found: re.Match) -> str:
    """A time of the memory, moved back; the nanoseconds stay what they are."""
    whole, _, rest = found[1].rstrip("Z").partition(".")
    moved = datetime.datetime.fromisoformat(whole) - MINUTES
    return f'"{moved.isoformat()}{"." + rest if rest else ""}Z"'


class Memory(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory())).resolve()
        self.folder.chmod(0o755)
        self.state = self.folder / "state"
        self.state.mkdir()
        self.file = self.state / "memory.json"

    def lock_file(self, name: str) -> Path:
        path = self.folder / f"{name}.lock"
        path.touch()
        return path

    def watching(self, paths: dict[str, Path], *flags: str, **options) -> exporter.Exporter:
        targets = [
            {"name": name, "file": {"path": str(path)} | options} for name, path in paths.items()
        ]
        watched = {"scan": {"interval": "1s", "timeout": "2s"}, "targets": targets}
        running = exporter.Exporter(self.folder, watched)
        command = running.command
        running.command = lambda port: [*command(port), *flags]
        return running

    def remembering(self, paths: dict[str, Path]) -> exporter.Exporter:
        return self.watching(paths, f"--state.dir={self.state}")

    def seen(self, running: exporter.Exporter, target: str, name: str, **labels: str) -> float:
        def first():
            found = running.samples(target).all(name, **labels)
            return found[0] if found else None

        return servers.wait_for(f"{name} of {target}", first)[1]

    def log(self) -> str:
        return (self.folder / "lock_exporter.log").read_text()

    def test_a_hold_and_a_file_that_was_moved_survive_a_restart(self):
        paths = {name: self.lock_file(name) for name in ("job", "moved")}
        for path in paths.values():
            self.stack.enter_context(holder(path, "flock"))
        since = "lock_hold_since_timestamp_seconds"
        with self.remembering(paths) as running:
            began = {name: self.seen(running, name, since) for name in paths}
        # Forty minutes pass: what was written down is as old as if they had.
        memory = json.loads(self.file.read_text())
        memory["targets"] = json.loads(TIME.sub(earlier, json.dumps(memory["targets"])))
        self.file.write_text(json.dumps(memory))
        paths["moved"].rename(self.folder / "elsewhere.lock")
        paths["moved"].touch()
        with self.remembering(paths) as running:
            again = self.seen(running, "job", since)
            self.assertAlmostEqual(again, began["job"] - MINUTES.total_seconds(), places=2)
            orphaned = servers.wait_for(
                "the lock on the moved file",
                lambda: running.samples("moved").all("lock_target_orphaned_locks"),
            )
            self.assertEqual(orphaned[0][1], 1)
            # `check` takes nothing and knows the same.
            found = check(self.folder, paths, f"--state.dir={self.state}")
            held_since = datetime.datetime.fromisoformat(
                found["job"]["holds"][0]["held_since"][:19] + "+00:00"
            )
            self.assertLess(abs(held_since.timestamp() - again), 1.001)

    def test_one_exporter_at_a_time(self):
        paths = {"job": self.lock_file("job")}
        with self.remembering(paths) as running:
            code, said = self.refused(f"--state.dir={self.state}")
            self.assertEqual(code, 75, said)
            self.assertIn(f"pid {running.process.pid},", said)
        self.assertTrue((self.state / "exporter.lock").exists())
        code, said = self.refused(f"--state.dir={self.folder / 'nowhere'}")
        self.assertEqual(code, 1, said)
        self.assertIn("is missing", said)
        program = self.folder / "lock_exporter"
        shutil.copy(checkout.exporter(), program)
        command = (*NOBODY, str(program))
        code, said = self.refused(f"--state.dir={self.state}", command=command)
        self.assertEqual(code, 1, said)
        self.assertIn("is not writable", said)

    def refused(self, *flags: str, command: tuple[str, ...] = ()) -> tuple[int, str]:
        file = self.folder / "lock_exporter.yml"
        address = f"127.0.0.1:{servers.free_port()}"
        words = [f"--config.file={file}", f"--web.listen-address={address}", *flags]
        done = subprocess.run(
            [*(command or (checkout.exporter(),)), *words],
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.returncode, done.stderr

    def test_what_cannot_be_understood_is_set_aside(self):
        paths = {"job": self.lock_file("job")}
        with self.remembering(paths) as running:
            self.seen(running, "job", "lock_scans_total")
        whole = self.file.read_text()
        newer = json.loads(whole) | {"version": 99}
        for text in ("nonsense", "", whole[: len(whole) // 2], json.dumps(newer)):
            with self.subTest(text[:20]):
                self.file.write_text(text)
                with self.remembering(paths) as running:
                    self.seen(running, "job", "lock_scans_total")
                self.assertEqual((self.state / "memory.json.damaged").read_text(), text)
                self.assertIn("set aside", self.log())
                self.assertEqual(json.loads(self.file.read_text())["version"], 1)

    def test_a_full_disk_is_told_and_ends_nothing(self):
        run("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", self.state)
        self.stack.callback(run, "umount", "--lazy", self.state)
        with contextlib.suppress(OSError), (self.state / "full").open("wb", 0) as file:
            while True:
                file.write(b"x" * 512)
        paths = {"job": self.lock_file("job")}
        with self.remembering(paths) as running:
            before = self.seen(running, "job", "lock_scans_total")
            servers.wait_for("the complaint", lambda: "was not written down" in self.log())
            servers.wait_for(
                "more scans",
                lambda: running.samples("job").one("lock_scans_total") > before + 1,
            )
        self.assertEqual(running.process.returncode, 0)
        (self.state / "full").unlink()
        with self.remembering(paths) as running:
            self.seen(running, "job", "lock_scans_total")
        self.assertIn("job", json.loads(self.file.read_text())["targets"])

    def test_a_server_that_does_not_answer_stops_nobody_else(self):
        remote, local = self.folder / "remote", self.folder / "mount"
        for folder in (remote, local):
            folder.mkdir()
        (remote / "job.lock").touch()
        pid_file = self.folder / "sftp.pid"
        ssh = self.folder / "ssh"
        ssh.write_text(f"#!/bin/sh\necho $$ > {pid_file}\nexec {SFTP_SERVER}\n")
        ssh.chmod(0o755)
        uncached = "cache=no,dir_cache=no,attr_timeout=0,entry_timeout=0,negative_timeout=0"
        run("sshfs", "-o", f"ssh_command={ssh},{uncached}", f"host:{remote}", local)
        self.stack.callback(run, "umount", "--lazy", local)
        server = int(pid_file.read_text())
        # Whatever happens, what is stopped goes on and ends.
        self.stack.callback(os.kill, server, signal.SIGCONT)
        paths = {"far": local / "job.lock", "near": self.lock_file("near")}
        found = check(self.folder, paths)
        self.assertEqual(found["far"]["state"], "unknown")
        self.assertEqual(found["far"]["findings"][0]["topic"], "not_seen")
        self.assertIn("other clients", found["far"]["findings"][0]["evidence"])
        with self.watching(paths) as running:
            success = "lock_scan_success"

            def far_is(value: float) -> None:
                servers.wait_for(
                    f"{success} {value}",
                    lambda: running.samples("far").one(success) == value,
                )

            def near_goes_on() -> None:
                before = running.samples("near").one("lock_scans_total")
                servers.wait_for(
                    "scans of the near file",
                    lambda: running.samples("near").one("lock_scans_total") > before + 2,
                )
                self.assertEqual(running.samples("near").one(success), 1)

            far_is(1)
            os.kill(server, signal.SIGSTOP)
            far_is(0)
            near_goes_on()
            reasons = running.samples("far").all("lock_scan_error_info")
            self.assertEqual([labels["reason"] for labels, _ in reasons], ["timeout"])
            os.kill(server, signal.SIGCONT)
            far_is(1)

    def test_a_pid_file_whose_process_ended_and_whose_pid_was_given_again(self):
        path = self.folder / "daemon.pid"
        first = subprocess.Popen(["sleep", "600"])
        self.addCleanup(first.wait)
        self.addCleanup(first.kill)
        path.touch()
        with self.watching({"daemon": path}, format="pid") as running:
            self.seen(running, "daemon", "lock_scans_total")
            # Written while the exporter watches the clock.
            path.write_text(f"{first.pid}\n")
            written = time.time()

            def owner_gone(value: float) -> None:
                servers.wait_for(
                    f"owner gone {value}",
                    lambda: running.samples("daemon").one("lock_hold_owner_gone") == value,
                )

            owner_gone(0)
            first.send_signal(signal.SIGSTOP)
            before = running.samples("daemon").one("lock_scans_total")
            servers.wait_for(
                "looks at a stopped process",
                lambda: running.samples("daemon").one("lock_scans_total") > before + 1,
            )
            owner_gone(0)
            first.kill()
            first.wait()
            owner_gone(1)
            # Nobody is called another one who may have written the file: clocks differ a little.
            servers.wait_for("a later time", lambda: time.time() > written + 6)
            bystander = reuse_pid(first.pid)
            self.addCleanup(bystander.wait)
            self.addCleanup(bystander.kill)
            before = running.samples("daemon").one("lock_scans_total")
            servers.wait_for(
                "looks at the other process",
                lambda: running.samples("daemon").one("lock_scans_total") > before + 6,
            )
            owner_gone(1)
            self.assertIsNone(bystander.poll(), "nobody sent it a signal")
