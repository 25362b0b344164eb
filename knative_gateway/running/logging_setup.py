"""[io] How the gateway's logging is set up: structlog, one event name and key=value a line, to stderr; others' loggers join in.

Law: a secret is never written under a name that says what it is, and no stranger's text writes lines of its own.
"""

import logging
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, Final, TextIO

import structlog

from knative_gateway.config import LogFormat, LogLevel

MASKED: Final = "***"
SECRETS: Final = ("password", "passwd", "token", "secret", "credential", "authorization", "private_key")
_OURS: Final = frozenset({"event", "level", "timestamp", "exc_info", "_record", "_from_structlog"})
# Loggers of libraries that tell at INFO what only their authors want to know.
_CHATTY: Final = ("asyncio", "uvicorn", "uvicorn.access", "uvicorn.error", "aiohttp", "aiohttp.access", "sqlalchemy")


def configure(log_format: LogFormat = LogFormat.TEXT, level: LogLevel = LogLevel.INFO, *, stream: TextIO | None = None) -> None:
    """Set up logging for the process; `stream` is stderr unless a test says otherwise. May be called again."""
    target = stream or sys.stderr
    number = logging.getLevelNamesMapping()[level.upper()]
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        tidied,
    ]
    if log_format is LogFormat.JSON:
        finish: list[structlog.typing.Processor] = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    else:
        finish = [structlog.dev.ConsoleRenderer(colors=target.isatty(), exception_formatter=structlog.dev.plain_traceback)]
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
    logging.getLogger("uvicorn.access").propagate = False


def tidied(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The processor that masks secrets and escapes control characters."""
    for key, value in event.items():
        if key not in _OURS:
            event[key] = MASKED if _is_secret(key) and value is not None else _masked(value)
        if isinstance(event[key], str) and not event[key].isprintable():
            event[key] = event[key].encode("unicode_escape").decode("ascii")
    return event


def _is_secret(key: object) -> bool:
    name = str(key).lower().replace("-", "_")
    return any(secret in name for secret in SECRETS)


def _masked(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: MASKED if _is_secret(key) and inner is not None else _masked(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(inner) for inner in value]
    return value
