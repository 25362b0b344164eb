"""An event is a value."""

from event_formats.event import SPEC_VERSIONS, CloudEvent


def test_no_data_is_not_empty_data() -> None:
    assert CloudEvent({"id": "1"}) != CloudEvent({"id": "1"}, b"")
    assert SPEC_VERSIONS == ("1.0", "0.3")
