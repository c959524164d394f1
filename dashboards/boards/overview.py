"""Locks / Overview: what is blocked now, by whom, since when, and what cannot be seen."""

from build import (
    Annotation,
    BarGauge,
    Board,
    Panel,
    Query,
    Row,
    Stat,
    StateTimeline,
    Step,
    Table,
    TimeSeries,
    Variable,
)

EXPORTER = 'job=~"$job", instance=~"$instance"'
SELECTED = f'{EXPORTER}, target=~"$target"'
# Two exporters that watch one target are one answer; two hosts or clusters stay apart.
ONE = "without (instance, pod, container, endpoint)"
SAME_TARGET = "on (cluster, namespace, job, target, host)"
SAME_MODE = "on (cluster, namespace, job, target, host, mode)"

RUNBOOKS = "https://github.com/lock-exporter/lock_exporter/blob/main/docs/runbooks/"

# Values of the state, with a colour and a word: colour is never the only signal.
STATES = (("free", "green"), ("shared", "blue"), ("exclusive", "orange"), ("unknown", "purple"))
STATE_NAMES = {
    "type": "value",
    "options": {
        str(value): {"color": color, "index": value, "text": name}
        for value, (name, color) in enumerate(STATES)
    },
}

# restic refreshes every 5 minutes, gives up after 22.5 and calls a lock stale after 30.
AGE_STEPS = (
    Step(None, "green"),
    Step(420, "yellow"),
    Step(1350, "orange"),
    Step(1800, "red"),
)
NONE_IS_GOOD = (Step(None, "green"), Step(1, "red"))


def runbook(alert: str) -> dict:
    return {
        "title": f"Runbook {alert}",
        "url": f"{RUNBOOKS}{alert.lower()}.md",
        "targetBlank": True,
    }


def count_stat(title: str, description: str, expr: str, alert: str) -> Panel:
    return Stat(
        title,
        description,
        (Query(f"{expr} or vector(0)", instant=True),),
        width=4,
        height=4,
        steps=NONE_IS_GOOD,
        no_value="0",
        links=(runbook(alert),),
    )


def blocked(mode: str) -> str:
    return f'count(max {ONE} (lock_target_blocked{{{SELECTED}, mode="{mode}"}}) == 1)'


REFRESHED_AGO = f"max {ONE} (time() - lock_hold_refreshed_timestamp_seconds{{{SELECTED}}})"
HELD_FOR = f"max {ONE} (time() - lock_hold_since_timestamp_seconds{{{SELECTED}}})"
STUCK_LIMIT = f"max {ONE} (lock_target_stuck_limit_seconds{{{SELECTED}}})"
LIMIT_OF_HOLD = f"{REFRESHED_AGO} * 0 + {SAME_MODE} group_left () {STUCK_LIMIT}"
PID = f"max {ONE} (lock_hold_info{{{SELECTED}}})"
STUCK = f"count({REFRESHED_AGO} > {SAME_MODE} group_left () {STUCK_LIMIT})"
FAILING = f"max {ONE} (lock_scan_success{{{SELECTED}}}) == 0"
STATE = " or ".join(
    f'lock_target_state{{{SELECTED}, state="{name}"}} * {value}'
    for value, (name, _) in enumerate(STATES)
)


def named(field: str, name: str, **properties: object) -> dict:
    """How one column of a table is shown."""
    shown = [{"id": "displayName", "value": name}]
    shown += [{"id": key, "value": value} for key, value in properties.items()]
    return {"matcher": {"id": "byName", "options": field}, "properties": shown}


COLORED = {"type": "color-background", "mode": "basic"}
HIDDEN_COLUMNS = ("Time", "job", "cluster", "namespace", "service", "__name__")


def columns(*order: str, hidden: tuple[str, ...] = ()) -> tuple[dict, ...]:
    """Joins the queries of a table row by row and puts the columns in order."""
    return (
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {
                "excludeByName": {name: True for name in (*HIDDEN_COLUMNS, *hidden)},
                "indexByName": {name: index for index, name in enumerate(order)},
                "renameByName": {},
            },
        },
    )


STATS = (
    count_stat(
        "How many targets refuse backups?",
        "An exclusive or an unreadable lock is there, so that not even a shared lock is granted. "
        "Look below who holds it.",
        blocked("shared"),
        "LockStuckExclusive",
    ),
    count_stat(
        "How many targets refuse prune and check?",
        "Some lock is there, so that no exclusive lock is granted. Normal while a backup runs; "
        "for a whole day it is not.",
        blocked("exclusive"),
        "LockBlockedTooLong",
    ),
    count_stat(
        "How many locks are stuck?",
        "Not refreshed for longer than the target's stuck limit (30 minutes): the holder is most "
        "likely dead. Follow the runbook before you unlock.",
        STUCK,
        "LockStuckExclusive",
    ),
    count_stat(
        "How many lock files are damaged?",
        "Nobody can decode them, so restic refuses everything, and plain unlock leaves them.",
        f"sum(max {ONE} (lock_target_unreadable_locks{{{SELECTED}}}))",
        "LockUnreadable",
    ),
    count_stat(
        "How many targets cannot be read?",
        "Their last scan failed. Values stay for 15 minutes, then these targets are unknown.",
        f"count({FAILING})",
        "LockScanFailing",
    ),
    count_stat(
        "How many exporters are blind?",
        "Prometheus cannot scrape them: nobody watches their targets.",
        f"count(up{{{EXPORTER}}} == 0)",
        "LockExporterDown",
    ),
)

HOLDS = Table(
    "Who holds what, since when?",
    "Oldest refresh first. A holder that refreshes is alive, however long it holds. Red: ask its "
    "host for the PID before you unlock.",
    (
        Query(REFRESHED_AGO, table=True),
        Query(HELD_FOR, table=True),
        Query(LIMIT_OF_HOLD, table=True),
        Query(PID, table=True),
    ),
    width=24,
    height=9,
    unit="dtdurations",
    no_value="no locks held",
    overrides=(
        named(
            "Value #A",
            "refreshed ago",
            **{
                "custom.cellOptions": COLORED,
                "thresholds": {"mode": "absolute", "steps": [step.json() for step in AGE_STEPS]},
            },
        ),
        named("Value #B", "held for"),
        named("Value #C", "stuck after"),
        named("hostname", "holder"),
        named("username", "user"),
    ),
    transformations=columns(
        "target",
        "host",
        "mode",
        "hostname",
        "username",
        "command",
        "pid",
        "Value #A",
        "Value #B",
        "Value #C",
        hidden=("Value #D",),
    ),
    sort_by="refreshed ago",
)

TIMELINE = StateTimeline(
    "When was what locked?",
    "The state that a new lock would have met. Unknown: nobody could tell. Many short exclusive "
    "stretches in a row are a crash loop.",
    (
        Query(
            f"max without (instance, pod, container, endpoint, state) ({STATE})",
            "{{target}} {{host}}",
        ),
    ),
    width=24,
    height=10,
    no_value="no targets",
    mappings=(STATE_NAMES,),
    steps=tuple(
        Step(None if value == 0 else value, color) for value, (_, color) in enumerate(STATES)
    ),
)

REFRESHES = TimeSeries(
    "Is a refresh missing?",
    "Time since the oldest hold was refreshed: a saw that falls to zero every 5 minutes is fine; "
    "past 22.5 minutes restic gives up by itself, past 30 the lock is stale.",
    (
        Query(
            "max by (target, host, mode) "
            f"(time() - lock_hold_refreshed_timestamp_seconds{{{SELECTED}}})",
            "{{target}} {{host}} {{mode}}",
        ),
    ),
    width=12,
    height=9,
    unit="s",
    no_value="no locks held",
    steps=AGE_STEPS,
    threshold_lines=True,
)

FILES = TimeSeries(
    "Are locks piling up?",
    "All lock files by mode and state. Stale ones that only grow: the right to delete is missing, "
    "or jobs die.",
    (
        Query(
            f"sum by (mode, state) (max {ONE} (lock_target_locks{{{SELECTED}}}))",
            "{{mode}} {{state}}",
        ),
    ),
    width=12,
    height=9,
    no_value="no values",
    stacked=True,
)

MOST_LOCKED = BarGauge(
    "What was locked exclusively most of this day?",
    "Share of the last day in which not even a backup could start. Spread the jobs if it is high.",
    # The recorded series has no instance: it joins the exporters of a pair.
    (
        Query(
            'topk(15, target:lock_target_exclusive:avg1d{job=~"$job", target=~"$target"})',
            "{{target}} {{host}}",
            instant=True,
        ),
    ),
    width=12,
    height=9,
    unit="percentunit",
    decimals=1,
    no_value="the recording rules are not loaded",
    steps=(Step(None, "green"), Step(0.25, "yellow"), Step(0.5, "red")),
)

UNREAD = Table(
    "Which targets cannot be read, and why?",
    "The reason is that of the last scan. The log of the exporter has the whole message and the "
    "next step.",
    (
        Query(f"max {ONE} (lock_scan_error_info{{{SELECTED}}})", table=True),
        Query(
            f"(time() - max {ONE} (lock_scan_last_success_timestamp_seconds{{{SELECTED}}})) "
            f"and {SAME_TARGET} ({FAILING})",
            table=True,
        ),
    ),
    width=12,
    height=9,
    unit="dtdurations",
    no_value="all targets can be read",
    links=(runbook("LockScanFailing"),),
    overrides=(named("Value #B", "last read"),),
    transformations=columns("target", "host", "reason", "Value #B", hidden=("Value #A",)),
    sort_by="last read",
)

BOARD = Board(
    uid="lock-exporter-overview",
    title="Locks / Overview",
    description="What is locked, by whom and since when, is it alive, and what is blocked by it.",
    variables=(
        Variable("job", "Job", "label_values(lock_exporter_build_info, job)"),
        Variable(
            "instance", "Instance", 'label_values(lock_exporter_build_info{job=~"$job"}, instance)'
        ),
        Variable("source", "Source", 'label_values(lock_target_info{job=~"$job"}, source)'),
        Variable(
            "target",
            "Target",
            f'label_values(lock_target_info{{{EXPORTER}, source=~"$source"}}, target)',
        ),
    ),
    annotations=(
        Annotation(
            "Alerts",
            'ALERTS{alertname=~"Lock.*", alertstate="firing", job=~"$job"}',
            "red",
            "{{alertname}}",
            "{{target}} {{host}}",
        ),
        Annotation(
            "Exporter restarts",
            f"changes(process_start_time_seconds{{{EXPORTER}}}[$__rate_interval]) > 0",
            "blue",
            "Exporter restarted",
            "{{instance}}",
        ),
        Annotation(
            "Configuration reloads",
            f"changes(lock_exporter_config_last_reload_success_timestamp_seconds{{{EXPORTER}}}"
            "[$__rate_interval]) > 0",
            "purple",
            "Configuration reloaded",
            "{{instance}}",
        ),
    ),
    content=(
        Row("Now"),
        *STATS,
        HOLDS,
        Row("Over time"),
        TIMELINE,
        REFRESHES,
        FILES,
        Row("Long view and blind spots"),
        MOST_LOCKED,
        UNREAD,
    ),
)
