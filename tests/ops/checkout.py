"""Where things are in this checkout, and the programs the tests use."""

import os
import shutil
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
ALERTS = ROOT / "alerts"
DASHBOARDS = ROOT / "dashboards"
CHART = ROOT / "helm" / "lock-exporter"
RUNBOOKS = ROOT / "docs" / "runbooks"
GOLDEN = ROOT / "tests" / "golden" / "metrics"
FIXTURE_MAKER = ROOT / "tests" / "make-restic-fixtures.sh"
RUNBOOK_BASE = "https://github.com/lock-exporter/lock_exporter/blob/main/docs/runbooks/"


def program(name: str) -> str:
    """The path of a program that the tests cannot do without."""
    found = shutil.which(name)
    if not found:
        raise AssertionError(f"{name} is not installed: tests/run installs what the tests need")
    return found


def promtools() -> list[str]:
    """Every promtool there is: this machine's, and newer ones that tests/run unpacked."""
    return [program("promtool"), *os.environ.get("NEWER_PROMTOOLS", "").split()]


def amtools() -> list[str]:
    """Every amtool there is."""
    return [program("amtool"), *os.environ.get("NEWER_AMTOOL", "").split()]


def exporter() -> str:
    """The exporter under test."""
    path = Path(os.environ.get("LOCK_EXPORTER", ROOT / "target" / "debug" / "lock_exporter"))
    if not os.access(path, os.X_OK):
        raise AssertionError(f"{path} is not there: build it with `cargo build`")
    return str(path)


def rule_groups() -> list[dict]:
    return yaml.safe_load((ALERTS / "rules.yml").read_text())["groups"]


def rules(kind: str) -> dict[str, dict]:
    """The rules of one kind, `alert` or `record`, by name."""
    found = [rule for group in rule_groups() for rule in group["rules"] if kind in rule]
    by_name = {rule[kind]: rule for rule in found}
    assert len(by_name) == len(found), f"two rules with one name: {kind}"
    return by_name
