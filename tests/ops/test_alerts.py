"""The alerting rules: promtool's own checks and tests, the house rules, and their runbooks."""

import json
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

import yaml

import checkout
import promql
import servers
import variants

SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]
EXAMPLE = checkout.ALERTS / "alertmanager.example.yml"
# Tests of the rules by promtool.
TESTS = sorted(checkout.ALERTS.glob("*_test.yml"))


def run(*command: str) -> str:
    done = subprocess.run(
        command, cwd=checkout.ALERTS, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, f"{' '.join(command)}\n{output}"
    return output


def all_tests() -> list[dict]:
    return [test for file in TESTS for test in yaml.safe_load(file.read_text())["tests"]]


class Tools(unittest.TestCase):
    def test_promtool_finds_nothing_in_the_rules(self):
        for promtool in checkout.promtools():
            with self.subTest(promtool):
                output = run(promtool, "check", "rules", "--lint=all", "rules.yml")
                self.assertIn("SUCCESS", output)

    def test_the_tests_of_the_rules_pass(self):
        for promtool in checkout.promtools():
            for file in TESTS:
                with self.subTest(promtool, file=file.name):
                    run(promtool, "test", "rules", file.name)


class HouseRules(unittest.TestCase):
    def setUp(self):
        self.alerts = checkout.rules("alert")

    def test_names_and_severities(self):
        for name, rule in self.alerts.items():
            with self.subTest(name):
                self.assertRegex(name, r"^Locks?[A-Z][A-Za-z]+$")
                self.assertIn(rule["labels"]["severity"], {"critical", "warning", "info"})
                # A value in a label would make a new alert at each evaluation.
                self.assertNotIn("$value", str(rule["labels"]))

    def test_annotations(self):
        for name, rule in self.alerts.items():
            with self.subTest(name):
                notes = rule["annotations"]
                self.assertEqual(set(notes), {"summary", "description", "runbook_url"})
                self.assertNotIn("{{", notes["summary"], "grouped alerts share the summary")
                self.assertTrue(notes["summary"].endswith("."))
                self.assertEqual(notes["runbook_url"], f"{checkout.RUNBOOK_BASE}{name.lower()}.md")

    def test_every_expression_can_be_silent(self):
        for name, rule in self.alerts.items():
            with self.subTest(name):
                self.assertTrue(promql.compares(rule["expr"]), "compares with nothing")
                self.assertIn("for", rule)
                self.assertNotIn("topk", rule["expr"])

    def test_job_is_named_only_where_it_is_a_parameter(self):
        for name, rule in self.alerts.items():
            named = [s for s in promql.selectors(rule["expr"]) if "job" in s.matchers]
            if named:
                self.assertRegex(name, "^LockExporter(Down|Absent|Flapping)$")

    def test_absent_sets_the_job_itself(self):
        # absent() over a comparison knows no labels, so the alert would belong to no job.
        for name, rule in self.alerts.items():
            if "absent(" in rule["expr"]:
                self.assertIn("job", rule["labels"], name)


class TestsOfRules(unittest.TestCase):
    def test_every_alert_fires_once_and_is_silent_once(self):
        tests = all_tests()
        fires, silent = set(), set()
        for case in (case for test in tests for case in test.get("alert_rule_test", [])):
            (fires if case.get("exp_alerts") else silent).add(case["alertname"])
        alerts = set(checkout.rules("alert"))
        self.assertEqual(alerts - fires, set(), "no test sees them fire")
        self.assertEqual(alerts - silent, set(), "no test sees them silent")
        self.assertEqual((fires | silent) - alerts, set(), "tests of alerts that are not there")


    def test_they_say_exactly_what_is_seen(self):
        for alert in (alert for test in all_tests() for alert in variants.alerts_expected(test)):
            self.assertLessEqual({"severity", "job"}, set(alert["exp_labels"]))
            self.assertEqual(
                set(alert["exp_annotations"]), {"summary", "description", "runbook_url"}
            )

    def test_every_alert_is_the_same_in_all_circumstances(self):
        # One promtool is enough: none has another opinion on the tests as they are.
        promtool = checkout.promtools()[0]
        for variant in (variants.two_exporters, variants.two_clusters, variants.hostile_targets):
            for file in TESTS:
                with self.subTest(variant.__name__, file=file.name):
                    text = variants.of_file(yaml.safe_load(file.read_text()), variant)
                    text["rule_files"] = [str(checkout.ALERTS / "rules.yml")]
                    with tempfile.TemporaryDirectory() as folder:
                        changed = Path(folder) / file.name
                        changed.write_text(yaml.safe_dump(text))
                        run(promtool, "test", "rules", str(changed))


class Generated(unittest.TestCase):
    """Scenes that are too long to write down."""

    def firing(self, alertname: str, series: dict[str, str], minutes: int) -> bool:
        """Whether any alert of this name fires at the end."""
        test = {
            "interval": "1m",
            "input_series": [{"series": name, "values": text} for name, text in series.items()],
            "alert_rule_test": [{"eval_time": f"{minutes}m", "alertname": alertname}],
        }
        rules = str(checkout.ALERTS / "rules.yml")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "scene_test.yml"
            file.write_text(yaml.safe_dump({"rule_files": [rules], "tests": [test]}))
            command = [checkout.promtools()[0], "test", "rules", str(file)]
            done = subprocess.run(command, capture_output=True, text=True)
        said = done.stdout + done.stderr
        self.assertTrue(done.returncode == 0 or "got:" in said, said)
        return done.returncode != 0

    def shards(self, present: range, total: int) -> dict[str, str]:
        job = 'job="lock-exporter"'
        series = {f'lock_exporter_total_shards{{{job},instance="0"}}': f"{total}x20"}
        for ordinal in present:
            labels = f'{job},instance="{ordinal}",shard_ordinal="{ordinal}"'
            series[f"lock_exporter_shard_ordinal{{{labels}}}"] = f"{ordinal}x20"
        return series

    def test_one_shard_of_many_is_missed(self):
        for present, total, missing in (
            (range(60), 60, False),
            (range(1, 60), 60, True),
            (range(59), 60, True),
            (range(1100), 1100, False),
        ):
            with self.subTest(total, missing=missing):
                series = self.shards(present, total)
                found = self.firing("LockExporterShardsMissing", series, 20)
                self.assertEqual(found, missing)


class Routes(unittest.TestCase):
    """Where Alertmanager's example sends things, by amtool's word."""

    # Receiver of each alert of ours by its severity.
    RECEIVERS = {"critical": "pager", "warning": "tickets", "info": "nobody"}

    def test_amtool_takes_the_example(self):
        for amtool in checkout.amtools():
            with self.subTest(amtool):
                output = run(amtool, "check-config", EXAMPLE.name)
                self.assertIn("8 inhibit rules", output)

    def sent(self, amtool: str, receivers: str, **labels: str) -> None:
        pairs = [f"{name}={value}" for name, value in labels.items()]
        flags = [f"--config.file={EXAMPLE.name}", f"--verify.receivers={receivers}"]
        run(amtool, "config", "routes", "test", *flags, *pairs)

    def test_every_alert_goes_where_its_severity_says(self):
        table = [
            (name, rule["labels"]["severity"], self.RECEIVERS[rule["labels"]["severity"]])
            for name, rule in checkout.rules("alert").items()
        ]
        table += [
            # What others say, and what asks whether Alertmanager lives.
            ("Watchdog", "none", "dead-mans-switch"),
            ("NodeDown", "critical", "tickets"),
            ("Lockdown", "critical", "tickets"),
        ]
        for amtool in checkout.amtools():
            for name, severity, receiver in table:
                with self.subTest(name, amtool=amtool):
                    self.sent(amtool, receiver, alertname=name, severity=severity)
            # Silent in the hours of a planned prune, and a ticket all the same.
            self.sent(
                amtool, "tickets", alertname="LockHeldTooLong", severity="warning", mode="exclusive"
            )


class Inhibitions(unittest.TestCase):
    def test_they_name_alerts_that_exist(self):
        config = yaml.safe_load(EXAMPLE.read_text())
        alerts = set(checkout.rules("alert"))
        for rule in config["inhibit_rules"]:
            for matcher in rule["source_matchers"] + rule["target_matchers"]:
                operator, pattern = re.fullmatch(r'alertname(=~?)"(.+)"', matcher).groups()
                parts = pattern.split("|") if operator == "=~" else [re.escape(pattern)]
                for part in parts:
                    with self.subTest(matcher, part=part):
                        self.assertTrue(any(re.fullmatch(part, name) for name in alerts))

    def test_no_alert_hides_itself(self):
        config = yaml.safe_load(EXAMPLE.read_text())
        for rule in config["inhibit_rules"]:
            source, target = (
                re.compile(re.fullmatch(r'alertname=~?"(.+)"', rule[key][0]).group(1))
                for key in ("source_matchers", "target_matchers")
            )
            for name in checkout.rules("alert"):
                with self.subTest(name, rule=rule):
                    self.assertFalse(source.fullmatch(name) and target.fullmatch(name))


    def test_nothing_outlives_what_hides_it(self):
        """Else it would be told just after its cause was repaired."""

        def goes_on(name: str) -> int:
            kept = alerts[name].get("keep_firing_for", "0m")
            self.assertRegex(kept, r"^\d+m$")
            return int(kept[:-1])

        alerts = checkout.rules("alert")
        for rule in yaml.safe_load(EXAMPLE.read_text())["inhibit_rules"]:
            source, target = (
                re.compile(re.fullmatch(r'alertname=~?"(.+)"', rule[key][0]).group(1))
                for key in ("source_matchers", "target_matchers")
            )
            for stronger in filter(source.fullmatch, alerts):
                for weaker in filter(target.fullmatch, alerts):
                    # It learns of the end from a rule that is evaluated a minute before.
                    late = int(weaker == "LockOwnerGoneElsewhere")
                    with self.subTest(stronger, weaker=weaker):
                        self.assertGreaterEqual(goes_on(stronger), goes_on(weaker) + late)

    def test_alertmanager_hides_what_follows_and_nothing_else(self):
        config = yaml.safe_load(EXAMPLE.read_text())
        for receiver in config["receivers"]:
            # Nothing is to be delivered here.
            receiver.pop("webhook_configs", None)
        target = {"job": "j", "target": "t", "host": "", "cluster": "c", "namespace": "n"}
        holder = {"mode": "shared", "hostname": "web", "username": "u"}
        # Stronger alert, weaker one, how the weaker one differs, whether it is hidden.
        table = [
            ("LockExporterAbsent", "LockExporterDown", {}, True),
            ("LockExporterAbsent", "LockExporterDown", {"job": "other"}, False),
            ("LockExporterAbsent", "LockStuckExclusive", {}, False),
            ("LockScanFailingWidely", "LockScanFailing", {"target": "other"}, True),
            ("LockScanFailingWidely", "LockScanFailing", {"cluster": "other"}, False),
            ("LockScanFailingWidely", "LockUnreadable", {}, False),
            ("LockScanFailing", "LockTargetUnobservable", {}, True),
            ("LockStuckExclusive", "LockBlockedTooLong", {}, True),
            ("LockStuckExclusive", "LockBlockedTooLong", {"target": "other"}, False),
            ("LockStuckExclusive", "LockBlockedTooLong", {"host": "other"}, False),
            ("LockStuckExclusive", "LockOwnerGoneElsewhere", {}, True),
            ("LockStuckExclusive", "LockConflict", {}, False),
            ("LockStuckShared", "LockMostlyBlocked", {}, True),
            ("LockUnreadable", "LockStuckExclusive", {}, False),
            ("LockOwnerGone", "LockOwnerGoneElsewhere", {"pid": "7"}, True),
            ("LockOwnerGoneElsewhere", "LockStuckShared", {}, True),
            ("LockOwnerGoneElsewhere", "LockStuckShared", {"hostname": "other"}, False),
            ("LockOwnerGoneElsewhere", "LockStuckExclusive", {}, False),
            ("LockStuckFile", "LockContended", {}, True),
        ]
        alerts = []
        for case, (stronger, weaker, differs, _) in enumerate(table):
            for name, labels in ((stronger, {}), (weaker, differs)):
                values = target | holder | {"namespace": f"case {case}"} | labels
                # So that the cases do not meet where a rule does not ask for the namespace.
                values["job"] += str(case)
                alerts.append({"labels": values | {"alertname": name}})
        with (
            tempfile.TemporaryDirectory() as folder,
            servers.Alertmanager(Path(folder), config) as alertmanager,
        ):
            alertmanager.post(alerts)
            hidden = servers.wait_for("the alerts", lambda: alertmanager.hidden(len(alerts)))
        found = [
            (*row[:3], (row[1], f"case {case}") in hidden) for case, row in enumerate(table)
        ]
        self.assertEqual(found, table)


class Crowd(unittest.TestCase):
    """5,000 targets that fail at once are one message, by the example's groups and inhibitions."""

    TARGETS = 5000

    def notifications(self, alerts: list[dict]) -> list[tuple[str, list[str]]]:
        """Receiver and names of the alerts of each notification, once the pager's has come."""
        found: list[tuple[str, list[str]]] = []

        def receive(_method: str, path: str, body: bytes) -> str:
            told = json.loads(body)["alerts"]
            found.append((path, [alert["labels"]["alertname"] for alert in told]))
            return ""

        with (
            tempfile.TemporaryDirectory() as folder,
            servers.HttpServer(receive) as hook,
        ):
            text = EXAMPLE.read_text().replace("127.0.0.1:9099", hook.address)
            # The pager's group is told of last, so that nothing can come after it.
            text = text.replace("repeat_interval: 4h", "repeat_interval: 4h\n      group_wait: 5s")
            config = yaml.safe_load(text.replace("group_wait: 30s", "group_wait: 2s"))
            with servers.Alertmanager(Path(folder), config) as alertmanager:
                alertmanager.post(alerts)
                servers.wait_for("the page", lambda: "/page" in [path for path, _ in found])
        return found

    def alert(self, alertname: str, severity: str, **labels: str) -> dict:
        return {"labels": {"alertname": alertname, "severity": severity, "job": "j"} | labels}

    def test_they_are_one_notification(self):
        failing = [
            self.alert("LockScanFailing", "warning", target=f"target-{number}", host="")
            for number in range(self.TARGETS)
        ]
        widely = self.alert("LockScanFailingWidely", "critical")
        self.assertEqual(
            self.notifications([*failing, widely]), [("/page", ["LockScanFailingWidely"])]
        )
        # Fewer than half of a job's targets: one ticket, however many they are.
        other = self.alert("LockUnreadable", "critical", target="other", host="")
        self.assertEqual(
            [(path, len(names)) for path, names in self.notifications([*failing, other])],
            [("/ticket", self.TARGETS), ("/page", 1)],
        )


class Runbooks(unittest.TestCase):
    def setUp(self):
        self.pages = {
            path.stem: path.read_text()
            for path in checkout.RUNBOOKS.glob("*.md")
            if path.name != "README.md"
        }

    def test_each_alert_has_a_page_and_each_page_an_alert(self):
        self.assertEqual(set(self.pages), {name.lower() for name in checkout.rules("alert")})

    def test_pages_are_complete(self):
        titles = {name.lower(): name for name in checkout.rules("alert")}
        for stem, text in self.pages.items():
            with self.subTest(stem):
                self.assertTrue(text.startswith(f"# {titles[stem]}\n"))
                self.assertEqual(re.findall(r"^## (.+)$", text, re.M), SECTIONS)
                self.assertNotRegex(text, r"(?i)\btodo\b|\btbd\b|fixme")
                bodies = re.split(r"^## .+$", text, flags=re.M)[1:]
                self.assertTrue(all(len(body.strip()) > 40 for body in bodies))

    def test_whoever_is_told_to_unlock_is_warned(self):
        for stem, text in self.pages.items():
            if found := re.search(r"^ *restic .*unlock$", text, re.M):
                with self.subTest(stem):
                    # Who copies what comes first must have been warned.
                    self.assertIn("SIGHUP", text[: found.start()])
                    self.assertIn("--remove-all", text)

    def test_what_depends_on_the_version_of_restic_is_said(self):
        for stem, versions in {
            "lockstuckexclusive": ("0.14", "0.15", "0.16", "0.18"),
            "lockstuckshared": ("0.14", "0.15", "0.16", "0.18"),
            "lockunreadable": ("0.14", "0.15"),
        }.items():
            for version in versions:
                self.assertIn(version, self.pages[stem], stem)

    def test_a_new_configuration_is_loaded_without_a_restart(self):
        for stem in ("locktargetneverscanned", "lockexporterconfigreloadfailed"):
            self.assertIn("systemctl reload lock-exporter", self.pages[stem])
            self.assertNotIn("systemctl restart", self.pages[stem])

    def test_the_index_names_every_page(self):
        index = (checkout.RUNBOOKS / "README.md").read_text()
        links = set(re.findall(r"\]\((\w+)\.md\)", index))
        self.assertEqual(links, set(self.pages))

    def test_queries_parse(self):
        for stem, text in self.pages.items():
            for block in re.findall(r"```promql\n(.*?)```", text, re.S):
                for query in block.strip().splitlines():
                    with self.subTest(stem, query=query):
                        promql.parse(query)
