"""[io] Where settings are read: flags, the environment and a TOML file; and how an error names a setting and
its place.

One law: **one name**. A setting `tls.certificate` of the file is the flag `--tls-certificate` and, after the
prefix of the program, the variable `TLS_CERTIFICATE`.
"""

import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from service_parts.errors import SettingError
from service_parts.settings.reasons import reason

Name = tuple[str, ...]
"""The path of a setting: `("tls", "certificate")`, `("logs", "temps", "partitions")`."""


@dataclass(frozen=True, slots=True)
class Given:
    """A value as it was written, and where: `--listen`, `AMQP_STREAMS_LISTEN`, `node.toml`."""

    value: object
    place: str


def flag_of(name: Name) -> str:
    """`("tls", "client_ca")` is `--tls-client-ca`."""
    return "--" + "-".join(name).replace("_", "-")


def variable_of(prefix: str, name: Name) -> str:
    """`("tls", "client_ca")` is `AMQP_STREAMS_TLS_CLIENT_CA` with the prefix `AMQP_STREAMS_`."""
    return prefix + "_".join(name).upper()


def from_flags(flags: Mapping[Name, object]) -> dict[Name, Given]:
    """The settings given as flags. None and an empty tuple mean that a flag is not given."""
    return {name: Given(value, flag_of(name)) for name, value in flags.items() if value not in (None, ())}


def from_environment(
    environment: Mapping[str, str], known: Mapping[str, Name], lists: Collection[Name]
) -> dict[Name, Given]:
    """The settings given as the variables in `known`.

    The values of `lists` are separated by spaces or commas.
    """
    return {
        name: Given(text.replace(",", " ").split() if name in lists else text, variable)
        for variable, name in known.items()
        if (text := environment.get(variable, ""))
    }


def refuse_unknown(
    environment: Mapping[str, str],
    known: Collection[str],
    prefixes: tuple[str, ...],
    others: Collection[str] = (),
) -> None:
    """Refuse a variable that begins with one of `prefixes` and is neither in `known` nor in `others`.

    Raises:
        SettingError: names the variable, and those that exist.
    """
    unknown = sorted(
        name for name in environment if name.startswith(prefixes) and name not in known and name not in others
    )
    if unknown:
        allowed = ", ".join(name for name in sorted(known) if name.startswith(prefixes))
        message = f"{unknown[0]} in the environment is not a setting: use one of {allowed}"
        raise SettingError(message)


def from_file(
    path: Path, leaves: Callable[[Mapping[str, object]], Iterable[tuple[Name, object]]]
) -> dict[Name, object]:
    """The settings of a TOML file. `leaves` takes the tables apart.

    Raises:
        SettingError: it cannot be read or is not valid TOML.
    """
    try:
        return dict(leaves(tomllib.loads(path.read_text(encoding="utf-8"))))
    except OSError as error:
        message = f"cannot read {path}: {error.strerror}"
        raise SettingError(message) from error
    except RecursionError as error:
        message = f"{path} nests tables or lists too deeply"
        raise SettingError(message) from error
    except ValueError as error:  # not TOML, not UTF-8, or a number with thousands of digits
        message = f"{path} is not valid TOML: {error}"
        raise SettingError(message) from error


def from_folder(folder: Path, value: object) -> object:
    """A relative path, or a list of them, as seen from `folder`.

    A value that is not text stays as it is: it is refused later.
    """
    if isinstance(value, list):
        return [from_folder(folder, one) for one in value]
    return str(folder / value) if isinstance(value, str) else value


def nested(values: Mapping[Name, object]) -> dict[str, Any]:
    """Nested tables: each part of a name is a key, so `("tls", "key")` is at `["tls"]["key"]`.

    No name may begin with another name.
    """
    tables: dict[str, Any] = {}
    for name, value in values.items():
        table = tables
        for key in name[:-1]:
            inner = table.setdefault(key, {})
            assert isinstance(inner, dict), "nothing is a value and a table"
            table = inner
        table[name[-1]] = value
    return tables


def explained(
    error: ValidationError, given: Mapping[Name, Given], known: Callable[[Name, str], str | None]
) -> Iterator[str]:
    """A line for each problem: the setting, the place where it was read, and what is wrong.

    `known` gets a name and Pydantic's type of the problem, and gives the words for unknown and missing
    settings.
    """
    problems = error.errors(include_url=False)
    for problem in problems:
        if problem["type"] == "too_short" and any(_is_within(other, problem) for other in problems):
            continue  # Pydantic counts only the valid entries, and the invalid ones are reported
        name = tuple(str(part) for part in problem["loc"] if part != "[key]")
        words = known(name, problem["type"]) or reason(problem)
        place = next(
            (
                one.place
                for other, one in given.items()
                if other == name[: len(other)] or name == other[: len(name)]
            ),
            None,
        )
        at = f" ({place})" if name and place is not None else ""
        yield f"{'.'.join(name)}{at}: {words}" if name else words


def _is_within(problem: ErrorDetails, outer: ErrorDetails) -> bool:
    place = outer["loc"]
    return len(problem["loc"]) > len(place) and problem["loc"][: len(place)] == place
