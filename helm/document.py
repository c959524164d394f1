#!/usr/bin/env python3
"""Writes what the comments of the chart's values say into its README and its schema.

    helm/document.py           write both
    helm/document.py --check   exit 1 if one of them differs

A comment that begins with `# --` describes the key below it, down to the key. A map whose keys are
described is a section; any other map is passed on as a whole and is one row.
"""

import copy
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

CHART = Path(__file__).resolve().parent / "lock-exporter"
VALUES = CHART / "values.yaml"
SCHEMA = CHART / "values.schema.json"
README = CHART / "README.md"
BEGIN, END = "<!-- values -->\n", "<!-- /values -->\n"
KEY = re.compile(r"^( *)([A-Za-z0-9_]+):")

Path_ = tuple[str, ...]


@dataclass(frozen=True)
class Value:
    """One row: where it is, what its default is, what it does."""

    path: Path_
    default: object
    text: str


def comments(source: str) -> dict[Path_, str]:
    """The descriptions in a file of values, by path."""
    found: dict[Path_, str] = {}
    at: list[tuple[int, str]] = []
    text: list[str] | None = None
    for line in source.splitlines():
        bare = line.strip()
        if bare.startswith("# -- "):
            text = [bare.removeprefix("# -- ")]
        elif bare.startswith("#") and text is not None:
            text.append(bare.removeprefix("#").strip())
        elif key := KEY.match(line):
            depth = len(key[1])
            at = [(column, name) for column, name in at if column < depth] + [(depth, key[2])]
            if text is not None:
                found[tuple(name for _, name in at)] = " ".join(text)
            text = None
        else:
            text = None
    return found


def values(source: str) -> list[Value]:
    """All described values, in the order of the file."""
    described = comments(source)

    def below(path: Path_, node: dict) -> Iterator[Value]:
        for name, default in node.items():
            here = (*path, name)
            section = any(known[: len(here)] == here and known != here for known in described)
            if section:
                yield from below(here, default)
            elif here in described:
                yield Value(here, default, described[here])
            else:
                raise SystemExit(f"values.yaml: nothing describes {'.'.join(here)}")

    return list(below((), yaml.safe_load(source)))


def table(rows: list[Value]) -> str:
    lines = ["| value | default | what it does |", "| --- | --- | --- |"]
    for row in rows:
        default = json.dumps(row.default, separators=(", ", ": ")).replace("|", "\\|")
        text = row.text.replace("|", "\\|")
        lines.append(f"| `{'.'.join(row.path)}` | `{default}` | {text} |")
    return "\n".join(lines) + "\n"


def documented(page: str, rows: list[Value]) -> str:
    """The page with the table between its marks."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + table(rows) + END + after


def described(schema: dict, rows: list[Value]) -> dict:
    """The schema with the descriptions of the values."""
    made = copy.deepcopy(schema)
    for row in rows:
        node = made
        for name in row.path:
            if name not in node.get("properties", {}):
                raise SystemExit(f"values.schema.json: {'.'.join(row.path)} is not there")
            node = node["properties"][name]
        rest = {key: value for key, value in node.items() if key != "description"}
        node.clear()
        node.update({"description": row.text} | rest)
    return made


def main() -> int:
    rows = values(VALUES.read_text())
    schema = json.dumps(described(json.loads(SCHEMA.read_text()), rows), indent=2) + "\n"
    made = {README: documented(README.read_text(), rows), SCHEMA: schema}
    differ = [path for path, text in made.items() if path.read_text() != text]
    if "--check" in sys.argv[1:]:
        for path in differ:
            print(f"{path.name} is not what helm/document.py writes", file=sys.stderr)
        return 1 if differ else 0
    for path in differ:
        path.write_text(made[path])
        print(f"wrote {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
