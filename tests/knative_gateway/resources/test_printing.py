import pytest

from knative_gateway.resources.kinds import Column
from knative_gateway.resources.objects import child, entries
from knative_gateway.resources.printing import age, cell, human, table
from tests.knative_gateway.resources.made import NOW, NOW_MS, kind, made


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (599, "9m59s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (11_000, "3h3m"),
        (28_800, "8h"),
        (172_799, "47h"),
        (172_800, "2d"),
        (180_000, "2d2h"),
        (691_200, "8d"),
        (63_071_999, "729d"),
        (63_072_000, "2y"),
        (63_072_000 + 86_400, "2y1d"),
        (252_288_000, "8y"),
    ],
)
def test_ages_are_written_as_kubectl_s_users_know_them(seconds: int, written: str) -> None:
    assert human(seconds) == written


def test_an_age_without_a_time_is_unknown() -> None:
    assert age(None, 0) == age("soon", 0) == "<unknown>"


def test_a_table_has_a_row_of_cells_for_each_object() -> None:
    status = {
        "address": {"url": "http://here"},
        "conditions": [{"type": "Ready", "status": "False", "reason": "Why"}],
    }
    broker = {
        **made("Broker", {}, creationTimestamp=NOW, annotations={"eventing.knative.dev/broker.class": "C"}),
        "status": status,
    }
    printed = table(kind("Broker"), [broker], now_ms=NOW_MS + 61_000, version="7")
    heads = [child(head).get("name") for head in entries(printed, "columnDefinitions")]
    assert heads == ["Name", "URL", "Age", "Ready", "Reason", "Class"]
    assert [child(head).get("priority") for head in entries(printed, "columnDefinitions")] == [
        0,
        0,
        0,
        0,
        0,
        1,
    ]
    (row,) = entries(printed, "rows")
    assert child(row)["cells"] == ["x", "http://here", "61s", "False", "Why", "C"]
    assert child(row, "object")["kind"] == "PartialObjectMetadata"
    assert printed["metadata"] == {"resourceVersion": "7"}


def test_the_object_comes_with_its_row_as_the_client_asks() -> None:
    broker = made("Broker", {})
    rows = [
        entries(table(kind("Broker"), [broker], now_ms=NOW_MS, include=include), "rows")[0]
        for include in ("Object", "None")
    ]
    assert child(rows[0], "object") == broker
    assert "object" not in child(rows[1])


@pytest.mark.parametrize(
    ("column", "object_", "written"),
    [
        (Column("Data", "integer", "count(.data)"), {"data": {"a": "1", "b": "2"}}, 2),
        (Column("Data", "integer", "count(.data)"), {}, 0),
        (Column("Object", "string", ".a.kind/.a.name"), {"a": {"kind": "Trigger", "name": "t"}}, "trigger/t"),
        (Column("Ports", "string", ".p[*].n"), {"p": [{"n": 80}, {"n": 443}]}, "80,443"),
        (Column("Count", "integer", ".n"), {"n": 3}, 3),
        (Column("On", "string", ".on"), {"on": True}, "true"),
        (Column("None", "string", ".none"), {"none": None}, None),
    ],
)
def test_a_cell_shows_what_its_column_says(
    column: Column, object_: dict[str, object], written: object
) -> None:
    assert cell(column, object_, NOW_MS) == written
