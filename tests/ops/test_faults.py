"""Faults of the exporter's own process: what is told meanwhile is the truth or an error, and it
recovers by itself. Whoever reads is asked again and again from before the fault until after it."""

import contextlib
import os
import resource
import shutil
import signal
import tempfile
import unittest
from pathlib import Path

import exporter
import restic_places
import restic_repo
import servers
from restic_places import Folder, Restic

INTERVAL_SECONDS = 1
# Less than scrypt takes with restic's own parameters.
HEADROOM_BYTES = 16 << 20
# So many more descriptors than are open: enough to answer, too few to look into a folder.
SPARE_DESCRIPTORS = 2


def status(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"{name}:")))


class Faults(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.restic = Restic(os.environ["RESTIC_018"])

    def locked(self, name: str) -> Path:
        """A repository with the lock of a backup that was killed on another host."""
        place = Folder(self.folder / name)
        place.fill(restic_places.make_template(self.restic, self.folder / f"{name}-template"))
        with restic_places.holding(self.restic, place, "shared", hostname="web03") as holder:
            holder.kill()
        return self.folder / name

    def watching(self, *targets: dict) -> exporter.Exporter:
        config = {
            "scan": {"interval": f"{INTERVAL_SECONDS}s", "timeout": "1s", "hold": "15m"},
            "targets": list(targets),
        }
        environment = {"RESTIC_PASSWORD": restic_repo.PASSWORD}
        return self.stack.enter_context(exporter.Exporter(self.folder, config, environment))

    def told(self, running: exporter.Exporter, target: str) -> exporter.Samples:
        """What is told now, which is never that nobody has the lock or that it is stale."""
        self.assertIsNone(running.process.poll(), running.tail())
        samples = running.samples(target)
        for labels, value in samples.all("lock_count"):
            if labels["state"] == "stale":
                self.assertEqual(value, 0, samples.found)
        if samples.all("lock_count"):
            self.assertEqual(samples.sum("lock_count"), 1, samples.found)
        return samples

    def wait(self, what: str, running: exporter.Exporter, target: str, success: bool) -> None:
        def seen() -> bool:
            return self.told(running, target).one("lock_scan_success") == success

        servers.wait_for(what, seen)
