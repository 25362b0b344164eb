"""Log lines: one event each, no secrets, no lines of strangers."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from knative_gateway.config import LogFormat, LogLevel
from knative_gateway.running import logging_setup


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


def test_secrets_are_masked_and_control_characters_escaped() -> None:
    stream = io.StringIO()
    logging_setup.configure(LogFormat.JSON, LogLevel.INFO, stream=stream)
    structlog.get_logger("x").info("happened", url="a\nb", token="t", inner=[{"Authorization": "Bearer"}], password=None)
    told = json.loads(stream.getvalue())
    assert (told["event"], told["url"], told["token"], told["inner"], told["password"]) == (
        "happened",
        "a\\nb",
        "***",
        [{"Authorization": "***"}],
        None,
    )


def test_lines_below_the_level_are_left_out() -> None:
    stream = io.StringIO()
    logging_setup.configure(LogFormat.TEXT, LogLevel.WARNING, stream=stream)
    structlog.get_logger("x").info("happened")
    logging.getLogger("uvicorn.error").info("chatter")
    assert not stream.getvalue()
    logging.getLogger("amqp_streams.client").warning("connection_lost")
    assert "connection_lost" in stream.getvalue()
