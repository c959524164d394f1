"""Real restics, the places where their repositories lie, and processes that really hold locks."""

import copy
import functools
import os
import re
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import boto3

import restic_repo
import servers

PASSWORD = "fixture"
# Longer than any command here takes, shorter than the minutes for which restic retries.
COMMAND_SECONDS = 90
# A `check` that reads this much at 1 KiB/s lasts longer than any test.
DATA_BYTES = 2_000_000
KEYS = {"AWS_ACCESS_KEY_ID": "testkey", "AWS_SECRET_ACCESS_KEY": "testsecret"}


def restics() -> list["Restic"]:
    """Debian's 0.14 and 0.18, and a newer one where it could be had."""
    found = [Restic(os.environ[name]) for name in ("RESTIC_014", "RESTIC_018")]
    if "RESTIC_019" in os.environ:
        found.append(Restic(os.environ["RESTIC_019"]))
    return found


@dataclass(frozen=True)
class Restic:
    """One restic program."""

    program: str

    @property
    def version(self) -> tuple[int, int]:
        major, minor = self.name.split(".")
        return int(major), int(minor)

    @functools.cached_property
    def name(self) -> str:
        said = subprocess.run([self.program, "version"], capture_output=True, text=True, check=True)
        return ".".join(said.stdout.split()[1].split(".")[:2])

    def command(self, place: "Place", *words: str) -> list[str]:
        return [self.program, "-r", place.location, "--no-cache", *words]

    def ask(self, place: "Place", *words: str) -> subprocess.CompletedProcess:
        """Runs a command and gives whatever came of it."""
        return subprocess.run(
            self.command(place, *words),
            env=os.environ | place.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
        )

    def run(self, place: "Place", *words: str) -> str:
        done = self.ask(place, *words)
        assert done.returncode == 0, f"{done.args}\n{done.stdout}{done.stderr}"
        return done.stdout

    def unlock(self, place: "Place", hostname: str, *flags: str) -> None:
        """`restic unlock` on a host of that name where no other process can be seen.

        restic sends SIGHUP to the PID in each lock of its host, whoever has that PID by now.
        """
        isolated = ("unshare", "--pid", "--uts", "--fork", "--mount-proc")
        done = subprocess.run(
            [*isolated, *named(hostname), *self.command(place, "unlock", *flags)],
            env=os.environ | place.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def named(hostname: str) -> tuple[str, ...]:
    """Words before a command that give it a host name; the UTS namespace must be its own."""
    return ("sh", "-c", f'hostname {hostname} && exec "$@"', "sh")


class Place:
    """Where a repository is: a folder or a prefix of a bucket."""

    location: str
    environment: dict[str, str]

    def with_password(self, password: str) -> "Place":
        """The same place for somebody who knows another password."""
        place = copy.copy(self)
        place.environment = self.environment | {"RESTIC_PASSWORD": password}
        return place

    def fill(self, template: Path) -> None:
        """Copies a repository to here."""
        raise NotImplementedError

    def clear(self) -> None:
        """Removes the repository."""
        raise NotImplementedError

    def lock_names(self) -> set[str]:
        raise NotImplementedError


class Folder(Place):
    backend = "local"

    def __init__(self, path: Path, password: str = PASSWORD):
        self.path = path
        self.location = str(path)
        self.environment = {"RESTIC_PASSWORD": password}

    def fill(self, template: Path) -> None:
        shutil.copytree(template, self.path)

    def clear(self) -> None:
        shutil.rmtree(self.path)

    def lock_names(self) -> set[str]:
        return {name for name in os.listdir(self.path / "locks") if len(name) == 64}


class Bucket(Place):
    """A prefix in a bucket of its own on the S3 server of the tests."""

    backend = "s3"

    def __init__(self, prefix: str, password: str = PASSWORD):
        self.endpoint = os.environ["S3_ENDPOINT"]
        self.bucket = f"live-{uuid.uuid4().hex[:12]}"
        self.prefix = prefix
        self.location = f"s3:{self.endpoint}/{self.bucket}/{prefix}"
        self.environment = {"RESTIC_PASSWORD": password, **KEYS}
        self.client = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
        )
        self.client.create_bucket(Bucket=self.bucket)

    def put(self, key: str, text: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=f"{self.prefix}/{key}", Body=text)

    def fill(self, template: Path) -> None:
        for path in sorted(template.rglob("*")):
            if path.is_file():
                self.put(str(path.relative_to(template)), path.read_bytes())

    def keys(self, folder: str) -> Iterator[str]:
        pages = self.client.get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=self.bucket, Prefix=f"{self.prefix}/{folder}"):
            yield from (found["Key"] for found in page.get("Contents", []))

    def clear(self) -> None:
        for key in list(self.keys("")):
            self.client.delete_object(Bucket=self.bucket, Key=key)

    def lock_names(self) -> set[str]:
        return {key.rsplit("/", 1)[1] for key in self.keys("locks/")}

    def requests(self, log: list[str]) -> list[str]:
        """The lines of the server's log about this bucket."""
        return [line for line in log if f"/{self.bucket}" in line.split()[1]]

    def short(self, line: str) -> str:
        """A line of the log as a verb and what is below the repository, ids as `ID`."""
        verb, path, status = line.split(" ")
        assert status == "200", line
        below = path.split(f"{self.prefix}/", 1)[1].split("&")[0]
        if "list-type=2" in path:
            return f"LIST {below}"
        return f"{verb} " + re.sub(r"[0-9a-f]{64}$", "ID", below)


def make_template(
    restic: Restic, folder: Path, password: str = PASSWORD, cheap: bool = True
) -> Path:
    """A repository with one snapshot of data that takes long to read slowly.

    A cheap key is opened in milliseconds, one of restic's own in half a second.
    """
    place = Folder(folder / uuid.uuid4().hex, password)
    restic.run(place, "init")
    if cheap:
        master = restic.run(place, "cat", "masterkey", "-q")
        restic_repo.set_key_cost(place.path, password, master)
    data = folder / "data"
    data.write_bytes(os.urandom(DATA_BYTES))
    restic.run(place, "backup", str(data))
    return place.path


@dataclass
class Holder:
    """A restic that holds a lock."""

    process: subprocess.Popen
    hostname: str
    mode: str
    pipe: int | None = None
    names: set[str] = field(default_factory=set)

    @property
    def pid(self) -> int:
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """`kill -9`: the lock is left."""
        self.process.kill()
        self.process.wait()

    def end_input(self) -> None:
        if self.pipe is not None:
            os.close(self.pipe)
            self.pipe = None

    def finish(self) -> None:
        """Lets it end by itself."""
        assert self.pipe is not None
        os.write(self.pipe, b"text")
        self.end_input()
        code = self.process.wait(COMMAND_SECONDS)
        assert code == 0, f"restic ended with {code}"


@contextmanager
def holding(
    restic: Restic,
    place: Place,
    mode: str,
    hostname: str = "",
    before: tuple[str, ...] = (),
) -> Iterator[Holder]:
    """A backup that waits for its input (shared), or a slow check (exclusive), that has its lock.

    With a host name it runs in a UTS namespace of its own, where it is the same process.
    """
    known = place.lock_names()
    if hostname:
        before = ("unshare", "--uts", *named(hostname), *before)
    words = {
        "shared": ("backup", "--stdin", "--stdin-filename", "x"),
        "exclusive": ("check", "--read-data", "--limit-download", "1"),
    }[mode]
    read, write = os.pipe()
    process = subprocess.Popen(
        [*before, *restic.command(place, *words)],
        env=os.environ | place.environment,
        stdin=read,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(read)
    holder = Holder(process, hostname or os.uname().nodename, mode, write)
    try:
        holder.names = servers.wait_for("a lock", lambda: place.lock_names() - known)
        yield holder
    finally:
        holder.end_input()
        if process.poll() is None:
            # Its group, since a namespace puts processes between it and us.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def require_namespaces() -> None:
    done = subprocess.run(
        ["unshare", "--pid", "--uts", "--fork", "--mount-proc", "true"], capture_output=True
    )
    assert done.returncode == 0, "these tests need namespaces of their own: run them as root"


