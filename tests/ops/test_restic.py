"""What the exporter says about locks of real restics, compared with what restic itself says.

Every situation is made with each restic, in a folder and on S3. `check`, a running exporter and
restic must say the same at each step; the steps are printed as a table.
"""

import contextlib
import os
import pwd
import signal
import tempfile
import time
import unittest
from collections.abc import Callable
from concurrent import futures
from pathlib import Path

import exporter
import restic_places
import restic_view
import servers
from restic_places import Bucket, Folder, Holder, Place, Restic, holding

INTERVAL_SECONDS = 1
BACKENDS = ("local", "s3")
OTHER_PASSWORD = "another"
PID_NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


class Stage:
    """One situation with one restic at one place."""

    def __init__(self, test: "Situations", restic: Restic, place: Place, target: str):
        self.test = test
        self.restic = restic
        self.place = place
        self.target = target

    def holding(self, mode: str, **how) -> contextlib.AbstractContextManager[Holder]:
        return holding(self.restic, self.place, mode, **how)

    def agree(self, what: str) -> restic_view.View:
        """All three say the same; gives what they say."""
        theirs = restic_view.of_restic(self.restic, self.place)
        asked_at = time.time()
        _, target = exporter.check(self.place.location, self.place.environment)
        ours = restic_view.of_check(target)
        name = f"{what} ({self.restic.name}, {self.place.backend})"
        where = f"{self.restic.name} {self.place.backend}"
        self.test.table.append((what, where, str(theirs), str(ours)))
        self.test.assertEqual(theirs, ours, name)
        expected = restic_view.Shown.of_view(theirs)

        def shown() -> restic_view.Shown | None:
            samples = self.test.exporter.samples(self.target)
            if samples.one("lock_scan_timestamp_seconds") < asked_at:
                return None
            found = restic_view.Shown.of_page(samples)
            self.last = found
            return found if found == expected else None

        try:
            servers.wait_for(f"/metrics to say {expected}", shown)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}\nlast: {getattr(self, 'last', None)}") from None
        return theirs

    def agree_on(self, what: str, *holders: Holder, pid: int | None = None) -> None:
        """They agree on these locks, which is what was made here."""
        view = self.agree(what)
        made = {
            (holder.mode, holder.hostname, pwd.getpwuid(os.getuid()).pw_name, pid or holder.pid)
            for holder in holders
        }
        said = {(lock.mode, lock.hostname, lock.username, lock.pid) for lock in view.locks}
        self.test.assertEqual(said, made)
        self.test.assertEqual(len(view.locks), len(holders))
        exclusive = any(holder.mode == "exclusive" for holder in holders)
        self.test.assertEqual(view.shared_refused, exclusive)
        self.test.assertEqual(view.exclusive_refused, bool(holders))

    def check(self) -> dict:
        return exporter.check(self.place.location, self.place.environment)[1]


def free(stage: Stage) -> None:
    stage.agree_on("nobody")


def a_backup_from_start_to_end(stage: Stage) -> None:
    with stage.holding("shared") as holder:
        stage.agree_on("a backup runs", holder)
        holder.finish()
        stage.agree_on("it has ended")


def a_check_from_start_to_stop(stage: Stage) -> None:
    with stage.holding("exclusive") as holder:
        stage.agree_on("a check runs", holder)
        holder.signal(signal.SIGSTOP)
        stage.agree_on("it was stopped (SIGSTOP)", holder)


def a_killed_check(stage: Stage) -> None:
    with stage.holding("exclusive", hostname="web04") as holder:
        holder.kill()
        stage.agree_on("a check was killed (kill -9)", holder)
        stage.restic.unlock(stage.place, "unlocker")
        stage.agree_on("unlock on another host removes nothing", holder)
        stage.restic.unlock(stage.place, "unlocker", "--remove-all")
        stage.agree_on("unlock --remove-all")


def a_killed_backup(stage: Stage) -> None:
    with stage.holding("shared", hostname="web03") as holder:
        holder.kill()
        stage.agree_on("a backup was killed (kill -9)", holder)
        # The PID must mean nobody where unlock runs.
        stage.test.assertGreater(holder.pid, 10)
        stage.restic.unlock(stage.place, "web03")
        stage.agree_on("unlock on its host")


def a_terminated_backup(stage: Stage) -> None:
    with stage.holding("shared") as holder:
        holder.signal(signal.SIGTERM)
        if stage.restic.version >= (0, 17):
            servers.wait_for("the lock to go", lambda: not stage.place.lock_names())
            stage.agree_on("SIGTERM, which cleans up")
        else:
            holder.process.wait(restic_places.COMMAND_SECONDS)
            stage.agree_on("SIGTERM, which leaves the lock", holder)


def a_stopped_backup(stage: Stage) -> None:
    with stage.holding("shared") as holder:
        holder.signal(signal.SIGSTOP)
        stage.agree_on("a backup was stopped (SIGSTOP)", holder)
        holder.signal(signal.SIGCONT)
        holder.finish()
        stage.agree_on("it went on and ended")


def other_machines(stage: Stage) -> None:
    with (
        stage.holding("shared", hostname="backup-01.example.org") as far,
        stage.holding("shared") as near,
    ):
        stage.agree_on("backups of two hosts", far, near)


def a_container(stage: Stage) -> None:
    with stage.holding("shared", hostname="3f2a9c1b7d5e", before=PID_NAMESPACE) as holder:
        stage.agree_on("PID 1 of a container", holder, pid=1)


def the_same_host_name_in_another_pid_namespace(stage: Stage) -> None:
    with stage.holding("shared", before=PID_NAMESPACE) as holder:
        stage.agree_on("our host name, PID of another namespace", holder, pid=1)
        (lock,) = stage.check()["locks"]
        # restic here would call it dead, and its backup is alive.
        stage.test.assertEqual(lock["verdict"], "fresh")


def made_anew(stage: Stage) -> None:
    with stage.holding("exclusive", hostname="web03") as holder:
        stage.agree_on("before the repository is removed", holder)
    stage.place.clear()
    stage.agree("the repository was removed")
    stage.place.fill(stage.test.spares[stage.restic.name, restic_places.PASSWORD])
    stage.agree_on("made anew with the same password")
    with stage.holding("shared", hostname="web05") as holder:
        stage.agree_on("a backup into the new one", holder)
    # This time with a lock, since without one there is nothing that needs the key.
    stage.place.clear()
    stage.place.fill(stage.test.spares[stage.restic.name, OTHER_PASSWORD])
    with holding(stage.restic, stage.place.with_password(OTHER_PASSWORD), "shared"):
        stage.agree("made anew with another password")


SITUATIONS: list[Callable[[Stage], None]] = [
    a_backup_from_start_to_end,
    a_check_from_start_to_stop,
    a_killed_check,
    a_killed_backup,
    a_terminated_backup,
    a_stopped_backup,
    other_machines,
    a_container,
    the_same_host_name_in_another_pid_namespace,
    made_anew,
]


class Situations(unittest.TestCase):
    """Each test is one situation, everywhere."""

    table: list[tuple[str, ...]] = []

    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        try:
            cls.start()
        except BaseException:
            cls.stack.close()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()
        print_table(("situation", "restic", "restic's view", "ours"), in_order(cls.table))

    @classmethod
    def start(cls):
        restic_places.require_namespaces()
        folder = Path(cls.stack.enter_context(tempfile.TemporaryDirectory()))
        cls.places: dict[tuple[str, str, str], Place] = {}
        cls.spares: dict[tuple[str, str], Path] = {}
        targets = []
        cls.restics = restic_places.restics()
        for restic in cls.restics:
            template = restic_places.make_template(restic, folder)
            for password in (restic_places.PASSWORD, OTHER_PASSWORD):
                spare = restic_places.make_template(restic, folder, password)
                cls.spares[restic.name, password] = spare
            for situation in SITUATIONS:
                name = f"{situation.__name__}-{restic.name}"
                for place in (Folder(folder / name), Bucket(name)):
                    place.fill(template)
                    target = f"{name}-{place.backend}"
                    cls.places[situation.__name__, restic.name, place.backend] = place
                    targets.append(
                        {
                            "name": target,
                            "restic": {
                                "repository": place.location,
                                "env": place.environment,
                            },
                        }
                    )
        config = {"scan": {"interval": f"{INTERVAL_SECONDS}s"}, "targets": targets}
        cls.exporter = cls.stack.enter_context(exporter.Exporter(folder, config))

    def play(self, situation: Callable[[Stage], None]):
        # All at once, since most of the time is spent waiting for restic and for scans.
        name = situation.__name__
        with futures.ThreadPoolExecutor() as pool:
            running = {}
            for restic in self.restics:
                for backend in BACKENDS:
                    place = self.places[name, restic.name, backend]
                    stage = Stage(self, restic, place, f"{name}-{restic.name}-{backend}")
                    running[restic.name, backend] = pool.submit(situation, stage)
        for (restic, backend), result in running.items():
            with self.subTest(restic=restic, backend=backend):
                result.result()

    def test_a_backup_from_start_to_end(self):
        self.play(a_backup_from_start_to_end)

    def test_a_check_from_start_to_stop(self):
        self.play(a_check_from_start_to_stop)

    def test_a_killed_check(self):
        self.play(a_killed_check)

    def test_a_killed_backup(self):
        self.play(a_killed_backup)

    def test_a_terminated_backup(self):
        self.play(a_terminated_backup)

    def test_a_stopped_backup(self):
        self.play(a_stopped_backup)

    def test_other_machines(self):
        self.play(other_machines)

    def test_a_container(self):
        self.play(a_container)

    def test_the_same_host_name_in_another_pid_namespace(self):
        self.play(the_same_host_name_in_another_pid_namespace)

    def test_made_anew(self):
        self.play(made_anew)


def in_order(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Situations in the order in which they came, whichever place came first."""
    order: dict[str, int] = {}
    for row in rows:
        order.setdefault(row[0], len(order))
    return sorted(rows, key=lambda row: (order[row[0]], row))


def print_table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    print()
    for row in [head, *rows]:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print(" | ".join(cells).rstrip(), flush=True)
