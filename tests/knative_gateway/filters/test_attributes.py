"""The attributes that filters read."""

import pytest

from knative_gateway.filters.attributes import lookup

EVENT = {
    "id": "1",
    "time": "2026-11-21T10:00:00+01:00",
    "number": 5,
    "flag": True,
    "off": False,
    "binary": b"\x01\x02",
    "empty": "",
    "datacontenttype": "Application/JSON; charset=utf-8",
    "dataschema": "https://example.com/schema",
}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("id", "1"),
        ("time", "2026-11-21T10:00:00+01:00"),
        ("number", "5"),
        ("flag", "true"),
        ("off", "false"),
        ("binary", "AQI="),
        ("empty", ""),
        ("absent", None),
        ("datacontenttype", "Application/JSON; charset=utf-8"),
        ("datamediatype", "application/json"),
        ("dataschema", "https://example.com/schema"),
        ("schemaurl", "https://example.com/schema"),
    ],
)
def test_an_attribute_is_read_as_the_text_that_cloudevents_gives_it(name: str, text: str | None) -> None:
    assert lookup(name)(EVENT) == text


def test_the_schema_of_an_event_of_version_0_3_has_both_names() -> None:
    event = {"schemaurl": "/schema"}
    assert lookup("schemaurl")(event) == lookup("dataschema")(event) == "/schema"


@pytest.mark.parametrize("name", ["datamediatype", "dataschema", "schemaurl"])
def test_a_derived_attribute_is_absent_without_its_origin(name: str) -> None:
    assert lookup(name)({"id": "1"}) is None
