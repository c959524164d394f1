"""The rules with other parameters: what `alerts/render.py` writes, and what it refuses.

A user runs it as a program, so it is run as one here; the chart must make the same of the same.
"""

import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import yaml

import checkout

RENDER = checkout.ALERTS / "render.py"
TABLE = json.loads((checkout.ALERTS / "parameters.json").read_text())
THRESHOLDS = {name: row for name, row in TABLE.items() if "sites" in row}
# One value for each parameter that is not its default.
OTHERS = {
    "jobName": "our locks: a/b",
    "runbookUrlPattern": "https://wiki.example.com/%s?page=locks#top",
    "droppedLabels": ["pod", "prometheus_replica"],
    "disabled": {"LockContended": True, "LockClockSkew": False},
    "severityOverrides": {"LockStuckShared": "critical", "LockHeldTooLong": "info"},
    "stuckSealedSeverity": "info",
    "extraAlertLabels": {"team": "backup", "tier": '1: "ä" 😀 #'},
    "forOverrides": {"LockStuckExclusive": "1h30m", "LockConflict": "0s"},
    "keepFiringForOverrides": {"LockConflict": "5m", "LockScanFailing": "2h"},
} | {
    name: row["default"] / 4 if isinstance(row["default"], float) else row["default"] + 7
    for name, row in THRESHOLDS.items()
}


def load():
    """The program as a module, for many small questions."""
    spec = importlib.util.spec_from_file_location("render", RENDER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def render(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, RENDER, *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )


def rendered(parameters: dict) -> str:
    """The rules with these parameters, given in a file."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "parameters.json"
        file.write_text(json.dumps(parameters))
        done = render(str(file))
    assert done.returncode == 0, done.stderr
    return done.stdout


def rules_of(text: str) -> list[dict]:
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def alerts_of(text: str) -> dict[str, dict]:
    return {rule["alert"]: rule for rule in rules_of(text) if "alert" in rule}


class Rendering(unittest.TestCase):
    def test_without_parameters_it_is_the_file_itself(self):
        self.assertEqual(render().stdout, (checkout.ALERTS / "rules.yml").read_text())
        given = rendered({name: row["default"] for name, row in TABLE.items()})
        self.assertEqual(given, (checkout.ALERTS / "rules.yml").read_text())

    def test_each_parameter_alone_changes_what_it_is_for_and_promtool_agrees(self):
        default = checkout.rules("alert")
        for name, value in OTHERS.items():
            with self.subTest(name):
                text = rendered({name: value})
                self.promtool(text, checkout.promtools()[:1])
                changed = {
                    key
                    for alert, rule in alerts_of(text).items()
                    for key in rule
                    if rule[key] != default[alert].get(key)
                }
                expected = {
                    "jobName": {"expr", "labels"},
                    "runbookUrlPattern": {"annotations"},
                    "disabled": set(),
                    "severityOverrides": {"labels", "expr"},
                    "stuckSealedSeverity": {"labels", "expr"},
                    "extraAlertLabels": {"labels"},
                    "forOverrides": {"for"},
                    "keepFiringForOverrides": {"keep_firing_for"},
                    "ownerFreshnessSeconds": set(),
                }.get(name, {"expr"})
                self.assertEqual(changed, expected)
                self.assertNotEqual(text, render().stdout)

    def promtool(self, text: str, programs: list[str]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "rules.yml"
            file.write_text(text)
            for program in programs:
                done = subprocess.run(
                    [program, "check", "rules", "--lint=all", file], capture_output=True, text=True
                )
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_no_default_is_left_anywhere(self):
        text = rendered(OTHERS)
        self.promtool(text, checkout.promtools())
        for name, row in THRESHOLDS.items():
            for site in row["sites"]:
                self.assertNotIn(site.replace("@", str(row["default"])), text, name)
                self.assertIn(site.replace("@", str(OTHERS[name])), text, name)
        gone = ("lock-exporter", "endpoint", "container", "github.com", "- alert: LockContended")
        for default in gone:
            # The group's name and comments are no parameters.
            body = re.sub(r"^(#|  - name:).*$", "", text, flags=re.M)
            self.assertNotIn(default, body)

    def test_thresholds_are_not_taken_for_one_another(self):
        given = {"freshnessSeconds": 180, "ownerFreshnessSeconds": 900}
        text = rendered(given)
        for name, value in given.items():
            for site in TABLE[name]["sites"]:
                default = (checkout.ALERTS / "rules.yml").read_text()
                before = default.count(site.replace("@", str(TABLE[name]["default"])))
                self.assertEqual(text.count(site.replace("@", str(value))), before, site)

    def test_every_site_is_in_the_rules(self):
        text = (checkout.ALERTS / "rules.yml").read_text()
        for name, row in THRESHOLDS.items():
            for site in row["sites"]:
                self.assertIn(site.replace("@", str(row["default"])), text, name)

    def test_labels_and_job_arrive_as_they_were_given(self):
        alerts = alerts_of(rendered(OTHERS))
        for name, rule in alerts.items():
            with self.subTest(name):
                self.assertEqual(rule["labels"]["team"], "backup")
                self.assertEqual(rule["labels"]["tier"], '1: "ä" 😀 #')
                self.assertEqual(
                    rule["annotations"]["runbook_url"],
                    f"https://wiki.example.com/{name.lower()}?page=locks#top",
                )
        absent = alerts["LockExporterAbsent"]
        self.assertEqual(absent["labels"]["job"], "our locks: a/b")
        self.assertEqual(absent["expr"].strip(), 'absent(up{job="our locks: a/b"} == 1)')
        self.assertNotIn("lock-exporter", str(absent))

    def test_sealed_locks_may_have_a_severity_of_their_own(self):
        others = {"LockStuckShared": "info"}
        given = {"stuckSealedSeverity": "critical", "severityOverrides": others}
        found = {
            rule["labels"]["severity"]: rule["expr"]
            for rule in rules_of(rendered(given))
            if rule.get("alert") == "LockStuckShared"
        }
        self.assertEqual(set(found), {"critical", "info"})
        self.assertIn('{mode="shared"}', found["info"])
        self.assertIn('{mode="unknown"}', found["critical"])

    def test_a_group_without_rules_is_left_out(self):
        names = [name for name in checkout.rules("alert") if name.startswith("LockExporter")]
        groups = yaml.safe_load(rendered({"disabled": dict.fromkeys(names, True)}))["groups"]
        self.assertEqual([group["name"] for group in groups], ["lock.rules", "lock.alerts"])
        everything = dict.fromkeys(checkout.rules("alert"), True)
        groups = yaml.safe_load(rendered({"disabled": everything}))["groups"]
        self.assertEqual([group["name"] for group in groups], ["lock.rules"])

    def test_on_the_command_line(self):
        done = render(
            "--set", "jobName=5", "--set", "pileFiles=9", "--set", "disabled.LockContended=true",
            "--set", "extraAlertLabels.tier=1", "--set", 'droppedLabels=["pod"]',
            "--set", "forOverrides.LocksPilingUp=0",
        )  # fmt: skip
        alerts = alerts_of(done.stdout)
        self.assertNotIn("LockContended", alerts)
        self.assertEqual(alerts["LockExporterAbsent"]["labels"]["job"], "5")
        self.assertEqual(alerts["LockConflict"]["labels"]["tier"], "1")
        self.assertIn("> 9", alerts["LocksPilingUp"]["expr"])
        self.assertEqual(str(alerts["LocksPilingUp"]["for"]), "0")
        self.assertIn("without (instance, pod) (", alerts["LocksPilingUp"]["expr"])


class Refusals(unittest.TestCase):
    def refused(self, *arguments: str) -> str:
        done = render(*arguments)
        self.assertEqual((done.returncode, done.stdout), (1, ""), arguments)
        self.assertNotIn("Traceback", done.stderr)
        return done.stderr

    def test_bad_values_are_named(self):
        program = load()
        no_thresholds = ("0", "-1", "x", "true", "1e400", "NaN")
        for setting in [
            *(f"{name}={bad}" for name in THRESHOLDS for bad in no_thresholds),
            "freshnessSeconds=1501",
            "pileFiles=2.5",
            "jobName=",
            "jobName= ",
            'jobName=a"b',
            "jobName=a\\b",
            "jobName=a\nb",
            # Line breaks of YAML, and a value in a label.
            "jobName=a\u0085b",
            "jobName=a\u2028b",
            "jobName={{ $value }}",
            "disabled.LockStuckExclusiv=true",
            "disabled.LockConflict=no",
            "disabled=LockConflict",
            "severityOverrides.LockNothing=info",
            "severityOverrides.LockConflict=page",
            "stuckSealedSeverity=fatal",
            "forOverrides.LockConflict=soon",
            "forOverrides.LockConflict=30",
            "forOverrides.LockConflict=30m; drop",
            # More than Prometheus can count, digits it does not know.
            "forOverrides.LockConflict=300y",
            "forOverrides.LockConflict=999999m",
            "forOverrides.LockConflict=\u0663m",
            "keepFiringForOverrides.LockConflict=",
            "runbookUrlPattern=https://wiki.example.com/",
            "runbookUrlPattern=%s",
            "runbookUrlPattern=https://wiki.example.com/%s:",
            "extraAlertLabels.severity=info",
            "extraAlertLabels.two words=x",
            "extraAlertLabels.team={{ $value }}",
            "extraAlertLabels.team=a\u2028b",
            'droppedLabels=["target"]',
            'droppedLabels=["a b"]',
            "droppedLabels=pod",
            "nothing=1",
            "pile",
        ]:
            with self.subTest(setting):
                given: dict = {}
                with self.assertRaises(program.Wrong) as raised:
                    program.put(given, setting)
                    program.render(given)
                name = setting.partition("=")[0]
                self.assertTrue(str(raised.exception).startswith(f"{name}: "))

    def test_all_faults_come_at_once(self):
        text = self.refused("--set", "pileFiles=0", "--set", "jobName=", "--set", "x=1")
        self.assertEqual(
            [line.partition(":")[0] for line in text.splitlines()], ["pileFiles", "jobName", "x"]
        )

    def test_files_that_are_none(self):
        self.assertIn("nowhere.json", self.refused("/nowhere.json"))
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "list.json"
            for content, words in (
                (b"[1]", "not a map"),
                (b"[" * 100_000, "not a map"),
                (b"\xff\xfe", "not UTF-8"),
            ):
                file.write_bytes(content)
                self.assertIn(words, self.refused(str(file)))


class Documents(unittest.TestCase):
    def test_the_readme_names_every_parameter_with_its_default(self):
        text = (checkout.ALERTS / "README.md").read_text()
        for name, row in TABLE.items():
            with self.subTest(name):
                found = re.search(rf"^\| `{name}` \| (.+?) \|", text, re.M)
                self.assertIsNotNone(found)
                if name in THRESHOLDS:
                    self.assertEqual(found[1], f"`{row['default']}`")
