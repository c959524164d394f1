"""Measures speed and cost of a build, beside what others need for the same, and writes a table.

    measure.py BUILD README

BUILD is what cargo said about the build of `speed`, as JSON lines; LOCK_EXPORTER names the program.
The table replaces what is between the two markers in README. Absolute numbers are context; what is
judged are ratios, counts and sizes.
"""

import datetime
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import exporter
import keys
import lock_files
import restic_places
import restic_repo
import scrapes
import servers
from restic_places import Bucket, Folder, Restic

BEGIN, END = "<!-- benches -->", "<!-- /benches -->"
ROUNDS = 5
LOCKS = 20
WARM_SCANS = 10
FLEET, FLEET_LOCKS, FEW_LOCKS = 1_000, 10, 2
SCRAPES = 20
MIB = 1 << 20


@dataclass
class Row:
    what: str
    measured: str
    target: str
    reached: bool
    context: str = ""

    def cells(self) -> str:
        mark = "" if self.reached else " **missed**"
        return f"| {self.what} | {self.measured}{mark} | {self.target} | {self.context} |"


def executable(build: Path, name: str) -> str:
    for line in build.read_text().splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == name:
            return message["executable"]
    raise LookupError(f"{build} names no {name}")


def seconds(command: list[str], environment: dict[str, str]) -> float:
    begun = time.perf_counter()
    done = subprocess.run(
        command, env=os.environ | environment, stdin=subprocess.DEVNULL, capture_output=True
    )
    took = time.perf_counter() - begun
    assert done.returncode == 0, done
    return took


def speed(program: str, *words: str) -> dict:
    done = subprocess.run([program, *words], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def against_restic(folder: Path, restic: Restic) -> list[Row]:
    """One look at 20 locks, with a key as restic makes it."""
    place = Folder(restic_places.make_template(restic, folder, cheap=False))
    key = restic_repo.Key.of(place.path)
    names = []
    for number in range(LOCKS):
        lock = {
            "time": datetime.datetime.now(datetime.UTC).isoformat(),
            "exclusive": False,
            "hostname": f"web{number:02}",
            "username": "root",
            "pid": 1000 + number,
        }
        names.append(restic_repo.write_lock(place.path, key, lock).name)
    environment = place.environment | {"RESTIC_CACHE_DIR": str(folder / "cache")}
    ask = [restic.program, "-r", place.location, "--no-lock"]
    check = [os.environ["LOCK_EXPORTER"], "check", "-r", place.location]
    seconds([*ask, "list", "locks"], environment)
    ours, listing, reading = [], [], []
    for _ in range(ROUNDS):
        ours.append(seconds(check, environment))
        listing.append(seconds([*ask, "list", "locks"], environment))
        reading.append(
            sum(seconds([*ask, "cat", "lock", name], environment) for name in names)
        )
    whole = median(listing) + median(reading)
    ratio, single = whole / median(ours), median(listing) / median(ours)
    context = f"{median(ours) * 1000:.0f} ms against {whole:.1f} s, restic {restic.name}"
    return [
        Row(
            f"`check` on {LOCKS} locks against `restic list locks` and {LOCKS} × `cat lock`",
            f"{ratio:.0f} × faster",
            "≥ 20 ×",
            ratio >= 20,
            context,
        ),
        Row(
            "the same against one `restic list locks`",
            f"{single:.1f} × faster",
            "not slower",
            single >= 1,
            f"{median(listing) * 1000:.0f} ms",
        ),
    ]


def config(targets: dict[str, str], interval: str) -> dict:
    return {
        "scan": {"interval": interval},
        "targets": [
            {"name": name, "restic": {"repository": place}} for name, place in targets.items()
        ],
    }


def requests(folder: Path, restic: Restic) -> list[Row]:
    """Storage requests, counted by the server."""
    template = restic_places.make_template(restic, folder)
    key = restic_repo.Key.of(template)
    bucket = Bucket("watched")
    bucket.fill(template)
    for number in range(LOCKS):
        text = key.seal(json.dumps({"time": "2026-01-02T03:04:05Z", "pid": number + 1}).encode())
        bucket.put(f"locks/{restic_repo.name_of(text)}", text)

    def log() -> list[str]:
        return bucket.requests(Path(os.environ["S3_LOG"]).read_text().splitlines())

    before = len(log())
    exporter.check(bucket.location, bucket.environment)
    cold = [bucket.short(line) for line in log()[before:]]
    before = len(log())
    work = folder / "requests"
    work.mkdir()
    watched = config({"watched": bucket.location}, "1s")
    with exporter.Exporter(work, watched, bucket.environment) as running:
        servers.wait_for(
            "scans",
            lambda: running.samples("watched").one("lock_scans_total") > WARM_SCANS + 2,
        )
        idle = resident(running)
    warm = [bucket.short(line) for line in log()[before:]][-WARM_SCANS:]
    return [
        Row(
            f"storage requests of {WARM_SCANS} warm scans of {LOCKS} locks on S3",
            f"{warm.count('LIST locks/')} LIST, {len(warm) - warm.count('LIST locks/')} other",
            f"{WARM_SCANS} LIST, 0 other",
            warm == WARM_SCANS * ["LIST locks/"],
        ),
        Row(
            f"storage requests of the first scan of {LOCKS} locks on S3",
            f"{len(cold)}",
            f"{LOCKS + 4}",
            len(cold) == LOCKS + 4,
            "2 LIST, 1 GET of `config`, 1 of the key, 1 of each lock",
        ),
        Row(
            "resident memory, one S3 target",
            f"{idle / MIB:.1f} MiB",
            "≤ 16 MiB",
            idle <= 16 * MIB,
        ),
    ]


def resident(running: servers.Server) -> int:
    assert running.process
    status = Path(f"/proc/{running.process.pid}/status").read_text()
    (kib,) = re.findall(r"^VmRSS:\s+(\d+) kB", status, re.M)
    return int(kib) * 1024


def kept_and_new(running: servers.Server) -> tuple[float, float]:
    """Median seconds of a scrape as Prometheus makes it while nothing changes: of the kept text,
    and of one that is made anew because the query leaves out what is not there anyway.

    They alternate, so that none shares the rendering of the one just before.
    """

    def scrape(query: str) -> float:
        request = urllib.request.Request(
            f"{running.url}/metrics{query}",
            headers={
                "Accept": "application/openmetrics-text;version=1.0.0",
                "Accept-Encoding": "gzip",
            },
        )
        begun = time.perf_counter()
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()
        return time.perf_counter() - begun

    rounds = [(scrape(""), scrape("?exclude[]=file")) for _ in range(SCRAPES + 1)]
    # The first one makes what is kept.
    kept, new = zip(*rounds[1:])
    return median(kept), median(new)


def fleet(folder: Path, program: str) -> list[Row]:
    root = folder / "fleet"
    root.mkdir()
    made = speed(program, "fleet", str(root), str(FLEET), str(FLEET_LOCKS))
    scans = speed(program, "scans", str(root))
    ratio = scans["warm_seconds"] / scans["find_seconds"]
    places = {path.name: str(path) for path in sorted(root.iterdir())}
    work = folder / "memory"
    work.mkdir()
    watched = config(places, "10s")
    environment = {"RESTIC_PASSWORD": made["password"]}
    with exporter.Exporter(work, watched, environment) as running:

        def all_seen() -> bool:
            # Of one family, since the whole page is a cost of its own.
            page = servers.get(f"{running.url}/metrics?name[]=lock_target_locks").decode()
            pattern = r'^lock_target_locks\{.*mode="(?:shared|exclusive)".*\} (\d+)$'
            return sum(map(int, re.findall(pattern, page, re.M))) == FLEET * FLEET_LOCKS

        servers.wait_for("the first look at every repository", all_seen)
        memory = resident(running)
        scraped = []
        for _ in range(2):
            for _ in range(SCRAPES):
                running.page()
            scraped.append(resident(running))
    quiet = folder / "quiet"
    quiet.mkdir()
    watched = config(places, "10m")
    with exporter.Exporter(quiet, watched, environment) as running:
        servers.wait_for("the first look at every repository", all_seen)
        kept, new = kept_and_new(running)
    what = f"{FLEET:,} local repositories × {FLEET_LOCKS} locks"
    load = scrapes.measure(folder / "load", places, environment)
    ours, node = (rate * size for rate, size in (load.ours, load.node))
    faster = ours / node
    return [
        Row(
            f"a compressed scrape of {what}, scanned every 10 s while {scrapes.HANGING} more hang, "
            "against one at rest, p99",
            f"{load.busy[0] / load.rest[0]:.2f} × its time",
            "≤ 2 ×",
            load.busy[0] <= 2 * load.rest[0],
            f"{load.busy[0] * 1000:.0f} ms against {load.rest[0] * 1000:.0f} ms; "
            f"median {load.busy[1] * 1000:.0f} ms against {load.rest[1] * 1000:.0f} ms",
        ),
        Row(
            "bytes of pages in each second against Debian's prometheus-node-exporter",
            f"{faster:.0f} ×",
            "≥ 5 ×",
            faster >= 5,
            f"{load.ours[0]:.0f} of {load.ours[1] / MIB:.1f} MiB against "
            f"{load.node[0]:.0f} of {load.node[1] / MIB:.2f} MiB",
        ),
        Row(
            f"a compressed scrape of {what} while nothing changes against one that renders all",
            f"{kept / new:.2f} × its time",
            "≤ 0.5 ×",
            kept <= 0.5 * new,
            f"{kept * 1000:.1f} ms against {new * 1000:.1f} ms",
        ),
        Row(
            f"warm scan of {what} against `find */locks -type f`",
            f"{ratio:.1f} × its time",
            "≤ 3 ×",
            ratio <= 3,
            f"{scans['warm_seconds'] * 1000:.0f} ms against {scans['find_seconds'] * 1000:.0f} ms"
            f"; the first scan, with keys and locks: {scans['cold_seconds']:.1f} s",
        ),
        Row(
            f"resident memory, {what}, after the first scan",
            f"{memory / MIB:.0f} MiB",
            "≤ 64 MiB",
            memory <= 64 * MIB,
        ),
        Row(
            f"the same after {2 * SCRAPES} scrapes against after {SCRAPES}",
            f"{scraped[1] / scraped[0]:.2f} ×",
            "≤ 1.1 ×",
            scraped[1] <= 1.1 * scraped[0],
            f"{scraped[1] / MIB:.0f} MiB, with pages of 8 MB that are not compressed",
        ),
    ]


def buckets(folder: Path, program: str) -> list[Row]:
    """What one more S3 target costs, over a server that is fast enough for a thousand."""
    data = folder / "s3"
    places = data / "bucket"
    places.mkdir(parents=True)
    made = speed(program, "fleet", str(places), str(FLEET), str(FEW_LOCKS))
    login = {"AWS_ACCESS_KEY_ID": "reader", "AWS_SECRET_ACCESS_KEY": "reads"}
    environment = {"RESTIC_PASSWORD": made["password"], **login}
    port = servers.free_port()
    with subprocess.Popen(
        [os.environ["S3_SIGNED"], "serve", "s3", "--config=/notfound", f"--addr=127.0.0.1:{port}"]
        + [f"--auth-key={','.join(login.values())}", str(data)],
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            servers.wait_for(
                "the S3 server",
                lambda: not socket.create_connection(("127.0.0.1", port)).close(),
            )
            names = sorted(path.name for path in places.iterdir())
            watched = {name: f"s3:http://127.0.0.1:{port}/bucket/{name}" for name in names}
            first = dict(list(watched.items())[:1])
            one, _ = watch_buckets(folder / "one", first, environment, port)
            all_, connections = watch_buckets(folder / "all", watched, environment, port)
        finally:
            server.terminate()
    each = (all_ - one) / (FLEET - 1)
    return [
        Row(
            f"resident memory of each of {FLEET:,} S3 targets with {FEW_LOCKS} locks",
            f"{each / 1000:.0f} kB",
            "≤ 150 kB",
            each <= 150_000,
        ),
        Row(
            f"connections to their server after 3 rounds against after 1",
            f"{connections[1]} against {connections[0]}",
            "≤ the 16 scans at once",
            max(connections) <= 16,
        ),
    ]


def costly_keys(folder: Path, restic: Restic) -> list[Row]:
    """A start with as many keys to derive as there are repositories."""
    start = keys.measure(folder / "keys", restic)
    return [
        Row(
            f"most memory resident while {keys.REPOSITORIES:,} keys of 32 MiB are derived",
            f"{start.peak_bytes / MIB:.0f} MiB",
            "≤ 320 MiB, of them 256 for derivations",
            start.peak_bytes <= (256 + 64) * MIB,
            f"answers after {start.listening:.1f} s, all listed after {start.sealed:.1f} s, "
            f"all opened after {start.opened:.0f} s",
        ),
    ]


def watch_buckets(
    work: Path, watched: dict[str, str], environment: dict[str, str], port: int
) -> tuple[int, list[int]]:
    """Resident bytes after the third round, and connections after the first and after the third."""
    work.mkdir()
    connections = []
    with exporter.Exporter(work, config(watched, "5s"), environment) as running:
        for rounds in (1, 3):

            def all_seen(rounds: int = rounds) -> bool:
                query = "name[]=lock_scans_total&name[]=lock_scan_failures_total"
                page = servers.get(f"{running.url}/metrics?{query}").decode()
                failures = re.findall(r"^lock_scan_failures_total\{.*\} (\d+)$", page, re.M)
                assert sum(map(int, failures)) == 0
                scans = re.findall(r"^lock_scans_total\{.*\} (\d+)$", page, re.M)
                return len(scans) == len(watched) and min(map(int, scans)) >= rounds

            servers.wait_for(f"{rounds} rounds", all_seen)
            connections.append(connected(running, port))
        return resident(running), connections


def connected(running: servers.Server, port: int) -> int:
    """Established connections of the exporter to a port."""
    assert running.process
    table = Path(f"/proc/{running.process.pid}/net/tcp").read_text().splitlines()[1:]
    there = [line.split() for line in table]
    return sum(row[2].endswith(f":{port:04X}") and row[3] == "01" for row in there)


def inside(program: str, binary: Path) -> list[Row]:
    rate = speed(program, "decode")["locks_per_second"]
    size = binary.stat().st_size
    return [
        Row(
            "locks of version 2 decrypted, decompressed and parsed on one core",
            f"{rate / 1000:.0f},000 in a second",
            "≥ 40,000",
            rate >= 40_000,
        ),
        Row("the program", f"{size / MIB:.1f} MiB", "≤ 16 MiB", size <= 16 * MIB),
    ]


def files(folder: Path, binary: str) -> list[Row]:
    ours, theirs = lock_files.measure(folder, binary)
    ratio = ours / theirs
    rows = lock_files.PROCESSES * lock_files.LOCKS_EACH
    return [
        Row(
            f"`check` of {lock_files.WATCHED} lock files, {rows:,} rows in `/proc/locks` and"
            f" {lock_files.PROCESSES:,} processes, against `lslocks`",
            f"{ratio:.2f} × its time",
            "≤ 0.5 ×",
            ratio <= 0.5,
            f"{ours * 1000:.0f} ms against {theirs * 1000:.0f} ms",
        )
    ]


def write(readme: Path, rows: list[Row]) -> None:
    """Replaces what is between the markers, and nothing else."""
    table = "\n".join(
        [BEGIN, "| what | measured | target | |", "| --- | --- | --- | --- |"]
        + [row.cells() for row in rows]
        + [END]
    )
    text = readme.read_text()
    assert text.count(BEGIN) == text.count(END) == 1, f"{readme}: {BEGIN} and {END} once each"
    before, rest = text.split(BEGIN)
    readme.write_text(before + table + rest.split(END)[1])


def main() -> int:
    program = executable(Path(sys.argv[1]), "speed")
    restic = Restic(os.environ["RESTIC_018"])
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts: list[Callable[[], list[Row]]] = [
            lambda: against_restic(folder, restic),
            lambda: requests(folder, restic),
            lambda: fleet(folder, program),
            lambda: buckets(folder, program),
            lambda: costly_keys(folder, restic),
            lambda: files(folder, os.environ["LOCK_EXPORTER"]),
            lambda: inside(program, Path(os.environ["LOCK_EXPORTER"])),
        ]
        with servers.S3(folder):
            for part in parts:
                for row in part():
                    print(row.cells(), flush=True)
                    rows.append(row)
    write(Path(sys.argv[2]), rows)
    return 0 if all(row.reached for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
