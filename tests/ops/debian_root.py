"""Root folders of Debian: unpacked from what tests/run made with debootstrap, for one test each.

Needs root. What runs in one sees its own /proc and, like a service, nobody's files but its own.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import restic_repo

# Where programs of a package are; the tests' own path may be another.
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def make_repository(path: Path, *, user: str) -> None:
    """A repository without locks that belongs to this user."""
    command = [restic_repo.restic(), "init", "-r", str(path)]
    restic_repo.run(command, RESTIC_PASSWORD=restic_repo.PASSWORD)
    subprocess.run(["chown", "-R", user, path], check=True)


class DebianRoot:
    """A `with` block's own root folder."""

    def __enter__(self):
        tar = os.environ.get("DEBIAN_ROOT")
        if not tar:
            raise AssertionError("DEBIAN_ROOT names no archive: tests/run makes one")
        self.path = Path(tempfile.mkdtemp(prefix="debian-root."))
        # The folder that is made is for its owner only, and others run in it too.
        self.path.chmod(0o755)
        subprocess.run(["tar", "-xf", tar, "-C", self.path], check=True)
        shutil.copy("/etc/resolv.conf", self.path / "etc/resolv.conf")
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path)

    def run(
        self,
        command: list[str],
        *,
        user: str = "0:0",
        read_only: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess:
        """Runs a command in it, in a mount and PID namespace of its own, with its own /proc.

        The command finds an environment of only what it is given.
        """
        remount = 'mount -o remount,bind,ro "$0";' if read_only else ""
        script = (
            'set -e; mount --bind "$0" "$0"; mount -t proc proc "$0/proc";'
            'mount --bind /dev/null "$0/dev/null"; mount --bind /dev/urandom "$0/dev/urandom";'
            f"{remount}"
            'user="$1"; shift; exec chroot --userspec="$user" "$0" "$@"'
        )
        variables = {"PATH": PATH, "LC_ALL": "C.UTF-8"} | dict(environment or {})
        return subprocess.run(
            [
                *("unshare", "--mount", "--pid", "--fork", "--propagation", "private"),
                *("sh", "-c", script, self.path, user, *command),
            ],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
        )
