#!/usr/bin/env python3
"""Writes the dashboards: typed panels in, Grafana's classic JSON out.

    dashboards/build.py           write the JSON files beside this one
    dashboards/build.py --check   exit 1 if a committed file differs

Grafana 11.6 and newer load them: older schema versions are migrated up, newer ones never down.
Each board is a module of its own below `boards`; this file knows Grafana's JSON and no metric.
"""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCHEMA_VERSION = 39
# Grafana runs its migrations of panels from this version on.
PLUGIN_VERSION = "11.6.0"
TAG = "lock-exporter"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24

Json = dict[str, object]


@dataclass(frozen=True)
class Query:
    """One PromQL query. `legend` may name labels: `{{target}}`."""

    expr: str
    legend: str = ""
    table: bool = False
    instant: bool = False

    def json(self, ref: str) -> Json:
        now = self.instant or self.table
        return {
            "datasource": DATASOURCE,
            "editorMode": "code",
            "expr": self.expr,
            "format": "table" if self.table else "time_series",
            "instant": now,
            "legendFormat": self.legend or "__auto",
            "range": not now,
            "refId": ref,
        }


@dataclass(frozen=True)
class Step:
    """From this value on (None: from the start) a colour."""

    value: float | None
    color: str

    def json(self) -> Json:
        return {"color": self.color, "value": self.value}


@dataclass(frozen=True)
class Panel:
    """What every panel has. A title asks; a description says what to do about the answer."""

    title: str
    description: str
    queries: tuple[Query, ...]
    width: int
    height: int
    unit: str = "none"
    decimals: int = 0
    no_value: str = "no data"
    steps: tuple[Step, ...] = (Step(None, "green"),)
    mappings: tuple[Json, ...] = ()
    overrides: tuple[Json, ...] = ()
    links: tuple[Json, ...] = ()
    transformations: tuple[Json, ...] = ()
    kind: str = field(default="", init=False)

    def options(self) -> Json:
        raise NotImplementedError

    def custom(self) -> Json:
        return {}

    def color(self) -> Json:
        return {"mode": "thresholds"}

    def json(self, number: int, x: int, y: int) -> Json:
        defaults: Json = {
            "color": self.color(),
            "custom": self.custom(),
            "decimals": self.decimals,
            "links": list(self.links),
            "mappings": list(self.mappings),
            "noValue": self.no_value,
            "thresholds": {
                "mode": "absolute",
                "steps": [step.json() for step in self.steps],
            },
            "unit": self.unit,
        }
        return {
            "datasource": DATASOURCE,
            "description": self.description,
            "fieldConfig": {"defaults": defaults, "overrides": list(self.overrides)},
            "gridPos": {"h": self.height, "w": self.width, "x": x, "y": y},
            "id": number,
            "options": self.options(),
            "pluginVersion": PLUGIN_VERSION,
            "targets": [
                query.json(chr(ord("A") + index)) for index, query in enumerate(self.queries)
            ],
            "title": self.title,
            "transformations": list(self.transformations),
            "type": self.kind,
        }


LAST_VALUE: Json = {"calcs": ["lastNotNull"], "fields": "", "values": False}


@dataclass(frozen=True)
class Stat(Panel):
    kind: str = field(default="stat", init=False)

    def options(self) -> Json:
        return {
            "colorMode": "background",
            "graphMode": "none",
            "justifyMode": "auto",
            "orientation": "auto",
            "percentChangeColorMode": "standard",
            "reduceOptions": LAST_VALUE,
            "showPercentChange": False,
            "textMode": "value",
            "wideLayout": True,
        }


@dataclass(frozen=True)
class Table(Panel):
    sort_by: str = ""
    kind: str = field(default="table", init=False)

    def options(self) -> Json:
        return {
            "cellHeight": "sm",
            "footer": {"countRows": False, "fields": [], "reducer": ["sum"], "show": False},
            "frameIndex": 0,
            "showHeader": True,
            "sortBy": [{"desc": True, "displayName": self.sort_by}] if self.sort_by else [],
        }

    def custom(self) -> Json:
        return {
            "align": "auto",
            "cellOptions": {"type": "auto"},
            "filterable": True,
            "inspect": False,
        }


@dataclass(frozen=True)
class StateTimeline(Panel):
    kind: str = field(default="state-timeline", init=False)

    def options(self) -> Json:
        return {
            "alignValue": "left",
            "legend": {
                "calcs": [],
                "displayMode": "list",
                "placement": "bottom",
                "showLegend": True,
            },
            "mergeValues": True,
            "perPage": 20,
            "rowHeight": 0.9,
            "showValue": "auto",
            "tooltip": {"mode": "single", "sort": "none"},
        }

    def custom(self) -> Json:
        return {"fillOpacity": 70, "lineWidth": 0, "spanNulls": False}


@dataclass(frozen=True)
class TimeSeries(Panel):
    stacked: bool = False
    threshold_lines: bool = False
    kind: str = field(default="timeseries", init=False)

    def options(self) -> Json:
        return {
            "legend": {
                "calcs": ["lastNotNull"],
                "displayMode": "table",
                "placement": "right",
                "showLegend": True,
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        }

    def custom(self) -> Json:
        return {
            "drawStyle": "line",
            "fillOpacity": 30 if self.stacked else 0,
            "lineInterpolation": "stepAfter",
            "lineWidth": 1,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"group": "A", "mode": "normal" if self.stacked else "none"},
            "thresholdsStyle": {"mode": "line" if self.threshold_lines else "off"},
        }

    def color(self) -> Json:
        return {"mode": "palette-classic"}


@dataclass(frozen=True)
class BarGauge(Panel):
    maximum: float = 1.0
    kind: str = field(default="bargauge", init=False)

    def options(self) -> Json:
        return {
            "displayMode": "basic",
            "legend": {
                "calcs": [],
                "displayMode": "list",
                "placement": "bottom",
                "showLegend": False,
            },
            "maxVizHeight": 300,
            "minVizHeight": 16,
            "minVizWidth": 8,
            "namePlacement": "auto",
            "orientation": "horizontal",
            "reduceOptions": LAST_VALUE,
            "showUnfilled": True,
            "sizing": "auto",
            "valueMode": "color",
        }

    def json(self, number: int, x: int, y: int) -> Json:
        made = super().json(number, x, y)
        made["fieldConfig"]["defaults"] |= {"max": self.maximum, "min": 0}
        return made


@dataclass(frozen=True)
class Row:
    """A heading over the panels that follow."""

    title: str


@dataclass(frozen=True)
class Variable:
    """A list of label values to choose from. Several may be chosen; all of them is the default."""

    name: str
    label: str
    query: str

    def json(self) -> Json:
        return {
            "allValue": ".+",
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
            "datasource": DATASOURCE,
            "definition": self.query,
            "hide": 0,
            "includeAll": True,
            "label": self.label,
            "multi": True,
            "name": self.name,
            "options": [],
            "query": {"query": self.query, "refId": f"variable-{self.name}"},
            # Anew whenever the time range changes: locks and targets come and go.
            "refresh": 2,
            "regex": "",
            "skipUrlSync": False,
            "sort": 1,
            "type": "query",
        }


@dataclass(frozen=True)
class Annotation:
    name: str
    expr: str
    color: str
    title: str
    text: str

    def json(self) -> Json:
        return {
            "datasource": DATASOURCE,
            "enable": True,
            "expr": self.expr,
            "hide": False,
            "iconColor": self.color,
            "name": self.name,
            "step": "60s",
            "textFormat": self.text,
            "titleFormat": self.title,
        }


@dataclass(frozen=True)
class Board:
    uid: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    annotations: tuple[Annotation, ...]
    content: tuple[Row | Panel, ...]

    def panels(self) -> list[Json]:
        """Puts the panels side by side, and on a new line where a line is full."""
        placed: list[Json] = []
        x = y = height = 0
        for item in self.content:
            number = len(placed) + 1
            if isinstance(item, Row):
                assert x == 0, f"{item.title}: the line above is not full"
                placed.append(
                    {
                        "collapsed": False,
                        "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": y},
                        "id": number,
                        "panels": [],
                        "title": item.title,
                        "type": "row",
                    }
                )
                y += 1
                continue
            placed.append(item.json(number, x, y))
            assert x == 0 or item.height == height, f"{item.title}: a line has one height"
            x, height = x + item.width, item.height
            if x == COLUMNS:
                x, y = 0, y + height
        assert x == 0, f"{self.title}: the last line is not full"
        return placed

    def json(self) -> Json:
        datasource: Json = {
            "current": {"selected": False, "text": "", "value": ""},
            "hide": 0,
            "includeAll": False,
            "label": "Data source",
            "multi": False,
            "name": "datasource",
            "options": [],
            "query": "prometheus",
            "refresh": 1,
            "regex": "",
            "skipUrlSync": False,
            "type": "datasource",
        }
        return {
            "annotations": {"list": [annotation.json() for annotation in self.annotations]},
            "description": self.description,
            "editable": False,
            "fiscalYearStartMonth": 0,
            "graphTooltip": 1,
            "links": [
                {
                    "asDropdown": True,
                    "icon": "external link",
                    "includeVars": True,
                    "keepTime": True,
                    "tags": [TAG],
                    "targetBlank": False,
                    "title": "Locks",
                    "tooltip": "The other dashboards about locks",
                    "type": "dashboards",
                    "url": "",
                }
            ],
            "panels": self.panels(),
            "refresh": "1m",
            "schemaVersion": SCHEMA_VERSION,
            "tags": [TAG],
            "templating": {"list": [datasource, *(variable.json() for variable in self.variables)]},
            "time": {"from": "now-6h", "to": "now"},
            "timepicker": {},
            "timezone": "browser",
            "title": self.title,
            "uid": self.uid,
            "version": 1,
            "weekStart": "",
        }


def text_of(board: Board) -> str:
    return json.dumps(board.json(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> int:
    sys.path.insert(0, str(HERE))
    sys.dont_write_bytecode = True
    from boards import overview

    stale = []
    for name, board in {"overview": overview.BOARD}.items():
        file = HERE / f"{name}.json"
        text = text_of(board)
        if sys.argv[1:] == ["--check"]:
            if not file.exists() or file.read_text() != text:
                stale.append(file.name)
        else:
            file.write_text(text)
    if stale:
        print(f"run dashboards/build.py: {', '.join(stale)} differ", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    # The boards import this file as a module: it must be the same one.
    sys.modules["build"] = sys.modules["__main__"]
    sys.exit(main())
