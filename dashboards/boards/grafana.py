"""Grafana's classic dashboard model: typed panels in, JSON out. Knows no metric and no board."""

from dataclasses import dataclass, field

SCHEMA_VERSION = 39
# Grafana runs its migrations of panels from this version on.
PLUGIN_VERSION = "11.6.0"
TAG = "lock-exporter"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24

# Points of a graph: enough for its width, and one query of 5,000 targets stays cheap.
POINTS_MAX = 200

# Where nothing is known: the colour of the first threshold is also that of "no data".
GREY = "#8e8e8e"

Json = dict[str, object]


@dataclass(frozen=True)
class Query:
    """One PromQL query. `legend` may name labels: `{{target}}`."""

    expr: str
    legend: str = ""
    # time_series, table or heatmap
    format: str = "time_series"
    instant: bool = False

    def json(self, ref: str) -> Json:
        now = self.instant or self.format == "table"
        return {
            "datasource": DATASOURCE,
            "editorMode": "code",
            "expr": self.expr,
            "format": self.format,
            "instant": now,
            "legendFormat": self.legend or "__auto",
            "range": not now,
            "refId": ref,
        }


@dataclass(frozen=True)
class Step:
    """From this value on (None: from the start, and without a value) a colour."""

    value: float | None
    color: str

    def json(self) -> Json:
        return {"color": self.color, "value": self.value}


UNCOLORED = (Step(None, GREY), Step(0, "blue"))


def thresholds(steps: tuple[Step, ...]) -> Json:
    return {"mode": "absolute", "steps": [step.json() for step in steps]}


def words(*entries: tuple[float | str, str, str], empty: str = "") -> tuple[Json, ...]:
    """Values shown as a word in a colour: `(value, word, colour)`; `empty` for a missing label."""
    named = {
        str(value): {"color": color, "index": index, "text": text}
        for index, (value, text, color) in enumerate(entries)
    }
    made: list[Json] = [{"type": "value", "options": named}] if named else []
    for index, match in enumerate(("empty", "null") if empty else ()):
        result = {"color": GREY, "index": len(named) + index, "text": empty}
        made.append({"type": "special", "options": {"match": match, "result": result}})
    return tuple(made)


def link(title: str, url: str, new_tab: bool = True) -> Json:
    return {"targetBlank": new_tab, "title": title, "url": url}


def column(name: str, title: str = "", **properties: object) -> Json:
    """How one column of a table is shown."""
    of_tables = {"cell_options": "custom.cellOptions", "width": "custom.width"}
    of_tables["align"] = "custom.align"
    shown: list[Json] = [{"id": "displayName", "value": title}] if title else []
    for key, value in properties.items():
        shown.append({"id": of_tables.get(key, key), "value": value})
    return {"matcher": {"id": "byName", "options": name}, "properties": shown}


# Grafana writes a table's "no data" into each of its empty cells, too.
BLANK: Json = {
    "matcher": {"id": "byRegexp", "options": ".*"},
    "properties": [{"id": "noValue", "value": "–"}],
}

# A cell in the colour of its threshold or word.
COLORED_CELL: Json = {"type": "color-background", "mode": "basic"}


def merged(*order: str, hidden: tuple[str, ...] = ()) -> tuple[Json, ...]:
    """Joins the queries of a table row by row and puts the columns in order."""
    return (
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {
                "excludeByName": {name: True for name in hidden},
                "indexByName": {name: index for index, name in enumerate(order)},
                "renameByName": {},
            },
        },
    )


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
    steps: tuple[Step, ...] = UNCOLORED
    mappings: tuple[Json, ...] = ()
    overrides: tuple[Json, ...] = ()
    links: tuple[Json, ...] = ()
    transformations: tuple[Json, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    kind: str = field(default="", init=False)

    def options(self) -> Json:
        raise NotImplementedError

    def custom(self) -> Json:
        return {}

    def color(self) -> Json:
        return {"mode": "thresholds"}

    def defaults(self) -> Json:
        made: Json = {
            "color": self.color(),
            "custom": self.custom(),
            "decimals": self.decimals,
            "links": list(self.links),
            "mappings": list(self.mappings),
            "noValue": self.no_value,
            "thresholds": thresholds(self.steps),
            "unit": self.unit,
        }
        bounds = {"min": self.minimum, "max": self.maximum}
        return made | {name: bound for name, bound in bounds.items() if bound is not None}

    def json(self, number: int, x: int, y: int) -> Json:
        return {
            "datasource": DATASOURCE,
            "description": self.description,
            "fieldConfig": {"defaults": self.defaults(), "overrides": list(self.overrides)},
            "gridPos": {"h": self.height, "w": self.width, "x": x, "y": y},
            "id": number,
            "maxDataPoints": POINTS_MAX,
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
LIST_BELOW: Json = {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": True}


@dataclass(frozen=True)
class Stat(Panel):
    kind: str = field(default="stat", init=False)

    def options(self) -> Json:
        return {
            "colorMode": "background",
            "graphMode": "none",
            "justifyMode": "center",
            "orientation": "auto",
            "percentChangeColorMode": "standard",
            "reduceOptions": LAST_VALUE,
            "showPercentChange": False,
            "textMode": "value",
            "wideLayout": True,
        }


@dataclass(frozen=True)
class Table(Panel):
    sort_by: tuple[str, ...] = ()
    kind: str = field(default="table", init=False)

    def json(self, number: int, x: int, y: int) -> Json:
        made = super().json(number, x, y)
        made["fieldConfig"]["overrides"].insert(0, BLANK)
        return made

    def options(self) -> Json:
        return {
            "cellHeight": "sm",
            "footer": {"countRows": False, "fields": [], "reducer": ["sum"], "show": False},
            "frameIndex": 0,
            "showHeader": True,
            "sortBy": [{"desc": True, "displayName": name} for name in self.sort_by],
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
            "legend": LIST_BELOW,
            "mergeValues": True,
            "perPage": 20,
            "rowHeight": 0.9,
            "showValue": "auto",
            "tooltip": {"mode": "single", "sort": "none"},
        }

    def custom(self) -> Json:
        return {"fillOpacity": 80, "lineWidth": 0, "spanNulls": False}


@dataclass(frozen=True)
class TimeSeries(Panel):
    stacked: bool = False
    threshold_lines: bool = False
    kind: str = field(default="timeseries", init=False)

    def options(self) -> Json:
        narrow = self.width < COLUMNS / 2
        return {
            "legend": {
                "calcs": ["lastNotNull"],
                "displayMode": "list" if narrow else "table",
                "placement": "bottom" if narrow else "right",
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
    kind: str = field(default="bargauge", init=False)

    def options(self) -> Json:
        return {
            "displayMode": "basic",
            "legend": LIST_BELOW | {"showLegend": False},
            "maxVizHeight": 40,
            "minVizHeight": 16,
            "minVizWidth": 8,
            "namePlacement": "auto",
            "orientation": "horizontal",
            "reduceOptions": LAST_VALUE,
            "showUnfilled": True,
            "sizing": "manual",
            "valueMode": "color",
        }


@dataclass(frozen=True)
class Heatmap(Panel):
    """Over the buckets of a histogram. The unit is that of the buckets' bounds."""

    kind: str = field(default="heatmap", init=False)

    def options(self) -> Json:
        return {
            "calculate": False,
            "cellGap": 1,
            "color": {
                "exponent": 0.5,
                "fill": "blue",
                "mode": "scheme",
                "reverse": False,
                "scale": "exponential",
                "scheme": "Blues",
                "steps": 64,
            },
            "exemplars": {"color": "rgba(255,0,255,0.7)"},
            "filterValues": {"le": 1e-9},
            "legend": {"show": True},
            "rowsFrame": {"layout": "auto"},
            "showValue": "never",
            "tooltip": {"mode": "single", "showColorScale": False, "yHistogram": False},
            "yAxis": {"axisPlacement": "left", "reverse": False, "unit": self.unit},
        }


@dataclass(frozen=True)
class Text(Panel):
    """Advice. It asks nothing of a data source."""

    content: str = ""
    kind: str = field(default="text", init=False)

    def options(self) -> Json:
        return {
            "code": {"language": "plaintext", "showLineNumbers": False, "showMiniMap": False},
            "content": self.content,
            "mode": "markdown",
        }


@dataclass(frozen=True)
class Row:
    """A heading over the panels that follow."""

    title: str


@dataclass(frozen=True)
class Variable:
    """A list of label values to choose from, by `label_values(SELECTOR, label)`."""

    name: str
    selector: str
    # What All means: `.*` where series without this label count too. Empty: there is no All.
    all_value: str = ".+"

    def json(self) -> Json:
        query = f"label_values({self.selector}, {self.name})"
        everything = bool(self.all_value)
        chosen: Json = {"selected": True, "text": ["All"], "value": ["$__all"]}
        return {
            "allValue": self.all_value,
            "current": chosen if everything else {"selected": False, "text": [], "value": []},
            "datasource": DATASOURCE,
            "definition": query,
            "hide": 0,
            "includeAll": everything,
            "label": self.name.title(),
            # Also where one is meant: Grafana escapes names for `=~` only where many can be chosen.
            "multi": True,
            "name": self.name,
            "options": [],
            "query": {"query": query, "refId": f"variable-{self.name}"},
            # Anew whenever the time range changes: locks and targets come and go.
            "refresh": 2,
            "regex": "",
            "skipUrlSync": False,
            "sort": 1,
            "type": "query",
        }


@dataclass(frozen=True)
class Annotation:
    """Marks the times at which `expr` is over zero."""

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
    # Shown at the top, beside the list of all boards with the tag.
    links: tuple[Json, ...] = ()

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

    def top_links(self) -> list[Json]:
        boards: Json = {
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
        pages = [
            boards
            | {
                "asDropdown": False,
                "includeVars": False,
                "keepTime": False,
                "tags": [],
                "tooltip": "",
                "type": "link",
            }
            | page
            for page in self.links
        ]
        return [boards, *pages]

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
            "links": self.top_links(),
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
