"""Locks / File locks: flock, fcntl, pid and existence files, by the machine they are on."""

from boards import locks
from boards.grafana import (
    COLORED_CELL,
    GREY,
    Board,
    Query,
    Row,
    Step,
    Table,
    TimeSeries,
    Variable,
    column,
    merged,
    thresholds,
    words,
)
from boards.locks import (
    EXPORTER,
    LINES,
    ONE,
    ROWS,
    SAME_LOOK,
    SAME_MODE,
    SAME_TARGET,
    Scope,
    count_stat,
)

FILES = 'source="file"'
SCOPE = Scope(f'{EXPORTER}, host=~"$host", target=~"$target"', FILES)

DAEMON = f"{SCOPE.of('lock_target_expected_held')} == 1"


def stats():
    free = SCOPE.of("lock_target_state", 'state="free"')
    capability = f"lock_exporter_capability{{{EXPORTER}}}"
    return (
        count_stat(
            "Requests waiting?",
            "Requests that the kernel holds back until a lock is let go. The table says who holds "
            "it. Programs that try again and again instead of waiting are not seen.",
            f"sum({SCOPE.one(SCOPE.of('lock_target_waiters'))})",
            SCOPE.known,
            steps=locks.CAUTION,
            alert="LockContended",
        ),
        count_stat(
            "Locks stuck?",
            "Held for the stuck limit while others wait, or the owner of a pid file is gone. "
            "Follow the runbook: end the holder, never delete the file.",
            f"count({SCOPE.one(f'({SCOPE.stuck}) or ({SCOPE.gone})')})",
            SCOPE.known,
            alert="LockStuckFile",
        ),
        count_stat(
            "Files replaced?",
            "Locks whose file was deleted or replaced under the holder: a second job gets a lock "
            "of the new file, and two run at once. Find out who replaces it.",
            f"sum({SCOPE.one(SCOPE.of('lock_target_orphaned_locks'))})",
            SCOPE.known,
            alert="LockOnReplacedFile",
        ),
        count_stat(
            "Daemons not holding?",
            "The lock of a service that should always hold it is free: the service is not "
            "running. Start it, or change the target's role.",
            f"count({SCOPE.one(f'({free} == 1) and {SAME_LOOK} ({DAEMON})')})",
            SCOPE.known,
            alert="LockDaemonNotHeld",
        ),
        count_stat(
            "Files unknown?",
            "The kernel cannot tell, as on a network file system, or the exporter may not look. "
            "What the other panels say does not count for them.",
            f"count({SCOPE.unknown})",
            f"count(max {ONE} ({SCOPE.info}))",
            steps=locks.CAUTION,
            alert="LockTargetUnobservable",
        ),
        count_stat(
            "Exporters half blind?",
            "They run in a container or without the rights to see all processes, so holders may "
            "be missing. The table at the end says which right; docs/file-locks.md how to give it.",
            f"count(min without (name) ({capability}) == 0)",
            f"count(min without (name) ({capability}))",
            steps=locks.CAUTION,
        ),
    )


HOLD_LIMIT = (
    f"{SCOPE.held} * 0 + {SAME_MODE} group_left () {SCOPE.of('lock_target_hold_limit_seconds')}"
)
WAITERS = f"{SCOPE.held} * 0 + {SAME_LOOK} group_left () {SCOPE.of('lock_target_waiters')}"

HOLDS = Table(
    "Who holds which file, since when, and does anybody wait?",
    f"The {ROWS} worst, worst first. A lock may be held for long by design: it is stuck only "
    "when somebody waits for it. End a holder that is a leftover; never delete the file.",
    (
        Query(SCOPE.verdict, format="table"),
        Query(SCOPE.of_listed_holds(SCOPE.held), format="table"),
        Query(SCOPE.of_listed_holds(HOLD_LIMIT), format="table"),
        Query(SCOPE.of_listed_holds(WAITERS), format="table"),
        Query(SCOPE.of_listed_holds(SCOPE.of("lock_hold_info")), format="table"),
    ),
    width=24,
    height=8,
    no_value="no lock file is held, or no exporter is there",
    overrides=(
        locks.TO_DO,
        column("Value #B", "held for", unit=locks.DURATION, decimals=1, width=110),
        column("Value #C", "limit", unit=locks.DURATION, width=110),
        column(
            "Value #D",
            "waiting",
            width=90,
            cell_options=COLORED_CELL,
            thresholds=thresholds((Step(None, "transparent"), Step(1, "orange"))),
        ),
        *locks.WHO,
    ),
    transformations=merged(
        "Value #A",
        "cluster",
        "host",
        "target",
        "mode",
        "command",
        "pid",
        "username",
        "Value #B",
        "Value #C",
        "Value #D",
        "location",
        hidden=(*locks.NEVER_SHOWN, "source", "hostname", "Value #E"),
    ),
    sort_by=("what to do", "held for"),
)

LISTED = f"topk({ROWS}, {SCOPE.state})"


def of_listed(metric: str) -> str:
    return f"max {ONE} ({SCOPE.of(metric)}) and {SAME_TARGET} {LISTED}"


WATCHED = Table(
    "Which lock files are watched?",
    f"At most {ROWS}, daemons that are away and held ones first. A job's lock is free between "
    "runs; a daemon's should always be held.",
    (
        Query(LISTED, format="table"),
        Query(of_listed("lock_target_expected_held"), format="table"),
        Query(of_listed("lock_target_orphaned_locks"), format="table"),
        Query(f"max {ONE} ({SCOPE.info}) and {SAME_TARGET} {LISTED}", format="table"),
    ),
    width=16,
    height=9,
    no_value="no lock file is watched, or no exporter is there",
    overrides=(
        column(
            "Value #A",
            "state",
            cell_options=COLORED_CELL,
            mappings=list(locks.STATE_WORDS),
            align="left",
            width=130,
        ),
        column(
            "Value #B",
            "role",
            width=90,
            mappings=list(words((0, "job", "text"), (1, "daemon", "text"))),
        ),
        column(
            "Value #C",
            "on replaced files",
            width=150,
            cell_options=COLORED_CELL,
            thresholds=thresholds((Step(None, "transparent"), Step(1, "red"))),
        ),
        column("host", width=120),
        column("target", links=[locks.TO_TARGET]),
    ),
    transformations=merged(
        "Value #A",
        "cluster",
        "host",
        "target",
        "Value #B",
        "Value #C",
        "location",
        hidden=(*locks.NEVER_SHOWN, "Value #D", "source", "backend", "sealed"),
    ),
    sort_by=("state",),
)

CAPABILITIES = Table(
    "What may each exporter see?",
    "no: holders, or whether an owner is alive, stay unknown on that machine. "
    "docs/file-locks.md says how to give each right.",
    (
        Query(
            f"bottomk({ROWS}, max without (pod, container, endpoint) "
            f"(lock_exporter_capability{{{EXPORTER}}}))",
            format="table",
        ),
    ),
    width=8,
    height=9,
    no_value="no exporter is there",
    overrides=(
        column("instance", "exporter", links=[locks.TO_EXPORTER_PAGE]),
        column("name", "may see"),
        column(
            "Value",
            "allowed",
            cell_options=COLORED_CELL,
            mappings=list(words((0, "no", "orange"), (1, "yes", "green"))),
            width=90,
        ),
    ),
    transformations=merged("cluster", "instance", "name", "Value", hidden=locks.NEVER_SHOWN),
)

BY_FILE = "(cluster, host, target)"
BY_HOLD = "(cluster, host, target, mode, command)"


def over_time():
    of_limit = (
        f"{SCOPE.held} / {SAME_MODE} group_left () {SCOPE.of('lock_target_hold_limit_seconds')}"
    )
    waiting = f"max by {BY_FILE} ({SCOPE.within(SCOPE.of('lock_target_waiters'))})"
    part = f"max by {BY_HOLD} ({SCOPE.within(of_limit)})"
    return (
        TimeSeries(
            "Who waits, and how long already?",
            f"Waiting requests for each file, the {LINES} worst. A line that does not fall: the "
            "holder does not let go. See who it is above.",
            (
                Query(
                    locks.worst(LINES, waiting, f"on {BY_FILE}"),
                    "{{host}} {{target}} {{cluster}}",
                ),
            ),
            width=12,
            height=9,
            no_value="no lock file is watched, or no exporter was there",
            minimum=0,
        ),
        TimeSeries(
            "How near to its limit is each hold?",
            f"Time held as a share of the hold limit, the {LINES} worst. Over 100 % the alert "
            "LockHeldTooLong fires: see whether the job hangs, or set its hold_limit.",
            (
                Query(
                    locks.worst(LINES, part, f"on {BY_HOLD}"),
                    "{{host}} {{target}} {{command}} {{mode}} {{cluster}}",
                ),
            ),
            width=12,
            height=9,
            unit="percentunit",
            no_value="no lock with a limit was held, or no exporter was there",
            steps=(Step(None, GREY), Step(0, "green"), Step(0.8, "yellow"), Step(1, "red")),
            threshold_lines=True,
            minimum=0,
            links=(locks.runbook("LockHeldTooLong"),),
        ),
    )


BOARD = Board(
    uid="lock-exporter-file-locks",
    title="Locks / File locks",
    description="Lock files of machines: who holds them, who waits, and is the file still there?",
    variables=(
        *locks.FLEET_VARIABLES,
        Variable("host", f"lock_target_info{{{EXPORTER}, {FILES}}}", ".*"),
        Variable("target", f'lock_target_info{{{EXPORTER}, {FILES}, host=~"$host"}}'),
    ),
    annotations=(*locks.lock_annotations(SCOPE), locks.EXPORTER_ANNOTATIONS[0]),
    links=(locks.TO_OVERVIEW, locks.RUNBOOKS_ON_TOP),
    content=(
        Row("Does anybody wait, and for whom?"),
        *stats(),
        HOLDS,
        Row("Over time"),
        locks.timeline(SCOPE, height=9),
        *over_time(),
        Row("What is watched"),
        WATCHED,
        CAPABILITIES,
    ),
)
