"""Locks / Overview: is anything blocked now, by whom, since when, and what is to be done."""

from boards import locks
from boards.grafana import (
    COLORED_CELL,
    GREY,
    BarGauge,
    Board,
    Query,
    Row,
    Step,
    Table,
    Variable,
    column,
    merged,
    words,
)
from boards.locks import EXPORTER, ONE, ROWS, SAME_TARGET, Scope, count_stat, runbook

SCOPE = Scope(f'{EXPORTER}, target=~"$target"', locks.SOURCE)

STATS = (
    count_stat(
        "Backups refused?",
        "Number of targets where an exclusive or a damaged lock is there, so that not even a "
        "shared lock is granted. The table below says who holds it and what to do.",
        f"count({SCOPE.blocked('shared')} == 1)",
        f"count({SCOPE.blocked('shared')})",
        steps=locks.CAUTION,
        alert="LockStuckExclusive",
    ),
    count_stat(
        "Prune, check refused?",
        "Number of targets where some lock is there, so that no exclusive lock is granted. Normal"
        " while a backup runs; for a whole day it is not.",
        f"count({SCOPE.blocked('exclusive')} == 1)",
        f"count({SCOPE.blocked('exclusive')})",
        steps=locks.NORMAL,
        alert="LockBlockedTooLong",
    ),
    count_stat(
        "Locks stuck?",
        "Not refreshed for the target's stuck limit (30 minutes), owner gone, or held that long "
        "while others wait. Follow the runbook before you unlock.",
        f"count({SCOPE.one(f'({SCOPE.stuck}) or ({SCOPE.gone})')})",
        SCOPE.known,
        alert="LockStuckExclusive",
    ),
    count_stat(
        "Files damaged?",
        "Nobody can decode them, so restic refuses everything, and plain unlock leaves them. "
        "Follow the runbook.",
        f"sum({SCOPE.one(SCOPE.of('lock_target_unreadable_locks'))})",
        SCOPE.known,
        alert="LockUnreadable",
    ),
    count_stat(
        "Targets unknown?",
        "Nobody can read them, or tell their state: what the other panels say does not count for "
        "them. The table at the end says why.",
        f"count({SCOPE.unknown})",
        f"count(max {ONE} ({SCOPE.info}))",
        steps=locks.CAUTION,
        alert="LockScanFailing",
    ),
    locks.away(),
)

HOLDS = locks.holds(
    SCOPE,
    "Who blocks what, since when, and what to do?",
    f"The {ROWS} worst, worst first. Every holder here blocks prune and check, an exclusive one "
    "everything. A holder that refreshes is alive, however long it holds: wait. Ages are those of "
    "the last look. Choose a target to see its history; see that the holder is dead before you "
    "unlock.",
    height=9,
)

MOST_LOCKED = BarGauge(
    "What was locked exclusively most of the day?",
    "Share of the last day in which not even a backup could start. Spread the jobs if it is high. "
    "No data: the recording rules of alerts/rules.yml are not loaded.",
    # The recorded series has no instance: it joins the exporters of a pair.
    (
        Query(
            "topk(15, target:lock_target_exclusive:avg1d"
            '{cluster=~"$cluster", job=~"$job", target=~"$target"} '
            f"and {SAME_TARGET} {SCOPE.info})",
            "{{target}} {{host}} {{cluster}}",
            instant=True,
        ),
    ),
    width=12,
    height=9,
    unit="percentunit",
    decimals=1,
    no_value="no exporter, or the recording rules are not loaded",
    steps=(Step(None, GREY), Step(0, "green"), Step(0.25, "yellow"), Step(0.5, "red")),
    minimum=0,
    maximum=1,
)

FIRING = 'alertname=~"Lock.*", alertstate="firing", cluster=~"$cluster", job=~"$job"'
# The worst first: thousands of tickets must not push a page off the list.
RANKED = " or ".join(
    (
        f'ALERTS{{{FIRING}, severity="critical"}} * 3',
        f'ALERTS{{{FIRING}, severity="warning"}} * 2',
        f"ALERTS{{{FIRING}}}",
    )
)
ALERTS = Table(
    "Which alerts fire?",
    f"At most {ROWS}, the worst first. Each has a runbook: what it means, how to look, what to do. "
    "Empty without the rules of alerts/rules.yml.",
    (
        Query(
            f"topk({ROWS}, max by (cluster, alertname, severity, target, host, mode) ({RANKED}))",
            format="table",
        ),
    ),
    width=12,
    height=9,
    no_value="no alert fires, or the rules are not loaded",
    overrides=(
        column(
            "severity",
            cell_options=COLORED_CELL,
            mappings=list(
                words(
                    ("critical", "critical", "red"),
                    ("warning", "warning", "orange"),
                    ("info", "info", "blue"),
                )
            ),
            width=100,
        ),
        column("alertname", "alert", links=[locks.RUNBOOK_INDEX]),
        column("target", links=[locks.TO_TARGET]),
    ),
    transformations=merged(
        "severity",
        "alertname",
        "cluster",
        "target",
        "host",
        "mode",
        hidden=(*locks.NEVER_SHOWN, "Value"),
    ),
    sort_by=(),
)

WHY_UNKNOWN = f"max {ONE} ({SCOPE.within(SCOPE.of('lock_scan_error_info'))})"
READ_AGO = f"time() - max {ONE} ({SCOPE.of('lock_scan_last_success_timestamp_seconds')})"
UNREAD = Table(
    "Which targets are unknown, and why?",
    f"At most {ROWS}. The reason is that of the last scan; the exporter's log has the whole "
    "message and the next step. No reason: scans succeed and cannot tell, as where the key is "
    "missing.",
    (
        Query(f"topk({ROWS}, {SCOPE.unknown}) * 0", format="table"),
        Query(f"({WHY_UNKNOWN}) and {SAME_TARGET} topk({ROWS}, {SCOPE.unknown})", format="table"),
        Query(f"({READ_AGO}) and {SAME_TARGET} topk({ROWS}, {SCOPE.unknown})", format="table"),
    ),
    width=12,
    height=9,
    no_value="every target is known, or no exporter is there",
    links=(runbook("LockScanFailing"),),
    overrides=(
        column("target", links=[locks.TO_TARGET]),
        column("reason", mappings=list(words(empty="read, cannot tell"))),
        column("Value #C", "read ago", unit=locks.DURATION, decimals=1),
    ),
    transformations=merged(
        "cluster",
        "target",
        "host",
        "reason",
        "Value #C",
        hidden=(*locks.NEVER_SHOWN, "Value #A", "Value #B"),
    ),
    sort_by=("read ago",),
)

BOARD = Board(
    uid="lock-exporter-overview",
    title="Locks / Overview",
    description="Is anything blocked now, by whom, since when, and what is to be done?",
    variables=(
        *locks.FLEET_VARIABLES,
        *locks.SOURCE_VARIABLES,
        Variable("target", f"lock_target_info{{{EXPORTER}, {locks.SOURCE}}}"),
    ),
    annotations=(*locks.lock_annotations(SCOPE), locks.EXPORTER_ANNOTATIONS[0]),
    links=(locks.RUNBOOKS_ON_TOP,),
    content=(
        Row("Is anything blocked now, by whom, and what is to be done?"),
        *STATS,
        HOLDS,
        Row("Over time"),
        locks.timeline(SCOPE, height=10),
        locks.refreshes(SCOPE),
        locks.files(SCOPE),
        Row("Alerts, long view and blind spots"),
        ALERTS,
        UNREAD,
        MOST_LOCKED,
        locks.scans_failing(SCOPE),
    ),
)
