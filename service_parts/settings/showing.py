"""The settings that are in force, with the source of each. Pure."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from service_parts.settings.reference import Contents, Form, Kind, Setting
from service_parts.settings.sources import Given, Name

DEFAULT: Final = "default"
_SIZES: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_DURATIONS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"), (1, "ms"))
_PASSWORD: Final = re.compile(r"((?:://|,)[^/@\s:,]*):[^@\s]*@")
"""Rather too much than too little: everything up to the next `@`."""


@dataclass(frozen=True, slots=True)
class InForce:
    """A setting, its value as people write it, and its source: a flag, a variable, a file or `default`.

    `value` is None if the setting has no value.
    """

    name: str
    value: object
    source: str


def in_force(contents: Contents, given: Mapping[Name, Given]) -> list[InForce]:
    """Return all settings: those of `contents` in their order, then tables with names that users chose.

    Passwords in URLs are replaced by `***`.
    """
    known = dict(_known(contents))
    rows = [
        InForce(".".join(name), _hidden(given[name].value), given[name].source)
        if name in given
        else InForce(".".join(name), written(setting, setting.default), DEFAULT)
        for name, setting in known.items()
    ]
    rows += [
        InForce(".".join(name), _hidden(one.value), one.source)
        for name, one in given.items()
        if name not in known
    ]
    return rows


def written(setting: Setting, value: object) -> object:
    """Return a value in the notation of files: durations and sizes with a unit."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    units = {Kind.SIZE: _SIZES, Kind.DURATION: _DURATIONS}.get(setting.kind, ())
    for unit, letters in units:
        if value >= unit and value % unit == 0:
            return f"{round(value / unit)}{letters}"
    return round(value) if value == round(value) else value


def _known(contents: Contents) -> Iterator[tuple[Name, Setting]]:
    for setting in contents.settings:
        yield (setting.name,), setting
    for section in contents.sections:
        if section.form is Form.TABLE:
            yield from (((section.name, setting.name), setting) for setting in section.settings)


def _hidden(value: object) -> object:
    if isinstance(value, str):
        return _PASSWORD.sub(r"\1:***@", value)
    if isinstance(value, list | tuple):
        return [_hidden(one) for one in value]
    if isinstance(value, Mapping):
        return {name: _hidden(one) for name, one in value.items()}
    return value
