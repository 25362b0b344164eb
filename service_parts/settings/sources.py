"""[io] Reads settings from flags, the environment and a TOML file.

Errors name the setting and its source.

Law: **a setting has one name**. The setting `tls.certificate` of the file is the flag `--tls-certificate` and
the variable `TLS_CERTIFICATE` with the prefix of the program.
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
    """A value as it was written, and its source: `--listen`, `AMQP_STREAMS_LISTEN`, `node.toml`."""

    value: object
    source: str


def flag_of(name: Name) -> str:
    """Return the flag of a setting: `--tls-client-ca` for `("tls", "client_ca")`."""
    return "--" + "-".join(name).replace("_", "-")


def variable_of(prefix: str, name: Name) -> str:
    """Return the variable of a setting.

    `AMQP_STREAMS_TLS_CLIENT_CA` for `("tls", "client_ca")` and the prefix `AMQP_STREAMS_`.
    """
    return prefix + "_".join(name).upper()


def from_flags(flags: Mapping[Name, object]) -> dict[Name, Given]:
    """Return the settings that flags give. None and an empty tuple mean that a flag was not used."""
    return {name: Given(value, flag_of(name)) for name, value in flags.items() if value not in (None, ())}


def from_environment(
    environment: Mapping[str, str], known: Mapping[str, Name], lists: Collection[Name]
) -> dict[Name, Given]:
    """Return the settings that the variables in `known` give.

    `lists`: settings with several values, which spaces or commas separate.
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
        SettingError: such a variable is set. The message names it, and the variables that exist.
    """
    # A misspelled variable would otherwise be ignored, and its setting would have the default.
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
    """Return the settings of a TOML file. `leaves` splits its tables into settings.

    Raises:
        SettingError: the file cannot be read or is not valid TOML.
    """
    try:
        return dict(leaves(tomllib.loads(path.read_text(encoding="utf-8"))))
    except OSError as error:
        message = f"cannot read {path}: {error.strerror}"
        raise SettingError(message) from error
    except RecursionError as error:
        message = f"{path} nests tables or lists too deeply"
        raise SettingError(message) from error
    except UnicodeDecodeError as error:
        message = f"{path} is not valid TOML: the byte at position {error.start} is not UTF-8"
        raise SettingError(message) from error
    except ValueError as error:  # not TOML, or a number with thousands of digits
        message = f"{path} is not valid TOML: {error}"
        raise SettingError(message) from error


def from_folder(folder: Path, value: object) -> object:
    """Resolves a relative path, or a list of paths, against `folder`.

    A value that is not text is returned unchanged: the model refuses it with a better message.
    """
    if isinstance(value, list):
        return [from_folder(folder, one) for one in value]
    return str(folder / value) if isinstance(value, str) else value


def refuse_clashes(given: Mapping[Name, Given]) -> None:
    """Refuse a value whose name is the beginning of another name: it cannot be a table as well.

    Raises:
        SettingError: there is such a value. The message names it, and both sources.
    """
    for name, one in given.items():
        clash = next((name[:length] for length in range(1, len(name)) if name[:length] in given), None)
        if clash is not None:
            message = (
                f"{'.'.join(clash)} is a value ({given[clash].source}) and a table ({one.source}): only one"
                " of them can be"
            )
            raise SettingError(message)


def nested(values: Mapping[Name, object]) -> dict[str, Any]:
    """Return nested tables: the value of `("tls", "key")` is at `["tls"]["key"]`.

    No name may be the beginning of another name (`refuse_clashes`).
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
    """Yield a line for each problem: the setting, its source, and what is wrong.

    `known` takes a name and Pydantic's type of the problem, and returns the words for unknown and missing
    settings; None for Pydantic's other problems.
    """
    problems = error.errors(include_url=False)
    for problem in problems:
        if problem["type"] == "too_short" and any(_is_within(other, problem) for other in problems):
            continue  # Pydantic counts only the valid entries, and the invalid ones are reported
        name = tuple(str(part) for part in problem["loc"] if part != "[key]")
        words = known(name, problem["type"]) or reason(problem)
        source = next(
            (
                one.source
                for other, one in given.items()
                if other == name[: len(other)] or name == other[: len(name)]
            ),
            None,
        )
        at = f" ({source})" if name and source is not None else ""
        yield f"{'.'.join(name)}{at}: {words}" if name else words


def _is_within(problem: ErrorDetails, outer: ErrorDetails) -> bool:
    location = outer["loc"]
    return len(problem["loc"]) > len(location) and problem["loc"][: len(location)] == location
