"""[io] The options that the consoles of all products have, and the run of a console with them."""

import os
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any, Final

import click

from amqp_streams.errors import ConfigError
from service_parts import logging_setup
from service_parts.command_line.readiness import announcer
from service_parts.errors import raised_as
from service_parts.settings.choices import AnonymousAccess, LogFormat, LogLevel, ProviderToken
from service_parts.tokens.keys import client_secret
from web_console.http.outgoing import tls_of
from web_console.oidc_settings import SCOPES, OidcSettings
from web_console.product import Product
from web_console.serving import serve
from web_console.settings import IDLE_S, LOOPBACK, SESSIONS_MAX, ConsoleSettings

Run = Callable[[str], None]
"""Runs the console for a URL, until a signal."""
_LISTEN: Final = (
    click.option(
        "--listen",
        default="127.0.0.1:8081",
        show_default=True,
        metavar="HOST:PORT",
        help=(
            "Where browsers connect; unix:PATH for a reverse proxy on this machine; fd:N for a bound socket."
        ),
    ),
)
_REST: Final = (
    click.option(
        "--root-path", default="", metavar="PATH", help="The prefix of all paths, for example /console."
    ),
    click.option(
        "--allow-host",
        "hosts",
        multiple=True,
        metavar="NAME",
        help="A name by which browsers may reach the console.  [default: on loopback localhost, else all]",
    ),
    click.option(
        "--trusted-proxy",
        "proxies",
        multiple=True,
        metavar="NETWORK",
        help="A proxy whose X-Forwarded headers count.  [default: this machine]",
    ),
    click.option(
        "--sessions",
        type=click.IntRange(1, 10_000),
        default=SESSIONS_MAX,
        show_default=True,
        help="Logins at once.",
    ),
    click.option(
        "--idle",
        type=click.FloatRange(min=1),
        default=IDLE_S,
        show_default=True,
        help="Seconds until a login ends.",
    ),
    click.option(
        "--log-format",
        type=click.Choice([one.value for one in LogFormat]),
        default="text",
        show_default=True,
        help="The format of log lines.",
    ),
    click.option(
        "--ready-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Write the address here, as JSON.",
    ),
)
_OIDC: Final = (
    click.option(
        "--oidc-issuer",
        metavar="URL",
        help="Let people log in with this OpenID Connect provider: its issuer, as in its metadata.",
    ),
    click.option("--oidc-client-id", metavar="ID", help="The client id of the console at the provider."),
    click.option(
        "--oidc-client-secret",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="A file with the client secret.  [default: a public client]",
    ),
    click.option(
        "--oidc-scope",
        "oidc_scopes",
        multiple=True,
        metavar="NAME",
        help=f"A scope to ask for; may be repeated.  [default: {' and '.join(SCOPES)}]",
    ),
    click.option(
        "--oidc-token",
        type=click.Choice([one.value for one in ProviderToken]),
        default=ProviderToken.ACCESS.value,
        show_default=True,
        help="Which token of the provider is sent.",
    ),
    click.option(
        "--oidc-url",
        metavar="URL",
        help="The URL of the console for browsers, as registered at the provider.  [default: as requested]",
    ),
    click.option(
        "--oidc-host",
        "oidc_hosts",
        multiple=True,
        metavar="NAME",
        help="Another host of the provider than that of the issuer.",
    ),
    click.option(
        "--oidc-ca",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="The authorities of the provider's certificate.  [default: the system's]",
    ),
)
_OIDC_NAMES: Final = (
    *("oidc_issuer", "oidc_client_id", "oidc_client_secret", "oidc_scopes"),
    *("oidc_token", "oidc_url", "oidc_hosts", "oidc_ca"),
)
_COMMON: Final = (
    *_OIDC_NAMES,
    *("listen", "ca", "plain_without_tls", "anonymous", "root_path", "hosts", "proxies"),
    *("sessions", "idle", "log_format", "ready_file"),
)


def runs_console(product: Product, address: Callable[[Any], Any]) -> Callable[[Callable[..., None]], Any]:
    """Return a decorator that adds the common options, and gives the command a `Run` as `run`.

    `address`: adds the option for the address of the product.
    """

    def decorated(command: Callable[..., None]) -> Any:
        @wraps(command)
        def with_run(**given: Any) -> None:
            common = {name: given.pop(name) for name in _COMMON}
            command(run=partial(_run, product, common), **given)

        wrapped: Any = with_run
        for option in reversed((*_LISTEN, address, *_options_of(product), *_OIDC, *_REST)):
            wrapped = option(wrapped)
        return click.command()(wrapped)

    return decorated


def _options_of(product: Product) -> tuple[Callable[[Any], Any], ...]:
    """The options whose words differ."""
    noun, secrets = product.noun, "passwords and tokens" if product.has_users else "tokens"
    return (
        click.option(
            "--ca",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help=f"The authorities of the {noun}'s certificate.  [default: the system's]",
        ),
        click.option("--plain-without-tls", is_flag=True, help=f"Send {secrets} to the {noun} without TLS."),
        click.option(
            "--anonymous",
            type=click.Choice([one.value for one in AnonymousAccess]),
            default="loopback",
            show_default=True,
            help=f"Which browsers may continue without a login, if the {noun} allows it.",
        ),
    )


def _run(product: Product, common: dict[str, Any], url: str) -> None:
    settings = ConsoleSettings(
        url=url,
        ca_file=common["ca"],
        plain_without_tls=common["plain_without_tls"],
        anonymous=AnonymousAccess(common["anonymous"]),
        root_path=common["root_path"].rstrip("/"),
        hosts=common["hosts"],
        trusted_proxies=common["proxies"] or LOOPBACK,
        sessions_max=common["sessions"],
        idle_s=common["idle"],
        oidc=_oidc(common),
    )
    logging_setup.configure(LogFormat(common["log_format"]), LogLevel.INFO)
    with announcer(
        file=common["ready_file"], descriptor=None, notify_socket=os.environ.get("NOTIFY_SOCKET")
    ) as ready:
        serve(settings, product, common["listen"], lambda address: ready({"console": [address]}))


def _oidc(common: dict[str, Any]) -> OidcSettings | None:
    """Return the settings of the login with a provider; None without an issuer.

    Raises:
        ConfigError: a setting is not valid, or a file cannot be read.
    """
    issuer, client = common["oidc_issuer"], common["oidc_client_id"]
    if issuer is None:
        if client is not None:
            message = "--oidc-client-id needs --oidc-issuer"
            raise ConfigError(message)
        return None
    try:
        with raised_as(ConfigError):
            file = common["oidc_client_secret"]
            settings = OidcSettings(
                issuer,
                client or "",
                None if file is None else client_secret(file),
                common["oidc_scopes"] or SCOPES,
                ProviderToken(common["oidc_token"]),
                common["oidc_url"],
                common["oidc_hosts"],
                common["oidc_ca"],
            )
        tls_of(settings.ca_file)
    except ValueError as error:
        message = f"--oidc: {error}"
        raise ConfigError(message) from error
    return settings
