"""Thousands of repositories with the traffic of locks that restics make, and what is true of each.

All of them are folders; some are watched as such, some through an S3 server, some through
rest-server. The generator writes locks in restic's format and knows, for every moment, which files
were there. `Fleet.check` compares what a page of metrics says of a scan with what was true while
that scan ran: whatever was not true at any of these moments is a lie.
"""

import base64
import bisect
import contextlib
import datetime
import hashlib
import heapq
import json
import os
import random
import re
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import restic_repo
import servers
from restic_repo import Key

PASSWORD = "soak"
LOGIN = {"AWS_ACCESS_KEY_ID": "reader", "AWS_SECRET_ACCESS_KEY": "reads"}
# Repositories with keys of their own; the others are copies of them, as links.
DISTINCT = 200
# A bucket for each so many repositories; a fifth of them is in it.
BUCKET = 250
# What happens to each, more or less, before it is watched.
EVENTS_EACH = 3
# A lock that was left this long ago is dead by restic's rule of 30 minutes.
LEFT_SECONDS = 40 * 60
# Two clocks of one machine are read, and the kernel stamps files a tick late.
SLACK_SECONDS = 0.05
# What was true so long ago is in no scan that is still shown.
FORGET_SECONDS = 300.0

NAMES = (
    "lock_target_info",
    "lock_target_state",
    "lock_target_locks",
    "lock_target_unreadable_locks",
    "lock_target_empty_locks",
    "lock_scan_success",
    "lock_scan_duration_seconds",
    "lock_scan_last_success_timestamp_seconds",
)
SAMPLE = re.compile(r'^(lock_\w+)\{((?:\w+="[^"]*",?)*)\} (\S+)$', re.M)
LABEL = re.compile(r'(\w+)="([^"]*)"')


class Locks(NamedTuple):
    """How many files of which kind a folder holds."""

    shared: int = 0
    exclusive: int = 0
    stale_shared: int = 0
    stale_exclusive: int = 0
    unreadable: int = 0
    empty: int = 0

    def state(self) -> str:
        """What a new lock would meet: empty files are none, and restic steps over nothing else."""
        if self.exclusive or self.stale_exclusive or self.unreadable:
            return "exclusive"
        return "shared" if self.shared or self.stale_shared else "free"


class Shown(NamedTuple):
    """What a page says about one target."""

    sealed: bool
    state: str
    locks: Locks
    # Files that could not be opened, and how many of them are called stale.
    unopened: int
    unopened_stale: int

    def is_true_of(self, truth: Locks, dated: bool) -> bool:
        if not self.sealed:
            return (self.state, self.locks) == (truth.state(), truth) and self.unopened == 0
        files = sum(truth) - truth.empty
        stale = truth.stale_shared + truth.stale_exclusive
        return (
            self.state == ("unknown" if files else "free")
            and (self.unopened, self.locks.empty) == (files, truth.empty)
            # Without the storage's times nothing is known to be old yet.
            and self.unopened_stale == (stale if dated else 0)
        )


class Truth(NamedTuple):
    """What is there from some moment of a file operation on."""

    begun: float
    ended: float
    locks: Locks


@dataclass
class Repository:
    name: str
    path: Path
    location: str
    key: Key
    sealed: bool
    # The backend tells when a file was stored.
    dated: bool
    # Name of each file, and the field of `Locks` that counts it.
    files: dict[str, str] = field(default_factory=dict)
    history: list[Truth] = field(default_factory=list)

    def change(self, put: tuple[str, str, bytes, float] | None, drop: str | None = None) -> None:
        """Writes or removes one file, and notes between which moments that was."""
        begun = time.time()
        if put:
            name, kind, text, at = put
            # Renamed into place, as restic does in folders (`internal/backend/local`, Save).
            part = self.path / f"locks/{name}-tmp"
            part.write_bytes(text)
            os.utime(part, (at, at))
            part.rename(self.path / "locks" / name)
            self.files[name] = kind
        if drop:
            (self.path / "locks" / drop).unlink()
            del self.files[drop]
        truth = Locks(**Counter(self.files.values()))
        self.history.append(Truth(begun, time.time(), truth))
        oldest = begun - FORGET_SECONDS
        while len(self.history) > 2 and self.history[1].ended < oldest:
            self.history.pop(0)

    def lock(self, mode: str, holder: dict, age: float = 0) -> str:
        """Puts a lock; gives the name of its file."""
        at = time.time() - age
        then = datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat()
        fields = {"time": then, "exclusive": mode == "exclusive"} | holder
        text = self.key.seal(json.dumps(fields).encode())
        name = restic_repo.name_of(text)
        self.change((name, f"stale_{mode}" if age else mode, text, at))
        return name

    def true_between(self, begin: float, end: float) -> list[Locks]:
        """Everything that was true at some moment between the two."""
        last = bisect.bisect_right(self.history, end, key=lambda truth: truth.begun)
        found = []
        for index in range(last - 1, -1, -1):
            until = self.history[index + 1].ended if index + 1 < len(self.history) else end
            if until < begin:
                break
            found.append(self.history[index].locks)
        return found


def new_key() -> tuple[Key, str, bytes, bytes]:
    """A master key, the name and text of a key file that holds it, and a config that it opens."""
    master = Key(os.urandom(32), os.urandom(16), os.urandom(16))
    salt = os.urandom(64)
    cost = {"N": 1024, "r": 8, "p": 1}
    derived = hashlib.scrypt(PASSWORD.encode(), salt=salt, n=1024, r=8, p=1, dklen=64)

    def text(value: bytes) -> str:
        return base64.b64encode(value).decode()

    inner = {
        "mac": {"k": text(master.mac_k), "r": text(master.mac_r)},
        "encrypt": text(master.encrypt),
    }
    sealed = Key(derived[:32], derived[32:48], derived[48:]).seal(json.dumps(inner).encode())
    file = json.dumps(
        {"created": "2026-01-02T03:04:05Z", "username": "u", "hostname": "h", "kdf": "scrypt"}
        | cost
        | {"salt": text(salt), "data": text(sealed)}
    ).encode()
    config = {"version": 2, "id": os.urandom(32).hex(), "chunker_polynomial": "3da3358b4dc173"}
    return master, restic_repo.name_of(file), file, master.seal(json.dumps(config).encode())


class Fleet:
    """The repositories, their servers, and what happens to them."""

    def __init__(self, root: Path, count: int, refresh_seconds: float, seed: int):
        self.random = random.Random(seed)
        self.refresh_seconds = refresh_seconds
        self.done: Counter[str] = Counter()
        # When which lock is refreshed next; what was removed meanwhile is passed over.
        self.refreshes: list[tuple[float, int, Repository, str, dict]] = []
        self.number = 0
        self.stack = contextlib.ExitStack()
        self.s3 = self.serve_s3(root / "s3", root / "s3.log")
        self.rest = self.serve_rest(root / "rest", root / "rest.log")
        keys = [new_key() for _ in range(min(count, DISTINCT))]
        self.repositories = [self.make(root, number, keys) for number in range(count)]
        self.by_name = {one.name: one for one in self.repositories}
        # From here on as many locks go as come.
        for _ in range(EVENTS_EACH * count):
            self.happen()

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(self, *_) -> None:
        self.stack.close()

    def serve_s3(self, data: Path, log: Path) -> str:
        data.mkdir()
        # It must not remember what a folder holds, for locks come and go beside it.
        command = ["serve", "s3", "--config=/notfound", "--dir-cache-time=0", str(data)]
        command += [f"--auth-key={','.join(LOGIN.values())}"]
        port = self.serve([os.environ["S3_SIGNED"], *command], "--addr=127.0.0.1:{}", log)
        return f"s3:http://127.0.0.1:{port}"

    def serve_rest(self, data: Path, log: Path) -> str:
        data.mkdir()
        command = [os.environ["REST_SERVER"], "--no-auth", f"--path={data}"]
        return f"rest:http://127.0.0.1:{self.serve(command, '--listen=127.0.0.1:{}', log)}"

    def serve(self, command: list[str], listen: str, log: Path) -> int:
        port = servers.free_port()
        out = self.stack.enter_context(log.open("wb"))
        process = subprocess.Popen([*command, listen.format(port)], stdout=out, stderr=out)
        self.stack.callback(process.wait)
        self.stack.callback(process.terminate)
        servers.wait_for_port(port, command[0])
        return port

    def make(self, root: Path, number: int, keys: list) -> Repository:
        name = f"{number:05}"
        backend = ("local", "local", "local", "s3", "rest")[number % 5]
        # rclone reads a bucket's whole folder for each listing below it.
        bucket = f"bucket{number // BUCKET:03}"
        folder, where = {
            "local": (root / "local", str(root / "local")),
            "s3": (root / "s3" / bucket, f"{self.s3}/{bucket}"),
            "rest": (root / "rest", self.rest),
        }[backend]
        path = folder / name
        for below in ("keys", "locks", "snapshots"):
            (path / below).mkdir(parents=True)
        key, key_name, file, config = keys[number % len(keys)]
        first = root / f"first-{number % len(keys)}"
        if number < len(keys):
            (path / "keys" / key_name).write_bytes(file)
            (path / "config").write_bytes(config)
            first.symlink_to(path)
        else:
            os.link(first / "keys" / key_name, path / "keys" / key_name)
            os.link(first / "config", path / "config")
        sealed = number % 7 == 3
        one = Repository(name, path, f"{where}/{name}", key, sealed, backend != "rest")
        one.history.append(Truth(0, 0, Locks()))
        return one

    def config(self, scan: dict) -> dict:
        """The exporter's configuration."""
        targets = []
        for one in self.repositories:
            restic = {"repository": one.location}
            if not one.sealed:
                restic["password_env"] = "SOAK_PASSWORD"
            targets.append({"name": one.name, "restic": restic})
        return {"scan": scan, "targets": targets}

    @property
    def environment(self) -> dict[str, str]:
        return {"SOAK_PASSWORD": PASSWORD, **LOGIN}

    def holder(self) -> dict:
        self.number += 1
        host = f"web{self.random.randrange(40):02}"
        return {"hostname": host, "username": "root", "pid": 1000 + self.number}

    def happen(self) -> None:
        """Something happens somewhere, after the refreshes that are due."""
        while self.refreshes and self.refreshes[0][0] <= time.time():
            _, _, one, name, holder = heapq.heappop(self.refreshes)
            if name in one.files:
                mode = one.files[name]
                # The new file first (restic `internal/repository/lock.go`, Refresh).
                self.hold(one, mode, holder)
                one.change(None, drop=name)
                self.done["refreshed"] += 1
        one = self.random.choice(self.repositories)
        live = [name for name, kind in one.files.items() if kind in ("shared", "exclusive")]
        left = [name for name in one.files if name not in live]
        events = {
            "released": 4 * len(live),
            "removed": 2 * len(left),
            "taken": 4 * ("exclusive" not in one.files.values()),
            "left stale": 0.5,
            "damaged": 0.3,
            "emptied": 0.3,
        }
        (event,) = self.random.choices(list(events), list(events.values()))
        match event:
            case "released":
                one.change(None, drop=self.random.choice(live))
            case "removed":
                one.change(None, drop=self.random.choice(left))
            case "taken":
                exclusive = not one.files and self.random.random() < 0.3
                self.hold(one, "exclusive" if exclusive else "shared", self.holder())
            case "left stale":
                one.lock(self.random.choice(("shared", "exclusive")), self.holder(), LEFT_SECONDS)
            case "damaged":
                text = self.random.randbytes(150)
                one.change((restic_repo.name_of(text), "unreadable", text, time.time()))
            case "emptied":
                one.change((self.random.randbytes(32).hex(), "empty", b"", time.time()))
        self.done[event] += 1

    def hold(self, one: Repository, mode: str, holder: dict) -> None:
        name = one.lock(mode, holder)
        self.number += 1
        due = time.time() + self.refresh_seconds * self.random.uniform(0.9, 1.1)
        heapq.heappush(self.refreshes, (due, self.number, one, name, holder))

    def check(self, page: str) -> tuple[int, list[str]]:
        """How many targets a page tells the truth about, and each lie in words."""
        told: dict[str, list[tuple[str, dict, float]]] = {}
        for name, labels, value in SAMPLE.findall(page):
            pairs = dict(LABEL.findall(labels))
            told.setdefault(pairs["target"], []).append((name, pairs, float(value)))
        lies, true = [], 0
        for name, samples in told.items():
            one = self.by_name[name]
            shown, begun, ended = read(samples)
            if shown is None:
                continue
            if shown.sealed and not one.sealed and shown.unopened == 0:
                # Its key is still to come: that is said, and nothing else is claimed.
                continue
            truths = one.true_between(begun - SLACK_SECONDS, ended + SLACK_SECONDS)
            if any(shown.is_true_of(truth, one.dated) for truth in truths):
                true += 1
            else:
                lies.append(f"{one.location}: {shown}, but in {ended - begun:.3f} s: {truths}")
        return true, lies


def read(samples: list[tuple[str, dict, float]]) -> tuple[Shown | None, float, float]:
    """What samples say about a target, and when the scan ran of which they speak."""
    sealed, state, counts, unopened = False, "", dict.fromkeys(Locks._fields, 0), Counter()
    ended = took = 0.0
    for name, labels, value in samples:
        match name:
            case "lock_target_info":
                sealed = labels["sealed"] == "true"
            case "lock_target_state" if value == 1:
                state = labels["state"]
            case "lock_target_locks" if labels["mode"] == "unknown":
                unopened[labels["state"]] = int(value)
            case "lock_target_locks":
                stale = "stale_" if labels["state"] == "stale" else ""
                counts[stale + labels["mode"]] = int(value)
            case "lock_target_unreadable_locks":
                counts["unreadable"] = int(value)
            case "lock_target_empty_locks":
                counts["empty"] = int(value)
            case "lock_scan_success" if value == 0:
                return None, 0, 0
            case "lock_scan_last_success_timestamp_seconds":
                ended = value
            case "lock_scan_duration_seconds":
                took = value
    if not ended:
        return None, 0, 0
    shown = Shown(sealed, state, Locks(**counts), unopened.total(), unopened["stale"])
    return shown, ended - took, ended
