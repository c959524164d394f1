"""Namespaces that pass for machines: a host name and processes of their own, one network.

A machine's own PID namespace is known by its second process, a thread of the kernel; here that is
a sleep of which its `/proc` says so. All else in it is true.
"""

import os
import signal
import subprocess
from pathlib import Path

import servers


# `kthreadd` as proc(5) shows it: of its flags 0x200000 says that it is a thread of the kernel.
STAT = "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0\n"


class Machine:
    """One of them, gone with everything that runs in it at the end of the `with` block."""

    def __init__(self, hostname: str, folder: Path):
        self.hostname = hostname
        self.stat = folder / "stat"
        self.stat.write_text(STAT)

    def __enter__(self) -> "Machine":
        script = (
            'sleep infinity & hostname "$0" && mount --bind "$1" "/proc/$!/stat" '
            "&& exec sleep infinity"
        )
        self.process = subprocess.Popen(
            [
                *("unshare", "--pid", "--uts", "--fork", "--mount-proc"),
                *("sh", "-c", script, self.hostname, str(self.stat)),
            ],
            stdin=subprocess.DEVNULL,
            # It complains of being ended.
            stderr=subprocess.DEVNULL,
        )
        self.init = servers.wait_for("a machine", self.booted)
        return self

    def booted(self) -> int | None:
        assert self.process.poll() is None, "namespaces of their own need root"
        own = children(self.process.pid)
        # The first process is a sleep only after all else was set up.
        names = [Path(f"/proc/{pid}/comm").read_text().strip() for pid in own]
        return own[0] if names == ["sleep"] and len(children(own[0])) == 1 else None

    def __exit__(self, *_):
        os.kill(self.init, signal.SIGKILL)
        self.process.wait()

    @property
    def inside(self) -> tuple[str, ...]:
        """Words before a command that run it there."""
        return ("nsenter", "--target", str(self.init), "--pid", "--uts", "--mount", "--")


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
