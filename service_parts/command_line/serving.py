"""[io] The common part of the commands `serve`.

Flags for settings, `--config`, `--schema`, `--check`, and the report of readiness.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from service_parts.command_line.readiness import Ready, announcer
from service_parts.settings.choices import AnonymousAccess, LogFormat, LogLevel, ProviderToken
from service_parts.settings.reference import Contents, json_schema
from service_parts.settings.sources import Name, flag_of, variable_of

_Command = TypeVar("_Command", bound=Callable[..., Any])
Decorator = Callable[[_Command], _Command]


def setting_option(prefix: str) -> Callable[..., Decorator[Any]]:
    """Return a function that creates the flag of a setting.

    Its help names the environment variable. The value is checked later, together with all settings.
    """

    def option(*name: str, help: str, **more: Any) -> Decorator[Any]:  # noqa: A002  # click's own word for it
        return click.option(
            flag_of(name), "__".join(name), help=f"{help}  [{variable_of(prefix, name)}]", **more
        )

    return option


def service_options(prefix: str, *, check: str) -> Decorator[Any]:
    """Add the flags that are not settings: `config`, `check`, `schema`, `ready_file` and `ready_fd`.

    `check`: the help of that flag.
    """
    path = click.Path(path_type=Path)
    config = f"Read settings from a file. Flags and variables override it.  [{prefix}CONFIG]"
    options: list[Decorator[Any]] = [
        click.option("--config", type=path, metavar="FILE.toml", envvar=f"{prefix}CONFIG", help=config),
        click.option("--check", is_flag=True, help=check),
        click.option(
            "--schema",
            is_flag=True,
            help="Print the JSON schema of the --config file, for editors, then exit.",
        ),
        click.option(
            "--ready-file",
            type=path,
            metavar="FILE",
            help="Write the bound addresses here, as JSON, when ready.",
        ),
        click.option(
            "--ready-fd",
            type=click.IntRange(min=3),
            metavar="N",
            help="Write the bound addresses to this open descriptor when ready.",
        ),
    ]

    return _with_options(options)


def console_options(prefix: str, *, service: str) -> Decorator[Any]:
    """Add the flags of the settings `console`. `service`: what the help texts call the service."""
    setting = setting_option(prefix)
    listen = "Serve the web console here, from a process of its own."
    url = f"How the console connects to the {service}, if only with TLS."
    ca = f"Authorities of the {service}'s certificate, for that URL."
    hosts = "A name by which browsers may reach the console; may be repeated."
    anonymous = (
        f"Which browsers may continue without a login, if the {service} allows it.  [default: loopback]"
    )
    return _with_options(
        [
            setting("console", "listen", metavar="HOST:PORT", help=listen),
            setting("console", "url", metavar="URL", help=url),
            setting("console", "ca", metavar="FILE", help=ca),
            setting("console", "hosts", metavar="NAME", multiple=True, help=hosts),
            setting("console", "anonymous", metavar="|".join(AnonymousAccess), help=anonymous),
            *_provider_options(setting, service=service),
        ]
    )


def _provider_options(setting: Callable[..., Decorator[Any]], *, service: str) -> Sequence[Decorator[Any]]:
    """The flags for logins to the console with an OpenID Connect provider."""
    token = f"Which token of the provider the console sends to the {service}.  [default: access]"
    url = "The URL of the console for browsers, as registered at the provider."
    scopes = "A scope that the console asks for; may be repeated."
    hosts = "Another host of the provider than that of the issuer; may be repeated."
    return [
        setting(
            "console",
            "oidc_issuer",
            metavar="URL",
            help="The OpenID Connect provider with which people log in to the console.",
        ),
        setting("console", "oidc_client_id", metavar="ID", help="The client id of the console there."),
        setting("console", "oidc_client_secret", metavar="FILE", help="A file with the client secret."),
        setting("console", "oidc_scopes", metavar="NAME", multiple=True, help=scopes),
        setting("console", "oidc_token", metavar="|".join(ProviderToken), help=token),
        setting("console", "oidc_url", metavar="URL", help=url),
        setting("console", "oidc_hosts", metavar="NAME", multiple=True, help=hosts),
        setting("console", "oidc_ca", metavar="FILE", help="Authorities of the provider's certificate."),
    ]


def _with_options(options: Sequence[Decorator[Any]]) -> Decorator[Any]:
    def with_options(command: Any) -> Any:
        # Click lists the option of the last decorator first.
        for option in reversed(options):
            command = option(command)
        return command

    return with_options


def given_flags(flags: Mapping[str, object]) -> dict[Name, object]:
    """Return the values of the flags of `setting_option`, by the names of their settings."""
    return {tuple(key.split("__")): value for key, value in flags.items()}


def print_schema(contents: Contents, title: str) -> None:
    """Write the JSON schema of a file of settings to stdout."""
    click.echo(json.dumps(json_schema(contents, title), indent=2))


@contextmanager
def started(
    log_format: LogFormat, log_level: LogLevel, *, ready_file: Path | None, ready_fd: int | None
) -> Iterator[Ready]:
    """Set up logging, and yield the function to call when the service listens."""
    from service_parts import logging_setup  # noqa: PLC0415  # importing structlog would slow down --help

    logging_setup.configure(log_format, log_level)
    with announcer(
        file=ready_file, descriptor=ready_fd, notify_socket=os.environ.get("NOTIFY_SOCKET")
    ) as ready:
        yield ready
