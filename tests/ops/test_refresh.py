"""Refreshes that really happen, and locks that nobody refreshes any more.

restic's own clock is never moved, since it asks the kernel; the exporter's is moved by libfaketime
where half an hour would have to pass.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Iterator
from pathlib import Path

import checkout
import exporter
import refreshing
import restic_places
import restic_view
import servers

# restic internal/repository/lock.go, defaultRefreshInterval.
REFRESH_SECONDS = 300
# Its ticker and the writing of a lock, on a busy machine.
LATE_SECONDS = 60
LIBRARY = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
# Times on /metrics are floating-point numbers.
ROUNDING_SECONDS = 0.001


class Watched:
    """The exporter of `refreshing`, wherever it was started."""

    def __init__(self, started: dict):
        self.started = started
        self.first = restic_view.time_of(started["lock"]["time"]).timestamp()

    def samples(self) -> exporter.Samples:
        return exporter.samples(
            servers.get(self.started["url"] + "/metrics").decode(), refreshing.TARGET
        )

    def refreshed(self) -> exporter.Samples | None:
        samples = self.samples()
        return samples if samples.one("lock_refreshes_total") >= 1 else None


class Refresh(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)

    def watched(self) -> Watched:
        """What tests/run started long ago; without it the waiting begins now."""
        given = os.environ.get("RESTIC_REFRESHING")
        if given:
            self.folder = Path(given)
        else:
            self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
            process = subprocess.Popen([sys.executable, refreshing.__file__, self.folder])
            self.stack.callback(process.wait)
            self.stack.callback(process.terminate)
        file = self.folder / "started.json"
        servers.wait_for("the first lock to be seen", file.exists)
        return Watched(json.loads(file.read_text()))

    def test_a_refresh_keeps_the_hold_and_moves_its_time(self):
        watched = self.watched()
        samples = servers.wait_for(
            "restic to refresh its lock", watched.refreshed, REFRESH_SECONDS + LATE_SECONDS
        )
        print(f"\nrefreshes seen: {samples.one('lock_refreshes_total'):.0f}")
        self.assertEqual(samples.one("lock_target_holds", mode="shared"), 1)
        self.assertEqual(samples.one("lock_holds_ended_total", mode="shared"), 0)
        self.assertEqual(samples.sum("lock_target_locks"), 1)
        ((labels, _),) = samples.all("lock_hold_info")
        self.assertEqual(labels["pid"], str(watched.started["pid"]))
        # The hold began with the first file, whatever became of it.
        since = samples.one("lock_hold_since_timestamp_seconds")
        self.assertEqual(since, watched.started["since"])
        self.assertAlmostEqual(since, watched.first, delta=ROUNDING_SECONDS)
        # Every new name was counted, as somebody else saw them.
        names = (self.folder / "names").read_text().split()
        self.assertEqual(samples.one("lock_refreshes_total"), len(names) - 1)
        self.assertEqual(names[0], watched.started["name"])
        # And the time is what restic wrote into the last one.
        restic = restic_places.Restic(os.environ["RESTIC_018"])
        view = restic_view.of_restic(restic, restic_places.Folder(watched.started["repository"]))
        self.assertEqual(view.only.id, names[-1])
        refreshed = samples.one("lock_hold_refreshed_timestamp_seconds")
        self.assertAlmostEqual(view.only.time.timestamp(), refreshed, delta=ROUNDING_SECONDS)


class WrongClock:
    """An exporter whose wall clock is wrong by what a file says; its timers are not touched.

    It remembers what it saw in a state folder, so that one that is started later with another
    clock, and with the clock since boot as much later, goes on where the one before ended: as if
    that time had passed. The holder counts as another machine's, since processes are no matter of
    time.
    """

    def __init__(self, folder: Path, place: restic_places.Place, by: str, passed_minutes: int):
        self.file = folder / "clock"
        self.move(by)
        config = {
            "scan": {"interval": "1s"},
            "targets": [
                {"name": "stopped", "restic": {"repository": place.location, "env": {}}}
            ],
        }
        # Without the password in a command line or file: as restic's own variable.
        environment = place.environment | {
            "LD_PRELOAD": str(LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "LOCK_EXPORTER_STATE_DIR": str(folder / "state"),
            "LOCK_EXPORTER_HOST_NAME": "elsewhere.example.org",
        }
        # A wall clock that goes on alone was set, and no time has passed.
        passed = f"--boottime={passed_minutes * 60}"
        before = ("unshare", "--time", "--fork", passed) if passed_minutes else ()
        self.exporter = exporter.Exporter(folder, config, environment, before)

    def move(self, by: str) -> None:
        part = self.file.with_suffix(".part")
        part.write_text(by + "\n")
        part.rename(self.file)

    def states(self) -> dict[str, float]:
        samples = self.exporter.samples("stopped")
        return {
            labels["state"]: value
            for labels, value in samples.all("lock_target_locks", mode="shared")
        }

    def wait_for_state(self, state: str) -> None:
        other = {"active": "stale", "stale": "active"}[state]
        servers.wait_for(
            f"a lock that is {state}", lambda: self.states() == {state: 1, other: 0}
        )


class Stopped(unittest.TestCase):
    """A backup that was really stopped, and whose lock grows old on the exporter's clock."""

    def setUp(self):
        assert LIBRARY.exists(), f"{LIBRARY}: tests/run installs faketime"
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        restic = restic_places.Restic(os.environ["RESTIC_018"])
        self.place = restic_places.Folder(restic_places.make_template(restic, self.folder))
        holder = self.stack.enter_context(restic_places.holding(restic, self.place, "shared"))
        holder.signal(signal.SIGSTOP)

    @contextlib.contextmanager
    def watched_at(self, by: str, passed_minutes: int = 0) -> Iterator[WrongClock]:
        (self.folder / "state").mkdir(exist_ok=True)
        clock = WrongClock(self.folder, self.place, by, passed_minutes)
        with clock.exporter:
            yield clock

    def stuck_for(self, clock: WrongClock) -> float:
        """What LockStuckShared compares with the limit, at the time of the last scan."""
        samples = clock.exporter.samples("stopped")
        return samples.one("lock_scan_timestamp_seconds") - samples.one(
            "lock_hold_refreshed_timestamp_seconds"
        )

    def test_a_lock_over_thirty_minutes_is_stale_and_stuck(self):
        for minutes, state, stuck in ((0, "active", 0), (28, "active", 0), (31, "stale", 1)):
            with self.subTest(minutes), self.watched_at(f"+{minutes}m", minutes) as clock:
                clock.wait_for_state(state)
                self.assertEqual(self.stuck_for(clock) > 1800, bool(stuck))

    def test_one_name_seen_for_over_thirty_minutes_is_stale_whatever_its_time_says(self):
        """For us this holder's clock is 40 minutes ahead, so its lock is never old by its time."""
        with self.watched_at("-40m") as clock:
            clock.wait_for_state("active")
        with self.watched_at("-9m", 31) as clock:
            clock.wait_for_state("stale")
            self.assertGreater(self.stuck_for(clock), 1800)
            # By its time it is still to come, which is an age of zero.
            samples = clock.exporter.samples("stopped")
            self.assertEqual(samples.one("lock_target_oldest_lock_age_seconds"), 0)

    def test_a_step_of_our_clock_makes_nobody_stuck(self):
        with self.watched_at("+0") as clock:
            clock.wait_for_state("active")
            clock.move("+31m")
            # restic on this machine would call it stale now, and so do we, but nobody waited.
            clock.wait_for_state("stale")
            self.assertLess(self.stuck_for(clock), 1800)
            page = servers.get(clock.exporter.url + "/").decode()
            self.assertIn("clock jumped", page)
            self.assertNotIn(" unlock</code>", page)
