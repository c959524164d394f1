"""Two thousand targets as a page may have to show them: real restic repositories with locks of
every kind, some of them hostile, and lock files.

The repositories are copies of one that restic made, so that one key opens all of them.
"""

import datetime
import fcntl
import os
import shutil
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import quote

import restic_repo

FLEET = 2000
DEAD_HOST = "db01.example.org"
# A process that has ended.
with subprocess.Popen(["true"]) as ended:
    NOBODY = ended.pid
MIN = 60
HOSTILE = [
    "<script>window.pwned=1</script>",
    "\"><img src=x onerror='window.pwned=1'>",
    "db\u200b01\u202e10bd\u2066",
    "x" * 128,
    "\u05d3\u05d1-01",
    "&lt;b onclick=window.pwned=1&gt;",
]
DEEP = "s3.example.com/backups/db01"
# Names that addresses and HTML have to quote.
ODD = {
    DEEP: "/targets/s3.example.com/backups/db01",
    'töpf 100% "1" <b>?#&': "/targets/" + quote('töpf 100% "1" <b>?#&', safe=""),
    "a//b/../c": "/targets/a%2F%2Fb%2F..%2Fc",
    "long-" + "n" * 123: "/targets/long-" + "n" * 123,
}


@dataclass
class Scene:
    folder: Path
    config: dict
    facts: dict
    # Locked as long as the scene is in use.
    held: IO[str]


class Maker:
    def __init__(self, folder: Path):
        self.folder = folder
        self.base = folder / "base"
        self.password = folder / "password"
        self.password.write_text(restic_repo.PASSWORD)
        environment = {"RESTIC_PASSWORD": restic_repo.PASSWORD}
        cache = {"RESTIC_CACHE_DIR": str(folder / "cache")}
        restic_repo.run(
            [restic_repo.restic(), "-q", "-r", str(self.base), "init"], **environment, **cache
        )
        self.key = restic_repo.Key.of(self.base)
        self.targets: list[dict] = []

    def repository(self, name: str, path: str, *locks: dict, **options) -> Path:
        root = self.folder / path
        (root / "locks").mkdir(parents=True)
        for part in ("config", "keys"):
            # Links, so that two thousand of them take no time.
            os.symlink(self.base / part, root / part)
        for lock in locks:
            self.lock(root, **lock)
        opened = {"password_file": str(self.password)}
        restic = {"repository": str(root)} | options.pop("opened", opened)
        self.targets.append({"name": name, "restic": restic} | options)
        return root

    def lock(
        self,
        root: Path,
        host: str,
        minutes: float = 1,
        exclusive: bool = False,
        pid: int = 802602,
    ) -> None:
        then = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=minutes)
        lock = {
            "time": then.isoformat(),
            "exclusive": exclusive,
            "hostname": host,
            "username": "backup",
            "pid": pid,
            "uid": 1000,
            "gid": 1000,
        }
        path = restic_repo.write_lock(root, self.key, lock)
        os.utime(path, (then.timestamp(), then.timestamp()))


def make(folder: Path, fleet: int = FLEET) -> Scene:
    made = Maker(folder)
    repository = made.repository
    repository("free", "srv/free")
    repository("mail", "srv/mail", {"host": "mail01"}, {"host": "mail02", "minutes": 7})
    repository("archive", "srv/archive", {"host": "prune01", "exclusive": True})
    repository("db01", "srv/db01", {"host": DEAD_HOST, "minutes": 47, "exclusive": True})
    left = {"host": socket.gethostname(), "minutes": 4, "exclusive": True, "pid": NOBODY}
    repository("media", "srv/media", left)
    repository("web", "srv/web", {"host": "web03", "minutes": 130}, {"host": "web04"})
    repository("laptop", "srv/laptop", {"host": "laptop7", "minutes": 26})
    repository("nas", "srv/nas", {"host": "nas", "minutes": 3}, opened={})
    broken = repository("photos", "srv/photos")
    (broken / "locks" / ("ab" * 32)).write_bytes(b"x" * 150)
    gone = repository("offsite", "srv/offsite")
    shutil.rmtree(gone)
    hostile = [{"host": host, "minutes": 40 + n} for n, host in enumerate(HOSTILE)]
    # Its name puts it behind the others on pictures.
    repository("zoo", "srv/zoo", *hostile)
    for number, name in enumerate(ODD):
        repository(name, f"srv/odd{number}", {"host": "h"})
    for number in range(fleet):
        locks = [{"host": f"host{number}"}] if number % 9 == 0 else []
        repository(f"fleet-{number:04}", f"fleet/{number:04}", *locks)
    job = folder / "job.pid"
    made.targets.append(
        {"name": "nightly", "interval": "1s", "file": {"path": str(job), "format": "exists"}}
    )
    for name, file in {
        "backup-job": {"path": str(folder / "job.lock")},
        "sync": {"path": str(folder / "sync.pid"), "format": "pid"},
        "agent": {"path": str(folder / "agent.lock"), "role": "daemon"},
    }.items():
        Path(file["path"]).write_text(f"{NOBODY}\n")
        made.targets.append({"name": name, "interval": "10s", "file": file})
    held = (folder / "job.lock").open()
    fcntl.flock(held, fcntl.LOCK_EX)
    names = {"stuck": "db01", "gone": "media", "failing": "offsite", "job": "nightly", "deep": DEEP}
    pages = {
        "free": "free",
        "shared": "mail",
        "exclusive": "archive",
        "stuck": "db01",
        "gone": "media",
        "failing": "offsite",
        "hostile": "zoo",
        "sealed": "nas",
        "flock": "backup-job",
        "pid": "sync",
    }
    facts = {name: f"/targets/{target}" for name, target in pages.items()} | {
        "names": names,
        "holder": DEAD_HOST,
        "total": len(made.targets),
        "fleet": fleet,
        "odd": ODD,
        "jobFile": str(job),
    }
    config = {"scan": {"interval": "10s", "timeout": "5s"}, "targets": made.targets}
    return Scene(folder, config, facts, held)
