"""The queries of the dashboards, as a Prometheus gets them from Grafana."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import checkout

# What Grafana fills in by itself.
BUILT_IN = {"__rate_interval": "5m", "__interval": "1m", "__range": "6h"}

# Means a variable's own value for All.
ALL = "$__all"


@dataclass(frozen=True)
class BoardQuery:
    """One query and where it stands. `panel` is None for annotations and variables."""

    board: str
    place: str
    ref: str
    expr: str
    panel: dict | None
    # query, query_range or values (of a label)
    kind: str
    legend: str = ""
    # The label whose values a variable lists.
    label: str = ""

    @property
    def where(self) -> str:
        return f"{self.board}: {self.place} {self.ref}".rstrip()

    def filled(self, **values: str) -> str:
        return fill(self.expr, values)


def fill(text: str, values: dict[str, str]) -> str:
    """Replaces `$name` and `${name}`; a variable that nobody set means all."""
    known = {"cluster": ".*", "host": ".*", "backend": ".*"} | BUILT_IN | values
    return re.sub(r"\$\{?(\w+)\}?", lambda found: known.get(found.group(1), ".+"), text)


def chosen(*names: str, quotes: bool = True) -> str:
    """Values chosen in a variable, as Grafana's Prometheus data source writes them into a query.

    It escapes for a regular expression within a quoted string. `quotes` is its feature toggle
    `prometheusSpecialCharsInLabelValues`; without it a double quote ends the string.
    (`@grafana/prometheus`: `src/escaping.ts: prometheusSpecialRegexEscape`.)
    """
    special = r"[$^*{}\[\]'+?.()|]" if quotes else r"[$^*{}\[\]+?.()|]"

    def escaped(name: str) -> str:
        name = name.replace("\\", "\\" * 4)
        if quotes:
            name = name.replace('"', '\\\\\\"')
        return re.sub(special, lambda found: "\\\\" + found.group(0), name)

    if len(names) == 1:
        return escaped(names[0])
    return "(" + "|".join(escaped(name) for name in names) + ")"


def boards() -> dict[str, dict]:
    found = {path.name: json.loads(path.read_text()) for path in checkout.DASHBOARDS.glob("*.json")}
    assert found, "no dashboard is there"
    return found


def panels(board: dict) -> Iterator[dict]:
    """All panels but the rows, those inside of rows included."""
    for panel in board["panels"]:
        if panel["type"] == "row":
            yield from panel["panels"]
        else:
            yield panel


def variable_query(text: str) -> tuple[str, str]:
    """The selector and the label of `label_values(selector, label)`."""
    return re.fullmatch(r"label_values\((.+), *(\w+)\)", text).groups()


def queries(board: dict) -> Iterator[BoardQuery]:
    title = board["title"]
    for panel in panels(board):
        for target in panel["targets"]:
            yield BoardQuery(
                title,
                panel["title"],
                target["refId"],
                target["expr"],
                panel,
                "query" if target["instant"] else "query_range",
                legend=target["legendFormat"],
            )
    for annotation in board["annotations"]["list"]:
        legend = annotation["titleFormat"] + annotation["textFormat"]
        place = f"annotation {annotation['name']}"
        yield BoardQuery(title, place, "", annotation["expr"], None, "query_range", legend=legend)
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            expr, label = variable_query(variable["query"]["query"])
            place = f"variable {variable['name']}"
            yield BoardQuery(title, place, "", expr, None, "values", label=label)


def all_queries() -> list[BoardQuery]:
    return [query for board in boards().values() for query in queries(board)]


def labels_shown(query: BoardQuery) -> set[str]:
    """Labels that the legend, the links and the columns of a panel name."""
    named = set(re.findall(r"\{\{ *(\w+) *\}\}", query.legend))
    if not query.panel:
        return named
    for step in query.panel["transformations"]:
        if step["id"] == "organize":
            named |= {key for key in step["options"]["indexByName"] if not key.startswith("Value")}
    for override in query.panel["fieldConfig"]["overrides"]:
        field = override["matcher"]["options"]
        if override["matcher"]["id"] == "byName" and not field.startswith("Value"):
            named.add(field)
    return named
