"""[io] The log of a process: structlog, one event name and key=value a line, on stderr. The standard
library's loggers join in.

Laws: a value is never written under a name that calls it a secret, and no text of a peer writes lines or
control sequences.
"""

import logging
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, Final, TextIO

import structlog

from service_parts.settings.choices import LogFormat, LogLevel

MASKED: Final = "***"
# Parts of key names whose values are masked, however deep in a value they are.
SECRETS: Final = ("password", "passwd", "token", "secret", "credential", "authorization", "private_key")

# Keys that are structlog's own.
_OURS: Final = frozenset({"event", "level", "timestamp", "exc_info", "_record", "_from_structlog"})

# Loggers of libraries whose INFO lines are of use to their authors only.
_CHATTY: Final = ("asyncio", "uvicorn", "uvicorn.access", "uvicorn.error", "websockets", "sqlalchemy")

_CAUSED_BY_PEERS: Final = frozenset({"ASGI callable returned without completing handshake."})
"""What the web server calls an error, and any peer causes by asking for a WebSocket that is refused."""


def configure(
    log_format: LogFormat = LogFormat.TEXT, level: LogLevel = LogLevel.INFO, *, stream: TextIO | None = None
) -> None:
    """Set up logging for the process. `stream` is stderr except in tests. May be called again."""
    target = stream or sys.stderr
    number = logging.getLevelNamesMapping()[level.upper()]
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
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
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *finish],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
    logging.captureWarnings(capture=True)
    for name in _CHATTY:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(max(number, logging.WARNING) if number > logging.DEBUG else logging.INFO)
        logger.filters[:] = [] if number <= logging.DEBUG else [_is_news]


def _is_news(record: logging.LogRecord) -> bool:
    return record.getMessage() not in _CAUSED_BY_PEERS


def mask_secrets(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The processor that masks every value whose key calls it a secret."""
    for key, value in event.items():
        if key not in _OURS:
            event[key] = MASKED if _is_secret(key) and value is not None else _masked(value)
    return event


def escape_controls(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """The processor that escapes control characters: names of peers cannot move the reader's cursor or write
    lines of their own.
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
