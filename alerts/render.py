#!/usr/bin/env python3
"""Writes rules.yml with other parameters. Without any it writes rules.yml as it is.

    render.py [PARAMETERS] [--set NAME=VALUE ...] > my-rules.yml

PARAMETERS is a file of names and values in JSON, or in YAML where PyYAML is installed: what the
Helm chart takes below `prometheusRule`. NAME may go into a map: --set disabled.LockContended=true.
parameters.json names all of them, with their defaults and where in rules.yml they are.

It changes text, so that comments and order stay, and knows nothing of PromQL: whether the outcome
is right, `promtool check rules --lint=all` tells.
"""

import argparse
import json
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SEVERITIES = ("critical", "warning", "info")
# What tells one alert from another: dropped, alerts of different targets would be merged.
IDENTIFYING = (
    "cluster namespace job instance target host mode state hostname username command pid source "
    "sealed backend location reason shard_ordinal total_shards"
).split()
LABEL_NAME = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
# Prometheus' own durations (its `common/model/time.go`): units in this order, "0" without one.
# Five digits each at most: Prometheus counts nanoseconds in 64 bits, 292 years.
DURATION = re.compile(
    "0|(?=[0-9])([0-9]{1,2}y)?"
    + "".join(f"([0-9]{{1,5}}{unit})?" for unit in ("w", "d", "h", "m", "s", "ms"))
)
# Values of these are maps from alerts.
OF_ALERTS = ("disabled", "severityOverrides", "forOverrides", "keepFiringForOverrides")
RULE = re.compile(r"^      - (?:record|alert): ")
GROUP = re.compile(r"^  - name: ")


class Wrong(Exception):
    """Parameters that cannot be used: every fault, one a line, each with its parameter."""


def table() -> dict[str, dict]:
    return json.loads((HERE / "parameters.json").read_text())


def source() -> str:
    return (HERE / "rules.yml").read_text()


def alert_names(text: str) -> list[str]:
    return re.findall(r"^      - alert: (\w+)$", text, re.M)


# ---- what may be said ----------------------------------------------------------------------------


def faults(given: dict) -> list[str]:
    """What is wrong with these parameters."""
    known = table()
    found = []
    for name, value in given.items():
        if name not in known:
            found.append(f"{name}: no such parameter; there are {', '.join(known)}")
        elif "sites" in known[name]:
            found += faults_of_number(name, value, known[name])
        elif name in OF_ALERTS:
            found += faults_of_alerts(name, value)
        else:
            found += FAULTS[name](name, value)
    return found


def faults_of_number(name: str, value, row: dict) -> list[str]:
    whole = isinstance(row["default"], int)
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        return [f"{name}: {value!r} is no {'whole ' if whole else ''}number"]
    if not 0 < value <= row["most"]:
        return [f"{name}: {value} is not above 0 and at most {row['most']}"]
    return []


def faults_of_alerts(name: str, value) -> list[str]:
    if not isinstance(value, dict):
        return [f"{name}: not a map from alerts"]
    alerts = alert_names(source())
    found = []
    for alert, what in value.items():
        if alert not in alerts:
            found.append(f"{name}.{alert}: no such alert; there are {', '.join(alerts)}")
        elif name == "disabled":
            if not isinstance(what, bool):
                found.append(f"{name}.{alert}: {what!r} is neither true nor false")
        elif name == "severityOverrides":
            found += faults_of_severity(f"{name}.{alert}", what)
        elif not isinstance(what, str) or not DURATION.fullmatch(what):
            found.append(f"{name}.{alert}: {what!r} is no duration such as 10m")
    return found


def faults_of_severity(name: str, value) -> list[str]:
    if value in SEVERITIES:
        return []
    return [f"{name}: {value!r} is no severity; there are {', '.join(SEVERITIES)}"]


def faults_of_job(name: str, value) -> list[str]:
    if not isinstance(value, str) or not value.strip():
        return [f"{name}: {value!r} names no job"]
    if re.search(r'["\\]', value) or not is_plain(value):
        return [f"{name}: {value!r} has a quote, a backslash, a control character or a template"]
    return []


def is_plain(text: str) -> bool:
    """Neither a template of Prometheus nor what a YAML file cannot hold in one line."""
    return text.isprintable() and "{{" not in text


def faults_of_pattern(name: str, value) -> list[str]:
    # A colon at the end would make it a key of YAML.
    address = r"https?://[^\s'\"\\{}]*%s[^\s'\"\\{}]*(?<!:)"
    if isinstance(value, str) and value.isprintable() and re.fullmatch(address, value):
        return []
    return [f"{name}: {value!r} is no http address with %s for the alert's name"]


def faults_of_dropped(name: str, value) -> list[str]:
    if not isinstance(value, list):
        return [f"{name}: not a list of labels"]
    found = []
    for label in value:
        if not isinstance(label, str) or not LABEL_NAME.fullmatch(label):
            found.append(f"{name}: {label!r} is no name of a label")
        elif label in IDENTIFYING:
            found.append(f"{name}: {label} tells alerts apart and cannot be dropped")
    return found


def faults_of_labels(name: str, value) -> list[str]:
    if not isinstance(value, dict):
        return [f"{name}: not a map of labels"]
    found = []
    for label, text in value.items():
        if not isinstance(label, str) or not LABEL_NAME.fullmatch(label):
            found.append(f"{name}.{label}: no name of a label")
        elif label in (*IDENTIFYING, "severity", "alertname"):
            found.append(f"{name}.{label}: the rules set this label themselves")
        elif not isinstance(text, str) or not is_plain(text):
            found.append(f"{name}.{label}: {text!r} is no plain text")
    return found


FAULTS = {
    "jobName": faults_of_job,
    "runbookUrlPattern": faults_of_pattern,
    "droppedLabels": faults_of_dropped,
    "stuckSealedSeverity": faults_of_severity,
    "extraAlertLabels": faults_of_labels,
}


# ---- the rules -----------------------------------------------------------------------------------


def render(given: dict) -> str:
    """The text of rules.yml with these parameters; `Wrong` names those that cannot be used."""
    wrong = faults(given)
    if wrong:
        raise Wrong("\n".join(wrong))
    rows = table()
    values = {name: row["default"] for name, row in rows.items()} | given
    parts = split(source())
    written: list[str] = []
    for part in parts:
        alert = alert_names(part)
        if not RULE.match(part):
            # A group that lost all its rules goes as well.
            if written and GROUP.match(written[-1]):
                written.pop()
            written.append(part)
        elif not alert:
            written.append(of_all(part, rows, values))
        elif not values["disabled"].get(alert[0]):
            written += of_alert(of_all(part, rows, values), alert[0], rows, values)
    if GROUP.match(written[-1]):
        written.pop()
    return "".join(written)


def split(text: str) -> list[str]:
    """The file in parts: its head, the head of each group, and each rule."""
    parts = [""]
    for line in text.splitlines(keepends=True):
        if RULE.match(line) or GROUP.match(line):
            parts.append("")
        parts[-1] += line
    return parts


def of_all(part: str, rows: dict, values: dict) -> str:
    """One rule with the job, the dropped labels and the thresholds."""
    part = part.replace(f'job="{rows["jobName"]["default"]}"', f'job="{values["jobName"]}"')
    dropped = ", ".join(rows["droppedLabels"]["default"])
    part = part.replace(f"instance, {dropped}", ", ".join(["instance", *values["droppedLabels"]]))
    part = part.replace(f"({dropped})", f"({', '.join(values['droppedLabels'])})")
    for name, row in rows.items():
        for site in row.get("sites", []):
            part = re.sub(
                re.escape(site.replace("@", str(row["default"]))) + r"(?![\d.])",
                lambda _, site=site, name=name: site.replace("@", str(values[name])),
                part,
            )
    return part


def of_alert(part: str, name: str, rows: dict, values: dict) -> list[str]:
    """One alert with what concerns it alone; two where sealed locks have their own severity."""
    (severity,) = re.findall(r"^        labels: \{severity: (\w+)", part, re.M)
    chosen = values["severityOverrides"].get(name, severity)
    patterns = (rows["runbookUrlPattern"]["default"], values["runbookUrlPattern"])
    part = part.replace(*(pattern.replace("%s", name.lower()) for pattern in patterns))
    for key, map_name in (("for", "forOverrides"), ("keep_firing_for", "keepFiringForOverrides")):
        if name in values[map_name]:
            part = with_duration(part, key, values[map_name][name])
    part = part.replace(f"job: {rows['jobName']['default']}", f"job: {quoted(values['jobName'])}")
    extra = "".join(f", {key}: {quoted(text)}" for key, text in values["extraAlertLabels"].items())
    part = re.sub(
        r"^(        labels: \{.*)\}$", lambda found: f"{found[1]}{extra}}}", part, flags=re.M
    )

    def with_severity(other: str) -> str:
        return part.replace(f"labels: {{severity: {severity}", f"labels: {{severity: {other}")

    sealed = values["stuckSealedSeverity"]
    if name != "LockStuckShared" or sealed == chosen:
        return [with_severity(chosen)]
    return [
        with_severity(chosen).replace('mode!="exclusive"', 'mode="shared"'),
        with_severity(sealed).replace('mode!="exclusive"', 'mode="unknown"'),
    ]


def with_duration(part: str, key: str, duration: str) -> str:
    line = f"        {key}: {duration}\n"
    changed, count = re.subn(rf"^        {key}: .*\n", line, part, flags=re.M)
    return changed if count else part.replace("        labels: {", line + "        labels: {")


def quoted(text: str) -> str:
    """A YAML scalar that is this text: quoted where it could be read as something else."""
    plain = re.fullmatch(r"[a-zA-Z][a-zA-Z0-9._-]*", text)
    word = text.lower() in ("y", "n", "yes", "no", "on", "off", "true", "false", "null")
    return text if plain and not word else json.dumps(text, ensure_ascii=False)


# ---- the command ---------------------------------------------------------------------------------


def read(file: Path) -> dict:
    try:
        text = file.read_text()
    except UnicodeDecodeError as error:
        raise Wrong(f"{file}: not UTF-8 text: {error}") from None
    try:
        given = json.loads(text)
    except RecursionError:
        raise Wrong(f"{file}: not a map of parameters") from None
    except ValueError:
        try:
            import yaml
        except ImportError:
            raise Wrong(f"{file}: not JSON, and to read YAML PyYAML is missing") from None
        try:
            given = yaml.safe_load(text) or {}
        except yaml.YAMLError as error:
            raise Wrong(f"{file}: {error}") from None
    if not isinstance(given, dict):
        raise Wrong(f"{file}: not a map of parameters")
    return given


def put(given: dict, setting: str) -> None:
    """Applies one NAME=VALUE."""
    name, equals, text = setting.partition("=")
    if not equals:
        raise Wrong(f"{setting}: not NAME=VALUE")
    name, dot, key = name.partition(".")
    value = text
    # Only where a text would be wrong: a job may be named 5 and a label be true.
    texts = ("extraAlertLabels", "forOverrides", "keepFiringForOverrides")
    if not isinstance(table().get(name, {}).get("default"), str) and not (dot and name in texts):
        try:
            value = json.loads(text)
        except ValueError:
            pass
    if not dot:
        given[name] = value
    elif isinstance(given.setdefault(name, {}), dict):
        given[name][key] = value
    else:
        raise Wrong(f"{name}: not a map")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parameters", nargs="?", type=Path, metavar="PARAMETERS")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    try:
        given = read(arguments.parameters) if arguments.parameters else {}
        for setting in arguments.set:
            put(given, setting)
        sys.stdout.write(render(given))
    except (Wrong, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
