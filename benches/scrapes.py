"""Scrapes: of a busy exporter against the same at rest, and as many as `wrk` can make against those
of Debian's prometheus-node-exporter.
"""

import contextlib
import os
import re
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import exporter
import servers

HANGING = 50
# What `wrk` takes for each page.
SECONDS = 10
SCRAPES = 100
# Farther apart than scrapes that share a page.
APART = 0.6
# A query that leaves nothing out; what it asks for is rendered each time.
NEW = "/metrics?exclude[]=file"


def answers_each_second(url: str) -> float:
    command = ["wrk", "-t1", "-c2", f"-d{SECONDS}s", "--timeout=10s", url]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Socket errors" not in text and "Non-2xx" not in text, text
    (rate,) = re.findall(r"^Requests/sec:\s+([0-9.]+)$", text, re.M)
    return float(rate)


def slow_and_usual(url: str) -> tuple[float, float]:
    """The 99th percentile and the median of the seconds that a compressed page takes."""
    taken = []
    for _ in range(SCRAPES):
        time.sleep(APART)
        request = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})
        begun = time.perf_counter()
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()
        taken.append(time.perf_counter() - begun)
    return quantiles(taken, n=100)[98], median(taken)


@contextlib.contextmanager
def silent_server() -> Iterator[int]:
    """A server that lets everybody in and never says a word; its port."""
    with socket.create_server(("127.0.0.1", 0), backlog=4 * HANGING) as listener:
        kept = []

        def let_in() -> None:
            with contextlib.suppress(OSError):
                while True:
                    kept.append(listener.accept()[0])

        thread = threading.Thread(target=let_in, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in kept:
            connection.close()


def watched(places: dict[str, str], interval: str, silent: int | None) -> dict:
    targets = [{"name": name, "restic": {"repository": it}} for name, it in places.items()]
    if silent:
        targets += [
            {"name": f"silent{n}", "restic": {"repository": f"rest:http://127.0.0.1:{silent}/{n}/"}}
            for n in range(HANGING)
        ]
    return {"scan": {"interval": interval}, "targets": targets}


def all_seen(running: exporter.Exporter, count: int) -> bool:
    page = servers.get(f"{running.url}/metrics?name[]=lock_scan_success").decode()
    return len(re.findall(r"^lock_scan_success\{.*\} 1$", page, re.M)) == count


@dataclass
class Scrapes:
    """One exporter at rest and busy, and the yardstick."""

    # Seconds: the 99th percentile and the median.
    rest: tuple[float, float]
    busy: tuple[float, float]
    # Answers each second and the bytes of each.
    ours: tuple[float, int]
    node: tuple[float, int]


def measure(folder: Path, places: dict[str, str], environment: dict[str, str]) -> Scrapes:
    work = {name: folder / name for name in ("rest", "busy", "node")}
    for path in work.values():
        path.mkdir(parents=True)
    with exporter.Exporter(work["rest"], watched(places, "10m", None), environment) as running:
        servers.wait_for("every target", lambda: all_seen(running, len(places)))
        rest = slow_and_usual(running.url + NEW)
        ours = served(running)
    with silent_server() as silent:
        config = watched(places, "10s", silent)
        with exporter.Exporter(work["busy"], config, environment) as running:
            servers.wait_for("every target", lambda: all_seen(running, len(places)))
            busy = slow_and_usual(running.url + NEW)
    with NodeExporter(work["node"]) as running:
        node = served(running)
    return Scrapes(rest, busy, ours, node)


def served(running: servers.Server) -> tuple[float, int]:
    url = f"{running.url}/metrics"
    return answers_each_second(url), len(servers.get(url))


class NodeExporter(servers.Server):
    ready_path = "/"

    def __init__(self, folder: Path):
        super().__init__(
            "node-exporter",
            folder,
            lambda port: [os.environ["NODE_EXPORTER"], f"--web.listen-address=127.0.0.1:{port}"],
        )
