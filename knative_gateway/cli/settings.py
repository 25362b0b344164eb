"""The settings of `serve`, from flags, environment, file and defaults, in that order.

One law: **one name**. A setting `tls.certificate` of the file is the flag `--tls-certificate` and the variable
`KNATIVE_GATEWAY_TLS_CERTIFICATE`. Whatever is refused is refused by name, with the place it was read at.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from knative_gateway.config import GatewaySettings
from knative_gateway.errors import ConfigError
from service_parts.settings.reasons import reason
from service_parts.settings.reference import Contents, contents

PREFIX: Final = "KNATIVE_GATEWAY_"
_LISTS: Final = frozenset({("listen",), ("destinations", "allow"), ("destinations", "deny"), ("jwt", "audience"), ("jwt", "algorithms")})
_FILE_ONLY: Final = frozenset({"services", "rules"})
"""Tables with names of their own, and lists of tables: no flag or variable gives them."""

Name = tuple[str, ...]
"""The path of a setting: `("tls", "certificate")`."""


@dataclass(frozen=True, slots=True)
class Given:
    """A value as somebody wrote it, and where."""

    value: object
    place: str


def sections(model: type[BaseModel] = GatewaySettings) -> dict[str, type[BaseModel]]:
    """The settings that are tables, with what is in them."""
    found = {}
    for name, field in model.model_fields.items():
        annotation = field.annotation
        kinds = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
        inner = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
        if inner is not None and "host" not in inner.model_fields:
            found[name] = inner
    return found


def settable() -> list[Name]:
    """Every setting that a flag or a variable can give: those with one value, and lists of texts."""
    tables = sections()
    names: list[Name] = []
    for name in GatewaySettings.model_fields:
        if name not in _FILE_ONLY:
            names += [(name, inner) for inner in tables[name].model_fields] if name in tables else [(name,)]
    return sorted(names)


def file_contents() -> Contents:
    """What the file of `--config` may contain."""
    return contents(GatewaySettings)


def flag_of(name: Name) -> str:
    """`("tls", "certificate")` is `--tls-certificate`."""
    return "--" + "-".join(name).replace("_", "-")


def variable_of(name: Name) -> str:
    """`("tls", "certificate")` is `KNATIVE_GATEWAY_TLS_CERTIFICATE`."""
    return PREFIX + "_".join(name).upper()


def gateway_settings(flags: Mapping[Name, object], environment: Mapping[str, str], file: Path | None) -> GatewaySettings:
    """Build and check the settings of a gateway. Lists in variables are separated by spaces or commas.

    Raises:
        ConfigError: a line for each setting that cannot be, naming it and where it was read.
    """
    given = {} if file is None else _from_file(file)
    known = {variable_of(name): name for name in settable()}
    unknown = sorted(
        name
        for name in environment
        if name.startswith(PREFIX) and name not in {*known, PREFIX + "CONFIG", PREFIX + "URL", PREFIX + "TOKEN"}
    )
    if unknown:
        message = f"{unknown[0]} in the environment is not a setting; there are {', '.join(sorted(known))}"
        raise ConfigError(message)
    for variable, name in known.items():
        if text := environment.get(variable, ""):
            given[name] = Given(text.replace(",", " ").split() if name in _LISTS else text, variable)
    given |= {
        name: Given(list(value) if isinstance(value, tuple) else value, flag_of(name))
        for name, value in flags.items()
        if value not in (None, ())
    }
    try:
        return GatewaySettings.model_validate(_nested({name: one.value for name, one in given.items()}))
    except ValidationError as error:
        raise ConfigError("\n".join(_explained(error, given))) from error


def _from_file(path: Path) -> dict[Name, Given]:
    """The settings of a TOML file; relative paths in it start at its folder."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        message = f"--config: cannot read {path}: {error.strerror}"
        raise ConfigError(message) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        message = f"--config: {path} is not valid TOML: {error}"
        raise ConfigError(message) from error
    return {name: Given(_located(path.parent, name, value), str(path)) for name, value in _leaves(tables)}


def _located(folder: Path, name: Name, value: object) -> object:
    model: type[BaseModel] | None = GatewaySettings if len(name) == 1 else sections().get(name[0])
    field = model.model_fields.get(name[-1]) if model is not None else None
    is_path = field is not None and (field.annotation is Path or Path in get_args(field.annotation))
    return str(folder / value) if is_path and isinstance(value, str) else value


def _leaves(table: Mapping[str, object], above: Name = ()) -> Iterator[tuple[Name, object]]:
    tables = sections()
    for key, value in table.items():
        if not above and key in tables and isinstance(value, Mapping):
            yield from _leaves(value, (key,))
        else:
            yield (*above, key), value


def _nested(values: Mapping[Name, object]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, value in values.items():
        if len(name) == 1:
            nested[name[0]] = value
        else:
            nested.setdefault(name[0], {})[name[1]] = value
    return nested


def _is_within(problem: ErrorDetails, outer: ErrorDetails) -> bool:
    place = outer["loc"]
    return len(problem["loc"]) > len(place) and problem["loc"][: len(place)] == place


def _explained(error: ValidationError, given: Mapping[Name, Given]) -> Iterator[str]:
    problems = error.errors(include_url=False)
    for problem in problems:
        if problem["type"] == "too_short" and any(_is_within(other, problem) for other in problems):
            continue  # Pydantic counts only the valid entries, and the invalid ones are reported
        name = tuple(str(part) for part in problem["loc"])
        told = reason(problem)
        if problem["type"] == "extra_forbidden":
            model = sections().get(name[0], GatewaySettings) if len(name) > 1 else GatewaySettings
            told = f"no such setting; there are {', '.join(sorted(model.model_fields))}"
        place = next((one.place for other, one in given.items() if other == name[: len(other)] or name == other[: len(name)]), None)
        at = f" ({place})" if name and place is not None else ""
        yield f"{'.'.join(name)}{at}: {told}" if name else told
