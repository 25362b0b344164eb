"""The name of a log, and its settings in one table. Pure.

`$management`, the client, the command line, the configuration and the stored `log.json` take names, bounds,
defaults and texts from here. A new setting is one name in `names.py`, one row and one key here, and one field
in `config.LogSettings`; then the module that acts on it. docs/management.md shows the table
(tests/amqp_streams/test_log_settings.py compares them).
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias, TypedDict

from amqp_streams import names
from service_parts.settings.units import BYTES_MAX, MILLISECONDS_MAX

PARTITIONS_MAX: Final = 1024
"""Partitions of one log."""
LOG_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,253}[A-Za-z0-9])?")
SettingValue: TypeAlias = int | str | None
"""A value of a setting; None: no limit."""
_DAY_MS: Final = 24 * 3600 * 1000


def log_name(name: str) -> str:
    """Check the name of an event log, which is an AMQP address and the name of a folder, and return it.

    Raises:
        ValueError: it is empty, too long, or has a character other than letters, digits, dot, hyphen and
        underscore.
    """
    # The name is also that of a folder, so no character may have a meaning in a path.
    if not LOG_NAME.fullmatch(name):
        message = (
            f"{name!r} is not a valid log name: use 1 to 255 letters, digits, '.', '-' and '_', starting and"
            " ending with a letter or digit"
        )
        raise ValueError(message)
    return name


class Compression(StrEnum):
    """How closed segments are compressed on the disk."""

    NONE = "none"
    ZSTD = "zstd"
    LZ4 = "lz4"


class Kind(StrEnum):
    """How people write a value: a count, a duration such as `7d`, a size such as `10GiB`, or a word."""

    COUNT = "count"
    DURATION = "duration"
    SIZE = "size"
    CHOICE = "choice"


@dataclass(frozen=True, slots=True)
class LogSetting:
    """One setting: an integer in its unit (partitions, milliseconds, bytes) from `least` to `most`, or one of
    `choices`.

    `default` None: without the setting the log has no limit, and None removes the limit. `fixed`: set when
    the log is created and never changed. `short`: the name without its unit, for the command line and the
    configuration file. `in_info`: shown by `$info` as well as by `$management`.
    """

    name: str
    kind: Kind
    default: int | str | None
    meaning: str
    least: int = 0
    most: int = 0
    choices: tuple[str, ...] = ()
    short: str | None = None
    fixed: bool = False
    in_info: bool = False

    @property
    def field(self) -> str:
        """The name as an identifier, for example `retention_ms`.

        In Python, the configuration file and `--json`.
        """
        return self.name.replace("-", "_")

    @property
    def flag(self) -> str:
        """The option of `log create` and `log update`."""
        return f"--{self.short or self.name}"


LOG_SETTINGS: Final = (
    LogSetting(
        names.INFO_PARTITIONS,
        Kind.COUNT,
        default=1,
        least=1,
        most=PARTITIONS_MAX,
        fixed=True,
        meaning="Number of partitions, fixed when the log is created.",
    ),
    LogSetting(
        names.INFO_RETENTION_MS,
        Kind.DURATION,
        default=None,
        least=1000,
        most=MILLISECONDS_MAX,
        short="retention",
        in_info=True,
        meaning=(
            "Events older than this may be deleted. Not set: events are never deleted because of their age."
        ),
    ),
    LogSetting(
        names.INFO_RETENTION_BYTES,
        Kind.SIZE,
        default=None,
        least=1 << 20,
        most=BYTES_MAX,
        in_info=True,
        meaning="A partition that is larger loses its oldest segments. Not set: no bound.",
    ),
    LogSetting(
        names.SEGMENT_BYTES,
        Kind.SIZE,
        default=128 << 20,
        least=64 << 10,
        most=1 << 31,
        meaning="A segment is closed at this size.",
    ),
    LogSetting(
        names.SEGMENT_MS,
        Kind.DURATION,
        default=_DAY_MS,
        least=1000,
        most=MILLISECONDS_MAX,
        short="segment-age",
        meaning="A segment is closed at this age, so that retention can delete it later.",
    ),
    LogSetting(
        names.COMPRESSION,
        Kind.CHOICE,
        default=Compression.NONE.value,
        choices=tuple(each.value for each in Compression),
        meaning="How closed segments are compressed on the disk.",
    ),
)
BY_FIELD: Final = {setting.field: setting for setting in LOG_SETTINGS}


class LogSettingValues(TypedDict, total=False):
    """Settings as a caller passes them, in the units of the table.

    A missing value and None stand for the node's default.
    """

    partitions: int | None
    retention_ms: int | None
    retention_bytes: int | None
    segment_bytes: int | None
    segment_ms: int | None
    compression: str | None
