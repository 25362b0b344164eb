"""The reference of configuration files is generated from the models of the settings."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import pytest
from jsonschema import Draft202012Validator
from pydantic import AliasChoices, BeforeValidator, ByteSize, Field, model_validator

from service_parts.settings.fields import Bytes, Milliseconds, Settings
from service_parts.settings.reference import Form, Kind, Shape, contents, json_schema


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Door(Settings):
    host: str
    port: int

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        return value


class Table(Settings):
    """A table."""

    wait_ms: Milliseconds = Field(
        default=1500, ge=0, description="Waits.", validation_alias=AliasChoices("wait", "wait_ms")
    )
    room: Bytes | None = Field(default=None, ge=1024)
    size: ByteSize = ByteSize(2048)


class Entry(Settings):
    """An entry."""

    name: str = Field(min_length=1, max_length=9)
    share: float = Field(default=0.5, gt=0, le=1)


class Whole(Settings):
    count: int = Field(ge=1, le=9, description="How many.")
    colour: Colour = Colour.RED
    door: Door = Door(host="h", port=1)
    files: Annotated[tuple[Path, ...], BeforeValidator(lambda value: value)] = ()
    switch: bool = False
    words: tuple[str, ...] = Field(default=("a",), min_length=1)
    teams: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    table: Table | None = None
    entries: tuple[Entry, ...] = Field(default=(), validation_alias=AliasChoices("entry", "entries"))
    named: dict[str, Entry] = Field(default_factory=dict)


READ = contents(Whole)
SETTINGS = {setting.name: setting for setting in READ.settings}
SECTIONS = {section.name: section for section in READ.sections}
SCHEMA = json_schema(READ, "Whole")


def test_every_kind_and_shape_of_value_is_known() -> None:
    told = {name: (setting.kind, setting.shape) for name, setting in SETTINGS.items()}
    assert told == {
        "count": (Kind.NUMBER, Shape.ONE),
        "colour": (Kind.CHOICE, Shape.ONE),
        "door": (Kind.ADDRESS, Shape.ONE),
        "files": (Kind.PATH, Shape.ONE_OR_LIST),
        "switch": (Kind.SWITCH, Shape.ONE),
        "words": (Kind.TEXT, Shape.LIST),
        "teams": (Kind.TEXT, Shape.NAMED_LISTS),
    }
    assert [one.kind for one in SECTIONS["table"].settings] == [Kind.DURATION, Kind.SIZE, Kind.SIZE]
    assert [one.kind for one in SECTIONS["entry"].settings] == [Kind.TEXT, Kind.SECONDS]


def test_bounds_defaults_names_and_meanings_are_those_of_the_model() -> None:
    count = SETTINGS["count"]
    assert (count.required, count.minimum, count.maximum, count.meaning) == (True, 1, 9, "How many.")
    assert (SETTINGS["words"].shortest, SETTINGS["words"].default) == (1, ["a"])
    assert (SETTINGS["colour"].choices, SETTINGS["colour"].default) == (("red", "blue"), "red")
    wait, room, size = SECTIONS["table"].settings
    assert (wait.name, wait.others, wait.default, wait.maximum) == ("wait", ("wait_ms",), 1500, None)
    assert (room.default, room.minimum, size.default) == (None, 1024, 2048)
    name, share = SECTIONS["entry"].settings
    assert (name.shortest, name.longest, share.above, share.maximum) == (1, 9, 0, 1)


def test_sections_are_tables_named_tables_and_arrays_of_tables() -> None:
    assert {name: (section.form, section.meaning) for name, section in SECTIONS.items()} == {
        "table": (Form.TABLE, "A table."),
        "entry": (Form.ARRAY, "An entry."),
        "named": (Form.NAMED, "An entry."),
    }
    assert SECTIONS["entry"].others == ("entries",)


@pytest.mark.parametrize(
    "file",
    [
        {},
        {"count": 9, "colour": "blue", "door": "h:1", "switch": True},
        {"files": "a"},
        {"files": ["a", "b"], "words": ["x"], "teams": {"t": ["a"]}},
        {"table": {"wait": "1h30m", "room": "10 KiB", "size": 5}},
        {"table": {"wait_ms": 0}},
        {"entry": [{"name": "n", "share": 0.1}], "named": {"any": {}}},
        {"entries": [{"name": "n"}]},
    ],
)
def test_the_schema_accepts_what_a_file_may_contain(file: dict[str, object]) -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert [error.message for error in Draft202012Validator(SCHEMA).iter_errors(file)] == []


@pytest.mark.parametrize(
    "file",
    [
        {"counts": 1},
        {"count": 10},
        {"count": "1"},
        {"colour": "green"},
        {"door": {"host": "h", "port": 1}},
        {"switch": "yes"},
        {"words": []},
        {"words": "x"},
        {"teams": {"t": "a"}},
        {"table": {"wait": "1 hour"}},
        {"table": {"room": 5}},
        {"table": {"more": 1}},
        {"entry": {"name": "n"}},
        {"entry": [{}]},
        {"entry": [{"name": "0123456789"}]},
        {"named": {"any": {"share": 0}}},
    ],
)
def test_the_schema_refuses_everything_else(file: dict[str, object]) -> None:
    assert list(Draft202012Validator(SCHEMA).iter_errors(file))
