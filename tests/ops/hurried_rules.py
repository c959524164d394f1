"""A copy of the rules that does not wait: for tests that must see an alert fire and resolve.

What the rules say stays as it is; only waiting times are cut, and where asked the freshness limit.
promtool proves the real times (`alerts/rules_test.yml`).
"""

import copy
import re
from pathlib import Path

import yaml

import checkout

WAIT = "2s"
# The one threshold of the rules that is a time and not a metric of the target (= --scan.hold).
FRESHNESS_SECONDS = 900


def write(file: Path, freshness_seconds: int = FRESHNESS_SECONDS) -> None:
    groups = copy.deepcopy(checkout.rule_groups())
    replaced = 0
    for group in groups:
        group["interval"] = "1s"
        for rule in group["rules"]:
            if "alert" in rule:
                rule["for"] = WAIT
                if "keep_firing_for" in rule:
                    rule["keep_firing_for"] = WAIT
            rule["expr"], count = re.subn(
                rf"([<>]) {FRESHNESS_SECONDS}\b", rf"\1 {freshness_seconds}", rule["expr"]
            )
            replaced += count
    assert replaced, f"no rule has the threshold {FRESHNESS_SECONDS} any more"
    file.write_text(yaml.safe_dump({"groups": groups}, sort_keys=False))
