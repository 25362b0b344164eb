"""Kinds of option values: which values they accept, and that refused values are not shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_connector.options.option_kinds import (
    FLAG,
    Endpoint,
    Kind,
    choice,
    duration,
    endpoints,
    names,
    number,
    plain,
    size,
)

KINDS = {
    "flag": FLAG,
    "number": number(1, 10),
    "size": size(1, 1 << 40),
    "duration": duration(0),
    "choice": choice("FAILFAST", "PERMISSIVE"),
    "names": names("names"),
    "endpoints": endpoints(),
    "plain": plain("text"),
}


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("flag", " True", True),
        ("flag", "FALSE", False),
        ("number", "10", 10),
        ("size", "8m", 8 << 20),
        ("size", "1 GiB", 1 << 30),
        ("size", "2t", 2 << 40),
        ("size", "77", 77),
        ("duration", "15m", 900_000),
        ("duration", "15", 15),
        ("duration", "2 H", 7_200_000),
        ("choice", "failfast", "FAILFAST"),
        ("names", " a , b", ("a", "b")),
        ("endpoints", "h", (Endpoint("amqp://h:5672"),)),
        (
            "endpoints",
            "amqps://h, ws://h:81/amqp?x=1",
            (Endpoint("amqps://h:5671"), Endpoint("ws://h:81/amqp?x=1")),
        ),
        ("endpoints", "amqp://[::1]:5673/ignored", (Endpoint("amqp://[::1]:5673"),)),
    ],
)
def test_values_are_read(kind: str, text: str, value: object) -> None:
    if (kind, text) == ("size", "2t"):
        assert size(1).read(text) == value
        return
    assert KINDS[kind].read(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("flag", "yes"),
        ("number", "0"),
        ("number", "11"),
        ("number", "1.5"),
        ("size", "8x"),
        ("size", "-1"),
        ("size", "0"),
        ("size", "2t"),
        ("duration", "soon"),
        ("choice", "lax"),
        ("names", "a,,b"),
        ("names", "a,a"),
        ("endpoints", ""),
        ("endpoints", "http://h"),
        ("endpoints", "amqp://h:99999"),
        ("endpoints", "h,h:5672"),
        ("endpoints", "amqp://user:secret@h"),
        ("plain", ""),
    ],
)
def test_a_text_that_is_not_a_value_is_refused_with_the_expected_form(kind: str, text: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        KINDS[kind].read(text)
    assert not text or len(text) < 3 or text not in str(refused.value)
    assert "secret" not in str(refused.value)


@given(st.text(), st.sampled_from(sorted(KINDS)))
def test_any_text_is_a_value_or_a_value_error(text: str, kind: str) -> None:
    found: Kind = KINDS[kind]
    try:
        found.read(text)
    except ValueError as error:
        assert str(error).startswith(found.words[:5])  # noqa: PT017 (both ways are right)
