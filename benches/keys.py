"""A thousand repositories whose keys are as costly as restic makes them, from the start until the
last one is open.
"""

import os
import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import exporter
import restic_places
import restic_repo
import servers

REPOSITORIES = 1_000
# 32 MiB, as restic's own.
COST = 32_768


@dataclass
class Start:
    """Seconds from the start of the process, and the most memory that was resident at once."""

    listening: float
    sealed: float
    opened: float
    peak_bytes: int


def make(folder: Path, restic: restic_places.Restic) -> dict[str, str]:
    """Repositories with a lock each, and each with a key file of its own."""
    template = restic_places.make_template(restic, folder)
    key = restic_repo.Key.of(template)
    place = restic_places.Folder(template)
    master = restic.run(place, "cat", "masterkey", "-q")
    shutil.rmtree(template / "data")
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    lock = {"time": now, "exclusive": False, "hostname": "h", "username": "u", "pid": 1}
    restic_repo.write_lock(template, key, lock | {"uid": 0, "gid": 0})

    def copy(number: int) -> tuple[str, str]:
        path = folder / f"r{number}"
        shutil.copytree(template, path)
        restic_repo.set_key_cost(path, restic_places.PASSWORD, master, COST)
        return path.name, str(path)

    # The work is done outside of Python's lock.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(pool.map(copy, range(REPOSITORIES)))


def measure(folder: Path, restic: restic_places.Restic) -> Start:
    folder.mkdir()
    places = make(folder, restic)
    work = folder / "work"
    work.mkdir()
    targets = [{"name": name, "restic": {"repository": it}} for name, it in places.items()]
    config = {"scan": {"interval": "1m"}, "targets": targets}
    begun = time.perf_counter()
    environment = {"RESTIC_PASSWORD": restic_places.PASSWORD}
    running = exporter.Exporter(work, config, environment)
    # It is ready when every target was looked at, and answers long before.
    running.ready_path = "/-/healthy"
    with running:
        listening = time.perf_counter() - begun

        def count(pattern: str) -> int:
            query = "name[]=lock_target_info&name[]=lock_scan_success"
            page = servers.get(f"{running.url}/metrics?{query}").decode()
            return len(re.findall(pattern, page, re.M))

        servers.wait_for(
            "the listing of every repository",
            lambda: count(r"^lock_scan_success\{.*\} 1$") == REPOSITORIES,
        )
        sealed = time.perf_counter() - begun
        servers.wait_for(
            "every key",
            lambda: count(r'^lock_target_info\{.*sealed="false".*\} 1$') == REPOSITORIES,
            1800,
        )
        opened = time.perf_counter() - begun
        assert running.process
        status = Path(f"/proc/{running.process.pid}/status").read_text()
        (peak,) = re.findall(r"^VmHWM:\s+(\d+) kB", status, re.M)
    return Start(listening, sealed, opened, int(peak) * 1024)
