"""Locks / Target: everything about one target, and how to unlock it without harm."""

from boards import locks
from boards.grafana import (
    COLORED_CELL,
    GREY,
    Board,
    Panel,
    Query,
    Row,
    Stat,
    Step,
    Table,
    Text,
    TimeSeries,
    Variable,
    column,
    merged,
    thresholds,
    words,
)
from boards.locks import (
    AWAY,
    EXPORTER,
    LINES,
    ONE,
    ROWS,
    SAME_LOOK,
    Scope,
    count_stat,
    runbook,
)

SCOPE = Scope(f'{EXPORTER}, target=~"$target", host=~"$host"', locks.SOURCE)
HOUR = 3600
# One line for each host where the same name is watched on several.
PER_TARGET = "(cluster, target, host)"


def value_stat(
    title: str,
    description: str,
    expr: str,
    steps: tuple[Step, ...],
    **how: object,
) -> Panel:
    return Stat(
        title,
        description + AWAY,
        (Query(expr, instant=True),),
        width=3,
        height=4,
        steps=steps,
        **how,
    )


def refused_for(mode: str) -> str:
    """Seconds; 0 where it would be granted, nothing where nobody knows."""
    more = f'mode="{mode}"'
    since = SCOPE.of("lock_target_blocked_since_timestamp_seconds", more)
    granted = f"{SCOPE.of('lock_target_blocked', more)} == 0"
    return f"max({SCOPE.one(f'(time() - {since}) or ({granted})')})"


STATS = (
    value_stat(
        "Locked now?",
        "What a new lock would meet. free: nothing. shared: another shared lock is granted. "
        "exclusive: nothing is granted. unknown: nobody can tell. The table below says who is to "
        "be asked.",
        f"max({SCOPE.state})",
        locks.STATE_STEPS,
        mappings=locks.STATE_WORDS,
    ),
    value_stat(
        "Backups refused?",
        "For how long: at every look since then a new shared lock would have been refused. See "
        "who holds it.",
        refused_for("shared"),
        (Step(None, GREY), Step(0, "green"), Step(1, "orange"), Step(4 * HOUR, "red")),
        unit=locks.DURATION,
        decimals=1,
        mappings=words((0, "not refused", "green")),
        links=(runbook("LockBlockedTooLong"),),
    ),
    value_stat(
        "Prune refused?",
        "For how long: at every look since then a new exclusive lock (prune, check) would have "
        "been refused. For a day it is too long: prune never gets its turn.",
        refused_for("exclusive"),
        (Step(None, GREY), Step(0, "green"), Step(1, "blue"), Step(24 * HOUR, "red")),
        unit=locks.DURATION,
        decimals=1,
        mappings=words((0, "not refused", "green")),
        links=(runbook("LockBlockedTooLong"),),
    ),
    value_stat(
        "Last good look?",
        "How long ago: all values here are of that moment; after 15 minutes they are dropped. If "
        "it is old, see the reason in the table of exporters below.",
        f"time() - min(max {ONE} ({SCOPE.of('lock_scan_last_success_timestamp_seconds')}))",
        locks.LOOK_STEPS,
        unit="s",
        links=(runbook("LockScanFailing"),),
    ),
    count_stat(
        "Files damaged?",
        "Nobody can decode them: restic refuses everything. Follow the runbook.",
        f"sum({SCOPE.one(SCOPE.of('lock_target_unreadable_locks'))})",
        SCOPE.known,
        alert="LockUnreadable",
        width=3,
    ),
    count_stat(
        "Files empty?",
        "Files of 0 bytes: no lock, they block nobody. restic unlock removes them.",
        f"sum({SCOPE.one(SCOPE.of('lock_target_empty_locks'))})",
        SCOPE.known,
        steps=locks.NORMAL,
        width=3,
    ),
    count_stat(
        "Holds not listed?",
        "More holds than have series of their own; the worst are listed. The exporter's page has "
        "them all.",
        f"sum({SCOPE.one(SCOPE.of('lock_target_hidden_holds'))})",
        SCOPE.known,
        steps=locks.NORMAL,
        alert="LockExporterHoldsHidden",
        width=3,
    ),
    value_stat(
        "Clocks apart?",
        "The lock's own time against the storage's. Over 5 minutes, set the holder's clock. Only "
        "while there is a lock to compare.",
        f"max(abs({SCOPE.within(SCOPE.of('lock_target_clock_skew_seconds'))}))",
        (Step(None, GREY), Step(0, "green"), Step(300, "orange")),
        unit="s",
        links=(runbook("LockClockSkew"),),
    ),
)

HOLDS = locks.holds(
    SCOPE,
    "Who holds it, since when, and what to do?",
    "Worst first. A holder that refreshes is alive, however long it holds: wait. Ages are those "
    "of the last look. See that the holder is dead before you unlock.",
    height=7,
)

WATCHED_BY = Table(
    "Where is it, and who watches it?",
    "One row for each exporter; two of them on one target are a pair. The link opens the "
    "exporter's own page, which names every lock file and why. Location: for restic -r. Key none: "
    "holders stay unknown.",
    (
        Query(f"topk({ROWS}, {SCOPE.info})", format="table"),
        Query(
            f"time() - ({SCOPE.of('lock_scan_last_success_timestamp_seconds')} "
            f"and {SAME_LOOK} topk({ROWS}, {SCOPE.info}))",
            format="table",
        ),
        Query(
            f"{SCOPE.of('lock_scan_error_info')} and {SAME_LOOK} topk({ROWS}, {SCOPE.info})",
            format="table",
        ),
    ),
    width=14,
    height=9,
    no_value="no exporter watches it",
    overrides=(
        column("instance", "exporter", links=[locks.TO_EXPORTER_PAGE], width=170),
        column("target", width=110),
        column("host", width=80),
        column("source", width=65),
        column("backend", width=80),
        column(
            "sealed",
            "key",
            width=60,
            mappings=list(
                words(("true", "none", GREY), ("false", "yes", "green"))
            ),
        ),
        column("reason", "failed by", width=100, mappings=list(words(empty="no"))),
        column(
            "Value #B",
            "read ago",
            unit="s",
            width=90,
            cell_options=COLORED_CELL,
            thresholds=thresholds(locks.LOOK_STEPS),
        ),
    ),
    transformations=merged(
        "cluster",
        "target",
        "host",
        "source",
        "backend",
        "location",
        "sealed",
        "instance",
        "Value #B",
        "reason",
        hidden=(*locks.NEVER_SHOWN, "Value #A", "Value #C", "pod", "container", "endpoint"),
    ),
    sort_by=(),
)

RECIPE = Text(
    "How do I unlock it without harm?",
    "Read before you act: unlocking a live repository damages it. This board changes nothing.",
    (),
    width=10,
    height=9,
    content=f"""1. **Is the holder dead?** Ask its host: `ps -o pid,lstart,stat,cmd -p PID`.
   No such process, or one that started after the last refresh: dead.
   State `T` or `D`: it is alive and waits, **do not unlock**.
2. **A stale lock:** `restic -r LOCATION unlock`. It sends a real SIGHUP to that PID where the host
   name is the lock's own: do it as the [runbook]({locks.RUNBOOKS}lockstuckexclusive.md) shows.
3. **A damaged file** stays after that: [runbook]({locks.RUNBOOKS}lockunreadable.md).
   `--remove-all` removes live locks, too: only when no restic works on it on any host.
4. **A lock file** (flock, fcntl) is let go with its process: end that if it is a leftover. Never
   delete the file: two jobs would run at once. [Runbook]({locks.RUNBOOKS}lockstuckfile.md)
""",
)


def lines(expr: str) -> str:
    return locks.worst(LINES, expr, f"on {PER_TARGET}")


def counted(metric: str, window: str, by: str) -> str:
    return f"sum by {by} (max {ONE} (increase({SCOPE.of(metric)}[{window}])))"


OVER_TIME = (
    locks.refreshes(SCOPE),
    TimeSeries(
        "Do the holders refresh?",
        "Refreshes in 5 minutes beside the number of holders: about one each is healthy. Fewer "
        "refreshes than holders for 30 minutes: one of them is dead.",
        (
            Query(
                f"{counted('lock_refreshes_total', '15m', '(cluster, job)')} / 3",
                "refreshes in 5 minutes {{cluster}}",
            ),
            Query(
                f"sum by (cluster, job) ({SCOPE.one(SCOPE.of('lock_target_holds'))})",
                "holders {{cluster}}",
            ),
        ),
        width=12,
        height=9,
        decimals=1,
        no_value="no exporter was there",
        minimum=0,
    ),
    TimeSeries(
        "How often is it locked?",
        "Holds that started and ended within an hour, by mode. Many short exclusive ones are a "
        "crash loop; holds shorter than the scan interval are not seen.",
        (
            Query(
                counted("lock_holds_started_total", "1h", "(mode)"), "{{mode}} started in an hour"
            ),
            Query(counted("lock_holds_ended_total", "1h", "(mode)"), "{{mode}} ended in an hour"),
        ),
        width=12,
        height=9,
        decimals=1,
        no_value="no exporter was there",
        minimum=0,
    ),
    locks.files(SCOPE),
    TimeSeries(
        "How long does a look take?",
        f"Duration of the last scan, the {LINES} slowest. Near the scan interval: scans are "
        "skipped; make the interval longer, or find out why the backend is slow.",
        (
            Query(
                lines(f"max by {PER_TARGET} ({SCOPE.of('lock_scan_duration_seconds')})"),
                "{{target}} {{host}} {{cluster}}",
            ),
        ),
        width=12,
        height=9,
        unit="s",
        decimals=2,
        no_value="no exporter was there",
        minimum=0,
    ),
    TimeSeries(
        "How many looks fail?",
        f"Share of scans that failed, the {LINES} worst. All of them: see the reason above. Some "
        "of them: the backend throttles or times out; a longer interval may help.",
        (
            Query(
                lines(
                    f"sum by {PER_TARGET} "
                    f"(rate({SCOPE.of('lock_scan_failures_total')}[$__rate_interval])) / "
                    f"sum by {PER_TARGET} "
                    f"(rate({SCOPE.of('lock_scans_total')}[$__rate_interval]))"
                ),
                "{{target}} {{host}} {{cluster}}",
            ),
        ),
        width=12,
        height=9,
        unit="percentunit",
        decimals=1,
        no_value="no exporter was there",
        minimum=0,
        maximum=1,
        links=(runbook("LockScanFailing"),),
    ),
)

BOARD = Board(
    uid="lock-exporter-target",
    title="Locks / Target",
    description="One target: who holds it, is the holder alive, what happened, and what to do.",
    variables=(
        *locks.FLEET_VARIABLES,
        *locks.SOURCE_VARIABLES,
        # Without All: this board is about one target, or a few to compare.
        Variable("target", f"lock_target_info{{{EXPORTER}, {locks.SOURCE}}}", all_value=""),
        # Only targets of one machine have a host.
        Variable("host", f'lock_target_info{{{EXPORTER}, target=~"$target"}}', ".*"),
    ),
    annotations=(
        *locks.lock_annotations(SCOPE, ', target=~"$target"'),
        locks.EXPORTER_ANNOTATIONS[0],
    ),
    links=(locks.TO_OVERVIEW, locks.RUNBOOKS_ON_TOP),
    content=(
        Row("Is it blocked now, by whom, and what is to be done?"),
        *STATS,
        HOLDS,
        WATCHED_BY,
        RECIPE,
        Row("Over time"),
        locks.timeline(SCOPE, height=6),
        *OVER_TIME,
    ),
)
