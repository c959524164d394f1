"""Faults of the exporter's own process: what is told meanwhile is the truth or an error, and it
recovers by itself. Whoever reads is asked again and again from before the fault until after it."""

import contextlib
import os
import resource
import signal
import tempfile
import time
import unittest
import unittest.mock
from pathlib import Path

import checkout
import exporter
import restic_places
import servers
from restic_places import Folder, Restic

INTERVAL_SECONDS = 1
# Less than scrypt takes with restic's own parameters.
HEADROOM_BYTES = 16 << 20


def status(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"{name}:")))


class Faults(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.restic = Restic(os.environ["RESTIC_018"])

    def locked(self, name: str, cheap: bool = True) -> Folder:
        """A repository with the lock of a backup that was killed on another host."""
        folder = self.folder / f"{name}-template"
        folder.mkdir()
        place = Folder(self.folder / name)
        place.fill(restic_places.make_template(self.restic, folder, cheap=cheap))
        with restic_places.holding(self.restic, place, "shared", hostname="web03") as holder:
            holder.kill()
        return place

    def watching(self, **places: Folder) -> exporter.Exporter:
        targets = [
            {"name": name, "restic": {"repository": place.location}}
            for name, place in places.items()
        ]
        scan = {"interval": f"{INTERVAL_SECONDS}s", "timeout": "1s"}
        environment = {"RESTIC_PASSWORD": restic_places.PASSWORD}
        config = {"scan": scan, "targets": targets}
        return self.stack.enter_context(exporter.Exporter(self.folder, config, environment))

    def told(self, running: exporter.Exporter, target: str) -> exporter.Samples:
        """What is told now, which is never that nobody has the lock, nor that it is stale."""
        self.assertIsNone(running.process.poll(), "it ended")
        samples = running.samples(target)
        locks = samples.all("lock_target_locks")
        if locks:
            self.assertEqual(sum(value for _, value in locks), 1, locks)
        self.assertEqual(samples.sum("lock_target_locks", state="stale"), 0, locks)
        self.assertEqual(samples.sum("lock_target_state", state="free"), 0, samples.found)
        return samples

    def wait(self, what: str, running: exporter.Exporter, target: str, success: int) -> None:
        servers.wait_for(
            what, lambda: self.told(running, target).one("lock_scan_success") == success
        )

    def log(self, running: exporter.Exporter) -> str:
        return running.log.read_text(errors="replace")

    def test_no_memory_for_a_key_is_an_error_of_its_target_alone(self):
        cheap, dear = self.locked("cheap"), self.locked("dear", cheap=False)
        with self.watching(cheap=cheap) as running:
            self.wait("a scan", running, "cheap", success=1)
            addresses = status(running.process.pid, "VmSize") << 10
        program = checkout.exporter()
        limited = self.folder / "limited"
        limited.write_text(
            f'#!/bin/sh\nexec prlimit --as={addresses + HEADROOM_BYTES}: {program} "$@"\n'
        )
        limited.chmod(0o755)
        with unittest.mock.patch.dict(os.environ, LOCK_EXPORTER=str(limited)):
            running = self.watching(cheap=cheap, dear=dear)
        servers.wait_for("the complaint", lambda: "of memory for the key" in self.log(running))
        self.told(running, "dear")
        self.wait("the other target", running, "cheap", success=1)
        resource.prlimit(
            running.process.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2
        )
        servers.wait_for(
            "the lock's holder",
            lambda: self.told(running, "dear").one("lock_hold_info", hostname="web03"),
        )

    def test_without_descriptors_nothing_false_is_told(self):
        locked = self.locked("locked")
        running = self.watching(locked=locked)
        pid = running.process.pid
        self.wait("a scan", running, "locked", success=1)
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        used = {int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()}
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (max(used) + 1, before[1]))
        # It may be too few to answer at all; the log tells that it was felt.
        felt = "Too many open files"
        servers.wait_for("a complaint", lambda: felt in self.log(running))
        for _ in range(10):
            with contextlib.suppress(OSError, LookupError):
                self.told(running, "locked")
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        scans = self.told(running, "locked").one("lock_scans_total")
        servers.wait_for(
            "more scans",
            lambda: self.told(running, "locked").one("lock_scans_total") > scans + 1,
        )
        self.wait("a scan", running, "locked", success=1)

    def test_one_that_was_stopped_goes_on(self):
        locked = self.locked("locked")
        running = self.watching(locked=locked)
        self.wait("a scan", running, "locked", success=1)
        scans = self.told(running, "locked").one("lock_scans_total")
        for _ in range(3):
            running.process.send_signal(signal.SIGSTOP)
            # Several intervals pass for everybody else.
            time.sleep(3 * INTERVAL_SECONDS)
            running.process.send_signal(signal.SIGCONT)
            self.told(running, "locked")
        servers.wait_for(
            "more scans",
            lambda: self.told(running, "locked").one("lock_scans_total") > scans + 3,
        )
        self.wait("a scan", running, "locked", success=1)
