"""The form of the log's lines, and what they never contain."""

import io
import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from service_parts.logging_setup import MASKED, configure
from service_parts.settings.choices import LogFormat, LogLevel


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


class Log:
    """A configured log that is read back."""

    def __init__(self, log_format: LogFormat = LogFormat.JSON, level: LogLevel = LogLevel.INFO) -> None:
        self.stream = io.StringIO()
        configure(log_format, level, stream=self.stream)
        self.log = structlog.get_logger("amqp_streams.server")

    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines()]


def test_a_line_of_json_has_the_event_its_level_time_and_values() -> None:
    log = Log()
    log.log.info("link_detached", link="l", condition="amqp:link:stolen", credit=3)
    (event,) = log.events()
    assert event.pop("timestamp").endswith("Z")
    assert event == {
        "event": "link_detached",
        "level": "info",
        "link": "l",
        "condition": "amqp:link:stolen",
        "credit": 3,
    }


def test_a_line_of_text_has_no_colours_off_a_terminal() -> None:
    log = Log(LogFormat.TEXT)
    log.log.warning("link_detached", link="l")
    (line,) = log.lines()
    assert "link_detached" in line
    assert line.endswith("link=l")
    assert "\x1b" not in line


@pytest.mark.parametrize("log_format", LogFormat)
@pytest.mark.parametrize(
    "key", ["password", "Password", "user-token", "client_secret", "secret", "authorization"]
)
def test_secrets_are_masked_at_any_depth(log_format: LogFormat, key: str) -> None:
    log = Log(log_format)
    log.log.info("user_added", **{key: "hunter2"})
    log.log.info("user_added", settings={"users": [{key: "hunter2", "name": "bob"}]})
    log.log.info("user_added", **{key: 271828})
    text = log.stream.getvalue()
    assert "hunter2" not in text
    assert "271828" not in text
    assert text.count("***") == 3
    assert "bob" in text


def test_an_unset_secret_is_shown_as_unset() -> None:
    log = Log()
    log.log.info("listening", token=None)
    assert log.events()[0]["token"] is None


@pytest.mark.parametrize("log_format", LogFormat)
def test_a_peers_names_write_no_lines_and_no_escape_sequences(log_format: LogFormat) -> None:
    log = Log(log_format)
    log.log.info("link_attached", link="x\n2026 [error] all lost\x1b[2J")
    assert len(log.lines()) == 1
    assert "\x1b" not in log.stream.getvalue()


def test_the_standard_librarys_loggers_write_the_same_lines() -> None:
    log = Log()
    logging.getLogger("some.library").warning("disk %s", "full", extra={"unused": 1})
    (event,) = log.events()
    assert (event["event"], event["level"], event["logger"]) == ("disk full", "warning", "some.library")


def test_fields_of_a_standard_logger_are_fields() -> None:
    log = Log()
    logger = logging.getLogger("some.library")
    logger.warning("topic_away topic=%s partition=%d seconds=%.1f", "t a=b\n", 3, 0.25)
    event = log.events()[0]
    assert event["event"] == "topic_away"
    assert (event["topic"], event["partition"], event["seconds"]) == ("t a=b\\n", 3, "0.2")
    logger.warning("login_failed user=%s password=%s", "u", "very")
    assert log.events()[1]["password"] == MASKED


@pytest.mark.parametrize(
    ("text", "arguments", "event"),
    [
        ("moved log=%s: another text", ("l",), "moved log=l: another text"),
        ("plain text %s", ("a=b",), "plain text a=b"),
        ("share=%s", ("a",), "share=a"),
        ("moved log=%(log)s", ({"log": "l"},), "moved log=l"),
        ("began", (), "began"),
        ("moved log=l", (), "moved log=l"),
        ("moved event=%s level=%s", ("a", "b"), "moved"),
    ],
)
def test_other_texts_of_a_standard_logger_stay_as_they_are(
    text: str, arguments: tuple[object, ...], event: str
) -> None:
    log = Log()
    logging.getLogger("some.library").warning(text, *arguments)
    (found,) = log.events()
    assert (found["event"], found["level"]) == (event, "warning")


def test_python_warnings_are_log_lines() -> None:
    log = Log()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=True)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    assert "DeprecationWarning: old" in log.events()[0]["event"]


@pytest.mark.parametrize("log_format", LogFormat)
def test_a_traceback_comes_with_the_exception(log_format: LogFormat) -> None:
    log = Log(log_format)
    try:
        raise ValueError("nobody")
    except ValueError:
        log.log.exception("connection_failed", peer="p")
    assert "ValueError: nobody" in log.stream.getvalue()
    assert "test_logging_setup.py" in log.stream.getvalue()


def test_levels_below_the_configured_one_are_left_out() -> None:
    log = Log(level=LogLevel.WARNING)
    log.log.info("no")
    logging.getLogger("some.library").info("no")
    log.log.warning("yes")
    assert [event["event"] for event in log.events()] == ["yes"]


def test_web_server_chatter_is_only_for_debugging() -> None:
    log = Log()
    logging.getLogger("uvicorn.error").info("Started server process")
    assert log.lines() == []
    log = Log(level=LogLevel.DEBUG)
    logging.getLogger("uvicorn.error").info("Started server process")
    assert len(log.lines()) == 1


def test_a_refused_websocket_is_not_logged_as_an_error() -> None:
    """Any client can cause one, at any rate."""
    words = "ASGI callable returned without completing handshake."
    for level, lines in ((LogLevel.INFO, 1), (LogLevel.DEBUG, 2)):
        stream = io.StringIO()
        configure(LogFormat.JSON, level, stream=stream)
        logging.getLogger("uvicorn.error").error(words)
        logging.getLogger("uvicorn.error").error("something else")
        assert len(stream.getvalue().splitlines()) == lines


def test_configuring_again_replaces_what_was_before() -> None:
    first = Log()
    second = Log()
    second.log.info("once")
    logging.getLogger("x").warning("once")
    assert first.lines() == []
    assert len(second.lines()) == 2
