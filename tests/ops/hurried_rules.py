"""A copy of the rules that does not wait: for tests that must see an alert fire and resolve.

It is made by `alerts/render.py`, with parameters that a user has too; only the interval of the
recording rules is cut besides. promtool proves the real times (`alerts/rules_test.yml`).
"""

import json
import subprocess
import sys
from pathlib import Path

import checkout

WAIT = "2s"
# The one threshold of the rules that is a time and not a metric of the target (= --scan.hold).
FRESHNESS_SECONDS = 900


def render(parameters: dict) -> str:
    """The rules with these parameters."""
    done = subprocess.run(
        [sys.executable, checkout.ALERTS / "render.py", "/dev/stdin"],
        input=json.dumps(parameters),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def write(file: Path, freshness_seconds: int = FRESHNESS_SECONDS) -> None:
    alerts = checkout.rules("alert")
    kept = [name for name, rule in alerts.items() if "keep_firing_for" in rule]
    text = render(
        {
            "freshnessSeconds": freshness_seconds,
            "forOverrides": dict.fromkeys(alerts, WAIT),
            "keepFiringForOverrides": dict.fromkeys(kept, WAIT),
        }
    )
    assert text.count("    interval: 1m\n") == 1
    file.write_text(text.replace("    interval: 1m\n", "    interval: 1s\n"))
