"""Expositions of an exporter in several situations, for rules and panels to be run against.

Each scene is a list of pages, one for each exporter. Times are relative to the moment of the
scrape, so that a real Prometheus sees ages that make sense. Names and labels are those of the
exporter: `test_dashboards` compares them with its golden pages, `test_live` with a running one.
"""

import itertools
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

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
    """`refreshed` is None where a lock has no refresh: a lock of the kernel, or a sealed one."""

    mode: str
    hostname: str
    refreshed: float | None
    since: float | None
    pid: str = "4711"
    username: str = "root"
    command: str = ""
    gone: bool = False

    @property
    def stale(self) -> bool:
        return self.gone or (self.refreshed is not None and self.refreshed > 1800)

    @property
    def labels(self) -> dict[str, str]:
        return {
            "mode": self.mode,
            "hostname": self.hostname,
            "username": self.username,
            "command": self.command,
        }


@dataclass(frozen=True)
class Target:
    """One watched repository or lock file. Ages are seconds before the scrape."""

    name: str
    state: str = "free"
    holds: tuple[Hold, ...] = ()
    unreadable: int = 0
    failing: str = ""
    succeeded: float | None = 5.0
    host: str = ""
    source: str = "restic"
    backend: str = "s3"
    location: str = ""
    sealed: bool = False
    # Times and counters that a story tells, and a scene does not need.
    blocked_for: float = 600.0
    started: dict[str, int] = field(default_factory=dict)
    removed: int = 0
    refreshes: int | None = None
    # Lock files only.
    daemon: bool = False
    waiters: int = 0
    orphaned: int = 0

    @property
    def is_file(self) -> bool:
        return self.source == "file"

    @property
    def known(self) -> bool:
        """Values are dropped where nobody could look for too long."""
        return self.state != "unknown" or self.sealed

    def samples(self, now: float) -> list[Sample]:
        key = {"target": self.name, "host": self.host}
        found: list[Sample] = []

        def add(name: str, value: float, **labels: str) -> None:
            found.append(Sample(name, key | labels, value))

        add(
            "lock_target_info",
            1,
            source=self.source,
            backend="" if self.is_file else self.backend,
            sealed=str(self.sealed).lower(),
            location=self.location or f"s3:https://s3.example.com/backups/{self.name}",
        )
        add("lock_scan_success", 0 if self.failing else 1)
        add("lock_scan_timestamp_seconds", now - 5)
        if self.succeeded is not None:
            add("lock_scan_last_success_timestamp_seconds", now - self.succeeded)
        add("lock_scan_duration_seconds", 0.2)
        add("lock_scans_total", now // 60)
        add("lock_scan_failures_total", now // 60 - 7 if self.failing else 0)
        # In a scene often enough that a rate over seconds sees it.
        often = now // 3 if self.holds else 0
        add("lock_refreshes_total", often if self.refreshes is None else self.refreshes)
        add("lock_stale_removals_total", self.removed)
        if self.failing:
            add("lock_scan_error_info", 1, reason=self.failing)
        for state in STATES:
            add("lock_target_state", float(state == self.state), state=state)
        self.add_limits(add)
        if self.known:
            self.add_values(add, now)
        for mode in MODES:
            started = self.started.get(mode, sum(hold.mode == mode for hold in self.holds))
            running = sum(hold.mode == mode for hold in self.holds)
            add("lock_holds_started_total", started, mode=mode)
            add("lock_holds_ended_total", max(started - running, 0), mode=mode)
        for hold in self.holds:
            self.add_hold(add, hold, now)
        return found

    def add_limits(self, add: Callable[..., None]) -> None:
        long = 4 * HOUR if self.is_file else 24 * HOUR
        if not self.daemon:
            for mode, limit in (("exclusive", 4 * HOUR), ("shared", long)):
                add("lock_target_hold_limit_seconds", limit, mode=mode)
        for mode in MODES if self.is_file else (*MODES, "unknown"):
            add("lock_target_stuck_limit_seconds", 1800, mode=mode)
        if self.is_file:
            add("lock_target_expected_held", float(self.daemon))

    def add_hold(self, add: Callable[..., None], hold: Hold, now: float) -> None:
        who = hold.labels
        if hold.refreshed is not None:
            add("lock_hold_refreshed_timestamp_seconds", now - hold.refreshed, **who)
            if hold.since is not None:
                add("lock_hold_owner_gone", float(hold.gone), **who)
        if hold.since is not None:
            add("lock_hold_since_timestamp_seconds", now - hold.since, **who)
            add("lock_hold_info", 1, **who, pid=hold.pid)

    def add_values(self, add: Callable[..., None], now: float) -> None:
        for mode in MODES if self.is_file else (*MODES, "unknown"):
            of_mode = [hold for hold in self.holds if hold.mode == mode]
            stale = sum(hold.stale for hold in of_mode)
            if not self.sealed or mode == "unknown":
                add("lock_target_locks", len(of_mode) - stale, mode=mode, state="active")
                add("lock_target_locks", stale, mode=mode, state="stale")
            if mode != "unknown" and not self.sealed:
                add("lock_target_holds", len(of_mode), mode=mode)
        add("lock_target_hidden_holds", 0)
        if self.is_file:
            add("lock_target_waiters", self.waiters)
            add("lock_target_orphaned_locks", self.orphaned)
        else:
            add("lock_target_unreadable_locks", self.unreadable)
            add("lock_target_empty_locks", 0)
            if self.holds:
                add("lock_target_clock_skew_seconds", -1)
        for mode, blocked in (
            ("exclusive", bool(self.holds) or self.unreadable > 0),
            ("shared", self.state == "exclusive"),
        ):
            if self.state == "unknown" and mode == "shared":
                continue
            add("lock_target_blocked", float(blocked), mode=mode)
            if blocked:
                add(
                    "lock_target_blocked_since_timestamp_seconds",
                    now - self.blocked_for,
                    mode=mode,
                )


def lock_file(name: str, state: str = "free", *holds: Hold, host: str = "web01", **more) -> Target:
    return Target(
        name,
        state,
        holds,
        source="file",
        host=host,
        location=more.pop("location", f"/run/lock/{name}.lock"),
        **more,
    )


@dataclass(frozen=True)
class Exporter:
    """What an exporter says of itself. Counters grow with the clock, so that rates are not zero."""

    targets: int
    shard: int = 0
    shards: int = 1
    started: float = 90 * HOUR
    version: str = "0.1.0"
    revision: str = "0123456789ab"
    all_visible: bool = True

    def samples(self, now: float) -> list[Sample]:
        build = {
            "version": self.version,
            "revision": self.revision,
            "branch": "main",
            "rustversion": "1.89.0",
            "target_os": "linux",
            "target_arch": "x86_64",
        }
        found = [
            Sample("lock_exporter_build_info", build, 1),
            Sample("lock_exporter_config_last_reload_successful", {}, 1),
            Sample("lock_exporter_config_last_reload_success_timestamp_seconds", {}, now - HOUR),
            Sample("lock_exporter_targets", {"source": "restic"}, self.targets),
            Sample("lock_exporter_total_shards", {}, self.shards),
            Sample("lock_exporter_shard_ordinal", {"shard_ordinal": str(self.shard)}, self.shard),
            Sample("lock_exporter_scans_skipped_total", {"source": "restic"}, 0),
            Sample("lock_exporter_scans_in_flight", {}, 1),
            Sample("lock_exporter_scan_lag_seconds", {}, 0.02),
            Sample("lock_exporter_lock_cache_lookups_total", {}, now // 1),
            Sample("lock_exporter_lock_cache_hits_total", {}, now // 1 * 0.98),
            Sample("process_start_time_seconds", {}, now - self.started),
            Sample("process_cpu_seconds_total", {}, now * 0.004),
            Sample("process_resident_memory_bytes", {}, 21.5 * 2**20),
            Sample("process_open_fds", {}, 24),
            Sample("process_max_fds", {}, 1024),
        ]
        for name, allowed in (("fdinfo", self.all_visible), ("initial_pid_namespace", True)):
            found.append(Sample("lock_exporter_capability", {"name": name}, float(allowed)))
        for reason, each_second in (("timeout", 0.01), ("auth", 0.0)):
            labels = {"source": "restic", "reason": reason}
            count = now * each_second // 1
            found.append(Sample("lock_exporter_scan_errors_total", labels, count))
        for handler in ("/metrics", "/"):
            labels = {"handler": handler, "code": "200"}
            found.append(Sample("lock_exporter_http_requests_total", labels, now // 15))
        for operation, each_second in (("list", 0.5), ("get", 0.05)):
            labels = {"backend": "s3", "operation": operation}
            count = now * each_second // 1
            found += [
                Sample("lock_exporter_store_requests_total", labels, count),
                Sample("lock_exporter_store_request_failures_total", labels, count // 50),
            ]
            for le, share in (("0.025", 0.1), ("0.1", 0.7), ("0.5", 0.95), ("5", 1), ("+Inf", 1)):
                name = "lock_exporter_store_request_duration_seconds_bucket"
                found.append(Sample(name, labels | {"le": le}, count * share // 1))
        return found


def page(*targets: Target, shard: int = 0, shards: int = 1, **itself) -> Page:
    exporter = Exporter(len(targets), shard, shards, **itself)

    def samples(now: float) -> list[Sample]:
        found = [sample for target in targets for sample in target.samples(now)]
        return found + exporter.samples(now)

    return samples


BACKUP = Hold("shared", "web01", refreshed=120, since=2 * HOUR)
PRUNE = Hold("exclusive", "db01", refreshed=90, since=HOUR, pid="815")
DEAD = Hold("exclusive", "db02", refreshed=2400, since=2400, pid="99")
DEAD_BACKUP = Hold("shared", "web02", refreshed=9000, since=9000, pid="98")

SEALED = Hold("unknown", "", refreshed=2400, since=None, pid="", username="")
OF_DEAD_OWNER = Hold("exclusive", "web01", refreshed=300, since=300, pid="97", gone=True)
APT = Hold("exclusive", "web01", None, 2 * HOUR, "501", "root", command="unattended-upgr")
AGENT = Hold("exclusive", "web01", None, 90 * HOUR, "77", "agent", command="agentd")

# What whoever may write to a backend can choose, and what a regular expression would misread. The
# exporter lets no line break through; a panel must not break by one either.
HOSTILE_NAMES = (
    'says "hello"',
    "costs $5 ${HOME}",
    "{{ .Value }}",
    "a|b",
    "(.+)[x]{2}?*^\\d",
    "it's",
    "<img src=x>",
    "a",
)

SCENES: dict[str, list[Page]] = {
    "free": [page(Target("a"), Target("b"))],
    "shared": [page(Target("a", "shared", (BACKUP,)), Target("b"))],
    "exclusive": [
        page(
            Target("a", "exclusive", (PRUNE,)),
            Target(
                "own",
                "shared",
                (BACKUP,),
                host="web01",
                backend="local",
                location="/srv/restic/own",
            ),
        )
    ],
    "stuck": [
        page(
            Target("a", "exclusive", (DEAD,)),
            Target("b", "shared", (BACKUP, DEAD_BACKUP)),
            Target("c", "exclusive", unreadable=2),
            Target("d", "exclusive", (OF_DEAD_OWNER,)),
        )
    ],
    "sealed": [page(Target("a", "unknown", (SEALED,), sealed=True), Target("b", sealed=True))],
    "outage": [
        page(
            Target("a", "unknown", failing="timeout", succeeded=2000),
            # Values are still held.
            Target("b", "shared", (BACKUP,), failing="network", succeeded=300),
            Target("own", "unknown", failing="permission", succeeded=2000, host="web01"),
            Target("never", "unknown", failing="not_found", succeeded=None),
        )
    ],
    "files": [
        page(
            lock_file("apt", "exclusive", APT, waiters=2),
            lock_file("agent", "exclusive", AGENT, daemon=True),
            lock_file("idle-agent", daemon=True),
            lock_file("replaced", orphaned=1),
            lock_file("remote", "unknown"),
            lock_file("apt", host="web02"),
            all_visible=False,
        )
    ],
    # Two exporters watch the same target, as an HA pair does. One of them cannot read it now.
    "pair": [
        page(Target("a", "exclusive", (PRUNE,))),
        page(Target("a", "unknown", failing="timeout", succeeded=2000)),
    ],
    "shards": [
        page(Target("a", "shared", (BACKUP,)), shard=0, shards=2),
        page(Target("b", "exclusive", (DEAD,)), shard=1, shards=2),
    ],
    "hostile": [
        page(
            *(
                Target(name, "exclusive", (Hold("exclusive", name, 60, 600, username=name),))
                for name in (*HOSTILE_NAMES, "two\nlines")
            )
        )
    ],
    # It has just started, and somebody has just run unlock.
    "restarted": [
        lambda now: page(Target("a", removed=int(now)), started=now % 4)(now),
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
