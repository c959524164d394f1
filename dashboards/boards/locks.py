"""What the boards say about locks: selectors, expressions and the panels that several boards have.

Knows the metrics; knows nothing of how Grafana writes a panel down. Ages are those of the last
successful look, so that no lock grows old on a board while nobody can see it.
"""

from dataclasses import dataclass

from boards.grafana import (
    COLORED_CELL,
    GREY,
    Annotation,
    Json,
    Panel,
    Query,
    Stat,
    StateTimeline,
    Step,
    Table,
    TimeSeries,
    Variable,
    column,
    link,
    merged,
    thresholds,
    words,
)

# No cluster label: `.*` of the variable matches that, too.
EXPORTER = 'cluster=~"$cluster", job=~"$job", instance=~"$instance"'
# Two exporters that watch one target are one answer; two hosts or clusters stay apart.
ONE = "without (instance, pod, container, endpoint)"
ONE_STATE = "without (instance, pod, container, endpoint, state)"
# What two series of one scrape share.
SAME_SCRAPE = "on (cluster, namespace, job, instance)"
SAME_LOOK = "on (cluster, namespace, job, instance, target, host)"
SAME_MODE = "on (cluster, namespace, job, instance, target, host, mode)"
# The same without the exporter.
TARGET = "(cluster, namespace, job, target, host)"
SAME_TARGET = f"on {TARGET}"
SAME_HOLD = "on (cluster, namespace, job, target, host, mode, hostname, username, command)"

REPOSITORY = "https://github.com/lock-exporter/lock_exporter/blob/main/"
RUNBOOKS = f"{REPOSITORY}docs/runbooks/"
RUNBOOK_INDEX = link("Runbooks", f"{RUNBOOKS}README.md")

# restic refreshes every 5 minutes, gives up after 22.5 and calls a lock stale after 30.
OVERDUE, DOOMED, STALE = 420, 1350, 1800
AGE_STEPS = (
    Step(None, GREY),
    Step(0, "green"),
    Step(OVERDUE, "yellow"),
    Step(DOOMED, "orange"),
    Step(STALE, "red"),
)
# Later than an idle interval of five minutes, and the latest that values are shown.
LOOK_STEPS = (Step(None, GREY), Step(0, "green"), Step(360, "yellow"), Step(900, "red"))

# The longest lists: a table of 5,000 locks helps nobody, and a browser draws no 5,000 lines.
ROWS, LINES = 100, 15
TIMELINES = 30

MODES = ("shared", "exclusive")
# What a new lock would meet. Unknown is the lowest: of two exporters, one that knows is enough.
STATES = (
    (0, "unknown", GREY),
    (1, "free", "green"),
    (2, "shared", "blue"),
    (3, "exclusive", "orange"),
)
# A daemon's lock is meant to be held: what is good of a job's is bad of it, and its numbers run the
# other way, so that the highest is worst.
DAEMON = 8
DAEMON_STATES = (
    (DAEMON - 3, "daemon holds", "green"),
    (DAEMON - 2, "daemon holds", "green"),
    (DAEMON - 1, "daemon away", "red"),
    (DAEMON, "unknown", GREY),
)
ALL_STATES = (*STATES, *DAEMON_STATES)
STATE_WORDS = words(*ALL_STATES)
STATE_STEPS = (Step(None, GREY), *(Step(value, color) for value, _, color in ALL_STATES))

# What is to be thought of a hold, worst last, and what to do: colour is never the only signal.
HELD, FRESH, LATE, LOST, STUCK, GONE, DAMAGED = range(7)
VERDICT_WORDS = words(
    (HELD, "held: wait", "blue"),
    (FRESH, "alive: wait", "green"),
    (LATE, "refresh overdue: look again", "yellow"),
    (LOST, "doomed: ask its host", "orange"),
    (STUCK, "stuck: ask its host, runbook", "red"),
    (GONE, "owner gone: runbook", "red"),
    (DAMAGED, "damaged file: runbook", "dark-red"),
)


def runbook(alert: str) -> Json:
    return link(f"Runbook {alert}", f"{RUNBOOKS}{alert.lower()}.md")


def labelled(expr: str, **labels: str) -> str:
    for name, value in labels.items():
        expr = f'label_replace({expr}, "{name}", "{value}", "", "")'
    return expr


def worst(limit: int, expr: str, same: str, chosen: str = "") -> str:
    """Those series of a graph that were highest at any time of its range.

    `chosen` is `expr` of the chosen targets, where telling these is dear: it is evaluated once for
    the whole graph, and `expr` at each point.
    """
    highest = f"max_over_time(({chosen or expr})[$__range:$__interval] @ end())"
    return f"{expr} and {same} topk({limit}, {highest})"


@dataclass(frozen=True)
class Scope:
    """Which targets a board speaks of."""

    # Matchers that all series of a target can have.
    matchers: str
    # Further matchers, of labels that only lock_target_info has.
    info_matchers: str

    def of(self, metric: str, more: str = "") -> str:
        return f"{metric}{{{self.matchers}{', ' if more else ''}{more}}}"

    @property
    def info(self) -> str:
        return self.of("lock_target_info", self.info_matchers)

    def within(self, expr: str, same: str = SAME_LOOK) -> str:
        """Only targets of the sources and backends that are chosen."""
        return f"({expr}) and {same} {self.info}"

    def one(self, expr: str, reduce: str = "max") -> str:
        """One answer for each target, however many exporters watch it."""
        return f"{reduce} {ONE} ({self.within(expr)})"

    # ---- holds, as each exporter saw them at its last look ----

    def since_look(self, metric: str) -> str:
        looked = self.of("lock_scan_last_success_timestamp_seconds")
        return f"clamp_min({looked} - {SAME_LOOK} group_right () {self.of(metric)}, 0)"

    @property
    def age(self) -> str:
        return self.since_look("lock_hold_refreshed_timestamp_seconds")

    @property
    def held(self) -> str:
        return self.since_look("lock_hold_since_timestamp_seconds")

    def over(self, expr: str, limit: str) -> str:
        return f"{expr} > {SAME_MODE} group_left () {self.of(limit)}"

    @property
    def stuck(self) -> str:
        """Not refreshed for too long, or held too long while others wait for it."""
        limit = "lock_target_stuck_limit_seconds"
        waited_for = f"{self.of('lock_target_waiters')} > 0"
        return (
            f"({self.over(self.age, limit)}) "
            f"or (({self.over(self.held, limit)}) and {SAME_LOOK} ({waited_for}))"
        )

    @property
    def gone(self) -> str:
        return f"{self.of('lock_hold_owner_gone')} == 1"

    @property
    def verdict(self) -> str:
        """One number for each hold and for the damaged files of each target, with its place."""
        judged = " or ".join(
            (
                f"({self.of('lock_target_unreadable_locks')} > 0) * 0 + {DAMAGED}",
                f"({self.gone}) * {GONE}",
                f"({self.stuck}) * 0 + {STUCK}",
                f"({self.age} > {DOOMED}) * 0 + {LOST}",
                f"({self.age} > {OVERDUE}) * 0 + {LATE}",
                f"{self.age} * 0 + {FRESH}",
                f"{self.held} * {HELD}",
            )
        )
        place = f"{SAME_LOOK} group_left (source, location) {self.info}"
        return f"topk({ROWS}, max {ONE} (({judged}) * {place}))"

    def of_listed_holds(self, expr: str) -> str:
        """A further column of the table whose first one is `verdict`."""
        return f"max {ONE} ({expr}) and {SAME_HOLD} {self.verdict}"

    # ---- targets ----

    @property
    def known(self) -> str:
        """How many targets anything is known of. Times 0 it is a zero that is known to be one."""
        return f"count({self.one(self.of('lock_target_locks'))})"

    def blocked(self, mode: str) -> str:
        """1 = refused now. A daemon's lock is meant to be held."""
        mode_blocked = self.of("lock_target_blocked", f'mode="{mode}"')
        return self.one(f"{mode_blocked} unless {SAME_LOOK} ({self.daemon})")

    @property
    def daemon(self) -> str:
        """Targets whose lock should always be held."""
        return f"{self.of('lock_target_expected_held')} == 1"

    def state_of(self, chosen: str = "") -> str:
        """The number of each target's state, of all targets or of those in `chosen`.

        What is not 1 and not chosen is left out first: each point of a graph costs less then.
        """
        is_in = f"{self.of('lock_target_state')} == 1"
        if chosen:
            is_in = f"({is_in}) and {SAME_TARGET} {chosen}"
        numbers = " or ".join(
            labelled(f"vector({value})", state=name) for value, name, _ in STATES
        )
        state = f"max {ONE_STATE} (({is_in}) * on (state) group_left () ({numbers}))"
        role = f"{self.of('lock_target_expected_held')} * {DAEMON} or {self.info} * 0"
        return f"abs({state} - {SAME_TARGET} max by {TARGET} ({role}))"

    @property
    def state(self) -> str:
        return self.within(self.state_of(), SAME_TARGET)

    @property
    def unknown(self) -> str:
        """Targets that nobody can read, or nobody can tell the state of."""
        failing = f"max {ONE} ({self.of('lock_scan_success')}) == 0"
        state = self.of("lock_target_state", 'state="unknown"')
        unknown = f"min {ONE_STATE} ({state}) == 1"
        return self.within(f"({failing}) or ({unknown})", SAME_TARGET)


# ---- variables -----------------------------------------------------------------------------------

FLEET_VARIABLES = (
    Variable("cluster", "lock_exporter_build_info", ".*"),
    Variable("job", 'lock_exporter_build_info{cluster=~"$cluster"}'),
    Variable("instance", 'lock_exporter_build_info{cluster=~"$cluster", job=~"$job"}'),
)
SOURCE_VARIABLES = (
    Variable("source", f"lock_target_info{{{EXPORTER}}}"),
    # Lock files have no backend.
    Variable("backend", f'lock_target_info{{{EXPORTER}, source=~"$source"}}', ".*"),
)
SOURCE = 'source=~"$source", backend=~"$backend"'


# ---- links ---------------------------------------------------------------------------------------

# Percent-encoded: whoever may create folders in a backend chooses the names of found targets.
NAMED = "${__data.fields.target:percentencode}"
TO_TARGET = link(
    "Everything about this target",
    "/d/lock-exporter-target?${datasource:queryparam}&${cluster:queryparam}&${job:queryparam}"
    f"&${{__url_time_range}}&var-target={NAMED}",
    new_tab=False,
)
TO_OVERVIEW = {
    "icon": "dashboard",
    "keepTime": True,
    "title": "Overview",
    "tooltip": "Back to all targets",
    "url": "/d/lock-exporter-overview?${datasource:queryparam}&${cluster:queryparam}"
    "&${job:queryparam}",
}
RUNBOOKS_ON_TOP = {
    "icon": "doc",
    "targetBlank": True,
    "title": "Runbooks",
    "tooltip": "One page for each alert: what it means, how to look, what to do",
    "url": RUNBOOK_INDEX["url"],
}
TO_EXPORTER_PAGE = link("The exporter's own page", "http://${__data.fields.instance}/")


# ---- panels --------------------------------------------------------------------------------------

ALARM = (Step(None, GREY), Step(0, "green"), Step(1, "red"))
CAUTION = (Step(None, GREY), Step(0, "green"), Step(1, "orange"))
NORMAL = (Step(None, GREY), Step(0, "green"), Step(1, "blue"))

AWAY = " No data: the exporter is away, or nothing is chosen."


def count_stat(
    title: str,
    description: str,
    counted: str,
    zero: str,
    steps: tuple[Step, ...] = ALARM,
    alert: str = "",
    width: int = 4,
) -> Panel:
    """How many. `zero` is there only where somebody looked: nothing known is no zero."""
    return Stat(
        title,
        description + AWAY,
        (Query(f"{counted} or {zero} * 0", instant=True),),
        width=width,
        height=4,
        steps=steps,
        no_value="no data",
        links=(runbook(alert),) if alert else (),
    )


# Short in a cell: 1.6 hours. The unit dtdurations writes "1 hour, 34 minutes" there, cut off.
DURATION = "s"
NEVER_SHOWN = ("Time", "job", "namespace", "service", "__name__")
UNNAMED = words(empty="not known")
WHO = (
    column("target", links=[TO_TARGET], width=130),
    column("cluster", width=100),
    column("host", width=90),
    column("mode", width=85),
    column("hostname", "holder", mappings=list(UNNAMED), width=130),
    column("username", "user", width=80),
    column("command", width=130),
    column("pid", "PID", width=70),
)
TO_DO = column(
    "Value #A",
    "what to do",
    cell_options=COLORED_CELL,
    mappings=list(VERDICT_WORDS),
    links=[RUNBOOK_INDEX],
    align="left",
    width=220,
)


def holds(scope: Scope, title: str, description: str, height: int) -> Panel:
    """Who holds what, one row for each hold; damaged files have rows of their own."""
    limit = f"{scope.age} * 0 + {SAME_MODE} group_left () "
    return Table(
        title,
        description,
        (
            Query(scope.verdict, format="table"),
            Query(scope.of_listed_holds(scope.held), format="table"),
            Query(scope.of_listed_holds(scope.age), format="table"),
            Query(
                scope.of_listed_holds(limit + scope.of("lock_target_stuck_limit_seconds")),
                format="table",
            ),
            Query(scope.of_listed_holds(scope.of("lock_hold_info")), format="table"),
        ),
        width=24,
        height=height,
        no_value="no lock is held, or no exporter is there",
        overrides=(
            TO_DO,
            column("Value #B", "held for", unit=DURATION, decimals=1, width=100),
            column(
                "Value #C",
                "refreshed ago",
                unit=DURATION,
                decimals=1,
                width=120,
                cell_options=COLORED_CELL,
                # A lock of the kernel has no refresh.
                thresholds=thresholds((Step(None, "transparent"), *AGE_STEPS[1:])),
            ),
            column("Value #D", "stuck after", unit=DURATION, width=100),
            *WHO,
        ),
        transformations=merged(
            "Value #A",
            "cluster",
            "target",
            "host",
            "mode",
            "hostname",
            "username",
            "command",
            "pid",
            "Value #B",
            "Value #C",
            "Value #D",
            "location",
            hidden=(*NEVER_SHOWN, "source", "Value #E"),
        ),
        sort_by=("what to do", "held for"),
    )


def timeline(scope: Scope, height: int) -> Panel:
    free = scope.of("lock_target_state", 'state="free"')
    daemon = f"{SAME_LOOK} ({scope.daemon})"
    bad = f"((1 - {free}) unless {daemon}) or ({free} and {daemon})"
    busy = f"avg_over_time(({bad})[$__range:$__interval] @ end())"
    return StateTimeline(
        "When was what locked?",
        f"What a new lock would have met: the {TIMELINES} targets that were locked or unknown, or "
        "away if a daemon should hold them, longest. Many short exclusive stretches in a row are a "
        "crash loop. A gap: no exporter.",
        (
            Query(
                scope.state_of(f"topk({TIMELINES}, {scope.one(busy)})"),
                "{{target}} {{host}} {{cluster}}",
            ),
        ),
        width=24,
        height=height,
        no_value="no exporter was there",
        mappings=STATE_WORDS,
        steps=STATE_STEPS,
    )


def refreshes(scope: Scope) -> Panel:
    by = "(cluster, target, host, mode)"
    every = f"max by {by} ({scope.age})"
    chosen = f"max by {by} ({scope.within(scope.age)})"
    return TimeSeries(
        "Is a refresh missing?",
        f"Time since the oldest hold's last refresh, the {LINES} oldest. A saw that falls to zero "
        "every 5 minutes is fine; past 22.5 minutes restic gives up by itself, past 30 the lock "
        "is stale: ask its host.",
        (
            Query(
                worst(LINES, every, f"on {by}", chosen),
                "{{target}} {{host}} {{mode}} {{cluster}}",
            ),
        ),
        width=12,
        height=9,
        unit="s",
        decimals=1,
        no_value="no lock with refreshes, or no exporter was there",
        steps=AGE_STEPS,
        threshold_lines=True,
        minimum=0,
    )


def scans_failing(scope: Scope) -> Panel:
    return TimeSeries(
        "Why could targets not be read?",
        "Targets whose last scan failed, by reason. One reason for many targets at once: the "
        "provider, the network or a credential. See the runbook LockScanFailingWidely.",
        (
            Query(
                f"count by (reason) ({scope.one(scope.of('lock_scan_error_info'))})", "{{reason}}"
            ),
        ),
        width=12,
        height=9,
        no_value="no scan failed, or no exporter was there",
        minimum=0,
        links=(runbook("LockScanFailingWidely"),),
    )


def files(scope: Scope) -> Panel:
    none = f"count(lock_exporter_build_info{{{EXPORTER}}}) * 0"
    return TimeSeries(
        "Are locks piling up?",
        "All lock files by mode and state. Stale ones that only grow: the right to delete is "
        "missing, or jobs die. See the runbook LocksPilingUp.",
        (
            Query(
                # Most are zero and left out first. Where an exporter is there, nothing is zero.
                f"sum by (mode, state) ({scope.one(scope.of('lock_target_locks') + ' > 0')}) or "
                + " or ".join(labelled(none, mode=mode, state="active") for mode in MODES),
                "{{mode}} {{state}}",
            ),
        ),
        width=12,
        height=9,
        no_value="no exporter was there",
        stacked=True,
        minimum=0,
        links=(runbook("LocksPilingUp"),),
    )


# ---- annotations ---------------------------------------------------------------------------------


def named(expr: str, *labels: str) -> str:
    """Joins labels to `where`: Grafana writes the name of a label that is not there into a mark."""
    joined = ", ".join(f'"{label}"' for label in labels)
    return f'label_join({expr}, "where", " ", {joined})'


def lock_annotations(scope: Scope, alerts: str = "") -> tuple[Annotation, ...]:
    """Alerts, and what no alert tells: one mark each, however many targets are concerned.

    `alerts` are further matchers of the alerts of a board on a few targets: these are named.
    """
    firing = 'alertname=~"Lock.*", alertstate="firing", cluster=~"$cluster", job=~"$job"'
    where = ("cluster", "target", "host") if alerts else ("cluster",)
    told = f"count by ({', '.join(where)}, alertname) (ALERTS{{{firing}{alerts}}})"
    fleet = "(cluster, job)"
    unlocked = scope.of("lock_stale_removals_total")
    failing = f"max {ONE} ({scope.of('lock_scan_success')}) == 0"
    return (
        Annotation(
            "Alerts",
            named(f"sgn({told})", *where),
            "red",
            "{{alertname}}",
            "{{where}}",
        ),
        Annotation(
            "Stuck",
            named(f"sgn(count by {fleet} ({scope.within(scope.stuck)}))", "cluster", "job"),
            "orange",
            "A lock is stuck",
            "{{where}}: not refreshed for its stuck limit, or held while others wait",
        ),
        Annotation(
            "Unlocked",
            named(
                f"sgn(sum by {fleet} (increase({unlocked}[$__rate_interval])) > 0)",
                "cluster",
                "job",
            ),
            "green",
            "Stale locks were removed",
            "{{where}}: somebody ran unlock",
        ),
        Annotation(
            "Scan failures",
            named(f"sgn(count by {fleet} ({failing}))", "cluster", "job"),
            GREY,
            "Targets cannot be read",
            "{{where}}: what is shown of them is what was seen last",
        ),
    )


def exporter_only(expr: str) -> str:
    """`All` jobs would mean those of every program otherwise."""
    return f"({expr}) and {SAME_SCRAPE} lock_exporter_build_info{{{EXPORTER}}}"


# Also an exporter that is away now: of a job that had exporters within the last day.
SCRAPED = (
    f"up{{{EXPORTER}}} and on (cluster, namespace, job) "
    f"last_over_time(lock_exporter_build_info{{{EXPORTER}}}[1d])"
)

EXPORTER_ANNOTATIONS = (
    Annotation(
        "Exporter restarts",
        "sgn("
        + exporter_only(f"changes(process_start_time_seconds{{{EXPORTER}}}[$__rate_interval]) > 0")
        + ")",
        "blue",
        "Exporter restarted",
        "{{instance}}",
    ),
    Annotation(
        "Configuration reloads",
        "sgn(changes(lock_exporter_config_last_reload_success_timestamp_seconds"
        f"{{{EXPORTER}}}[$__rate_interval]) > 0)",
        "purple",
        "Configuration reloaded",
        "{{instance}}",
    ),
)


def away(width: int = 4) -> Panel:
    return count_stat(
        "Exporters away?",
        "Prometheus cannot scrape them: nobody watches their targets. Follow the runbook.",
        f"count(({SCRAPED}) == 0)",
        f"count({SCRAPED})",
        alert="LockExporterDown",
        width=width,
    )
