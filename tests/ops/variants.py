"""The tests of the rules once more, in circumstances that must not matter.

Each variant changes the series of a test and what it expects in the same way, so that every alert
is tried in it without a test of its own.
"""

import copy
import json
import re
from collections.abc import Callable

# What anybody may choose who can write a lock: quotes, a newline, a backslash, templates.
HOSTILE = '"\n\\ {{ $value }} %s'

Test = dict
Variant = Callable[[Test], Test]


def with_labels(series: str, **labels: str) -> str:
    """A series with these labels, replaced where it has them."""
    name, _, inner = series.rstrip("}").partition("{")
    found = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', inner))
    found |= {label: escape(value) for label, value in labels.items()}
    return name + "{" + ",".join(f'{key}="{value}"' for key, value in found.items()) + "}"


def label_of(series: str, name: str) -> str:
    found = re.search(rf'\b{name}="((?:[^"\\]|\\.)*)"', series)
    return found[1] if found else ""


def escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def alerts_expected(test: Test) -> list[dict]:
    return [alert for case in test["alert_rule_test"] for alert in case.get("exp_alerts", [])]


def two_exporters(test: Test) -> Test:
    """A second exporter, in a pod of its own, sees the same of each target."""
    for series in list(test["input_series"]):
        text = series["series"]
        if label_of(text, "target"):
            other = with_labels(text, instance="other-" + label_of(text, "instance"), pod="other")
            test["input_series"].append(series | {"series": other})
    for case in test["alert_rule_test"]:
        for alert in list(case.get("exp_alerts", [])):
            labels = alert["exp_labels"]
            # What an exporter says of itself comes from both.
            if {"target", "instance"} <= set(labels):
                other = copy.deepcopy(alert)
                other["exp_labels"]["instance"] = "other-" + labels["instance"]
                case["exp_alerts"].append(other)
    return test


def two_clusters(test: Test) -> Test:
    """Two clusters with equal addresses and targets in one ruler, as Thanos and Mimir have them."""
    for series in list(test["input_series"]):
        text = series["series"]
        series["series"] = with_labels(text, cluster="one")
        test["input_series"].append(series | {"series": with_labels(text, cluster="two")})
    for case in test["alert_rule_test"]:
        # absent() cannot know of clusters.
        if case["alertname"] == "LockExporterAbsent":
            continue
        for alert in list(case.get("exp_alerts", [])):
            other = copy.deepcopy(alert)
            alert["exp_labels"]["cluster"] = "one"
            other["exp_labels"]["cluster"] = "two"
            case["exp_alerts"].append(other)
    return test


def hostile_targets(test: Test) -> Test:
    """Targets whose names hold everything that a template, a query or a page could trip over."""
    for series in test["input_series"]:
        target = label_of(series["series"], "target")
        if target:
            series["series"] = with_labels(series["series"], target=target + HOSTILE)
    for alert in alerts_expected(test):
        target = alert["exp_labels"].get("target")
        if target:
            alert["exp_labels"]["target"] = target + HOSTILE
            notes = alert["exp_annotations"]
            before = r"((?:Target|as target|wait for|holds of|lock\(s\) of) )"
            notes["description"], count = re.subn(
                f"{before}{re.escape(target)}(?![a-z])",
                lambda found, target=target: found[1] + target + HOSTILE,
                notes["description"],
            )
            assert count == 1, notes["description"]
    return test


def of_file(text: dict, variant: Variant) -> dict:
    """A file of tests in this variant, without those that are about it already."""
    tests = [test for test in text["tests"] if "cluster=" not in str(test["input_series"])]
    tests = [test for test in tests if "{{" not in str(test["input_series"])]
    made = []
    for test in tests:
        # Recording rules are not what is tried here.
        test = {key: value for key, value in test.items() if key != "promql_expr_test"}
        if "alert_rule_test" in test:
            # What an anchor names twice must be two things.
            made.append(variant(json.loads(json.dumps(test))))
    return text | {"tests": made}
