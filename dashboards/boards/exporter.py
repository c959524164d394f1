"""Locks / Exporter: are we watching, do scans keep up, what do they cost, is the process well?"""

from boards import locks
from boards.grafana import (
    COLORED_CELL,
    GREY,
    BarGauge,
    Board,
    Heatmap,
    Panel,
    Query,
    Row,
    Stat,
    Step,
    Table,
    TimeSeries,
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
    SCRAPED,
    count_stat,
    exporter_only,
    runbook,
    worst,
)

PER_EXPORTER = "(cluster, job, instance)"
NOBODY = "no exporter was there"


def of(metric: str, more: str = "") -> str:
    return f"{metric}{{{EXPORTER}{', ' if more else ''}{more}}}"


def lines(expr: str) -> str:
    """A fleet may have an exporter on each of 500 machines."""
    return worst(LINES, f"max by {PER_EXPORTER} ({expr})", f"on {PER_EXPORTER}")


def rate(metric: str, more: str = "") -> str:
    return f"rate({of(metric, more)}[$__rate_interval])"


def graph(
    title: str,
    description: str,
    expr: str,
    legend: str,
    unit: str,
    no_value: str = NOBODY,
    width: int = 8,
    **how: object,
) -> Panel:
    return TimeSeries(
        title,
        description,
        (Query(expr, legend),),
        width=width,
        height=8,
        unit=unit,
        no_value=no_value,
        minimum=0,
        **how,
    )


SHARDS = of("lock_exporter_total_shards")
SHARD = of("lock_exporter_shard_ordinal")
FLEET = "(cluster, namespace, job)"
STATS = (
    Stat(
        "Exporters answering?",
        "Prometheus can scrape them. 0: nobody watches anything, follow the runbook." + AWAY,
        (Query(f"count(({SCRAPED}) == 1) or count({SCRAPED}) * 0", instant=True),),
        width=4,
        height=4,
        steps=(Step(None, GREY), Step(0, "red"), Step(1, "green")),
        links=(runbook("LockExporterAbsent"),),
    ),
    locks.away(),
    Stat(
        "Targets watched?",
        "Each once, however many exporters watch it. Fewer than yesterday: a shard, a discovery or "
        "an entry of the configuration is missing." + AWAY,
        (Query(f"count(max {ONE} ({of('lock_target_info')}))", instant=True),),
        width=4,
        height=4,
    ),
    Stat(
        "Shards missing?",
        "Their targets are watched by nobody. Follow the runbook." + AWAY,
        (
            Query(
                f"sum(max by {FLEET} ({SHARDS}) - count by {FLEET} "
                f"(group by (cluster, namespace, job, shard_ordinal) ({SHARD})))",
                instant=True,
            ),
        ),
        width=4,
        height=4,
        steps=locks.ALARM,
        links=(runbook("LockExporterShardsMissing"),),
    ),
    Stat(
        "Scans late?",
        "The longest wait of a scan that is due and has not started. Over a minute: too many "
        "targets or a backend "
        "that hangs; see what is skipped below." + AWAY,
        (Query(f"max({of('lock_exporter_scan_lag_seconds')})", instant=True),),
        width=4,
        height=4,
        unit="s",
        steps=(Step(None, GREY), Step(0, "green"), Step(60, "orange"), Step(300, "red")),
        links=(runbook("LockExporterScanOverrun"),),
    ),
    count_stat(
        "Configuration refused?",
        "The last reload failed: they go on with the old configuration. The log names the line.",
        f"count({of('lock_exporter_config_last_reload_successful')} == 0)",
        f"count({of('lock_exporter_config_last_reload_successful')})",
        alert="LockExporterConfigReloadFailed",
    ),
)


def each(expr: str) -> Query:
    return Query(f"topk({ROWS}, max by {PER_EXPORTER} ({expr}))", format="table")


EXPORTERS = Table(
    "Which exporters are there?",
    f"At most {ROWS}. The link opens the exporter's own page. Different versions or shard numbers "
    "under one job: a roll-out is under way, or stuck.",
    (
        Query(
            "topk("
            f"{ROWS}, max by (cluster, job, instance, version, revision) "
            f"({of('lock_exporter_build_info')}))",
            format="table",
        ),
        each(f"({SCRAPED})"),
        each(of("lock_exporter_shard_ordinal")),
        each(of("lock_exporter_total_shards")),
        each(f"sum without (source) ({of('lock_exporter_targets')})"),
        each(exporter_only(f"time() - {of('process_start_time_seconds')}")),
        each(f"time() - {of('lock_exporter_config_last_reload_success_timestamp_seconds')}"),
        each(exporter_only(of("process_resident_memory_bytes"))),
    ),
    width=24,
    height=8,
    no_value=NOBODY,
    overrides=(
        column("instance", "exporter", links=[locks.TO_EXPORTER_PAGE], width=230),
        column(
            "Value #B",
            "scraped",
            cell_options=COLORED_CELL,
            mappings=list(words((0, "away", "red"), (1, "answers", "green"))),
            width=100,
        ),
        column("Value #C", "shard", width=70),
        column("Value #D", "of", width=70),
        column("Value #E", "targets", width=90),
        column("Value #F", "runs for", unit="dtdurations"),
        column("Value #G", "configuration since", unit="dtdurations"),
        column("Value #H", "memory", unit="bytes", decimals=1),
    ),
    transformations=merged(
        "Value #B",
        "cluster",
        "job",
        "instance",
        "version",
        "revision",
        "Value #C",
        "Value #D",
        "Value #E",
        "Value #F",
        "Value #G",
        "Value #H",
        hidden=("Time", "Value #A"),
    ),
)

SCANNING = (
    graph(
        "Do scans keep up?",
        f"Largest delay of a scan that is due, the {LINES} worst exporters. It should stay near "
        "0: give the exporter fewer targets, a longer interval, or another shard.",
        lines(of("lock_exporter_scan_lag_seconds")),
        "{{instance}} {{cluster}}",
        "s",
        decimals=1,
    ),
    TimeSeries(
        "How many scans run, and how many are skipped?",
        "Skipped: due while the previous one of the same target still ran. A backend that hangs "
        "shows here first; see its reason on the right.",
        (
            Query(f"sum({of('lock_exporter_scans_in_flight')})", "running"),
            Query(
                f"sum(increase({of('lock_exporter_scans_skipped_total')}[5m]))",
                "skipped in 5 minutes",
            ),
        ),
        width=8,
        height=8,
        unit="short",
        decimals=1,
        no_value=NOBODY,
        minimum=0,
        links=(runbook("LockExporterScanOverrun"),),
    ),
    graph(
        "Why do scans fail?",
        "Failed scans by source and reason. The log of the exporter has the whole message and the "
        "next step.",
        f"sum by (source, reason) ({rate('lock_exporter_scan_errors_total')}) > 0",
        "{{source}} {{reason}}",
        "ops",
        "no scan failed, or no exporter was there",
        decimals=3,
        links=(runbook("LockScanFailing"),),
    ),
)

LISTED = of("lock_exporter_store_requests_total", 'operation="list"')
BACKENDS = (
    graph(
        "What is asked of backends?",
        "Requests by backend and operation. At rest there is one list for each scan; many get "
        "requests mean many new locks, or a cache that does not help.",
        f"sum by (backend, operation) ({rate('lock_exporter_store_requests_total')}) > 0",
        "{{backend}} {{operation}}",
        "reqps",
        "no request, or no exporter was there",
        decimals=2,
    ),
    graph(
        "Which requests fail?",
        "Requests that failed or were answered with an error, retries included. auth and "
        "credentials: see the secret; others: see the provider's status page.",
        f"sum by (backend, operation) ({rate('lock_exporter_store_request_failures_total')}) > 0",
        "{{backend}} {{operation}}",
        "reqps",
        "no request failed, or no exporter was there",
        decimals=3,
    ),
    Heatmap(
        "How fast do backends answer?",
        "Requests by duration; darker is more. A second band far above the first: time-outs and "
        "retries, see which requests fail.",
        (
            Query(
                "sum by (le) (increase("
                f"{of('lock_exporter_store_request_duration_seconds_bucket')}[$__rate_interval]))",
                "{{le}}",
                format="heatmap",
            ),
        ),
        width=8,
        height=8,
        unit="s",
        no_value="no request, or no exporter was there",
    ),
    BarGauge(
        "How many listings a day are paid for?",
        "At the pace of the last hour, by backend. Providers bill them: a longer interval is "
        "cheaper.",
        (
            Query(
                f"sum by (backend) (rate({LISTED}[1h])) * 86400 > 0",
                "{{backend}}",
                instant=True,
            ),
        ),
        width=12,
        height=7,
        unit="short",
        no_value="no listing, or no exporter was there",
        minimum=0,
    ),
    TimeSeries(
        "Does the cache of lock files help?",
        "Share of listed lock files that were known already. At rest it is 100 %; low for long: "
        "locks change at each look, as in a crash loop.",
        (
            Query(
                f"sum({rate('lock_exporter_lock_cache_hits_total')}) / "
                f"sum({rate('lock_exporter_lock_cache_lookups_total')} > 0)",
                "hits",
            ),
        ),
        width=12,
        height=7,
        unit="percentunit",
        no_value="no lock was there, or no exporter",
        minimum=0,
        maximum=1,
    ),
)

PROCESS = (
    graph(
        "How much CPU does it take?",
        f"Share of one core, the {LINES} busiest exporters. Deriving keys at the start is dear, "
        "scans are not: if it stays high, look at the number of new locks.",
        lines(exporter_only(rate("process_cpu_seconds_total"))),
        "{{instance}} {{cluster}}",
        "percentunit",
        decimals=1,
    ),
    graph(
        "How much memory does it take?",
        f"Resident memory, the {LINES} largest. It grows with the number of locks and should be "
        "flat over days; if not, report it.",
        lines(exporter_only(of("process_resident_memory_bytes"))),
        "{{instance}} {{cluster}}",
        "bytes",
        decimals=1,
    ),
    graph(
        "Does it run out of file descriptors?",
        f"Open ones as a share of the limit, the {LINES} fullest. Near 100 %: raise the limit "
        "(LimitNOFILE), or shard.",
        lines(exporter_only(f"{of('process_open_fds')} / {of('process_max_fds')}")),
        "{{instance}} {{cluster}}",
        "percentunit",
        decimals=1,
        maximum=1,
    ),
    graph(
        "How long does a scrape take?",
        f"As Prometheus measured it, the {LINES} slowest. Near the scrape timeout (10 s) data will "
        "be lost: shard, or allow fewer holds_max.",
        lines(exporter_only(of("scrape_duration_seconds"))),
        "{{instance}} {{cluster}}",
        "s",
        decimals=3,
    ),
    graph(
        "How many samples is a scrape?",
        f"The {LINES} largest. About 40 for each target at rest: what Prometheus has to store.",
        lines(exporter_only(of("scrape_samples_scraped"))),
        "{{instance}} {{cluster}}",
        "short",
    ),
    graph(
        "Who asks the exporter?",
        "HTTP requests by page and answer. 400 and above: a scraper or a proxy is set up wrongly; "
        "503 means too many connections.",
        f"sum by (handler, code) ({rate('lock_exporter_http_requests_total')}) > 0",
        "{{handler}} {{code}}",
        "reqps",
        decimals=2,
    ),
)

BOARD = Board(
    uid="lock-exporter-exporter",
    title="Locks / Exporter",
    description="The exporter itself: is it there, does it keep up, and what does it cost?",
    variables=locks.FLEET_VARIABLES,
    annotations=locks.EXPORTER_ANNOTATIONS,
    links=(locks.TO_OVERVIEW, locks.RUNBOOKS_ON_TOP),
    content=(
        Row("Are we watching?"),
        *STATS,
        EXPORTERS,
        Row("Do scans keep up?"),
        *SCANNING,
        Row("What do backends say, and what do they cost?"),
        *BACKENDS,
        Row("Is the process well?"),
        *PROCESS,
    ),
)
