"""Values with units are read by one reader each, and refused in its words."""

import click
import pytest

from amqp_streams.cli.terminal.parameters import NAME, PROPERTY, SIZE, Read, now_ms, usage_error


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (SIZE, "10GiB", 10 << 30),
        (NAME, "temps", "temps"),
        (PROPERTY, "a=b", ("a", "b")),
    ],
)
def test_text_is_read(kind: Read, text: str, value: object) -> None:
    assert kind.convert(text, None, None) == value


@pytest.mark.parametrize(
    ("kind", "text", "complaint"), [(SIZE, "7x", "not a valid size"), (NAME, "a/b", "not a valid log name")]
)
def test_wrong_text_is_refused_in_the_readers_words(kind: Read, text: str, complaint: str) -> None:
    with pytest.raises(click.BadParameter, match=complaint):
        kind.convert(text, None, None)


def test_a_default_that_is_a_value_already_stays() -> None:
    assert SIZE.convert(100, None, None) == 100


def test_a_usage_error_names_the_flag() -> None:
    assert "'--from'" in usage_error("--from", "no place").format_message()


def test_the_present_is_in_milliseconds() -> None:
    assert 1_700_000_000_000 < now_ms() < 10_000_000_000_000
