"""Six hours of a small fleet, as samples with times: what the pictures of the boards show.

A function of the time only. The situations are those an operator meets: a night of backups, a prune
under way, a crashed job, a crash loop, damage, an outage, a pair of exporters, one restarted.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import scenes

MINUTE, HOUR = 60.0, 3600.0
LASTS = 6 * HOUR
EVERY = 60.0
EXPORTERS = ("lock-exporter-0:10130", "lock-exporter-1:10130")
# The second exporter starts again this long before the end.
RESTART = 4 * HOUR


@dataclass(frozen=True)
class Work:
    """A lock that is held from `start` to `end`; times are seconds before the end of the story."""

    target: str
    mode: str
    hostname: str
    pid: str
    start: float
    end: float = -1.0
    username: str = "backup"
    command: str = ""
    # The process dies then, and its lock stays.
    dies: float | None = None
    refreshes: bool = True

    def refreshed(self, before: float) -> int:
        """How often until then."""
        ends = max(before, self.end, self.dies or 0)
        return int(max(self.start - ends, 0) // 300) if self.refreshes else 0

    def hold(self, before: float) -> scenes.Hold | None:
        if not self.end < before <= self.start:
            return None
        since = self.start - before
        age = since % 300
        if self.dies is not None and before < self.dies:
            age = (self.start - self.dies) % 300 + self.dies - before
        return scenes.Hold(
            self.mode,
            self.hostname,
            age if self.refreshes else None,
            since,
            self.pid,
            self.username,
            self.command,
        )


def crash_loop() -> Iterator[Work]:
    for number in range(20):
        start = 5 * HOUR - number * 6 * MINUTE
        yield Work("archive", "exclusive", "nas01", str(2000 + number), start, start - 3 * MINUTE)


def file_work(target: str, start: float, end: float = -1.0, **who: str) -> Work:
    named = {"mode": "exclusive", "hostname": target.split("@")[1], "username": "root"} | who
    return Work(target, start=start, end=end, refreshes=False, **named)


WORK = (
    Work("db01", "shared", "db01", "3112", 5.5 * HOUR, 4.4 * HOUR),
    Work("db01", "exclusive", "backup01", "815", 40 * MINUTE),
    Work("web", "shared", "web01", "4711", 3 * HOUR, 2 * HOUR),
    Work("web", "shared", "web02", "977", 70 * MINUTE),
    Work("mail", "shared", "mail01", "1201", 5 * HOUR, 4 * HOUR),
    Work("mail", "exclusive", "backup01", "16022", 95 * MINUTE, dies=84 * MINUTE),
    Work("photos", "shared", "laptop-anna", "601", 5.8 * HOUR, 3 * HOUR, dies=5.6 * HOUR),
    Work("nas", "shared", "nas01", "88", 25 * MINUTE),
    *crash_loop(),
    file_work("apt@web01", 52 * MINUTE, pid="501", command="unattended-upgr"),
    file_work("apt@web02", 4.2 * HOUR, 4 * HOUR, pid="733", command="apt-get"),
    file_work("agent@web01", LASTS, pid="77", command="agentd", username="agent"),
    file_work("agent@web02", LASTS, 2 * HOUR, pid="79", command="agentd", username="agent"),
    file_work("report@web03", 3.4 * HOUR, pid="9120", command="report.sh", username="www"),
)


def of(target: str, before: float, **more) -> scenes.Target:
    """A target as it was `before` seconds before the end."""
    works = [work for work in WORK if work.target == target]
    holds = tuple(hold for work in works if (hold := work.hold(before)))
    state = "free"
    if holds:
        state = "exclusive" if any(hold.mode == "exclusive" for hold in holds) else "shared"
    started = {
        mode: sum(work.mode == mode and work.start >= before for work in works)
        for mode in scenes.MODES
    }
    name, _, host = target.partition("@")
    refreshes = sum(work.refreshed(before) for work in works)
    made = scenes.Target(name, state, holds, host=host, started=started, refreshes=refreshes)
    if host:
        made = dataclasses.replace(made, source="file", location=f"/run/lock/{name}.lock")
    if holds:
        more.setdefault("blocked_for", max(hold.since or 0 for hold in holds))
    return dataclasses.replace(made, **more)


def failing(target: scenes.Target, before: float, since: float, why: str) -> scenes.Target:
    """Values stay for 15 minutes, then nothing is known."""
    if before > since:
        return target
    if since - before < 15 * MINUTE:
        return dataclasses.replace(target, failing=why, succeeded=since - before + 5)
    return dataclasses.replace(
        target, state="unknown", holds=(), failing=why, succeeded=since - before + 5
    )


def targets(before: float) -> list[scenes.Target]:
    git = of("git", before)
    if before < 32 * MINUTE:
        more = {"state": "exclusive", "unreadable": 1, "blocked_for": 32 * MINUTE - before}
        git = dataclasses.replace(git, **more)
    sealed = scenes.Target("vm-images", sealed=True)
    if before < 15 * MINUTE:
        hold = scenes.Hold("unknown", "", (15 * MINUTE - before) % 300, None, username="")
        sealed = dataclasses.replace(
            sealed, state="unknown", holds=(hold,), blocked_for=15 * MINUTE - before
        )
    return [
        of("db01", before),
        of("web", before),
        of("mail", before),
        of("archive", before, backend="rest", location="rest:https://backup.example.com/archive"),
        of("photos", before, removed=int(before <= 3 * HOUR)),
        git,
        sealed,
        failing(
            of("offsite", before, backend="sftp", location="sftp:backup@offsite:/srv/restic"),
            before,
            50 * MINUTE,
            "network",
        ),
        failing(of("nas", before), before, 8 * MINUTE, "timeout"),
        of("apt@web01", before, waiters=1 if before < 40 * MINUTE else 0),
        of("apt@web02", before),
        of("agent@web01", before, daemon=True),
        of("agent@web02", before, daemon=True),
        of("report@web03", before, orphaned=int(before < HOUR)),
    ]


ALERTS = (
    ("LockStuckExclusive", "critical", "mail", 48 * MINUTE),
    ("LockUnreadable", "critical", "git", 21 * MINUTE),
    ("LockScanFailing", "warning", "offsite", 30 * MINUTE),
)
# What a recording rule says at the end of a day that the story does not have.
DAY = {"archive": 0.41, "mail": 0.19, "db01": 0.08, "git": 0.02, "web": 0.0, "photos": 0.0}


def samples(end: float) -> Iterator[tuple[scenes.Sample, float]]:
    """Everything that a Prometheus would hold, with its time."""
    before = LASTS
    while before >= 0:
        at = end - before
        watched = targets(before)
        for number, instance in enumerate(EXPORTERS):
            labels = {"job": "lock-exporter", "instance": instance}
            if number == 1 and RESTART > before > RESTART - 3 * MINUTE:
                yield scenes.Sample("up", labels, 0), at
                continue
            started = 90 * HOUR - before
            if number == 1 and before < RESTART:
                started = RESTART - before
            itself = scenes.Exporter(len(watched), started=started, all_visible=number == 0)
            found = [one for target in watched for one in target.samples(at)]
            found += itself.samples(at)
            found += [
                scenes.Sample("up", {}, 1),
                scenes.Sample("scrape_duration_seconds", {}, 0.004 + number * 0.001),
                scenes.Sample("scrape_samples_scraped", {}, len(found)),
            ]
            for sample in found:
                kept = {name: value for name, value in sample.labels.items() if value}
                yield dataclasses.replace(sample, labels=kept | labels), at
        for name, severity, target, since in ALERTS:
            if before <= since:
                yield alert(name, severity, target), at
        for target, share in DAY.items():
            labels = {"job": "lock-exporter", "target": target}
            yield scenes.Sample("target:lock_target_exclusive:avg1d", labels, share), at
        before -= EVERY


def alert(name: str, severity: str, target: str) -> scenes.Sample:
    labels = {
        "alertname": name,
        "alertstate": "firing",
        "severity": severity,
        "job": "lock-exporter",
        "target": target,
    }
    return scenes.Sample("ALERTS", labels, 1)


def openmetrics(end: float) -> Iterator[str]:
    for sample, at in samples(end):
        yield f"{sample} {at:.3f}\n"
    yield "# EOF\n"
