"""A strict JSON schema of what the boards use of Grafana's dashboard model.

Every object is closed, so that a misspelt key is found. Grafana itself would ignore it in silence.
The names and words are those of Grafana's own schema (`@grafana/schema`, folder `raw`).
"""

Schema = dict[str, object]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
WHOLE: Schema = {"type": "integer"}
SWITCH: Schema = {"type": "boolean"}


def closed(needed: Schema, allowed: Schema | None = None) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": sorted(needed),
        "properties": needed | (allowed or {}),
    }


def many(item: Schema, **limits: object) -> Schema:
    return {"type": "array", "items": item} | limits


def one_of(*values: object) -> Schema:
    return {"enum": list(values)}


def either(*schemas: Schema) -> Schema:
    return {"oneOf": list(schemas)}


def table_of(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


NOTHING = closed({})
TEXTS = many(TEXT)
DATASOURCE = closed({"type": one_of("prometheus"), "uid": one_of("${datasource}")})
DATA_LINK = closed({"title": TEXT, "url": TEXT, "targetBlank": SWITCH})
BOARD_LINK = closed(
    {
        "asDropdown": SWITCH,
        "icon": one_of("external link", "dashboard", "doc"),
        "includeVars": SWITCH,
        "keepTime": SWITCH,
        "tags": TEXTS,
        "targetBlank": SWITCH,
        "title": TEXT,
        "tooltip": TEXT,
        "type": one_of("dashboards", "link"),
        "url": TEXT,
    }
)
THRESHOLDS = closed(
    {
        "mode": one_of("absolute"),
        "steps": many(closed({"color": TEXT, "value": {"type": ["number", "null"]}}), minItems=1),
    }
)
SHOWN_AS = closed({"color": TEXT, "index": WHOLE, "text": TEXT})
MAPPING = either(
    closed({"type": one_of("value"), "options": table_of(SHOWN_AS)}),
    closed(
        {
            "type": one_of("special"),
            "options": closed({"match": one_of("empty", "null"), "result": SHOWN_AS}),
        }
    ),
)
CELL = either(
    closed({"type": one_of("auto")}),
    closed({"type": one_of("color-background"), "mode": one_of("basic", "gradient")}),
)
OVERRIDE = closed(
    {
        "matcher": closed({"id": one_of("byName", "byRegexp"), "options": TEXT}),
        "properties": many(
            either(
                closed({"id": one_of("displayName", "unit", "noValue"), "value": TEXT}),
                closed({"id": one_of("custom.align"), "value": one_of("left", "center", "right")}),
                closed({"id": one_of("custom.width", "decimals"), "value": WHOLE}),
                closed({"id": one_of("custom.cellOptions"), "value": CELL}),
                closed({"id": one_of("thresholds"), "value": THRESHOLDS}),
                closed({"id": one_of("mappings"), "value": many(MAPPING)}),
                closed({"id": one_of("links"), "value": many(DATA_LINK)}),
            ),
            minItems=1,
        ),
    }
)
QUERY = closed(
    {
        "datasource": DATASOURCE,
        "editorMode": one_of("code"),
        "expr": TEXT,
        "format": one_of("time_series", "table", "heatmap"),
        "instant": SWITCH,
        "range": SWITCH,
        "legendFormat": TEXT,
        "refId": {"type": "string", "pattern": "^[A-Z]$"},
    }
)
TRANSFORMATION = either(
    closed({"id": one_of("merge"), "options": NOTHING}),
    closed(
        {
            "id": one_of("organize"),
            "options": closed(
                {
                    "excludeByName": table_of(one_of(True)),
                    "indexByName": table_of(WHOLE),
                    "renameByName": NOTHING,
                }
            ),
        }
    ),
)
LEGEND = closed(
    {
        "calcs": TEXTS,
        "displayMode": one_of("list", "table"),
        "placement": one_of("bottom", "right"),
        "showLegend": SWITCH,
    }
)
REDUCE = closed({"calcs": many(TEXT, minItems=1), "fields": TEXT, "values": SWITCH})
TOOLTIP = closed({"mode": one_of("single", "multi"), "sort": one_of("none", "asc", "desc")})

# Options and custom field options of each type of panel.
PANELS: dict[str, tuple[Schema, Schema]] = {
    "stat": (
        closed(
            {
                "colorMode": one_of("background", "value", "none"),
                "graphMode": one_of("none", "area"),
                "justifyMode": one_of("auto", "center"),
                "orientation": one_of("auto", "horizontal", "vertical"),
                "percentChangeColorMode": one_of("standard", "inverted", "same_as_value"),
                "reduceOptions": REDUCE,
                "showPercentChange": SWITCH,
                "textMode": one_of("auto", "value", "value_and_name", "name", "none"),
                "wideLayout": SWITCH,
            }
        ),
        NOTHING,
    ),
    "table": (
        closed(
            {
                "cellHeight": one_of("sm", "md", "lg"),
                "footer": closed(
                    {"countRows": SWITCH, "fields": TEXTS, "reducer": TEXTS, "show": SWITCH}
                ),
                "frameIndex": WHOLE,
                "showHeader": SWITCH,
                "sortBy": many(closed({"desc": SWITCH, "displayName": TEXT})),
            }
        ),
        closed(
            {
                "align": one_of("auto", "left", "center", "right"),
                "cellOptions": CELL,
                "filterable": SWITCH,
                "inspect": SWITCH,
            }
        ),
    ),
    "state-timeline": (
        closed(
            {
                "alignValue": one_of("left", "center", "right"),
                "legend": LEGEND,
                "mergeValues": SWITCH,
                "perPage": WHOLE,
                "rowHeight": NUMBER,
                "showValue": one_of("auto", "always", "never"),
                "tooltip": TOOLTIP,
            }
        ),
        closed({"fillOpacity": WHOLE, "lineWidth": WHOLE, "spanNulls": SWITCH}),
    ),
    "timeseries": (
        closed({"legend": LEGEND, "tooltip": TOOLTIP}),
        closed(
            {
                "drawStyle": one_of("line", "bars", "points"),
                "fillOpacity": WHOLE,
                "lineInterpolation": one_of("linear", "smooth", "stepBefore", "stepAfter"),
                "lineWidth": WHOLE,
                "showPoints": one_of("auto", "never", "always"),
                "spanNulls": SWITCH,
                "stacking": closed({"group": TEXT, "mode": one_of("none", "normal", "percent")}),
                "thresholdsStyle": closed({"mode": one_of("off", "line", "dashed", "area")}),
            }
        ),
    ),
    "bargauge": (
        closed(
            {
                "displayMode": one_of("basic", "lcd", "gradient"),
                "legend": LEGEND,
                "maxVizHeight": WHOLE,
                "minVizHeight": WHOLE,
                "minVizWidth": WHOLE,
                "namePlacement": one_of("auto", "top", "left", "hidden"),
                "orientation": one_of("auto", "horizontal", "vertical"),
                "reduceOptions": REDUCE,
                "showUnfilled": SWITCH,
                "sizing": one_of("auto", "manual"),
                "valueMode": one_of("color", "text", "hidden"),
            }
        ),
        NOTHING,
    ),
    "heatmap": (
        closed(
            {
                "calculate": SWITCH,
                "cellGap": WHOLE,
                "color": closed(
                    {
                        "exponent": NUMBER,
                        "fill": TEXT,
                        "mode": one_of("scheme", "opacity"),
                        "reverse": SWITCH,
                        "scale": one_of("linear", "exponential"),
                        "scheme": TEXT,
                        "steps": WHOLE,
                    }
                ),
                "exemplars": closed({"color": TEXT}),
                "filterValues": closed({"le": NUMBER}),
                "legend": closed({"show": SWITCH}),
                "rowsFrame": closed({"layout": one_of("auto", "unknown", "le", "ge")}),
                "showValue": one_of("auto", "always", "never"),
                "tooltip": closed(
                    {
                        "mode": one_of("single", "multi", "none"),
                        "showColorScale": SWITCH,
                        "yHistogram": SWITCH,
                    }
                ),
                "yAxis": closed(
                    {"axisPlacement": one_of("left", "right"), "reverse": SWITCH, "unit": TEXT}
                ),
            }
        ),
        NOTHING,
    ),
    "text": (
        closed(
            {
                "code": closed(
                    {"language": TEXT, "showLineNumbers": SWITCH, "showMiniMap": SWITCH}
                ),
                "content": TEXT,
                "mode": one_of("markdown"),
            }
        ),
        NOTHING,
    ),
}

GRID = closed(
    {
        "h": {"type": "integer", "minimum": 1},
        "w": {"type": "integer", "minimum": 1, "maximum": 24},
        "x": {"type": "integer", "minimum": 0, "maximum": 23},
        "y": {"type": "integer", "minimum": 0},
    }
)
PLACED: Schema = {"gridPos": GRID, "id": WHOLE, "title": TEXT}
HEADING = closed(
    PLACED
    | {"collapsed": one_of(False), "panels": many({}, maxItems=0), "type": one_of("row")}
)


def panel(kind: str) -> Schema:
    options, custom = PANELS[kind]
    defaults: Schema = {
        "color": closed({"mode": one_of("thresholds", "palette-classic")}),
        "custom": custom,
        "decimals": WHOLE,
        "links": many(DATA_LINK),
        "mappings": many(MAPPING),
        "noValue": TEXT,
        "thresholds": THRESHOLDS,
        "unit": TEXT,
    }
    return closed(
        PLACED
        | {
            "datasource": DATASOURCE,
            "description": TEXT,
            "fieldConfig": closed(
                {
                    "defaults": closed(defaults, {"min": NUMBER, "max": NUMBER}),
                    "overrides": many(OVERRIDE),
                }
            ),
            "maxDataPoints": WHOLE,
            "options": options,
            "pluginVersion": TEXT,
            "targets": many(QUERY),
            "transformations": many(TRANSFORMATION),
            "type": one_of(kind),
        }
    )


VARIABLE: Schema = {
    "hide": one_of(0, 1, 2),
    "includeAll": SWITCH,
    "label": TEXT,
    "multi": SWITCH,
    "name": TEXT,
    "options": many({}, maxItems=0),
    "refresh": one_of(0, 1, 2),
    "regex": TEXT,
    "skipUrlSync": SWITCH,
}


def current(value: Schema) -> Schema:
    return {"current": closed({"selected": SWITCH, "text": value, "value": value})}


VARIABLES = either(
    closed(VARIABLE | current(TEXT) | {"query": TEXT, "type": one_of("datasource")}),
    closed(
        VARIABLE
        | current(TEXTS)
        | {
            "allValue": TEXT,
            "datasource": DATASOURCE,
            "definition": TEXT,
            "query": closed({"query": TEXT, "refId": TEXT}),
            "sort": WHOLE,
            "type": one_of("query"),
        }
    ),
)
ANNOTATION = closed(
    {
        "datasource": DATASOURCE,
        "enable": SWITCH,
        "expr": TEXT,
        "hide": SWITCH,
        "iconColor": TEXT,
        "name": TEXT,
        "step": TEXT,
        "textFormat": TEXT,
        "titleFormat": TEXT,
    }
)
BOARD = closed(
    {
        "annotations": closed({"list": many(ANNOTATION)}),
        "description": TEXT,
        "editable": SWITCH,
        "fiscalYearStartMonth": WHOLE,
        "graphTooltip": one_of(0, 1, 2),
        "links": many(BOARD_LINK),
        "panels": many(either(HEADING, *map(panel, PANELS)), minItems=1),
        "refresh": TEXT,
        "schemaVersion": WHOLE,
        "tags": TEXTS,
        "templating": closed({"list": many(VARIABLES)}),
        "time": closed({"from": TEXT, "to": TEXT}),
        "timepicker": NOTHING,
        "timezone": one_of("browser", "utc"),
        "title": TEXT,
        "uid": TEXT,
        "version": WHOLE,
        "weekStart": TEXT,
    }
)
