"""The dashboards are those of tools/dashboards, and Grafana's own model knows each field of them."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import prometheus, stat, table, timeseries, units

from tools.dashboards.__main__ import DASHBOARDS, FOLDER, written
from tools.dashboards.panels import COLUMNS

PROVISIONING = FOLDER.parent / "provisioning"
UNITS = {value for name, value in vars(units).items() if isinstance(value, str) and not name.startswith("_")}
OPTIONS: Mapping[str, Any] = {"timeseries": timeseries.Options, "stat": stat.Options, "table": table.Options}
LATER = {"cellHeight"}
"""Options that Grafana 10.1 got later than its model, which it ignores where it does not know them."""


def read(name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def panels(dashboard: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Each panel that shows something, also those of closed rows."""
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            yield from panel["panels"]
        else:
            yield panel


def lost(mine: object, theirs: object, where: str = "") -> list[str]:
    """Return what is in a value, and not in what Grafana's model made of it."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        return [
            found
            for key, value in mine.items()
            if key not in LATER
            for found in (
                lost(value, theirs[key], f"{where}.{key}")
                if key in theirs
                else [f"{where}.{key}"] * (value not in (None, []))
            )
        ]
    if isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        return [
            found
            for index, (one, other) in enumerate(zip(mine, theirs, strict=True))
            for found in lost(one, other, f"{where}[{index}]")
        ]
    return [] if mine == theirs else [f"{where}: {mine!r} became {theirs!r}"]


def modelled(value: object) -> Any:
    return json.loads(json.dumps(value, cls=JSONEncoder))


def test_the_files_are_those_of_the_tables() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == DASHBOARDS.keys()
    for name, dashboard in DASHBOARDS.items():
        assert (FOLDER / f"{name}.json").read_text(encoding="utf-8") == written(dashboard), "make reference"


@pytest.mark.parametrize("name", DASHBOARDS)
def test_grafana_s_model_knows_each_field_and_value(name: str) -> None:
    found = read(name)
    assert lost(found, modelled(model.Dashboard.from_json(dict(found)))) == []
    for panel in panels(found):
        options = OPTIONS[panel["type"]].from_json(panel["options"])
        assert lost(panel["options"], modelled(options)) == [], panel["title"]
        for target in panel["targets"]:
            query = prometheus.Dataquery.from_json(target)
            assert lost(target, modelled(query)) == [], panel["title"]
        custom = panel["fieldConfig"]["defaults"].get("custom", {})
        if panel["type"] == "timeseries":
            assert lost(custom, modelled(timeseries.FieldConfig.from_json(custom))) == []


def test_a_field_that_grafana_does_not_know_is_found() -> None:
    """The check can fail: the model drops what it does not know."""
    spoilt = {**read("node"), "refesh": "30s"}
    assert lost(spoilt, modelled(model.Dashboard.from_json(spoilt))) == [".refesh"]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_each_panel_says_what_it_shows_in_which_unit(name: str) -> None:
    titles = []
    for panel in panels(read(name)):
        titles.append(panel["title"])
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"
    assert len(titles) > 10


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_neither_overlap_nor_leave_the_page(name: str) -> None:
    found = read(name)
    taken: dict[tuple[int, int], str] = {}
    for panel in [*panels(found), *(each for each in found["panels"] if each["type"] == "row")]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= COLUMNS
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, (panel["title"], taken[x, y])
                taken[x, y] = panel["title"]
    ids = [panel["id"] for panel in [*panels(found), *found["panels"]] if panel]
    assert len(set(ids)) == len({json.dumps(panel) for panel in [*panels(found), *found["panels"]]})


@pytest.mark.parametrize("name", DASHBOARDS)
def test_each_variable_is_used_and_each_used_variable_exists(name: str) -> None:
    found = read(name)
    text = json.dumps([found["panels"], [each.get("query", "") for each in found["templating"]["list"]]])
    used = set(re.findall(r"\$\{?(\w+)", text)) - {
        "__rate_interval",
        "__range",
        "__all",
        "info",
        "management",
    }
    assert used == {each["name"] for each in found["templating"]["list"]}


def test_links_lead_to_the_other_dashboards() -> None:
    known = {f"/d/{read(name)['uid']}" for name in DASHBOARDS}
    assert len(known) == len(DASHBOARDS)
    for name in DASHBOARDS:
        found = read(name)
        assert {link["url"] for link in found["links"]} == known - {f"/d/{found['uid']}"}


def test_grafana_is_provisioned_with_the_source_and_the_folder_of_the_dashboards() -> None:
    (source,) = yaml.safe_load((PROVISIONING / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert (source["type"], source["url"], source["isDefault"]) == (
        "prometheus",
        "http://prometheus:9090",
        True,
    )
    (provider,) = yaml.safe_load((PROVISIONING / "dashboards" / "dashboards.yml").read_text())["providers"]
    compose = yaml.safe_load((Path(__file__).parents[2] / "docker-compose.yml").read_text())
    mounts = compose["services"]["grafana"]["volumes"]
    assert f"./deploy/grafana/dashboards:{provider['options']['path']}:ro" in mounts
    assert "./deploy/grafana/provisioning:/etc/grafana/provisioning:ro" in mounts
