"""The contents of a configuration file, derived from the models of its settings.

For the JSON schema and the reference pages. Pure.

A field that is a model is a table; a tuple of models is an array of tables; a dictionary of models is a table
of named tables. A model with a validator that runs before its fields is written as one text
(`127.0.0.1:5672`).
"""

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, MaxLen, MinLen
from pydantic import AliasChoices, BaseModel, BeforeValidator, ByteSize
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from service_parts.settings.fields import Bytes, Milliseconds
from service_parts.settings.units import BYTES_MAX, MILLISECONDS_MAX

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_DURATION: Final = {"type": "string", "pattern": r"^\s*(0|([0-9]+(\.[0-9]+)?(ms|[smhdw]))+)\s*$"}
_SIZE: Final = {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)? ?([kKmMgGtT]?[iI]?[bB])?\s*$"}
_UNIVERSAL: Final = frozenset({BYTES_MAX, MILLISECONDS_MAX})
"""The maximum of every size and of every duration. The reference does not show them: a setting with only this
maximum is not bounded in practice.
"""


class Kind(StrEnum):
    """The type of one value."""

    ADDRESS = "address"
    CHOICE = "choice"
    DURATION = "duration"
    NUMBER = "number"
    PATH = "path"
    SECONDS = "seconds"
    SIZE = "size"
    SWITCH = "switch"
    TEXT = "text"


class Shape(StrEnum):
    """How many values a setting has, and how a file writes them."""

    ONE = "one"
    LIST = "list"
    ONE_OR_LIST = "one or list"
    NAMED = "named"
    """A table whose keys are names."""
    NAMED_LISTS = "named lists"


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting with a value of its own, unlike a section, which only contains settings.

    `minimum` and `maximum` bound numbers, `shortest` and `longest` texts or lists.
    """

    name: str
    kind: Kind
    meaning: str
    others: tuple[str, ...] = ()
    """Other names that the file may use for this setting."""
    shape: Shape = Shape.ONE
    choices: tuple[str, ...] = ()
    required: bool = False
    default: object = None
    minimum: float | None = None
    above: float | None = None
    """An exclusive minimum."""
    maximum: float | None = None
    shortest: int | None = None
    longest: int | None = None


class Form(StrEnum):
    """How a file writes a section."""

    TABLE = "[{}]"
    NAMED = "[{}.NAME]"
    ARRAY = "[[{}]]"


@dataclass(frozen=True, slots=True)
class Section:
    """Settings that have their own table."""

    name: str
    form: Form
    meaning: str
    settings: tuple[Setting, ...]
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Contents:
    """A whole file: the settings before the first table, then the sections."""

    settings: tuple[Setting, ...]
    sections: tuple[Section, ...]


def contents(model: type[BaseModel]) -> Contents:
    """Return everything that a file for this model may contain, in the order of the model."""
    settings, sections = [], []
    for name, field in model.model_fields.items():
        inner, form = _inner_model(field)
        first, *others = _names(name, field)
        if inner is None:
            settings.append(_setting(name, field))
        else:
            meaning = field.description or inspect.getdoc(inner) or ""
            members = tuple(_setting(*member) for member in inner.model_fields.items())
            sections.append(Section(first, form, meaning, members, tuple(others)))
    return Contents(tuple(settings), tuple(sections))


def json_schema(file: Contents, title: str) -> dict[str, object]:
    """Return the JSON schema of the file, for editors.

    Only arrays of tables have required settings: a flag or a variable may set what the file leaves out.
    """
    properties: dict[str, object] = {}
    for setting in file.settings:
        properties |= _named(setting, _property(setting))
    for section in file.sections:
        properties |= _named(section, _table(section))
    return {
        "$schema": DIALECT,
        "title": title,
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }


def _named(one: Setting | Section, schema: dict[str, object]) -> dict[str, object]:
    others: dict[str, object] = {other: {**schema, "deprecated": True} for other in one.others}
    return {one.name: schema, **others}


def _table(section: Section) -> dict[str, object]:
    properties: dict[str, object] = {}
    for setting in section.settings:
        properties |= _named(setting, _property(setting))
    table: dict[str, object] = {"type": "object", "properties": properties, "additionalProperties": False}
    match section.form:
        case Form.TABLE:
            return {"description": section.meaning, **table}
        case Form.NAMED:
            return {"description": section.meaning, "type": "object", "additionalProperties": table}
        case Form.ARRAY:
            table["required"] = [setting.name for setting in section.settings if setting.required]
            return {"description": section.meaning, "type": "array", "items": table}


def _property(setting: Setting) -> dict[str, object]:
    one = _value(setting)
    many: dict[str, object] = {"type": "array", "items": one} | _present(
        minItems=setting.shortest, maxItems=setting.longest
    )
    shapes: Mapping[Shape, dict[str, object]] = {
        Shape.ONE: one,
        Shape.LIST: many,
        Shape.ONE_OR_LIST: {"anyOf": [one, many]},
        Shape.NAMED: {"type": "object", "additionalProperties": one},
        Shape.NAMED_LISTS: {"type": "object", "additionalProperties": many},
    }
    default = [] if setting.default is None else [("default", setting.default)]
    return {"description": setting.meaning, **shapes[setting.shape], **dict(default)}


def _value(setting: Setting) -> dict[str, object]:
    bounds = _present(minimum=setting.minimum, exclusiveMinimum=setting.above, maximum=setting.maximum)
    lengths = (
        _present(minLength=setting.shortest, maxLength=setting.longest) if setting.shape is Shape.ONE else {}
    )
    kinds: Mapping[Kind, dict[str, object]] = {
        Kind.ADDRESS: {"type": "string"},
        Kind.CHOICE: {"enum": list(setting.choices)},
        Kind.DURATION: {"anyOf": [_DURATION, {"type": "integer", **bounds}]},
        Kind.NUMBER: {"type": "integer", **bounds},
        Kind.PATH: {"type": "string"},
        Kind.SECONDS: {"type": "number", **bounds},
        Kind.SIZE: {"anyOf": [_SIZE, {"type": "integer", **bounds}]},
        Kind.SWITCH: {"type": "boolean"},
        Kind.TEXT: {"type": "string", **lengths},
    }
    return kinds[setting.kind]


def _present(**bounds: float | None) -> dict[str, object]:
    return {name: bound for name, bound in bounds.items() if bound is not None}


def _names(name: str, field: FieldInfo) -> list[str]:
    """Return the name that a file uses, then the other names that it may use."""
    alias = field.validation_alias
    return [str(choice) for choice in alias.choices] if isinstance(alias, AliasChoices) else [name]


def _inner_model(field: FieldInfo) -> tuple[type[BaseModel] | None, Form]:
    """Return the model of a field that is a section, and its form; None for other fields."""
    kind, _ = _plain(field.annotation, ())
    origin, arguments = get_origin(kind), get_args(kind)
    form = {tuple: Form.ARRAY, dict: Form.NAMED}.get(origin, Form.TABLE) if origin else Form.TABLE
    found = {Form.ARRAY: arguments[:1], Form.NAMED: arguments[1:2], Form.TABLE: (kind,)}[form]
    inner = found[0] if found else None
    is_section = isinstance(inner, type) and issubclass(inner, BaseModel) and not _is_text(inner)
    return (inner if is_section else None), form


def _is_text(model: type[BaseModel]) -> bool:
    # A validator before the fields reads the model from a text, so a file writes it as one value.
    validators = model.__pydantic_decorators__.model_validators.values()
    return any(validator.info.mode == "before" for validator in validators)


def _setting(name: str, field: FieldInfo) -> Setting:
    first, *others = _names(name, field)
    annotation, metadata = _plain(field.annotation, tuple(field.metadata))
    shape, annotation, within = _shape(annotation, metadata)
    kind = _kind(annotation, (*metadata, *within))
    lows = [one.ge for one in metadata if isinstance(one, Ge)]
    lows += [one.ge for one in within if isinstance(one, Ge)]
    highs = [one.le for one in (*metadata, *within) if isinstance(one, Le) and one.le not in _UNIVERSAL]
    above = [one.gt for one in metadata if isinstance(one, Gt)]
    return Setting(
        name=first,
        kind=kind,
        meaning=field.description or "",
        others=tuple(others),
        shape=shape,
        choices=tuple(str(one) for one in annotation) if kind is Kind.CHOICE else (),
        required=field.is_required(),
        default=_default(field),
        minimum=_number(lows, max),
        above=_number(above, max),
        maximum=_number(highs, min),
        shortest=next((one.min_length for one in metadata if isinstance(one, MinLen)), None),
        longest=next((one.max_length for one in metadata if isinstance(one, MaxLen)), None),
    )


def _number(bounds: Iterable[Any], choose: Any) -> float | None:
    return choose(bounds, default=None)  # type: ignore[no-any-return]  # the bounds of a number are numbers


def _plain(annotation: Any, metadata: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Return a type without `None` and `Annotated`, and the metadata of `Annotated`."""
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        more_metadata = [
            one for each in more for one in (each.metadata if isinstance(each, FieldInfo) else [each])
        ]
        return _plain(inner, (*metadata, *more_metadata))
    if get_origin(annotation) in {Union, UnionType}:
        [inner] = [one for one in get_args(annotation) if one is not type(None)]
        return _plain(inner, metadata)
    return annotation, metadata


def _shape(annotation: Any, metadata: tuple[Any, ...]) -> tuple[Shape, Any, tuple[Any, ...]]:
    """Return a setting's shape, the type of one value, and that type's metadata."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is tuple:
        listed = (
            Shape.ONE_OR_LIST if any(isinstance(one, BeforeValidator) for one in metadata) else Shape.LIST
        )
        return listed, *_plain(arguments[0], ())
    if origin is not None and issubclass(origin, Mapping):
        inner, more_metadata = _plain(arguments[1], ())
        if get_origin(inner) is tuple:
            return Shape.NAMED_LISTS, *_plain(get_args(inner)[0], ())
        return Shape.NAMED, inner, more_metadata
    return Shape.ONE, annotation, ()


def _kind(annotation: Any, metadata: Iterable[Any]) -> Kind:
    if get_args(Milliseconds)[1] in metadata:
        return Kind.DURATION
    if get_args(Bytes)[1] in metadata or annotation is ByteSize:
        return Kind.SIZE
    if issubclass(annotation, BaseModel):
        return Kind.ADDRESS if "port" in annotation.model_fields else Kind.TEXT
    if issubclass(annotation, StrEnum):
        return Kind.CHOICE
    return {bool: Kind.SWITCH, int: Kind.NUMBER, float: Kind.SECONDS, str: Kind.TEXT, Path: Kind.PATH}[
        annotation
    ]


def _default(field: FieldInfo) -> object:
    """Return the default as a JSON value; None if the field does not have a default, or it is empty."""
    default = field.default
    if default in (PydanticUndefined, None, ()):
        return None
    if isinstance(default, tuple):
        return [str(one) for one in default]
    return (
        default
        if isinstance(default, bool | int | float) and not isinstance(default, ByteSize)
        else _written(default)
    )


def _written(default: object) -> object:
    return int(default) if isinstance(default, ByteSize) else str(default)
