"""Option values with units or notations of their own; each kind has one parser."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import click

from amqp_streams.cli.terminal.drafts import parse_property
from amqp_streams.log_settings import SettingValue, log_name
from service_parts.settings.units import byte_count


class Read(click.ParamType):  # type: ignore[type-arg]  # generic only in click's newest releases
    """A parameter whose parser raises ValueError with a message for people."""

    def __init__(self, name: str, read: Callable[[str], object]) -> None:
        self.name = name
        self._read: Final = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See click."""
        # Click also converts defaults, which have the right type already.
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@dataclass(frozen=True, slots=True)
class Bound:
    """A setting that was given: its value, or None to remove the bound."""

    value: SettingValue


SIZE: Final = Read("size", byte_count)
NAME: Final = Read("name", log_name)
PROPERTY: Final = Read("name=value", parse_property)


def now_ms() -> int:
    """The current time, in milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


def usage_error(option: str, error: Exception | str) -> click.UsageError:
    """The usage error for a value of an option that is not valid."""
    return click.BadParameter(str(error), param_hint=f"'{option}'")
