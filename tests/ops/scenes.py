"""Expositions of an exporter in several situations, for rules and panels to be run against.

Each scene is a list of pages, one for each exporter. Times are relative to the moment of the
scrape, so that a real Prometheus sees ages that make sense. Names and labels are those of the
exporter: `test_dashboards` compares them with its golden pages, `test_live` with a running one.
"""

import itertools
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

# What an exporter says of itself: not in its golden pages, since it differs at each start.
ABOUT_ITSELF = ("lock_exporter_", "process_")

MODES = ("shared", "exclusive")
STATES = ("free", "shared", "exclusive", "unknown")
HOUR = 3600.0


@dataclass(frozen=True)
class Sample:
    name: str
    labels: dict[str, str]
    value: float

    def __str__(self) -> str:
        inner = ",".join(f'{key}="{escape(value)}"' for key, value in self.labels.items())
        return f"{self.name}{{{inner}}} {self.value}" if inner else f"{self.name} {self.value}"


Page = Callable[[float], list[Sample]]


def escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def render(samples: Iterable[Sample]) -> str:
    """Text 0.0.4, one block for each name."""
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.name, []).append(sample)
    lines = []
    for name, block in by_name.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# HELP {name} A scene.", f"# TYPE {name} {kind}"]
        lines += [str(sample) for sample in block]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Hold:
    mode: str
    hostname: str
    refreshed: float
    since: float
    pid: str = "4711"
    username: str = "root"


@dataclass(frozen=True)
class Target:
    """One watched repository. Ages are seconds before the scrape."""

    name: str
    state: str = "free"
    holds: tuple[Hold, ...] = ()
    unreadable: int = 0
    failing: str = ""
    succeeded: float = 5.0
    host: str = ""

    def samples(self, now: float) -> list[Sample]:
        key = {"target": self.name, "host": self.host}
        found: list[Sample] = []

        def add(name: str, value: float, **labels: str) -> None:
            found.append(Sample(name, key | labels, value))

        add(
            "lock_target_info",
            1,
            source="restic",
            backend="s3",
            sealed="false",
            location=f"s3.example.com/backups/{self.name}",
        )
        add("lock_scan_success", 0 if self.failing else 1)
        add("lock_scan_timestamp_seconds", now - 5)
        add("lock_scan_last_success_timestamp_seconds", now - self.succeeded)
        add("lock_scan_duration_seconds", 0.2)
        add("lock_scans_total", now // 60)
        add("lock_scan_failures_total", 7 if self.failing else 0)
        add("lock_refreshes_total", now // 300 if self.holds else 0)
        if self.failing:
            add("lock_scan_error_info", 1, reason=self.failing)
        for state in STATES:
            add("lock_target_state", float(state == self.state), state=state)
        for mode in MODES:
            add(
                "lock_target_hold_limit_seconds",
                4 * HOUR if mode == "exclusive" else 24 * HOUR,
                mode=mode,
            )
        for mode in (*MODES, "unknown"):
            add("lock_target_stuck_limit_seconds", 1800, mode=mode)
        # Dropped with the values of a target that nobody could look at for too long.
        if self.state != "unknown":
            self.add_values(add, now)
        for hold in self.holds:
            who = {
                "mode": hold.mode,
                "hostname": hold.hostname,
                "username": hold.username,
                "command": "",
            }
            add("lock_hold_refreshed_timestamp_seconds", now - hold.refreshed, **who)
            add("lock_hold_since_timestamp_seconds", now - hold.since, **who)
            add("lock_hold_owner_gone", 0, **who)
            add("lock_hold_info", 1, **who, pid=hold.pid)
        return found

    def add_values(self, add: Callable[..., None], now: float) -> None:
        for mode in (*MODES, "unknown"):
            of_mode = [hold for hold in self.holds if hold.mode == mode]
            stale = sum(hold.refreshed > 1800 for hold in of_mode)
            add("lock_target_locks", len(of_mode) - stale, mode=mode, state="active")
            add("lock_target_locks", stale, mode=mode, state="stale")
            if mode != "unknown":
                add("lock_target_holds", len(of_mode), mode=mode)
                add("lock_holds_started_total", len(of_mode), mode=mode)
                add("lock_holds_ended_total", 0, mode=mode)
        add("lock_target_unreadable_locks", self.unreadable)
        add("lock_target_empty_locks", 0)
        add("lock_target_hidden_holds", 0)
        if self.holds:
            add("lock_target_clock_skew_seconds", -1)
        for mode, blocked in (
            ("exclusive", bool(self.holds) or self.unreadable > 0),
            ("shared", self.state == "exclusive"),
        ):
            add("lock_target_blocked", float(blocked), mode=mode)
            if blocked:
                add("lock_target_blocked_since_timestamp_seconds", now - 600, mode=mode)


def page(*targets: Target, shard: int = 0, shards: int = 1) -> Page:
    def samples(now: float) -> list[Sample]:
        found = [sample for target in targets for sample in target.samples(now)]
        found += [
            Sample(
                "lock_exporter_build_info",
                {
                    "version": "0.1.0",
                    "revision": "",
                    "branch": "",
                    "rustversion": "1.89",
                    "target_os": "linux",
                    "target_arch": "x86_64",
                },
                1,
            ),
            Sample("lock_exporter_config_last_reload_successful", {}, 1),
            Sample("lock_exporter_config_last_reload_success_timestamp_seconds", {}, now - HOUR),
            Sample("lock_exporter_targets", {"source": "restic"}, len(targets)),
            Sample("lock_exporter_total_shards", {}, shards),
            Sample("lock_exporter_shard_ordinal", {"shard_ordinal": str(shard)}, shard),
            Sample("lock_exporter_scans_skipped_total", {"source": "restic"}, 0),
            # It moves, so that the annotation for restarts has something to show.
            Sample("process_start_time_seconds", {}, now // 4),
        ]
        return found

    return samples


BACKUP = Hold("shared", "web01", refreshed=120, since=2 * HOUR)
PRUNE = Hold("exclusive", "db01", refreshed=90, since=HOUR, pid="815")
DEAD = Hold("exclusive", "db02", refreshed=2400, since=2400, pid="99")
DEAD_BACKUP = Hold("shared", "web02", refreshed=9000, since=9000, pid="98")

SCENES: dict[str, list[Page]] = {
    "free": [page(Target("a"), Target("b"))],
    "shared": [page(Target("a", "shared", (BACKUP,)), Target("b"))],
    "exclusive": [
        page(Target("a", "exclusive", (PRUNE,)), Target("own", "shared", (BACKUP,), host="web01"))
    ],
    "stuck": [
        page(
            Target("a", "exclusive", (DEAD,)),
            Target("b", "shared", (BACKUP, DEAD_BACKUP)),
            Target("c", "exclusive", unreadable=2),
        )
    ],
    "outage": [
        page(
            Target("a", "unknown", failing="timeout", succeeded=2000),
            # Values are still held.
            Target("b", "shared", (BACKUP,), failing="network", succeeded=300),
            Target("own", "unknown", failing="permission", succeeded=2000, host="web01"),
        )
    ],
    # Two exporters watch the same target, as an HA pair does.
    "pair": [page(Target("a", "exclusive", (PRUNE,))), page(Target("a", "exclusive", (PRUNE,)))],
    "shards": [
        page(Target("a", "shared", (BACKUP,)), shard=0, shards=2),
        page(Target("b", "exclusive", (DEAD,)), shard=1, shards=2),
    ],
}


def exported(pages: Iterable[str]) -> dict[str, set[str]]:
    """Metric names of expositions, with their labels."""
    found: dict[str, set[str]] = {}
    for text in pages:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


def in_scenes() -> dict[str, set[str]]:
    """Metric names of all scenes, with their labels."""
    pages = itertools.chain.from_iterable(SCENES.values())
    return exported(render(page(time.time())) for page in pages)
