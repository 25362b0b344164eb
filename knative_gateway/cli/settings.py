"""The settings of `serve`, from flags, environment, file and defaults, in that order.

A setting has one name everywhere: `tls.certificate` in the file is the flag `--tls-certificate` and the
variable `KNATIVE_GATEWAY_TLS_CERTIFICATE`. An error names the setting and where its value was read.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Final, get_args

from pydantic import BaseModel, ValidationError

from knative_gateway.config import GatewaySettings
from knative_gateway.errors import ConfigError
from service_parts.errors import raised_as
from service_parts.settings import sources
from service_parts.settings.reference import Contents, contents
from service_parts.settings.sources import (
    Given,
    Name,
    explained,
    from_environment,
    from_file,
    from_flags,
    from_folder,
    nested,
    refuse_clashes,
    refuse_unknown,
)

PREFIX: Final = "KNATIVE_GATEWAY_"
_OTHERS: Final = frozenset({PREFIX + "CONFIG", PREFIX + "URL", PREFIX + "TOKEN", PREFIX + "CONTEXT"})
"""Variables of flags that are not settings."""
_LISTS: Final = frozenset(
    {
        ("listen",),
        ("console", "hosts"),
        ("console", "trusted_proxies"),
        ("destinations", "allow"),
        ("destinations", "deny"),
        ("jwt", "audience"),
        ("jwt", "algorithms"),
    }
)
_FILE_ONLY: Final = frozenset({"services", "rules"})
"""Tables with free names, and lists of tables. Only the file can set them."""


def sections(model: type[BaseModel] = GatewaySettings) -> dict[str, type[BaseModel]]:
    """Return the settings that are tables, with the model of each table."""
    found = {}
    for name, field in model.model_fields.items():
        annotation = field.annotation
        kinds = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
        inner = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
        if inner is not None and "host" not in inner.model_fields:
            found[name] = inner
    return found


def settable() -> list[Name]:
    """Return every setting that a flag or a variable can set: single values and lists of texts."""
    tables = sections()
    names: list[Name] = []
    for name in GatewaySettings.model_fields:
        if name not in _FILE_ONLY:
            names += [(name, inner) for inner in tables[name].model_fields] if name in tables else [(name,)]
    return sorted(names)


def file_contents() -> Contents:
    """Return the description of the file of `--config`."""
    return contents(GatewaySettings)


def variable_of(name: Name) -> str:
    """`("tls", "certificate")` is `KNATIVE_GATEWAY_TLS_CERTIFICATE`."""
    return sources.variable_of(PREFIX, name)


def gateway_settings(
    flags: Mapping[Name, object], environment: Mapping[str, str], file: Path | None
) -> GatewaySettings:
    """Build and check the settings of a gateway. Lists in variables are separated by spaces or commas.

    Raises:
      ConfigError: one line for each wrong setting, with its name and where it was read.
    """
    return _validated(_given(flags, environment, file))


def checked_settings(
    flags: Mapping[Name, object], environment: Mapping[str, str], file: Path | None
) -> dict[Name, Given]:
    """Return the settings that flags, variables and the file give, with their sources.

    Raises:
      ConfigError: as `gateway_settings`.
    """
    given = _given(flags, environment, file)
    _validated(given)
    return given


def _given(
    flags: Mapping[Name, object], environment: Mapping[str, str], file: Path | None
) -> dict[Name, Given]:
    known = {variable_of(name): name for name in settable()}
    with raised_as(ConfigError):
        given = {} if file is None else _from_file(file)
        refuse_unknown(environment, known, (PREFIX,), _OTHERS)
        given |= from_environment(environment, known, _LISTS) | from_flags(flags)
        refuse_clashes(given)
    return given


def _validated(given: Mapping[Name, Given]) -> GatewaySettings:
    try:
        return GatewaySettings.model_validate(nested({name: one.value for name, one in given.items()}))
    except ValidationError as error:
        raise ConfigError("\n".join(explained(error, given, _words))) from error


def _from_file(path: Path) -> dict[Name, Given]:
    """Read a TOML file. Relative paths in it begin at its folder."""
    with raised_as(ConfigError, "--config"):
        settings = from_file(path, _leaves)
    return {name: Given(_located(path.parent, name, value), str(path)) for name, value in settings.items()}


def _located(folder: Path, name: Name, value: object) -> object:
    model: type[BaseModel] | None = GatewaySettings if len(name) == 1 else sections().get(name[0])
    field = model.model_fields.get(name[-1]) if model is not None else None
    is_path = field is not None and (field.annotation is Path or Path in get_args(field.annotation))
    return from_folder(folder, value) if is_path else value


def _leaves(table: Mapping[str, object], above: Name = ()) -> Iterator[tuple[Name, object]]:
    tables = sections()
    for key, value in table.items():
        if not above and key in tables and isinstance(value, Mapping):
            yield from _leaves(value, (key,))
        else:
            yield (*above, key), value


def _words(name: Name, problem: str) -> str | None:
    """Return the message for an unknown setting."""
    if problem != "extra_forbidden":
        return None
    model = sections().get(name[0], GatewaySettings) if len(name) > 1 else GatewaySettings
    return f"unknown setting; the settings are {', '.join(sorted(model.model_fields))}"
