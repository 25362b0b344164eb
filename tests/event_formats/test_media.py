"""Media types decide the mode, and how data is written as JSON."""

import pytest

from event_formats.errors import UnsupportedFormatError
from event_formats.media import Mode, essence, is_json, is_unicode, mode_of


@pytest.mark.parametrize(
    ("content_type", "mode"),
    [
        ("application/cloudevents+json", Mode.STRUCTURED),
        ("Application/CloudEvents+JSON ; charset=UTF-8", Mode.STRUCTURED),
        ('application/cloudevents+json; charset="utf-8"', Mode.STRUCTURED),
        ("application/cloudevents-batch+json", Mode.BATCH),
        ("application/json", Mode.BINARY),
        ("text/plain; x=application/cloudevents+json", Mode.BINARY),
        ("nonsense", Mode.BINARY),
    ],
)
def test_the_content_type_decides_the_mode(content_type: str, mode: Mode) -> None:
    """HTTP binding 3: a media type with the prefix application/cloudevents, in any case, is structured or
    batched.
    """
    assert mode_of(content_type) is mode


@pytest.mark.parametrize(
    "content_type",
    [
        "application/cloudevents",
        "application/cloudevents+xml",
        "application/cloudevents+avro",
        "application/cloudevents-batch+protobuf",
        "application/cloudevents+json; charset=utf-16",
    ],
)
def test_a_format_that_is_not_spoken_is_refused_by_name(content_type: str) -> None:
    with pytest.raises(UnsupportedFormatError, match=r"application/cloudevents|utf-16"):
        mode_of(content_type)


@pytest.mark.parametrize(
    ("content_type", "json"),
    [
        ("application/json", True),
        ("APPLICATION/JSON; a=b", True),
        ("text/json", True),
        ("application/problem+json", True),
        ("application/jsonl", False),
        ("text/plain; a=application/json", False),
    ],
)
def test_json_is_recognized_by_the_subtype(content_type: str, json: bool) -> None:
    """JSON format 3.1: the subtype, without parameters, is `json` or ends with `+json`."""
    assert is_json(content_type) is json


def test_the_charset_is_found_among_parameters() -> None:
    assert essence('Text/Plain; a=b; Charset="ISO-8859-1"') == ("text/plain", "iso-8859-1")
    assert is_unicode("text/plain")
    assert not is_unicode("text/plain; charset=latin-1")
