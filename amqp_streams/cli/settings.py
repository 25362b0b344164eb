"""The settings of `serve`, from flags, environment, file and defaults, in that order.

Law: a setting has one name. `tls.certificate` of the file is the flag `--tls-certificate` and the variable
`AMQP_STREAMS_TLS_CERTIFICATE`. An error message names the setting, its source and the valid values.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from pydantic import AliasChoices, BaseModel, ValidationError

from amqp_streams.authentication import ExternalRule, OAuthSettings, TlsSettings
from amqp_streams.config import (
    GroupSettings,
    Limits,
    Listener,
    LogSettings,
    NodeSettings,
    ProducerSettings,
)
from amqp_streams.errors import ConfigError
from amqp_streams.kafka_settings import KafkaSettings, StoreKind
from amqp_streams.peering_settings import PeeringSettings
from amqp_streams.policy import AccessRule, Quota, Redirect
from service_parts.errors import raised_as
from service_parts.settings import sources
from service_parts.settings.consoles import ConsoleSettings
from service_parts.settings.reference import Contents, Kind, Setting, Shape, contents
from service_parts.settings.sources import (
    Given,
    Name,
    explained,
    flag_of,
    from_environment,
    from_file,
    from_flags,
    from_folder,
    nested,
    refuse_clashes,
    refuse_unknown,
)

PREFIX: Final = "AMQP_STREAMS_"

_SECTIONS: Final[Mapping[str, type[BaseModel]]] = {
    "console": ConsoleSettings,
    "groups": GroupSettings,
    "kafka": KafkaSettings,
    "limits": Limits,
    "node": PeeringSettings,
    "oauth": OAuthSettings,
    "producers": ProducerSettings,
    "tls": TlsSettings,
}
_FILE_ONLY: Final[Mapping[str, type[BaseModel]]] = {
    "access": AccessRule,
    "external": ExternalRule,
    "logs": LogSettings,
    "quotas": Quota,
    "redirect": Redirect,
}
"""Tables and arrays of tables with names of their own, or of things that come in numbers: no variable gives
them.
"""
_LISTS: Final = frozenset(
    {
        ("console", "hosts"),
        ("groups", "only"),
        ("listen",),
        ("listen_tls",),
        ("log",),
        ("oauth", "algorithms"),
        ("oauth", "audience"),
        ("oauth", "keys"),
        ("trusted_proxies",),
    }
)
_PATHS: Final = frozenset(
    {
        ("data_dir",),
        ("users",),
        ("tls", "certificate"),
        ("tls", "key"),
        ("tls", "client_ca"),
        ("oauth", "keys"),
        ("oauth", "secret_file"),
        ("console", "ca"),
        ("kafka", "ca"),
        ("kafka", "certificate"),
        ("kafka", "key"),
        ("kafka", "password_file"),
        ("node", "secret_file"),
        ("node", "certificate"),
        ("node", "key"),
        ("node", "ca"),
    }
)


_DIGITS_MAX: Final = 9
_LISTEN_TLS: Final = (
    "Addresses to listen on with TLS 1.2 or 1.3. If only this is set, the node does not listen without TLS."
)


def written_names(model: type[BaseModel]) -> dict[str, str]:
    """Return all names of a model's settings, each with the name used in files and flags.

    For example, `idle_timeout_ms` maps to `idle_timeout`.
    """
    names: dict[str, str] = {}
    for field, info in model.model_fields.items():
        choices = (
            info.validation_alias.choices if isinstance(info.validation_alias, AliasChoices) else [field]
        )
        names |= {str(choice): str(choices[0]) for choice in choices}
    return names


def settable() -> list[Name]:
    """Return every setting that an environment variable can set. `log` stands for the table `logs`."""
    names: list[Name] = [("listen_tls",), ("log",)]
    for name in dict.fromkeys(written_names(NodeSettings).values()):
        section = _SECTIONS.get(name)
        if section is not None:
            names += [(name, inner) for inner in dict.fromkeys(written_names(section).values())]
        elif name not in _FILE_ONLY and name != "user_groups":
            names.append((name,))
    return sorted(names)


def file_contents() -> Contents:
    """Return the model of a `--config` file.

    In addition to the node's settings, it accepts `listen_tls`, which is merged into `listen`, and `log`,
    which is merged into `logs`.
    """
    known = contents(NodeSettings)
    settings = {setting.name: setting for setting in known.settings}
    settings["listen"] = replace(settings["listen"], shape=Shape.ONE_OR_LIST)
    more = (
        replace(settings["listen"], name="listen_tls", default=None, meaning=_LISTEN_TLS),
        Setting(
            "log",
            Kind.TEXT,
            "Logs that are created if they do not exist: `temps:4` has 4 partitions.",
            shape=Shape.ONE_OR_LIST,
        ),
    )
    return Contents((*settings.values(), *more), known.sections)


def variable_of(name: Name) -> str:
    """Return the environment variable of a setting.

    `("tls", "client_ca")` is `AMQP_STREAMS_TLS_CLIENT_CA`.
    """
    return sources.variable_of(PREFIX, name)


def node_settings(
    flags: Mapping[Name, object],
    environment: Mapping[str, str],
    file: Path | None,
    *,
    file_source: str = "--config",
) -> NodeSettings:
    """Build and validate the settings of a node.

    Raises:
        ConfigError: one line for each setting that is not valid, with its name, its source and the valid
        values.
    """
    given = _given(flags, environment, file, file_source)
    if not given.keys() & {("data_dir",), ("store",)}:
        message = (
            f"data_dir is not set: give --data-dir DIR, {PREFIX}DATA_DIR, or data_dir in the file of --config"
        )
        try:
            # The name may be misspelt, and other settings may not be valid either.
            _validated({**given, ("data_dir",): Given(".", "default")})
        except ConfigError as error:
            message = f"{error}\n{message}"
        raise ConfigError(message)
    return _validated(given)


def checked_settings(
    flags: Mapping[Name, object], environment: Mapping[str, str], file: Path | None
) -> dict[Name, Given]:
    """Return the settings that flags, variables and the file give, with their sources.

    A missing data_dir is not an error: the settings can be shown before the directory is chosen.

    Raises:
        ConfigError: as `node_settings`.
    """
    given = _given(flags, environment, file, "--config")
    store = given.get(("store",))
    is_missing = all(name[0] != "data_dir" for name in given)
    if is_missing and (store is None or store.value != StoreKind.KAFKA):
        _validated({**given, ("data_dir",): Given(".", "default")})
    else:
        _validated(given)
    return given


def _given(
    flags: Mapping[Name, object], environment: Mapping[str, str], file: Path | None, file_source: str
) -> dict[Name, Given]:
    known = {variable_of(name): name for name in settable()}
    # All sources are read before anything is validated, so that one run reports all errors.
    with raised_as(ConfigError, file_source):
        in_file = {} if file is None else _from_file(file)
    with raised_as(ConfigError):
        refuse_unknown(environment, known, tuple(variable_of((section, "")) for section in _SECTIONS))
    in_environment = from_environment(environment, known, _LISTS)
    # Later sources replace earlier ones: file, environment, flags.
    given = _with_logs(in_file) | _with_logs(in_environment) | _with_logs(from_flags(flags))
    with raised_as(ConfigError):
        refuse_clashes(given)
    return given


def _validated(given: Mapping[Name, Given]) -> NodeSettings:
    values = _listeners(given)
    try:
        return NodeSettings.model_validate(nested(values))
    except ValidationError as error:
        raise ConfigError("\n".join(explained(error, given, _words))) from error


def _from_file(path: Path) -> dict[Name, Given]:
    """Read the settings of a TOML file. Relative paths in it start at its folder. Raises SettingError."""
    settings = from_file(path, _leaves)
    return {
        name: Given(from_folder(path.parent, value) if name in _PATHS else value, str(path))
        for name, value in settings.items()
    }


def _leaves(table: Mapping[str, object], above: Name = ()) -> Iterator[tuple[Name, object]]:
    """Flatten tables to settings, by their names in the file.

    An empty table of a log is a log with the defaults.
    """
    model: type[BaseModel] | None = NodeSettings if not above else _SECTIONS.get(above[0])
    # The names of logs are the users': only the level below has known names.
    if len(above) == 2 and above[0] == "logs":
        model = LogSettings
    names = written_names(model) if model else {}
    for key, value in table.items():
        name = (*above, names.get(key, key))
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, name)
        else:
            yield name, value


def _with_logs(given: Mapping[Name, Given]) -> dict[Name, Given]:
    """Convert `--log temps:4` to the table `[logs.temps]` with `partitions = 4`."""
    settings = {name: one for name, one in given.items() if name != ("log",)}
    logs = given.get(("log",))
    if logs is None:
        return settings
    for text in logs.value if isinstance(logs.value, list | tuple) else [logs.value]:
        log, colon, partitions = str(text).partition(":")
        if colon and not (partitions.isdecimal() and len(partitions) <= _DIGITS_MAX):
            message = f"{logs.source}: {text!r} is not NAME:PARTITIONS, such as temps:4"
            raise ConfigError(message)
        settings["logs", log, "partitions"] = Given(int(partitions) if colon else 1, logs.source)
    return settings


def _listeners(given: Mapping[Name, Given]) -> dict[Name, object]:
    """Merge `listen` and `listen_tls` to the node's listeners. The default is used only if neither is set."""
    values = {name: one.value for name, one in given.items() if name not in {("listen",), ("listen_tls",)}}
    listeners = []
    for name, tls in ((("listen",), False), (("listen_tls",), True)):
        one = given.get(name)
        if one is None:
            continue
        for text in one.value if isinstance(one.value, list | tuple) else [one.value]:
            try:
                listeners.append(Listener.parse(str(text), tls=tls))
            except ValueError as error:
                message = f"{name[0]} ({one.source}): {error}"
                raise ConfigError(message) from error
    if listeners:
        values["listen",] = tuple(listeners)
    return values


def _words(name: Name, problem: str) -> str | None:
    """Return the message for a setting that does not exist, or that is missing."""
    if problem == "extra_forbidden":
        near = get_close_matches(str(name[-1]), _siblings(name), n=1)
        known = f"there are {', '.join(_siblings(name))}"
        return f"no such setting; did you mean {near[0]}? ({known})" if near else f"no such setting; {known}"
    if problem == "missing":
        elsewhere = "" if name[0] in _FILE_ONLY else f": {flag_of(name)}, {variable_of(name)} or in the file"
        return f"is required{elsewhere}"
    return None


def _siblings(name: Name) -> list[str]:
    model: type[BaseModel] = NodeSettings
    if len(name) > 1:
        model = ({**_SECTIONS, **_FILE_ONLY}).get(name[0], LogSettings)
    names = sorted(set(written_names(model).values()))
    return sorted([*names, "listen_tls"]) if model is NodeSettings else names
