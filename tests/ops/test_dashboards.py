"""The dashboards: well-formed and consistent. `test_board_answers` asks a real Prometheus."""

import itertools
import json
import re
import subprocess
import sys
import unittest

import board_queries
import board_schema
import checkout
import promql
import scenes
from jsonschema import Draft7Validator

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
GLOBALS = {"__rate_interval", "__interval", "__range", "__data", "__url_time_range", "__all"}
# A chart puts boards into ConfigMaps, which hold 1 MiB.
BYTES_MAX = 2**20
GREY = "#8e8e8e"
# Labels that Prometheus or an operator attaches, and that rules and panels may name without us.
ATTACHED = {"job", "instance", "cluster", "namespace", "pod", "container", "endpoint"}
# Metrics that Prometheus makes itself.
FROM_PROMETHEUS = {
    "up": set(),
    "scrape_duration_seconds": set(),
    "scrape_samples_scraped": set(),
    "ALERTS": {"alertname", "alertstate", "severity", "target"},
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

    def test_files_are_small_sorted_and_named_for_good(self):
        self.assertEqual(
            sorted(self.boards),
            ["exporter.json", "file-locks.json", "overview.json", "target.json"],
        )
        for name, board in self.boards.items():
            with self.subTest(name):
                text = (checkout.DASHBOARDS / name).read_text()
                self.assertLess(len(text.encode()), BYTES_MAX)
                made = json.dumps(board, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
                self.assertEqual(text, made)

    def test_the_schema_knows_every_key(self):
        schema = Draft7Validator(board_schema.BOARD)
        for name, board in self.boards.items():
            for error in schema.iter_errors(board):
                path = "/".join(map(str, error.absolute_path))
                self.fail(f"{name} {path}: {error.message[:300]}")

    def test_identity(self):
        uids = [board["uid"] for board in self.boards.values()]
        self.assertEqual(len(uids), len(set(uids)))
        for name, board in self.boards.items():
            with self.subTest(name):
                self.assertEqual(board["uid"], f"lock-exporter-{name.removesuffix('.json')}")
                self.assertLessEqual(len(board["uid"]), 40)
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
                self.assertEqual(bool(panel["targets"]), panel["type"] != "text")

    def test_units_fit_what_is_measured(self):
        for panel in self.panels:
            with self.subTest(panel["title"]):
                unit = panel["fieldConfig"]["defaults"]["unit"]
                exprs = " ".join(target["expr"] for target in panel["targets"])
                if panel["type"] == "text":
                    continue
                if unit in {"s", "dtdurations"}:
                    self.assertIn("_seconds", exprs)
                if unit == "bytes":
                    self.assertIn("_bytes", exprs)
                if unit in {"ops", "reqps"}:
                    self.assertRegex(exprs, r"i?rate\(")
                if unit == "percentunit":
                    self.assertRegex(exprs, r":avg|_ratio| / |process_cpu_seconds")

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
                    states = {
                        option["text"]
                        for mapping in panel["fieldConfig"]["defaults"]["mappings"]
                        for option in mapping["options"].values()
                    }
                    self.assertEqual(states, {*scenes.STATES, "daemon holds", "daemon away"})

    def test_nothing_known_is_grey(self):
        """Grafana paints "no data" in the colour of the first threshold."""
        for panel in self.panels:
            with self.subTest(panel["title"]):
                steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
                self.assertEqual(steps[0]["color"], GREY)
                for mapping in panel["fieldConfig"]["defaults"]["mappings"]:
                    if mapping["type"] == "special":
                        self.assertEqual(mapping["options"]["result"]["color"], GREY)
                    for option in mapping["options"].values():
                        if isinstance(option, dict) and option.get("text") == "unknown":
                            self.assertEqual(option["color"], GREY)

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
            text = json.dumps(board)
            urls = re.findall(r'"url": "([^"]+)"', text) + re.findall(r"\]\((http[^)]+)\)", text)
            self.assertTrue(urls)
            for url in urls:
                with self.subTest(name, url=url):
                    if url.startswith("/d/"):
                        self.assertIn(url.split("/")[2].split("?")[0], uids)
                    elif url != "http://${__data.fields.instance}/":
                        self.assertTrue(url.startswith(checkout.RUNBOOK_BASE))
                        self.assertTrue((checkout.RUNBOOKS / url.rsplit("/", 1)[1]).exists())

    def test_names_in_links_are_encoded(self):
        """Whoever may create folders in a backend chooses the names of targets."""
        for name, board in self.boards.items():
            for field in re.findall(r"\$\{__data\.fields\.([^}]+)\}", json.dumps(board)):
                with self.subTest(name, field=field):
                    self.assertIn(field, {"target:percentencode", "instance"})

    def test_boards_lead_to_each_other(self):
        for name, board in self.boards.items():
            text = json.dumps(board["links"])
            with self.subTest(name):
                self.assertIn('"tags": ["lock-exporter"]', text)
                self.assertIn("runbooks/README.md", text)
                self.assertTrue(name == "overview.json" or "/d/lock-exporter-overview" in text)
        panels = json.dumps(self.boards["overview.json"]["panels"])
        self.assertIn("/d/lock-exporter-target", panels)


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
                for name in ("job", "instance"):
                    self.assertEqual(variables[name]["allValue"], ".+")
                for variable in variables.values():
                    if variable["type"] != "query":
                        continue
                    self.assertEqual(variable["label"], variable["name"].title())
                    self.assertTrue(variable["multi"])
                    self.assertEqual(variable["refresh"], 2)
                    selector, _ = board_queries.variable_query(variable["query"]["query"])
                    promql.parse(board_queries.fill(selector, {}))

    def test_all_means_series_without_the_label_too(self):
        """A cluster is there only where somebody attaches it, lock files have no backend, and
        only targets of one machine have a host."""
        for name, board in self.boards.items():
            for variable in board["templating"]["list"]:
                if variable["type"] != "query":
                    continue
                with self.subTest(name, variable=variable["name"]):
                    optional = variable["name"] in {"cluster", "host", "backend"}
                    # Of the board on one target, no All: 5,000 targets are no target.
                    one = (name, variable["name"]) == ("target.json", "target")
                    self.assertEqual(variable["includeAll"], not one)
                    self.assertEqual(
                        variable["allValue"], "" if one else ".*" if optional else ".+"
                    )


class Queries(unittest.TestCase):
    def setUp(self):
        self.queries = board_queries.all_queries()

    def test_they_parse(self):
        for query in self.queries:
            with self.subTest(query.where):
                promql.parse(query.filled())

    def test_each_selector_can_be_narrowed(self):
        for query in self.queries:
            if query.kind == "values":
                continue
            filled = query.filled(cluster="$cluster", job="$job", instance="$instance")
            for selector in promql.selectors(filled):
                with self.subTest(query.where, selector=selector.name):
                    self.assertEqual(selector.matchers.get("cluster"), [("=~", "$cluster")])
                    self.assertEqual(selector.matchers.get("job"), [("=~", "$job")])
                    # Recorded series and alerts have no instance: they join the exporters.
                    if ":" not in selector.name and selector.name != "ALERTS":
                        self.assertEqual(selector.matchers.get("instance"), [("=~", "$instance")])

    def test_what_all_programs_export_is_asked_of_ours_only(self):
        """All jobs are those of every program that Prometheus scrapes."""
        for query in self.queries:
            names = {selector.name for selector in promql.selectors(query.filled())}
            if any(re.match(r"up$|process_|scrape_", name) for name in names):
                with self.subTest(query.where):
                    self.assertIn("lock_exporter_build_info", names)

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
                # The listings of an hour are a price, not a curve.
                text = query.expr.replace('operation="list"}[1h]', "")
                self.assertNotRegex(text, r"\bi?rate\([^\[]*\[(?!\$__rate_interval)")


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
