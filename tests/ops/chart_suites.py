"""Runs test suites in the format of helm-unittest, as far as this chart's suites use it.

A suite is a YAML file: `templates`, `values` and `set` for all its tests; a test has `set` (values
by dotted path), `values` (files), `release`, `template`, `documentIndex` and `asserts`. Helm's own
engine renders; what an assert does is described on the page of helm-unittest.
"""

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import helm_python
import yaml

import chart

MISSING = object()


@dataclass(frozen=True)
class Case:
    """One test of a suite: where it stands, and what went wrong when it was run."""

    suite: str
    name: str
    problems: list[str]


def run(file: Path) -> list[Case]:
    """Runs all tests of one file."""
    suite = yaml.safe_load(file.read_text())
    return [
        Case(suite["suite"], test["it"], Run(file.parent, suite, test).problems())
        for test in suite["tests"]
    ]


def lookup(node, path: str):
    """`spec.ports[0].name`, also `metadata.labels["a.b/c"]`; MISSING where there is nothing."""
    for key, quoted, index in re.findall(r'([^.\[\]"]+)|\["([^"]+)"\]|\[(\d+)\]', path):
        if index and not key and not quoted:
            if not isinstance(node, list) or int(index) >= len(node):
                return MISSING
            node = node[int(index)]
        else:
            name = key or quoted
            if not isinstance(node, dict) or name not in node:
                return MISSING
            node = node[name]
    return node


def put(given: dict, path: str, value) -> None:
    *folders, last = path.split(".")
    for name in folders:
        given = given.setdefault(name, {})
    given[last] = value


def merge(over: dict, under: dict) -> dict:
    made = dict(under)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(made.get(key), dict)
        made[key] = merge(value, made[key]) if both else value
    return made


class Run:
    """One test: its values, what they render to, and its asserts."""

    def __init__(self, folder: Path, suite: dict, test: dict):
        self.templates = suite.get("templates", [])
        self.test = test
        self.given: dict = {}
        for name in suite.get("values", []) + test.get("values", []):
            self.given = merge(yaml.safe_load((folder / name).read_text()), self.given)
        for settings in (suite.get("set", {}), test.get("set", {})):
            for path, value in settings.items():
                put(self.given, path, copy.deepcopy(value))
        release = suite.get("release", {}) | test.get("release", {})
        self.where = {
            "release": release.get("name", "RELEASE-NAME"),
            "namespace": release.get("namespace", "NAMESPACE"),
        }

    def problems(self) -> list[str]:
        error, files = None, {}
        try:
            files = chart.render_files(self.given, **self.where)
        except helm_python.HelmError as raised:
            error = str(raised)
        found = []
        for one in self.test["asserts"]:
            (kind,) = set(one) - {"template", "documentIndex", "not"}
            told = self.check(kind, one, files, error)
            if told:
                found.append(f"{kind} {one[kind]}: {told}")
        return found

    def check(self, kind: str, one: dict, files: dict[str, str], error: str | None) -> str:
        """Empty when the assert holds, else why not."""
        if kind == "failedTemplate":
            return failed(one[kind] or {}, error)
        if error is not None:
            return f"does not render: {error}"
        if kind == "notFailedTemplate":
            return ""
        template = one.get("template", self.test.get("template"))
        names = [template] if template else self.templates
        found = [item for name in names for item in chart.documents(files[name])]
        if kind == "hasDocuments":
            return "" if len(found) == one[kind]["count"] else f"there are {len(found)}"
        index = one.get("documentIndex", self.test.get("documentIndex"))
        if index is not None:
            found = found[index : index + 1]
        if not found:
            return "there is no document"
        return "; ".join(filter(None, (ASSERTS[kind](item, one[kind]) for item in found)))


def failed(wanted: dict, error: str | None) -> str:
    if error is None:
        return "it renders"
    pattern = wanted.get("errorPattern")
    return "" if pattern is None or re.search(pattern, error) else f"the message is {error}"


def at(test: Callable[[object, dict], bool]) -> Callable[[dict, dict], str]:
    """An assert about what stands at `path`, which has to be there."""

    def check(document: dict, wanted: dict) -> str:
        node = lookup(document, wanted["path"])
        if node is MISSING:
            return "the path is not there"
        return "" if test(node, wanted) else f"it is {node!r}"

    return check


def contains(node, wanted: dict) -> bool:
    content = wanted["content"]
    if wanted.get("any") and isinstance(content, dict):
        return any(isinstance(i, dict) and content.items() <= i.items() for i in node)
    return content in node


def absent(document: dict, wanted: dict) -> str:
    node = lookup(document, wanted["path"])
    return "" if node is MISSING or node is None else f"it is {node!r}"


def kind_is(document: dict, wanted: dict) -> str:
    return "" if document["kind"] == wanted["of"] else f"it is a {document['kind']}"


ASSERTS: dict[str, Callable[[dict, dict], str]] = {
    "isKind": kind_is,
    "equal": at(lambda node, wanted: node == wanted["value"]),
    "notEqual": at(lambda node, wanted: node != wanted["value"]),
    "exists": at(lambda node, wanted: True),
    "notExists": absent,
    "contains": at(contains),
    "notContains": at(lambda node, wanted: not contains(node, wanted)),
    "isSubset": at(lambda node, wanted: wanted["content"].items() <= node.items()),
    "lengthEqual": at(lambda node, wanted: len(node) == wanted["count"]),
    "matchRegex": at(lambda node, wanted: bool(re.search(wanted["pattern"], node))),
    "notMatchRegex": at(lambda node, wanted: not re.search(wanted["pattern"], node)),
}
