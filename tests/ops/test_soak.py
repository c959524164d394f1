"""A fleet of repositories under the traffic of their locks, watched for a while: nothing that is
said is untrue, and nothing grows.

Small by default. LOCK_EXPORTER_SOAK=TARGETS,SECONDS,INTERVAL makes it another one, and
LOCK_EXPORTER_SOAK_PICTURE names a file for its curves.
"""

import gzip
import os
import re
import tempfile
import time
import unittest
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import curves
import exporter
import servers
import soak
from curves import Curve, Points

TARGETS, SECONDS, INTERVAL = 300, 30.0, 3.0
# Events in a second for each target; with refreshes it is twice as many.
EVENTS = 0.1
EVENTS_MAX = 60.0
# Between two pages that are compared with what is true.
CHECK_EVERY = 4.0
OWN = ("lock_exporter_scan_lag_seconds", "lock_exporter_tasks", "process_resident_memory_bytes")
OWN += ("process_open_fds", "process_threads")
# By how much memory may grow in what is left of the run once all is known, by the line of least
# squares; an allocator needs a while until it has what it needs.
GROWTH_MAX = 0.10
# Connections, scans and threads at work come and go.
AT_WORK = 48


@dataclass
class Run:
    """What was measured, each over the seconds since the start."""

    curves: dict[str, Points]
    checked: int
    lies: list[str]
    # The same of a page on which every count of locks is 0.
    forged: list[str]
    # When every target had been looked at with its key.
    known: float

    def after(self, begin: float, name: str) -> Points:
        return [point for point in self.curves[name] if point[0] >= begin]


def ask(url: str, names: tuple[str, ...]) -> str:
    query = "&".join(f"name[]={name}" for name in names)
    request = urllib.request.Request(f"{url}/metrics?{query}", headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=servers.DEADLINE_SECONDS) as answer:
        text = answer.read()
        return (gzip.decompress(text) if answer.headers["Content-Encoding"] else text).decode()


def own(page: str) -> dict[str, float]:
    return {name: float(value) for name, value in re.findall(r"^(\w+) (\S+)$", page, re.M)}


def watch(fleet: soak.Fleet, running: exporter.Exporter, seconds: float) -> Run:
    """Makes traffic and asks, in turn, until the time is over."""
    rate = min(EVENTS * len(fleet.repositories), EVENTS_MAX)
    run = Run({name: [] for name in OWN}, 0, [], [], 0)
    began = time.monotonic()
    next_sample, next_check, next_scrape = 0.0, CHECK_EVERY, 0.0
    events = 0
    while (now := time.monotonic() - began) < run.known + seconds:
        if events < now * rate:
            fleet.happen()
            events += 1
        elif now >= next_sample:
            values = own(ask(running.url, OWN))
            for name in OWN:
                run.curves[name].append((now, values[name]))
            next_sample = now + 1
        elif now >= next_check:
            true, lies = fleet.check(ask(running.url, soak.NAMES))
            run.checked += true
            run.lies += lies
            if not run.known and true == len(fleet.repositories):
                run.known = now
            assert run.known or now < 10 * servers.DEADLINE_SECONDS, f"only {true} known: {lies}"
            next_check = time.monotonic() - began + CHECK_EVERY
        elif now >= next_scrape:
            # As Prometheus does: the whole page.
            ask(running.url, ())
            next_scrape = time.monotonic() - began + 15
        else:
            time.sleep(0.005)
    page = ask(running.url, soak.NAMES)
    _, run.forged = fleet.check(re.sub(r"^(lock_target_locks\{.*\}) .*", r"\1 0", page, flags=re.M))
    return run


class Soak(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        text = os.environ.get("LOCK_EXPORTER_SOAK")
        size = [float(part) for part in text.split(",")] if text else (TARGETS, SECONDS, INTERVAL)
        cls.targets, cls.seconds, cls.interval = int(size[0]), size[1], size[2]
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            # As often as restic refreshes, or more often where there is little time.
            refresh = min(300.0, cls.seconds / 4)
            with soak.Fleet(folder, cls.targets, refresh, seed=8) as fleet:
                config = fleet.config({"interval": f"{cls.interval:.0f}s"})
                with exporter.Exporter(folder, config, fleet.environment) as running:
                    cls.run_ = watch(fleet, running, cls.seconds)
                    cls.failed = running.failed_scans()
            cls.done = fleet.done
        # The first third after all was known is for warming up.
        cls.warm = cls.run_.known + cls.seconds / 3
        cls.report()

    @classmethod
    def report(cls) -> None:
        run = cls.run_
        print(f"\n{cls.targets} targets each {cls.interval:.0f} s, known after {run.known:.0f} s")
        print(f"{run.checked} answers compared, {len(run.lies)} lies; {dict(cls.done)}")
        for name in OWN:
            points = run.after(cls.warm, name)
            grew = curves.slope(points) * 3600
            values = [y for _, y in points]
            print(f"{name}: {min(values):.6g} to {max(values):.6g}, slope {grew:.4g} an hour")
        if picture := os.environ.get("LOCK_EXPORTER_SOAK_PICTURE"):
            cls.draw(Path(picture))

    @classmethod
    def draw(cls, path: Path) -> None:
        got = cls.run_.curves
        memory = [(x, y / (1 << 20)) for x, y in got["process_resident_memory_bytes"]]
        title = (
            f"{cls.targets:,} targets, one scan each {cls.interval:.0f} s,"
            f" {sum(cls.done.values()):,} changes of locks"
        )
        panels = [
            Curve("Resident memory", "MiB", memory),
            Curve("Tasks", "", got["lock_exporter_tasks"]),
            Curve("Open descriptors", "", got["process_open_fds"]),
            Curve("Threads", "", got["process_threads"]),
            Curve("Largest delay of a scan that is due", "s", got[OWN[0]]),
        ]
        curves.draw(path, title, panels)

    def test_nothing_untrue_is_said(self):
        self.assertEqual(self.run_.lies[:10], [], f"{len(self.run_.lies)} of {self.run_.checked}")
        # It was looked at, and much happened.
        self.assertGreater(self.run_.checked, self.targets * 3)
        for what in ("taken", "released", "refreshed", "left stale", "damaged", "emptied"):
            self.assertGreater(self.done[what], 0, what)

    def test_what_is_untrue_would_be_noticed(self):
        self.assertGreater(len(self.run_.forged), 0)

    def test_no_scan_fails(self):
        self.assertEqual(self.failed, {})

    def test_memory_stays_flat(self):
        points = self.run_.after(self.warm, "process_resident_memory_bytes")
        grew = curves.slope(points) * (points[-1][0] - points[0][0])
        self.assertLess(grew, GROWTH_MAX * points[0][1])

    def test_descriptors_threads_and_tasks_do_not_grow(self):
        half = (self.warm + self.run_.curves["lock_exporter_tasks"][-1][0]) / 2
        for name in ("process_open_fds", "process_threads", "lock_exporter_tasks"):
            with self.subTest(name):
                before = [y for x, y in self.run_.after(self.warm, name) if x < half]
                after = [y for _, y in self.run_.after(half, name)]
                self.assertLessEqual(max(after), max(before) + AT_WORK)

    def test_no_scan_waits_for_long(self):
        lag = [y for _, y in self.run_.after(self.warm, "lock_exporter_scan_lag_seconds")]
        self.assertLess(max(lag), max(4 * self.interval, 30))
