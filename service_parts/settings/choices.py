"""Settings that every service has, with their values. Pure."""

from enum import StrEnum


class LogFormat(StrEnum):
    """How log lines look: for people or for programs."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The least severe log line that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
