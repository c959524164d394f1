"""Processes that hold locks of the kernel, and places where they are hard to see."""

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import yaml

import checkout

CHECK_SECONDS = 120
CLONE_NEWNS = 0x00020000

# Takes locks as its arguments say, prints its pid, and ends with its standard input.
HOLDER = """
import fcntl, os, struct, sys
path, *kinds = sys.argv[1:]
for kind in kinds:
    if kind == "fork":
        if os.fork():
            sys.stdin.read()
        break
    fd = os.open(path, os.O_RDONLY if os.path.isdir(path) else os.O_RDWR)
    if kind == "flock": fcntl.flock(fd, fcntl.LOCK_EX)
    elif kind == "shared": fcntl.flock(fd, fcntl.LOCK_SH)
    elif kind == "posix": fcntl.lockf(fd, fcntl.LOCK_EX)
    elif kind == "ofd": fcntl.fcntl(fd, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
print(os.getpid(), flush=True)
sys.stdin.read()
"""


class Process:
    """A process that says one line when it is where it should be, until the `with` block ends."""

    def __init__(self, *command: str, **options):
        self.command = command
        self.options = options
        self.said = ""

    def __enter__(self):
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            **self.options,
        )
        self.said = self.process.stdout.readline().strip()
        assert self.said, f"{self.command} ended with {self.process.wait(10)}"
        return self

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def __exit__(self, *_):
        # What it left behind ends with the pipe.
        self.process.stdin.close()
        self.kill()
        self.process.stdout.close()


def holder(path: Path, *kinds: str) -> Process:
    """A process with locks on a file; what it says is the pid of the one that has them."""
    return Process(sys.executable, "-c", HOLDER, str(path), *kinds)


def shell(script: str, path: Path) -> Process:
    """A shell that says something once it holds a lock on `$1`."""
    return Process("bash", "-c", script, "bash", str(path))


def own_mounts() -> None:
    """From now on mounts of this process and its children are theirs alone, and end with them."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "no mount namespace of our own")
    run("mount", "--make-rprivate", "/")


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stderr}{done.stdout}"
    return done.stdout


def config(folder: Path, paths: dict[str, Path], **options) -> Path:
    """A configuration of lock files by name."""
    targets = [
        {"name": name, "file": {"path": str(path)} | options} for name, path in paths.items()
    ]
    file = folder / "check.yml"
    file.write_text(yaml.safe_dump({"targets": targets}))
    file.chmod(0o644)
    return file


def check(
    folder: Path,
    paths: dict[str, Path],
    *flags: str,
    before: tuple[str, ...] = (),
    program: str = "",
    **options,
) -> dict[str, dict]:
    """What `check` says of lock files, by name; `before` are the words before the program."""
    file = config(folder, paths, **options)
    done = subprocess.run(
        [
            *before,
            program or checkout.exporter(),
            "check",
            f"--config.file={file}",
            "--output=json",
            *flags,
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=CHECK_SECONDS,
    )
    try:
        targets = json.loads(done.stdout)["targets"]
    except ValueError:
        raise AssertionError(f"exit {done.returncode}\n{done.stdout}{done.stderr}") from None
    return {target["name"]: target for target in targets}


def pids(target: dict) -> list[int | None]:
    """The holders of one target's locks."""
    return sorted((lock["holder"] or {}).get("pid") or 0 for lock in target["locks"])


def lslocks(path: Path, inode: int | None = None) -> list[dict]:
    """What lslocks lists of one file."""
    out = run("lslocks", "--json", "-o", "PID,COMMAND,TYPE,MODE,INODE,PATH")
    inode = inode or path.stat().st_ino
    return [row for row in json.loads(out)["locks"] if row["inode"] == inode]


def fuser(path: Path) -> set[int]:
    """The processes that fuser lists of one file."""
    done = subprocess.run(["fuser", path], capture_output=True, text=True)
    return {int(word) for word in done.stdout.split()}


def reuse_pid(pid: int) -> subprocess.Popen:
    """A `sleep` that got a pid of one that has ended; others may be faster, so it tries again."""
    last = Path("/proc/sys/kernel/ns_last_pid")
    for _ in range(500):
        last.write_text(str(pid - 1))
        process = subprocess.Popen(["sleep", "600"])
        if process.pid == pid:
            return process
        process.kill()
        process.wait()
    raise AssertionError(f"pid {pid} was not given again")
