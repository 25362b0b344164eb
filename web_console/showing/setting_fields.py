"""The settings of a log as fields of a form. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, cast

from amqp_streams.log_settings import LOG_SETTINGS, Kind, LogSetting, LogSettingValues, SettingValue
from service_parts.settings.units import byte_count, duration_ms
from web_console.showing import numbers

_READERS: Final[Mapping[Kind, Callable[[str], int]]] = {
    Kind.COUNT: int,
    Kind.DURATION: duration_ms,
    Kind.SIZE: byte_count,
}
_EXAMPLES: Final = {Kind.COUNT: "4", Kind.DURATION: "7d, 12h", Kind.SIZE: "10GiB"}
_UNITS: Final = {Kind.SIZE: " in bytes", Kind.DURATION: " as a time"}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the form: `hint` says what its value means and what an empty field means.

    `choices`: the values that can be chosen; empty: the value is typed.
    """

    name: str
    label: str
    hint: str
    value: str
    choices: tuple[str, ...] = ()


def fields_of(given: Mapping[str, str], *, create: bool) -> list[Field]:
    """Return the fields, with the values that were typed; of a log that exists without the fixed settings."""
    return [
        Field(
            setting.field,
            setting.name.removesuffix("-ms").removesuffix("-bytes").replace("-", " ").capitalize()
            + _UNITS.get(setting.kind, ""),
            setting.meaning
            if setting.choices
            else f"{setting.meaning} For example {_EXAMPLES[setting.kind]}. Empty: {_default(setting)}.",
            given.get(setting.field, _default(setting) if setting.choices else ""),
            setting.choices,
        )
        for setting in LOG_SETTINGS
        if create or not setting.fixed
    ]


def _default(setting: LogSetting) -> str:
    return "no limit" if setting.default is None else _text(setting, setting.default)


def _text(setting: LogSetting, value: int | str) -> str:
    """A value as it can be typed."""
    if isinstance(value, str):
        return value
    if setting.kind is Kind.DURATION:
        return numbers.duration(value)
    if setting.kind is Kind.SIZE:
        for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
            if value % size == 0:
                return f"{value // size}{unit}"
    return str(value)


def texts_of(values: Mapping[str, object]) -> dict[str, str]:
    """Return the values of a log as they can be typed, by field. `values`: by the names of the wire."""
    found = {}
    for setting in LOG_SETTINGS:
        value = values.get(setting.name)
        if isinstance(value, str if setting.choices else int):
            found[setting.field] = _text(setting, value)
    return found


def values_of(given: Mapping[str, str], *, create: bool) -> dict[str, SettingValue]:
    """Return the values of a form, by field; None for an empty field.

    Raises:
        ValueError: a value is not valid. The message names the setting.
    """
    found: dict[str, SettingValue] = {}
    for setting in LOG_SETTINGS:
        if setting.fixed and not create:
            continue
        text = given.get(setting.field, "").strip()
        if not text:
            found[setting.field] = None if create else setting.default
            continue
        if setting.choices:
            found[setting.field] = _chosen(setting, text)
            continue
        try:
            value = _READERS[setting.kind](text[:40])
        except ValueError as error:
            message = f"{setting.name}: {error}"
            raise ValueError(message) from error
        if not setting.least <= value <= setting.most:
            message = (
                f"{setting.name}: must be from {_text(setting, setting.least)} to"
                f" {_text(setting, setting.most)} (got {text[:40]})"
            )
            raise ValueError(message)
        found[setting.field] = value
    return found


def _chosen(setting: LogSetting, text: str) -> str:
    if text not in setting.choices:
        message = f"{setting.name}: must be one of {', '.join(setting.choices)} (got {text[:40]})"
        raise ValueError(message)
    return text


def to_create(values: Mapping[str, SettingValue]) -> LogSettingValues:
    """Return the values for the creation of a log."""
    # The keys are those of the same table.
    return cast("LogSettingValues", dict(values))
