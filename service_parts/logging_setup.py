"""[io] The log of a process, on stderr: each line has an event name and key=value pairs.

The records of the standard library's loggers have the same form.

Laws: a value whose key names a secret is masked. A text from a peer cannot begin a new line or contain a
control sequence.
"""

import logging
import re
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, Final, TextIO

import structlog

from service_parts.settings.choices import LogFormat, LogLevel

MASKED: Final = "***"
# A value is masked if its key contains one of these, also inside another value.
SECRETS: Final = ("password", "passwd", "token", "secret", "credential", "authorization", "private_key")

# Keys that structlog writes itself: their values are not masked.
_OURS: Final = frozenset({"event", "level", "timestamp", "exc_info", "_record", "_from_structlog"})

_PAIRS: Final = re.compile(r"\w+(?: \w+=%[-\d.]*[sdrf])*")
"""The form of a text of a logger of the standard library that is an event with fields."""

# Loggers of libraries whose INFO lines do not help an operator.
_CHATTY: Final = ("asyncio", "uvicorn", "uvicorn.access", "uvicorn.error", "websockets", "sqlalchemy")

_CAUSED_BY_PEERS: Final = frozenset({"ASGI callable returned without completing handshake."})
"""Texts that the web server logs as errors although a peer causes them: here with a request for a WebSocket
that is refused.
"""


def configure(
    log_format: LogFormat = LogFormat.TEXT,
    level: LogLevel = LogLevel.INFO,
    *,
    stream: TextIO | None = None,
    tags: Mapping[str, object] | None = None,
) -> None:
    """Set up logging for the process. `stream` is stderr except in tests. May be called again.

    `tags`: key=value pairs of every line.
    """
    target = stream or sys.stderr
    number = logging.getLevelNamesMapping()[level.upper()]
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        *((_tagged(tags),) if tags else ()),
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        mask_secrets,
        escape_controls,
    ]
    finish: list[structlog.typing.Processor]
    if log_format is LogFormat.JSON:
        finish = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    else:
        finish = [
            structlog.dev.ConsoleRenderer(
                colors=target.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        ]
    structlog.configure(
        processors=[*shared, *finish],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=target),
        cache_logger_on_first_use=False,  # modules make their loggers at import, before this is called
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            pass_foreign_args=True,
            foreign_pre_chain=[split_pairs, *shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *finish],
        )
    )
    root = logging.getLogger()
    # Replaced, because this may be called again.
    root.handlers[:] = [handler]
    root.setLevel(number)
    logging.captureWarnings(capture=True)
    for name in _CHATTY:
        logger = logging.getLogger(name)
        # uvicorn adds handlers of its own, whose lines would have another form.
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(max(number, logging.WARNING) if number > logging.DEBUG else logging.INFO)
        logger.filters[:] = [] if number <= logging.DEBUG else [_is_news]


def _tagged(tags: Mapping[str, object]) -> structlog.typing.Processor:
    # Not context variables: threads and callbacks of the event loop do not inherit them.
    def tag(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event.update(tags)
        return event

    return tag


def _is_news(record: logging.LogRecord) -> bool:
    return record.getMessage() not in _CAUSED_BY_PEERS


def split_pairs(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor that gives records of the standard library's loggers their fields.

    It splits the text before the values are in it (`kafka_held_back topic=%s`): no value can add a field.
    Other texts stay as they are.
    """
    args, text = event.pop("positional_args", ()), event["_record"].msg
    if isinstance(args, tuple) and args and isinstance(text, str) and _PAIRS.fullmatch(text):
        name, *pairs = text.split(" ")
        if len(pairs) == len(args):
            fields = [pair.split("=", 1) for pair in pairs]
            # Before the other keys, as in lines of structlog's loggers.
            event["event"] = name
            for (key, form), value in zip(fields, args, strict=True):
                if key not in event:
                    event[key] = value if isinstance(value, int) else form % value
    return event


def mask_secrets(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor that masks every value whose key names a secret."""
    for key, value in event.items():
        if key not in _OURS:
            event[key] = MASKED if _is_secret(key) and value is not None else _masked(value)
    return event


def escape_controls(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """A structlog processor that escapes control characters.

    A text from a peer must not begin a new line or control a terminal.
    """
    for key, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            event[key] = value.encode("unicode_escape").decode("ascii")
    return event


def _is_secret(key: object) -> bool:
    name = str(key).lower().replace("-", "_")
    return any(secret in name for secret in SECRETS)


def _masked(value: object) -> object:
    if isinstance(value, Mapping):
        return {
            key: MASKED if _is_secret(key) and inner is not None else _masked(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_masked(inner) for inner in value]
    return value
