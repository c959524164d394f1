"""The queries of the dashboards, as a Prometheus gets them from Grafana."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import checkout

# What Grafana fills in by itself.
BUILT_IN = {"__rate_interval": "5m", "__interval": "1m", "__range": "6h"}


@dataclass(frozen=True)
class BoardQuery:
    """One query and where it stands. `panel` is None for annotations and variables."""

    board: str
    where: str
    expr: str
    panel: dict | None
    legend: str = ""

    def filled(self, **values: str) -> str:
        return fill(self.expr, values)


def fill(text: str, values: dict[str, str]) -> str:
    """Replaces `$name` and `${name}`; a variable that nobody set means all (`.+`)."""
    known = BUILT_IN | values
    return re.sub(r"\$\{?(\w+)\}?", lambda found: known.get(found.group(1), ".+"), text)


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


def variable_query(text: str) -> str:
    """The selector inside of `label_values(selector, label)`."""
    return re.fullmatch(r"label_values\((.+), *\w+\)", text).group(1)


def queries(board: dict) -> Iterator[BoardQuery]:
    title = board["title"]
    for panel in panels(board):
        for target in panel["targets"]:
            yield BoardQuery(
                title,
                f"{panel['title']} {target['refId']}",
                target["expr"],
                panel,
                target["legendFormat"],
            )
    for annotation in board["annotations"]["list"]:
        legend = annotation["titleFormat"] + annotation["textFormat"]
        yield BoardQuery(
            title, f"annotation {annotation['name']}", annotation["expr"], None, legend
        )
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            expr = variable_query(variable["query"]["query"])
            yield BoardQuery(title, f"variable {variable['name']}", expr, None)


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
        if not field.startswith("Value"):
            named.add(field)
    return named
