"""What restic says about a repository's locks and what the exporter says, in one form.

Two values that are equal are an agreement; as text they are the two columns of a table.
"""

import datetime
import json
from dataclasses import dataclass

from exporter import Samples
from restic_places import Place, Restic

MODES = ("shared", "exclusive")


@dataclass(frozen=True, order=True)
class Lock:
    """One lock file as its text says."""

    id: str
    mode: str
    hostname: str
    username: str
    pid: int
    time: datetime.datetime


@dataclass(frozen=True)
class View:
    """Every lock, and whether a new one of each mode is refused; or why nobody can look."""

    locks: frozenset[Lock] = frozenset()
    shared_refused: bool = False
    exclusive_refused: bool = False
    failed: str = ""

    def __str__(self) -> str:
        if self.failed:
            return self.failed
        holders = [f"{lock.mode} {lock.hostname}:{lock.pid}" for lock in sorted(self.locks)]
        answers = {False: "granted", True: "refused"}
        return (
            f"{', '.join(sorted(holders)) or 'no lock'}; new shared {answers[self.shared_refused]}"
            f", new exclusive {answers[self.exclusive_refused]}"
        )

    @property
    def only(self) -> Lock:
        (lock,) = self.locks
        return lock


def time_of(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)


def of_restic(restic: Restic, place: Place) -> View:
    """restic's own words: `list locks`, `cat lock`, and what becomes of two new commands."""
    listed = restic.ask(place, "list", "locks", "--no-lock")
    if listed.returncode != 0:
        for text, reason in (
            ("wrong password or no key found", "wrong_password"),
            ("Is there a repository", "not_found"),
            ("repository does not exist", "not_found"),
        ):
            if text in listed.stderr:
                return View(failed=reason)
        raise AssertionError(f"restic list locks: {listed.returncode}\n{listed.stderr}")
    locks = []
    for name in listed.stdout.split():
        lock = json.loads(restic.run(place, "cat", "lock", name, "--no-lock", "-q"))
        locks.append(
            Lock(
                name,
                "exclusive" if lock["exclusive"] else "shared",
                lock["hostname"],
                lock["username"],
                lock["pid"],
                time_of(lock["time"]),
            )
        )
    return View(
        frozenset(locks),
        shared_refused=is_refused(restic, place, "snapshots"),
        exclusive_refused=is_refused(restic, place, "forget", "--dry-run", "--keep-last", "1"),
    )


def is_refused(restic: Restic, place: Place, *words: str) -> bool:
    done = restic.ask(place, *words)
    if done.returncode == 0:
        return False
    assert "repository is already locked" in done.stderr, done.stderr
    # Its own exit code for this since 0.17.0 (restic cmd/restic/main.go).
    assert done.returncode == (11 if restic.version >= (0, 17) else 1), done.returncode
    return True


def of_check(target: dict) -> View:
    """The JSON of `check`."""
    if target["error"]:
        return View(failed=target["error"]["reason"])
    return View(
        frozenset(
            Lock(
                lock["id"],
                lock["mode"],
                lock["holder"]["hostname"],
                lock["holder"]["username"],
                lock["holder"]["pid"],
                time_of(lock["own_time"]),
            )
            for lock in target["locks"]
        ),
        shared_refused=target["blocked"]["shared"],
        exclusive_refused=target["blocked"]["exclusive"],
    )


@dataclass(frozen=True)
class Shown:
    """A view as far as /metrics shows it: no ids, and holders instead of files."""

    files: tuple[tuple[str, int], ...]
    holders: frozenset[tuple[str, str, str, str]]
    refused: tuple[tuple[str, bool], ...]
    state: str
    failed: str

    @classmethod
    def of_view(cls, view: View) -> "Shown":
        if view.failed:
            return cls((), frozenset(), (), "", view.failed)
        state = "free"
        if view.exclusive_refused:
            state = "exclusive" if view.shared_refused else "shared"
        return cls(
            tuple((mode, sum(lock.mode == mode for lock in view.locks)) for mode in MODES),
            frozenset(
                (lock.mode, lock.hostname, lock.username, str(lock.pid)) for lock in view.locks
            ),
            (("shared", view.shared_refused), ("exclusive", view.exclusive_refused)),
            state,
            "",
        )

    @classmethod
    def of_page(cls, samples: Samples) -> "Shown":
        if samples.one("lock_scan_success") == 0:
            # Values of the last good look are still shown for a while.
            (reason,) = samples.all("lock_scan_error_info")
            return cls((), frozenset(), (), "", reason[0]["reason"])
        (state,) = (
            labels["state"] for labels, value in samples.all("lock_target_state") if value == 1
        )
        return cls(
            tuple((mode, int(samples.sum("lock_target_locks", mode=mode))) for mode in MODES),
            frozenset(
                (labels["mode"], labels["hostname"], labels["username"], labels["pid"])
                for labels, _ in samples.all("lock_hold_info")
            ),
            tuple((mode, samples.one("lock_target_blocked", mode=mode) == 1) for mode in MODES),
            state,
            "",
        )
