"""The dashboards: well-formed, consistent, and answered by a real Prometheus in every situation."""

import contextlib
import itertools
import json
import re
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import board_queries
import checkout
import hurried_rules
import promql
import scenes
import servers

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
KINDS = {"stat", "timeseries", "table", "state-timeline", "bargauge", "heatmap", "text"}
UNITS = {
    "none",
    "short",
    "s",
    "dtdurations",
    "percentunit",
    "ops",
    "reqps",
    "bytes",
    "dateTimeAsIso",
}
GLOBALS = {"__rate_interval", "__interval", "__range", "__data", "__value", "__field", "__all"}
# Labels that Prometheus or an operator attaches, and that rules and panels may name without us.
ATTACHED = {"job", "instance", "cluster", "namespace", "pod", "container", "endpoint"}
# Metrics that Prometheus makes itself.
FROM_PROMETHEUS = {
    "up": set(),
    "ALERTS": {"alertname", "alertstate", "severity"},
}
# Read by rules or panels, described in the documentation, and not exported yet: their sources come
# later. The test below fails as soon as the exporter has one of them.
NOT_EXPORTED_YET: dict[str, set[str]] = {}


def golden_pages() -> dict[str, str]:
    """What the exporter writes in known situations, as committed by its own tests."""
    pages = {path.stem: path.read_text() for path in sorted(checkout.GOLDEN.glob("*.prom"))}
    assert pages, f"no page in {checkout.GOLDEN}"
    return pages


class Boards(unittest.TestCase):
    """What needs nothing but the JSON."""

    def setUp(self):
        self.boards = board_queries.boards()

        self.panels = [
            panel for board in self.boards.values() for panel in board_queries.panels(board)
        ]

    def test_committed_files_are_what_the_source_makes(self):
        done = subprocess.run(
            [sys.executable, checkout.DASHBOARDS / "build.py", "--check"],
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_identity(self):
        uids = [board["uid"] for board in self.boards.values()]
        self.assertEqual(len(uids), len(set(uids)))
        for name, board in self.boards.items():
            with self.subTest(name):
                self.assertRegex(board["uid"], r"^lock-exporter-[a-z-]{1,26}$")
                self.assertNotIn("id", board)
                self.assertIs(board["editable"], False)
                self.assertIn("lock-exporter", board["tags"])
                self.assertTrue(39 <= board["schemaVersion"] <= 41)
                self.assertEqual(board["graphTooltip"], 1)

    def test_ids_and_titles_are_unique(self):
        for name, board in self.boards.items():
            with self.subTest(name):
                ids = [panel["id"] for panel in board["panels"]]
                self.assertEqual(len(ids), len(set(ids)))
                titles = [panel["title"] for panel in board_queries.panels(board)]
                self.assertEqual(len(titles), len(set(titles)))

    def test_panels_fill_the_grid_without_gap_or_overlap(self):
        for name, board in self.boards.items():
            cells: set[tuple[int, int]] = set()
            for panel in board["panels"]:
                grid = panel["gridPos"]
                with self.subTest(name, panel=panel["title"]):
                    self.assertTrue(1 <= grid["w"] <= 24 and grid["x"] + grid["w"] <= 24)
                    self.assertGreaterEqual(grid["h"], 1)
                    covered = set(
                        itertools.product(
                            range(grid["x"], grid["x"] + grid["w"]),
                            range(grid["y"], grid["y"] + grid["h"]),
                        )
                    )
                    self.assertFalse(cells & covered, "lies over another panel")
                    cells |= covered
            height = max(y for _, y in cells) + 1
            self.assertEqual(len(cells), 24 * height, f"{name}: a gap")

    def test_panels_explain_themselves(self):
        for panel in self.panels:
            with self.subTest(panel["title"]):
                self.assertIn(panel["type"], KINDS)
                self.assertTrue(panel["title"].endswith("?"), "a title asks")
                self.assertGreater(len(panel["description"]), 40)
                defaults = panel["fieldConfig"]["defaults"]
                self.assertIn(defaults["unit"], UNITS)
                self.assertTrue(defaults["noValue"])
                self.assertEqual(panel["pluginVersion"], "11.6.0")
                self.assertTrue(panel["targets"])

    def test_units_fit_what_is_measured(self):
        for panel in self.panels:
            with self.subTest(panel["title"]):
                unit = panel["fieldConfig"]["defaults"]["unit"]
                exprs = " ".join(target["expr"] for target in panel["targets"])
                if unit in {"s", "dtdurations"}:
                    self.assertIn("_seconds", exprs)
                if unit in {"ops", "reqps"}:
                    self.assertRegex(exprs, r"i?rate\(")
                if unit == "percentunit":
                    self.assertRegex(exprs, r":avg|_ratio|avg")

    def test_thresholds_and_mappings(self):
        for panel in self.panels:
            with self.subTest(panel["title"]):
                steps = [
                    s["value"] for s in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
                ]
                self.assertIsNone(steps[0])
                self.assertEqual(steps[1:], sorted(set(steps[1:])))
                if panel["type"] == "state-timeline":
                    # Colour is never the only signal: each state has a word.
                    words = [
                        option["text"]
                        for mapping in panel["fieldConfig"]["defaults"]["mappings"]
                        for option in mapping["options"].values()
                    ]
                    self.assertEqual(sorted(words), sorted(scenes.STATES))

    def test_one_datasource_and_nothing_foreign(self):
        for name, board in self.boards.items():
            with self.subTest(name):

                def walk(node, path=""):
                    if isinstance(node, dict):
                        for key, value in node.items():
                            if key == "datasource":
                                self.assertEqual(value, DATASOURCE, path)
                            self.assertNotIn(key, {"__inputs", "__requires", "libraryPanel"})
                            walk(value, f"{path}.{key}")
                    elif isinstance(node, list):
                        for index, value in enumerate(node):
                            walk(value, f"{path}[{index}]")

                walk(board)
                self.assertNotRegex(json.dumps(board), r"\$\{DS_|password|127\.0\.0\.1|localhost")

    def test_refresh_and_range_are_bounded(self):
        for name, board in self.boards.items():
            with self.subTest(name):
                self.assertRegex(board["refresh"], r"^([3-9]\ds|\d+m)$")
                self.assertIn(board["time"]["from"], {"now-1h", "now-6h", "now-24h"})

    def test_links_lead_somewhere(self):
        uids = {board["uid"] for board in self.boards.values()}
        for name, board in self.boards.items():
            for url in re.findall(r'"url": "([^"]+)"', json.dumps(board)):
                with self.subTest(name, url=url):
                    if url.startswith("/d/"):
                        self.assertIn(url.split("/")[2].split("?")[0], uids)
                    else:
                        self.assertTrue(url.startswith(checkout.RUNBOOK_BASE))
                        self.assertTrue((checkout.RUNBOOKS / url.rsplit("/", 1)[1]).exists())


class Variables(unittest.TestCase):
    def setUp(self):
        self.boards = board_queries.boards()

    def test_what_is_used_is_defined_and_what_is_defined_is_used(self):
        for name, board in self.boards.items():
            with self.subTest(name):
                defined = {variable["name"] for variable in board["templating"]["list"]}
                used = set(re.findall(r"\$\{?(\w+)", json.dumps(board))) - GLOBALS
                self.assertEqual(used, defined)

    def test_they_follow_the_linter(self):
        for name, board in self.boards.items():
            variables = {v["name"]: v for v in board["templating"]["list"]}
            with self.subTest(name):
                self.assertEqual(variables["datasource"]["label"], "Data source")
                self.assertEqual(variables["datasource"]["query"], "prometheus")
                for variable in variables.values():
                    if variable["type"] != "query":
                        continue
                    self.assertEqual(variable["label"], variable["name"].title())
                    self.assertTrue(variable["multi"])
                    self.assertEqual(variable["allValue"], ".+")
                    self.assertEqual(variable["refresh"], 2)
                    promql.parse(
                        board_queries.fill(
                            board_queries.variable_query(variable["query"]["query"]), {}
                        )
                    )


class Queries(unittest.TestCase):
    def setUp(self):
        self.queries = board_queries.all_queries()

    def test_they_parse(self):
        for query in self.queries:
            with self.subTest(query.where):
                promql.parse(query.filled())

    def test_each_selector_can_be_narrowed_to_job_and_instance(self):
        for query in self.queries:
            if query.where.startswith("variable"):
                continue
            for selector in promql.selectors(query.filled(job="$job", instance="$instance")):
                with self.subTest(query.where, selector=selector.name):
                    self.assertEqual(selector.matchers.get("job"), [("=~", "$job")])
                    # Recorded series and alerts have no instance: they join the exporters.
                    if ":" not in selector.name and selector.name != "ALERTS":
                        self.assertEqual(selector.matchers.get("instance"), [("=~", "$instance")])

    def test_large_answers_can_be_narrowed_to_targets(self):
        """A table or timeline of 5,000 targets must stay usable."""
        for query in self.queries:
            if not query.panel or query.panel["type"] not in {"table", "state-timeline"}:
                continue
            for selector in promql.selectors(query.filled(target="$target")):
                with self.subTest(query.where, selector=selector.name):
                    self.assertEqual(selector.matchers.get("target"), [("=~", "$target")])

    def test_several_values_of_a_variable_match(self):
        for query in self.queries:
            for operator, _ in re.findall(r'(=~|!~|=|!=)\s*"\$(\w+)"', query.expr):
                self.assertEqual(operator, "=~", query.where)

    def test_counters_are_read_as_rates(self):
        for query in self.queries:
            for selector in promql.selectors(query.filled()):
                if selector.name.endswith("_total"):
                    with self.subTest(query.where, selector=selector.name):
                        self.assertTrue({"rate", "irate", "increase"} & set(selector.inside))

    def test_rates_follow_the_resolution(self):
        for query in self.queries:
            with self.subTest(query.where):
                self.assertNotRegex(query.expr, r"\bi?rate\([^\[]*\[(?!\$__rate_interval)")


class Names(unittest.TestCase):
    """Every metric and label that a rule or panel reads is one that the exporter writes."""

    def setUp(self):
        self.golden = scenes.exported(golden_pages().values())
        itself = {
            name: labels
            for name, labels in scenes.in_scenes().items()
            if name.startswith(scenes.ABOUT_ITSELF)
        }
        self.known = FROM_PROMETHEUS | NOT_EXPORTED_YET | itself | self.golden
        self.recorded = set(checkout.rules("record"))

    def expressions(self):
        for kind in ("record", "alert"):
            for name, rule in checkout.rules(kind).items():
                yield name, rule["expr"]
        for query in board_queries.all_queries():
            yield query.where, query.filled()

    def test_names(self):
        for where, expr in self.expressions():
            for selector in promql.selectors(expr):
                with self.subTest(where, metric=selector.name):
                    self.assertIn(selector.name, set(self.known) | self.recorded)

    def test_labels_in_matchers(self):
        for where, expr in self.expressions():
            for selector in promql.selectors(expr):
                if selector.name in self.recorded:
                    continue
                with self.subTest(where, metric=selector.name):
                    named = set(selector.matchers) - ATTACHED
                    self.assertLessEqual(named, self.known[selector.name])

    def test_labels_in_joins_and_groups(self):
        anywhere = set().union(*self.known.values()) | ATTACHED
        for where, expr in self.expressions():
            with self.subTest(where):
                self.assertLessEqual(promql.labels_named(expr), anywhere)

    def test_scenes_speak_as_the_exporter_does(self):
        for name, labels in scenes.in_scenes().items():
            if not name.startswith(scenes.ABOUT_ITSELF):
                with self.subTest(name):
                    self.assertEqual(labels, self.golden.get(name))

    def test_what_is_exported_is_not_called_missing(self):
        self.assertEqual(set(NOT_EXPORTED_YET) & set(self.golden), set())


class RealPrometheus(unittest.TestCase):
    """All queries against a Prometheus that scrapes all scenes, one job for each."""

    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        folder = Path(cls.stack.enter_context(tempfile.TemporaryDirectory()))
        jobs = []
        for name, pages in scenes.SCENES.items():
            addresses = [
                cls.stack.enter_context(
                    servers.HttpServer(
                        lambda _method, _path, _body, page=page: scenes.render(page(time.time()))
                    )
                ).address
                for page in pages
            ]
            # One exporter of the outage is gone altogether.
            if name == "outage":
                addresses.append(f"127.0.0.1:{servers.free_port()}")
            jobs.append({"job_name": name, "static_configs": [{"targets": addresses}]})
        # The exporter's own pages: their ages are long past, their shapes are the real ones.
        for name, text in golden_pages().items():
            server = servers.HttpServer(lambda _method, _path, _body, text=text: text)
            address = cls.stack.enter_context(server).address
            jobs.append({"job_name": f"golden-{name}", "static_configs": [{"targets": [address]}]})
        cls.jobs = [job["job_name"] for job in jobs]
        hurried_rules.write(folder / "rules.yml")
        try:
            cls.prometheus = cls.stack.enter_context(
                servers.Prometheus(
                    folder,
                    {
                        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                        "rule_files": [str(folder / "rules.yml")],
                        "scrape_configs": jobs,
                    },
                )
            )
        except BaseException:
            cls.stack.close()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    def ask_everywhere(self, query: board_queries.BoardQuery) -> dict[str, list[dict]]:
        return {job: self.prometheus.query(query.filled(job=job)) for job in self.jobs}

    def test_every_query_is_answered_somewhere_and_refused_nowhere(self):
        queries = board_queries.all_queries()
        answered: set[str] = set()
        # By panel, since the columns of a table may come from any of its queries.
        labels: dict[tuple[str, str], set[str]] = {}

        def panel_of(query):
            return query.board, query.where.rsplit(" ", 1)[0]

        def missing() -> list[str]:
            found = [f"{q.where}: no answer" for q in queries if q.where not in answered]
            for query in queries:
                # The command is empty for repositories, which Prometheus stores as no label.
                unseen = board_queries.labels_shown(query) - {"command"}
                unseen -= labels.get(panel_of(query), set())
                if unseen:
                    found.append(f"{query.where}: never labelled {sorted(unseen)}")
            return found

        def complete() -> bool:
            for query in queries:
                for samples in self.ask_everywhere(query).values():
                    for sample in samples:
                        answered.add(query.where)
                        labels.setdefault(panel_of(query), set()).update(sample["metric"])
            return not missing()

        try:
            servers.wait_for("answers to all queries", complete, 60)
        except AssertionError:
            self.fail("\n".join(missing()))

    def test_every_golden_page_is_taken(self):
        """Duplicate series or a bad line would fail the scrape."""

        def up():
            found = self.prometheus.query('up{job=~"golden-.+"}')
            return len(found) == len(golden_pages()) and found

        for sample in servers.wait_for("the golden pages", up):
            with self.subTest(sample["metric"]["job"]):
                self.assertEqual(sample["value"][1], "1")

    def test_rules_meet_no_error(self):
        """Many-to-many matches and the like show only when a rule is evaluated."""
        evaluated = f"{self.prometheus.url}/api/v1/rules"

        def rules():
            groups = servers.get_json(evaluated)["data"]["groups"]
            found = [rule for group in groups for rule in group["rules"]]
            return found if all(rule["health"] != "unknown" for rule in found) else None

        for rule in servers.wait_for("the rules to be evaluated", rules):
            with self.subTest(rule["name"]):
                self.assertEqual(rule["health"], "ok", rule.get("lastError"))

    def test_stats_count_right(self):
        """What the first line of the overview says, scene by scene."""
        expected = {
            #            backups prune stuck damaged unread blind
            "free": (0, 0, 0, 0, 0, 0),
            "shared": (0, 1, 0, 0, 0, 0),
            "exclusive": (1, 2, 0, 0, 0, 0),
            "stuck": (2, 3, 2, 2, 0, 0),
            "outage": (0, 1, 0, 0, 3, 1),
            "pair": (1, 1, 0, 0, 0, 0),
            "shards": (1, 2, 1, 0, 0, 0),
        }
        board = board_queries.boards()["overview.json"]
        stats = [q for q in board_queries.queries(board) if q.panel and q.panel["type"] == "stat"]
        self.assertEqual(len(stats), 6)

        def counts(scene):
            return tuple(
                int(float(self.prometheus.query(stat.filled(job=scene))[0]["value"][1]))
                for stat in stats
            )

        for scene, wanted in expected.items():
            with self.subTest(scene):
                try:
                    servers.wait_for(scene, lambda: counts(scene) == wanted, 60)
                except AssertionError:
                    self.assertEqual(counts(scene), wanted)

    def test_the_timeline_shows_the_state(self):
        board = board_queries.boards()["overview.json"]
        timeline = next(
            q
            for q in board_queries.queries(board)
            if q.panel and q.panel["type"] == "state-timeline"
        )
        for scene, target, state in (
            ("free", "a", 0),
            ("shared", "a", 1),
            ("exclusive", "a", 2),
            ("outage", "a", 3),
        ):
            with self.subTest(scene):

                def shown():
                    found = self.prometheus.query(timeline.filled(job=scene, target=target))
                    return [sample["value"][1] for sample in found] == [str(state)]

                servers.wait_for(f"state {state}", shown, 60)
