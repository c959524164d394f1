"""What the exporter remembers of lock files over restarts, who may have its state folder, and file
systems that do not answer."""

import contextlib
import datetime
import fcntl
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

from prometheus_client.parser import text_string_to_metric_families

import checkout
import exporter
import restic_repo
import servers
from kernel_locks import check, holder, own_mounts, pids, reuse_pid, run

MINUTES = datetime.timedelta(minutes=40)
TIME = re.compile(r'"(\d{4}-\d\d-\d\dT[^"]+Z)"')
SFTP_SERVER = "/usr/lib/openssh/sftp-server"
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
MATCHES, CHURNED, ROUNDS = 10_000, 200, 10


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
        code, said = self.refused(f"--state.dir={self.folder / 'nowhere' / 'at-all'}")
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

    def test_a_restic_lock_whose_pid_was_given_to_another_program(self):
        repository = self.folder / "repository"
        password = self.folder / "password"
        password.write_text("known")
        restic = (restic_repo.restic(), "-r", str(repository), f"--password-file={password}")
        run(*restic, "init")
        spec = {"repository": str(repository), "password_file": str(password)}
        watched = {"scan": {"interval": "1s"}, "targets": [{"name": "job", "restic": spec}]}
        with exporter.Exporter(self.folder, watched) as running:
            # It watches the clock from before the lock was written.
            self.seen(running, "job", "lock_scans_total")
            backup = subprocess.Popen(
                [*restic, "backup", "--stdin"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            self.addCleanup(backup.wait)
            self.addCleanup(backup.kill)
            self.addCleanup(backup.stdin.close)

            def verdict(wanted: tuple[str, str | None]) -> None:
                def is_so() -> bool:
                    one = servers.get_json(f"{running.url}/api/v1/targets/job")["target"]
                    return [(lock["verdict"], lock["stale_reason"]) for lock in one["locks"]] == [
                        wanted
                    ]

                servers.wait_for(f"the verdict {wanted}", is_so)

            verdict(("fresh", None))
            written = time.time()
            backup.kill()
            backup.wait()
            verdict(("stale", "gone"))
            servers.wait_for("a later time", lambda: time.time() > written + 6)
            bystander = reuse_pid(backup.pid)
            self.addCleanup(bystander.wait)
            self.addCleanup(bystander.kill)
            verdict(("stale", "reused"))
            owner_gone = running.samples("job").one("lock_hold_owner_gone")
            self.assertEqual((owner_gone, bystander.poll()), (1, None), "nobody sent it a signal")

    def test_ten_thousand_files_that_match(self):
        many = self.folder / "many"
        many.mkdir()
        for number in range(MATCHES):
            (many / f"{number}.lock").touch()
        process = self.stack.enter_context(holder(many / "77.lock", "flock"))
        found = check(self.folder, {"many": many / "*.lock"}, max=MATCHES - 1)
        self.assertEqual(found["many"]["error"]["reason"], "incomplete")
        found = check(self.folder, {"many": many / "*.lock"}, max=MATCHES)
        self.assertEqual(found.pop("many")["details"]["found"], str(MATCHES))
        self.assertEqual(len(found), MATCHES)
        held = {name: one for name, one in found.items() if one["state"] != "free"}
        (one,) = held.values()
        self.assertEqual((one["state"], pids(one)), ("exclusive", [process.pid]))

    def test_files_that_are_made_locked_and_deleted_all_the_time(self):
        paths = {f"job-{n}": self.folder / f"{n}.lock" for n in range(CHURNED)}
        with self.watching(paths) as running:
            process = Path(f"/proc/{running.process.pid}")

            def cost() -> tuple[int, int]:
                rss = re.search(r"VmRSS:\s+(\d+) kB", (process / "status").read_text())
                return int(rss[1]) >> 10, len(list((process / "fd").iterdir()))

            def looked_again(times: int) -> None:
                name = "lock_scans_total"
                before = running.samples("job-0").one(name)
                servers.wait_for(
                    "looks", lambda: running.samples("job-0").one(name) >= before + times
                )

            self.seen(running, "job-0", "lock_scans_total")
            costs = []
            held = []
            for _ in range(ROUNDS):
                for file in held:
                    file.close()
                held = []
                for number, path in enumerate(paths.values()):
                    path.unlink(missing_ok=True)
                    file = path.open("w")
                    if number % 3:
                        fcntl.flock(file, fcntl.LOCK_EX)
                        held.append(file)
                    else:
                        file.close()
                    if number % 3 == 2:
                        path.unlink()
                        path.touch()
                looked_again(1)
                costs.append(cost())
            self.addCleanup(lambda: [file.close() for file in held])
            looked_again(2)

            def all_of(name: str, **labels: str) -> set[str]:
                page = text_string_to_metric_families(running.page())
                return {
                    sample.labels["target"]
                    for family in page
                    for sample in family.samples
                    if sample.name == name
                    and sample.value == 1
                    and labels.items() <= sample.labels.items()
                }

            def truth() -> bool:
                by_kind = [{f"job-{n}" for n in range(kind, CHURNED, 3)} for kind in range(3)]
                return (
                    all_of("lock_target_state", state="exclusive") == by_kind[1]
                    and all_of("lock_target_state", state="free") == by_kind[0] | by_kind[2]
                    and all_of("lock_target_orphaned_locks") == by_kind[2]
                )

            servers.wait_for("the state of all files", truth)
            early, late = costs[ROUNDS // 4], costs[-1]
            self.assertLess(late[0], early[0] * 1.25 + 8, costs)
            # Connections of the tests and looks that are under way.
            self.assertLess(late[1], early[1] + 20, costs)
