"""Forty hosts that back up for days, as series that an exporter of theirs would have shown.

Servers back up at night, forget and prune on Sundays for hours, and check on Wednesdays; laptops
back up in the evening and are closed in the middle of it. One prune is killed, the storage fails
once, the exporter is upgraded once. What is shown of all that follows the definitions of the
metrics (`docs/metrics.md`): a look each minute, values of a failing target for 15 minutes.
"""

import random
from dataclasses import dataclass, field

SERVERS = 30
LAPTOPS = 10
DAY = 24 * 60
REFRESH_MINUTES = 5
HOLD_MINUTES = 15
JOB = "lock-exporter"

Values = list[float | None]


@dataclass(frozen=True)
class Hold:
    """A lock that is held, in minutes. It is refreshed, but while its holder sleeps or is dead."""

    host: str
    mode: str
    pid: int
    start: int
    end: int
    # From then until then nobody refreshes it.
    still: tuple[int, int] = (0, 0)
    # When its process ends, where that is not when its lock goes.
    dead: int | None = None

    def refreshed(self, minute: int) -> int:
        if self.still[0] <= minute < self.still[1]:
            minute = self.still[0]
        return minute - (minute - self.start) % REFRESH_MINUTES


@dataclass
class Target:
    name: str
    is_server: bool
    holds: list[Hold] = field(default_factory=list)
    hold_limit_exclusive: int = 4 * 3600
    stuck_limit_shared: int = 1800


@dataclass(frozen=True)
class Events:
    """When the extraordinary happens, in minutes: from, until."""

    crash: tuple[int, int]
    outage: tuple[int, int]
    upgrade: tuple[int, int]


class Fleet:
    def __init__(self, days: int, seed: int):
        self.minutes = days * DAY
        self.random = random.Random(seed)
        self.pid = 1000
        day = min(days - 1, 4)
        self.events = Events(
            # The first day is a Sunday.
            crash=(5 * 60 + 10, 7 * 60 + 30),
            outage=(day * DAY + 15 * 60, day * DAY + 15 * 60 + 45),
            upgrade=(min(days - 1, 2) * DAY + 11 * 60, min(days - 1, 2) * DAY + 11 * 60 + 2),
        )
        self.targets = [self.server(number, days) for number in range(1, SERVERS + 1)]
        self.targets += [self.laptop(number, days) for number in range(1, LAPTOPS + 1)]

    def hold(self, host: str, mode: str, start: int, lasts: int, **more) -> Hold:
        self.pid += self.random.randrange(1, 50)
        return Hold(host, mode, self.pid, start, start + lasts, **more)

    def server(self, number: int, days: int) -> Target:
        target = Target(f"srv{number:02}", is_server=True)
        for day in range(days):
            night = day * DAY + 60 + self.random.randrange(60)
            target.holds.append(
                self.hold(target.name, "shared", night, self.random.randrange(5, 90))
            )
            if number <= 5:
                # All day, and so through the outage.
                target.holds.append(self.hold(target.name, "shared", day * DAY + 720, 600))
            if day % 7 == 3:
                target.holds.append(
                    self.hold(target.name, "exclusive", day * DAY + 240, self.random.randrange(90))
                )
            if day % 7 == 0:
                target.holds.append(self.prune(target, number, day))
        return target

    def prune(self, target: Target, number: int, day: int) -> Hold:
        start = day * DAY + 4 * 60
        if number == 7 and day == 0:
            killed, removed = self.events.crash
            still = (killed, removed)
            return self.hold(
                target.name, "exclusive", start, removed - start, still=still, dead=killed
            )
        if number == 1:
            # Known to be slow: its limit is 8 hours.
            target.hold_limit_exclusive = 8 * 3600
            return self.hold(target.name, "exclusive", start, 6 * 60)
        return self.hold(target.name, "exclusive", start, self.random.randrange(30, 210))

    def laptop(self, number: int, days: int) -> Target:
        # Whoever closes a laptop in the middle of a backup has not lost it: README of the rules.
        target = Target(f"lap{number:02}", is_server=False, stuck_limit_shared=24 * 3600)
        for day in range(days):
            start = day * DAY + 17 * 60 + self.random.randrange(90)
            if self.random.random() < 0.5:
                target.holds.append(self.hold(target.name, "shared", start, 40))
            else:
                slept = (start + 10, start + 10 + self.random.randrange(60, 12 * 60))
                target.holds.append(
                    self.hold(target.name, "shared", start, slept[1] - start + 20, still=slept)
                )
        return target

    # ---- what the exporters show ----

    def exporter_is_up(self, minute: int) -> bool:
        return not self.events.upgrade[0] <= minute < self.events.upgrade[1]

    def last_success(self, minute: int) -> int | None:
        """The last minute up to this one in which the storage answered this run of the exporter."""
        began, ended = self.events.outage
        seen = began - 1 if began <= minute < ended else minute
        # A run begins with the upgrade, and no event of these falls into another.
        return seen

    def series(self) -> dict[str, Values]:
        found: dict[str, Values] = {
            f'up{{job="{JOB}",instance="central:1"}}': self.each(
                lambda minute: float(self.exporter_is_up(minute)), always=True
            )
        }
        for target in self.targets:
            found |= self.series_of(target)
            if target.is_server:
                found |= self.series_of_host(target)
        return found

    def each(self, value, always: bool = False) -> Values:
        return [
            value(minute) if always or self.exporter_is_up(minute) else None
            for minute in range(self.minutes)
        ]

    def series_of(self, target: Target) -> dict[str, Values]:
        """The central exporter about one repository."""
        base = f'job="{JOB}",instance="central:1",target="{target.name}",host=""'
        found: dict[str, Values] = {}

        def add(name: str, labels: str, value) -> None:
            found[f"{name}{{{base}{labels}}}"] = self.each(value)

        def held(value):
            """A value that is dropped when nobody could look for too long."""

            def of(minute: int):
                seen = self.last_success(minute)
                return None if minute - seen > HOLD_MINUTES else value(seen)

            return of

        add("lock_target_info", ',source="restic",backend="s3",sealed="false",location="l"',
            lambda _: 1)  # fmt: skip
        add("lock_scan_success", "", lambda minute: float(self.last_success(minute) == minute))
        add("lock_scan_last_success_timestamp_seconds", "",
            lambda minute: 60 * self.last_success(minute))  # fmt: skip
        for mode, limit in (("exclusive", target.hold_limit_exclusive), ("shared", DAY * 60)):
            add("lock_target_hold_limit_seconds", f',mode="{mode}"', lambda _, limit=limit: limit)
        for mode, limit in (("exclusive", 1800), ("shared", target.stuck_limit_shared)):
            add("lock_target_stuck_limit_seconds", f',mode="{mode}"', lambda _, limit=limit: limit)

        def state(minute: int) -> str:
            if minute - self.last_success(minute) > HOLD_MINUTES:
                return "unknown"
            modes = {hold.mode for hold in self.at(target, self.last_success(minute))}
            return "exclusive" if "exclusive" in modes else "shared" if modes else "free"

        for name in ("free", "shared", "exclusive", "unknown"):
            add("lock_target_state", f',state="{name}"',
                lambda minute, name=name: float(state(minute) == name))  # fmt: skip
        add("lock_target_unreadable_locks", "", held(lambda _: 0))
        add("lock_target_hidden_holds", "", held(lambda _: 0))
        for mode in ("exclusive", "shared"):
            self.add_mode(target, mode, add, held)
        return found

    def add_mode(self, target: Target, mode: str, add, held) -> None:
        of_mode = f',mode="{mode}"'

        def holds(minute: int) -> list[Hold]:
            return [hold for hold in self.at(target, minute) if hold.mode == mode]

        def blocking(minute: int) -> list[Hold]:
            found = self.at(target, minute)
            return found if mode == "exclusive" else [h for h in found if h.mode == "exclusive"]

        def stale(minute: int) -> int:
            return sum(minute - hold.refreshed(minute) > 30 for hold in holds(minute))

        def of_first(value):
            """What is shown of the hold of these labels, if there is one."""
            return held(lambda minute: next(map(lambda h: value(h, minute), holds(minute)), None))

        add("lock_target_locks", of_mode + ',state="active"',
            held(lambda minute: len(holds(minute)) - stale(minute)))  # fmt: skip
        add("lock_target_locks", of_mode + ',state="stale"', held(stale))
        add("lock_target_holds", of_mode, held(lambda minute: len(holds(minute))))
        add("lock_target_blocked", of_mode, held(lambda minute: float(bool(blocking(minute)))))
        add("lock_target_blocked_since_timestamp_seconds", of_mode,
            held(lambda minute: 60 * min(h.start for h in blocking(minute))
                 if blocking(minute) else None))  # fmt: skip
        who = f',mode="{mode}",hostname="{target.name}",username="root",command=""'
        add("lock_hold_refreshed_timestamp_seconds", who,
            of_first(lambda hold, minute: 60 * hold.refreshed(minute)))  # fmt: skip
        # Without a state folder a restart forgets since when.
        add("lock_hold_since_timestamp_seconds", who,
            of_first(lambda hold, minute: 60 * self.since(hold, minute)))  # fmt: skip
        add("lock_hold_owner_gone", who, of_first(lambda _hold, _minute: 0))
        for pid in {hold.pid for hold in target.holds if hold.mode == mode}:
            add("lock_hold_info", f'{who},pid="{pid}"',
                of_first(lambda hold, _, pid=pid: 1 if hold.pid == pid else None))  # fmt: skip

    def since(self, hold: Hold, minute: int) -> int:
        again = self.events.upgrade[1]
        if hold.start < again <= minute:
            return hold.refreshed(again)
        return hold.start

    def series_of_host(self, target: Target) -> dict[str, Values]:
        """The exporter on a server about its own processes."""
        base = f'job="{JOB}",instance="{target.name}:1"'
        found = {
            f"up{{{base}}}": [1.0] * self.minutes,
            f'lock_process_watched{{{base},hostname="{target.name}"}}': [1.0] * self.minutes,
        }
        for hold in target.holds:
            ends = hold.end if hold.dead is None else hold.dead
            labels = f'{base},hostname="{target.name}",pid="{hold.pid}",command="restic"'
            found[f"lock_process_start_timestamp_seconds{{{labels}}}"] = [
                60.0 * hold.start if hold.start <= minute < ends else None
                for minute in range(self.minutes)
            ]
        return found

    @staticmethod
    def at(target: Target, minute: int) -> list[Hold]:
        return [hold for hold in target.holds if hold.start <= minute < hold.end]


def encode(values: Values) -> str:
    """The values in promtool's notation; a series that vanishes is marked stale, as by a scrape."""
    parts, index = [], 0
    while index < len(values):
        value = values[index]
        end = index + 1
        if value is None:
            while end < len(values) and values[end] is None:
                end += 1
            gap = end - index
            if index:
                parts.append("stale")
                gap -= 1
            if gap:
                parts.append(f"_x{gap}")
        else:
            step = 0.0
            if end < len(values) and values[end] is not None:
                step = values[end] - value
                while end < len(values) and values[end] == values[end - 1] + step:
                    end += 1
                    if end < len(values) and values[end] is None:
                        break
            count = end - index - 1
            parts.append(f"{value:.0f}{step:+.0f}x{count}" if count else f"{value:.0f}")
        index = end
    return " ".join(parts)
