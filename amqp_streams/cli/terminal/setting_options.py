"""The options of `log create` and `log update`: one for each setting of a log, from the table of settings."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from amqp_streams.cli.terminal.console import human_bytes, human_duration
from amqp_streams.cli.terminal.parameters import Bound, Read
from amqp_streams.log_settings import LOG_SETTINGS, Kind, LogSetting
from service_parts.settings.units import byte_count, duration_ms

_F = TypeVar("_F", bound=Callable[..., Any])
_READERS: Final[dict[Kind, Callable[[str], int]]] = {
    Kind.COUNT: int,
    Kind.DURATION: duration_ms,
    Kind.SIZE: byte_count,
}
_METAVARS: Final = {Kind.COUNT: "N", Kind.DURATION: "DURATION", Kind.SIZE: "SIZE"}
_NONE: Final = "none"
_NO_DEFAULT: Final = "no bound"


def setting_options(*, create: bool) -> Callable[[_F], _F]:
    """Add options for the settings of a log.

    A command receives `Bound` values by field name, None if not given.

    With `create`: every setting, with its default. Otherwise only settings that can be changed; the value
    `none` removes a limit.
    """

    def decorate(command: _F) -> _F:
        # Click lists the option of the last decorator first.
        for setting in reversed(LOG_SETTINGS):
            if create or not setting.fixed:
                command = _option(setting, create=create)(command)
        return command

    return decorate


def _option(setting: LogSetting, *, create: bool) -> Callable[[_F], _F]:
    clearable = setting.default is None and not create
    metavar = "|".join(setting.choices) or _METAVARS[setting.kind] + (f"|{_NONE}" if clearable else "")
    text = setting.meaning.removesuffix(" Not set: no bound.").split(" Not set:")[0]
    help_text = f"{text}  [default: {_default(setting)}]" if create else text
    kind = Read(setting.kind, lambda value: _read(setting, value, clearable=clearable))
    return click.option(setting.flag, setting.field, type=kind, metavar=metavar, help=help_text)


def _read(setting: LogSetting, text: str, *, clearable: bool) -> Bound:
    """Parse a value of this setting.

    Raises:
        ValueError: the text is not valid.
    """
    if clearable and text == _NONE:
        return Bound(None)
    if setting.choices:
        if text not in setting.choices:
            message = f"{text!r} is not one of {', '.join(setting.choices)}"
            raise ValueError(message)
        return Bound(text)
    try:
        value = _READERS[setting.kind](text)
    except ValueError as error:
        if setting.kind is not Kind.COUNT:
            raise
        message = f"{text!r} is not a whole number"
        raise ValueError(message) from error
    if not setting.least <= value <= setting.most:
        message = (
            f"{text} is not in the range {written(setting, setting.least)} to"
            f" {written(setting, setting.most)}"
        )
        raise ValueError(message)
    return Bound(value)


def _default(setting: LogSetting) -> str:
    return _NO_DEFAULT if setting.default is None else written(setting, setting.default)


def written(setting: LogSetting, value: int | str) -> str:
    """Format a value in the notation of the settings: `4`, `7d`, `128MiB`, `zstd`."""
    if isinstance(value, str) or setting.kind in {Kind.COUNT, Kind.CHOICE}:
        return str(value)
    if setting.kind is Kind.DURATION:
        return human_duration(value)
    return human_bytes(value).replace(".0 ", "")
