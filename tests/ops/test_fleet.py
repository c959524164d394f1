"""An ordinary fleet is silent: one crash and one outage among forty hosts, and who is told of what.

promtool evaluates the very rules over the days, `alertmanager.example.yml` says what is hidden and
who gets it. LOCK_EXPORTER_FLEET_DAYS=7 makes it a week; one day is enough to have everything once.
"""

import os
import re
import subprocess
import tempfile
import unittest
from dataclasses import dataclass
from pathlib import Path

import yaml

import checkout
import fleet

DAYS = int(os.environ.get("LOCK_EXPORTER_FLEET_DAYS", "1"))
SEED = 20

FIRING = 'ALERTS{alertstate="firing"}'


@dataclass(frozen=True)
class Alert:
    """One alert that fired, in minutes."""

    labels: dict[str, str]
    start: int
    end: int
    # Minutes in which it fired: fewer than from start to end if it came twice.
    count: int

    @property
    def name(self) -> str:
        return self.labels["alertname"]


class Week(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.fleet = fleet.Fleet(DAYS, SEED)
        cls.example = yaml.safe_load((checkout.ALERTS / "alertmanager.example.yml").read_text())
        cls.alerts = fired(cls.fleet)
        cls.told = [alert for alert in cls.alerts if cls.is_told(alert)]
        print(f"\n{len(cls.fleet.targets)} targets, {DAYS} days; told:")
        for alert in cls.told:
            who = alert.labels.get("target", "")
            times = f"{clock(alert.start)} to {clock(alert.end)}"
            print(f"  {times}  {alert.labels['severity']:<8} {alert.name:<24} {who}")
        print(f"not told: {sorted({alert.name for alert in cls.alerts} - names(cls.told))}")

    @classmethod
    def is_told(cls, alert: Alert) -> bool:
        """Whether in any minute it fired and was not hidden; information is told to nobody."""
        if alert.labels["severity"] == "info":
            return False
        hidden: set[int] = set()
        for rule in cls.example["inhibit_rules"]:
            if not matches(rule["target_matchers"], alert):
                continue
            for other in cls.alerts:
                equal = all(
                    other.labels.get(label) == alert.labels.get(label) for label in rule["equal"]
                )
                if equal and matches(rule["source_matchers"], other):
                    hidden |= set(range(other.start, other.end + 1))
        return not hidden >= set(range(alert.start, alert.end + 1))

    def test_exactly_the_crash_and_the_outage_are_told(self):
        events = self.fleet.events
        found = {
            (alert.name, alert.labels.get("target", "")): (alert.start, alert.end)
            for alert in self.told
        }
        self.assertEqual(
            set(found),
            {
                ("LockOwnerGoneElsewhere", "srv07"),
                ("LockStuckExclusive", "srv07"),
                ("LockScanFailingWidely", ""),
            },
        )
        killed, removed = events.crash
        start, _ = found["LockOwnerGoneElsewhere", "srv07"]
        self.assertLessEqual(start, killed + 7)
        start, end = found["LockStuckExclusive", "srv07"]
        # 30 minutes after a refresh that was at most 5 minutes before, and 5 minutes of patience.
        self.assertLessEqual(start, killed + 37)
        self.assertLessEqual(end, removed + 6)
        began, ended = events.outage
        start, end = found["LockScanFailingWidely", ""]
        self.assertLessEqual(start, began + 12)
        self.assertGreater(end, ended)

    def test_nothing_comes_twice(self):
        for alert in self.told:
            with self.subTest(alert.name):
                self.assertEqual(alert.count, alert.end - alert.start + 1)


def names(alerts: list[Alert]) -> set[str]:
    return {alert.name for alert in alerts}


def clock(minute: int) -> str:
    days = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
    return f"{days[minute // fleet.DAY % 7]} {minute // 60 % 24:02}:{minute % 60:02}"


def matches(matchers: list[str], alert: Alert) -> bool:
    (matcher,) = matchers
    operator, pattern = re.fullmatch(r'alertname(=~?)"(.+)"', matcher).groups()
    return bool(re.fullmatch(pattern if operator == "=~" else re.escape(pattern), alert.name))


def fired(days: fleet.Fleet) -> list[Alert]:
    """Every alert that fired, as promtool saw it."""
    end = f"{days.minutes - 1}m"
    window = f"{days.minutes + 1}m"
    asked = {
        "start": f"min_over_time(timestamp({FIRING})[{window}:1m])",
        "end": f"max_over_time(timestamp({FIRING})[{window}:1m])",
        "count": f"count_over_time({FIRING}[{window}])",
    }
    test = {
        "interval": "1m",
        "input_series": encoded(days),
        # Nothing is expected, so that promtool says what it got.
        "promql_expr_test": [{"expr": expr, "eval_time": end} for expr in asked.values()],
    }
    found: dict[str, dict[str, int]] = {}
    answers = promtool(test).split("    expr: ")[1:]
    for key, answer in zip(asked, answers, strict=True):
        _, got = answer.split("got:")
        for labels, value in re.findall(r"(\{.*?\}) ([0-9.e+]+)", got, re.I):
            found.setdefault(labels, {})[key] = round(float(value))
    alerts = [
        Alert(
            dict(re.findall(r'(\w+)="([^"]*)"', labels)),
            values["start"] // 60,
            values["end"] // 60,
            values["count"],
        )
        for labels, values in found.items()
    ]
    return sorted(alerts, key=lambda alert: (alert.start, alert.name, str(alert.labels)))


def encoded(days: fleet.Fleet) -> list[dict]:
    texts = {series: fleet.encode(values) for series, values in days.series().items()}
    return [{"series": series, "values": text} for series, text in texts.items() if text]


def promtool(test: dict) -> str:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "fleet_test.yml"
        rules = str(checkout.ALERTS / "rules.yml")
        text = {"rule_files": [rules], "evaluation_interval": "1m", "tests": [test]}
        file.write_text(yaml.safe_dump(text, sort_keys=False, width=10**9))
        done = subprocess.run(
            [checkout.program("promtool"), "test", "rules", str(file)],
            capture_output=True,
            text=True,
        )
    said = done.stdout + done.stderr
    assert "got:" in said, said
    return said
