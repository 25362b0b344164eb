"""Panels, rows and variables as Grafana's JSON. Pure.

The JSON is that of Grafana 10 and later. Colours are names of Grafana's palette, which is readable in the
light and in the dark theme.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

Json = dict[str, object]

COLUMNS: Final = 24
"""The width of a dashboard."""
_SOURCE: Final[Json] = {"type": "prometheus", "uid": "${datasource}"}
_STAT_HEIGHT: Final = 4
_GRAPH_HEIGHT: Final = 8
SCHEMA_VERSION: Final = 38
"""Of Grafana 10.1. Later versions of Grafana read it."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query in PromQL. `legend`: the name of its series, `{{label}}` stands for a label."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Graph:
    """Values over time. `unit`: of Grafana. `stacked`: the values add up to a total."""

    title: str
    description: str
    unit: str
    queries: Sequence[Query]
    width: int = 12
    stacked: bool = False
    minimum: float | None = 0.0

    height: int = field(default=_GRAPH_HEIGHT, init=False)

    def json(self) -> Json:
        """See `Panel`."""
        custom: Json = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 20 if self.stacked else 5,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"group": "A", "mode": "normal" if self.stacked else "none"},
        }
        defaults: Json = {"color": {"mode": "palette-classic"}, "custom": custom, "unit": self.unit}
        if self.minimum is not None:
            defaults["min"] = self.minimum
        options: Json = {
            "legend": {
                "calcs": ["lastNotNull", "max"],
                "displayMode": "table",
                "placement": "bottom",
                "showLegend": True,
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
        return {"type": "timeseries", "fieldConfig": _config(defaults), "options": options}


@dataclass(frozen=True, slots=True)
class Stat:
    """One number. `steps`: from which value on it has which colour. `words`: what values mean."""

    title: str
    description: str
    unit: str
    queries: Sequence[Query]
    steps: Sequence[tuple[float | None, str]] = ((None, "blue"),)
    words: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    width: int = 4

    height: int = field(default=_STAT_HEIGHT, init=False)

    def json(self) -> Json:
        """See `Panel`."""
        defaults: Json = {
            "color": {"mode": "thresholds"},
            "thresholds": {
                "mode": "absolute",
                "steps": [{"value": value, "color": color} for value, color in self.steps],
            },
            "unit": self.unit,
        }
        if self.words:
            options = {
                value: {"index": index, "text": text, "color": color}
                for index, (value, (text, color)) in enumerate(self.words.items())
            }
            defaults["mappings"] = [{"type": "value", "options": options}]
        shown: Json = {
            "colorMode": "value",
            "graphMode": "none" if self.words else "area",
            "justifyMode": "auto",
            "orientation": "auto",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "textMode": "value",
        }
        return {"type": "stat", "fieldConfig": _config(defaults), "options": shown}


@dataclass(frozen=True, slots=True)
class Table:
    """The current value of each series with its labels. `columns`: titles of the labels, in order."""

    title: str
    description: str
    unit: str
    queries: Sequence[Query]
    columns: Mapping[str, str]
    value: str
    width: int = 12

    height: int = field(default=_GRAPH_HEIGHT, init=False)

    def json(self) -> Json:
        """See `Panel`."""
        names = [*self.columns, "Value"]
        organize: Json = {
            "id": "organize",
            "options": {
                "indexByName": {name: index for index, name in enumerate(names)},
                "renameByName": {**self.columns, "Value": self.value},
                "includeByName": dict.fromkeys(names, True),
            },
        }
        return {
            "type": "table",
            "fieldConfig": _config({"unit": self.unit, "custom": {"filterable": True}}),
            "options": {"showHeader": True, "cellHeight": "sm"},
            "transformations": [organize],
        }


Panel = Graph | Stat | Table
"""`json` returns what only this kind of panel has."""


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a title. A closed row is opened with a click, and asks Prometheus only then."""

    title: str
    panels: Sequence[Panel]
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice of the values of a label. `metric`: the selector of the series that have it."""

    name: str
    title: str
    metric: str
    label: str


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A dashboard. `uid`: the end of its address, which stays when the title changes."""

    uid: str
    title: str
    description: str
    variables: Sequence[Variable]
    rows: Sequence[Row]
    others: Mapping[str, str] = field(default_factory=dict)
    """Titles of other dashboards, by their uid."""

    def json(self) -> Json:
        """Return what Grafana imports."""
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": ["amqp-event-streams"],
            "editable": True,
            "graphTooltip": 1,
            "schemaVersion": SCHEMA_VERSION,
            "refresh": "30s",
            "time": {"from": "now-3h", "to": "now"},
            "timezone": "browser",
            "links": [_link(uid, title) for uid, title in self.others.items()],
            "templating": {"list": [_DATASOURCE, *map(_variable, self.variables)]},
            "annotations": {"list": []},
            "panels": list(_laid_out(self.rows)),
        }


def _config(defaults: Json) -> Json:
    return {"defaults": defaults, "overrides": []}


def _link(uid: str, title: str) -> Json:
    return {
        "type": "link",
        "title": title,
        "url": f"/d/{uid}",
        "icon": "dashboard",
        "tooltip": "",
        "tags": [],
        "asDropdown": False,
        "targetBlank": False,
        "includeVars": False,
        "keepTime": True,
    }


_DATASOURCE: Final[Json] = {
    "type": "datasource",
    "name": "datasource",
    "label": "Prometheus",
    "query": "prometheus",
    "refresh": 1,
    "hide": 0,
}


def _variable(variable: Variable) -> Json:
    return {
        "type": "query",
        "name": variable.name,
        "label": variable.title,
        "datasource": _SOURCE,
        "query": f"label_values({variable.metric}, {variable.label})",
        "refresh": 2,
        "sort": 5,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
        "hide": 0,
    }


def _laid_out(rows: Sequence[Row]) -> Iterator[Json]:
    """Yield the panels with their places: from left to right, the rows one below the other."""
    y, number = 0, 0
    for row in rows:
        number += 1
        header: Json = {
            "type": "row",
            "id": number,
            "title": row.title,
            "collapsed": row.closed,
            "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
        }
        y, x, height = y + 1, 0, 0
        inner: list[Json] = []
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                y, x, height = y + height, 0, 0
            number += 1
            inner.append(_panel(panel, number, x, y))
            x, height = x + panel.width, max(height, panel.height)
        y += height
        yield {**header, "panels": inner if row.closed else []}
        if not row.closed:
            yield from inner


def _panel(panel: Panel, number: int, x: int, y: int) -> Json:
    targets: list[Json] = [
        {
            "refId": chr(ord("A") + index),
            "datasource": _SOURCE,
            "expr": query.expr,
            "legendFormat": query.legend or "__auto",
            "range": not isinstance(panel, Table),
            "instant": isinstance(panel, Table),
            **({"format": "table"} if isinstance(panel, Table) else {}),
        }
        for index, query in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
        "targets": targets,
        **panel.json(),
    }
