"""Connecting commands to a node: URL, credentials, TLS; and running a command's asynchronous part.

No option takes a password: it comes from the environment, alone or in the URL, or from the first line of
stdin. A token comes from the environment or a file. A URL on the command line may contain a password, but
every user of the machine can see it; the help says so.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import uvloop
from click.core import ParameterSource

from amqp_streams.cli.contexts import CONTEXTS
from amqp_streams.cli.terminal.reading import password_from_stdin
from amqp_streams.cli.terminal.wording import is_missing, missing_group, missing_log
from amqp_streams.client import (
    Client,
    ConnectError,
    LinkRefusedError,
    Management,
    ManagementError,
    SaslOptions,
    TimedOutError,
    TlsOptions,
    connect,
)
from amqp_streams.client.endpoints.address import parse_all
from amqp_streams.errors import AmqpStreamsError, ConfigError
from service_parts.command_line.contexts.choosing import Choice, chosen, completed, given, merged
from service_parts.command_line.contexts.secrets import secret

URL_DEFAULT: Final = "amqp://127.0.0.1:5672"
_DEFAULTS: Final[Mapping[str, object]] = {
    "url": URL_DEFAULT,
    "user": None,
    "token_file": None,
    "sasl_mechanism": None,
    "plain_without_tls": False,
    "ca": None,
    "cert": None,
    "key_file": None,
    "insecure": False,
}
"""The parameters of a connection. A context counts instead of their variables."""
_SCHEMES: Final = ("amqp", "amqps", "ws", "wss")

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The nodes of `url`, separated by commas, and how to connect to one of them."""

    url: str = URL_DEFAULT
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: TlsOptions | None = None
    sasl: SaslOptions | None = None
    elsewhere: "Endpoint | None" = None
    """How to connect to a node that an ADDRESS names; None: the same. A context is for one node only."""

    def client(self, *, container_id: str | None = None) -> Client:
        """A client of this node, not yet connected; without a container-id it gets a random one.

        Raises:
            ConfigError: the URL is not valid.
        """
        try:
            return connect(
                self.url,
                user=self.user,
                password=self.password,
                tls=self.tls,
                sasl=self.sasl,
                container_id=container_id,
            )
        except ValueError as error:
            message = (
                f"--url (AMQP_STREAMS_URL): {error}; a valid URL is"
                " amqp://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]…]"
            )
            raise ConfigError(message) from error

    def at(self, address: str) -> "tuple[Endpoint, str]":
        """The node and log of an ADDRESS: the name of a log of this node, or a URL with the log as its path.

        Raises:
            ConfigError: it is a URL without a log, or with another protocol.
        """
        if "://" not in address:
            return self, address
        node, _, log = address.rpartition("/")
        scheme, _, authority = node.partition("://")
        if scheme not in _SCHEMES or not authority or not log:
            message = (
                f"{address!r} is not a valid address: give the name of a log, or"
                f" {'|'.join(_SCHEMES)}://HOST[:PORT]/NAME"
            )
            raise ConfigError(message)
        # The credentials belong to the command, so they apply to any node that it names. Those of a context
        # belong to its node.
        return replace(self.elsewhere or self, url=node), log


@asynccontextmanager
async def opened(
    node: Endpoint, log: str | None = None, *, group: str | None = None, container_id: str | None = None
) -> AsyncIterator[Client]:
    """A connected client, for work on a log or a group of it if they are named.

    Raises:
        NotFoundError: the log or group does not exist; the message has the nearest name.
        ConnectError: the node does not answer.
    """
    async with AsyncExitStack() as stack:
        try:
            # Only this wait: an operation that takes too long is another error.
            client = await stack.enter_async_context(node.client(container_id=container_id))
        except TimedOutError as error:
            message = f"{', '.join(map(str, parse_all(node.url)))}: no answer: {error}"
            raise ConnectError(message) from error
        try:
            yield client
        except (LinkRefusedError, ManagementError) as error:
            if log is None or not is_missing(error):
                raise
            raise await _explained(client.management, log, group, error) from error


async def _explained(
    management: Management, log: str, group: str | None, error: AmqpStreamsError
) -> AmqpStreamsError:
    """The error with the nearest name; the original error if the node does not list its names."""
    try:
        logs = [one.name for one in await management.list_logs()]
        if log not in logs:
            return missing_log(log, logs)
        groups = [one.name for one in await management.list_groups(log)] if group is not None else []
    # The original error says more than that the names cannot be listed.
    except AmqpStreamsError:
        return error
    return error if group is None or group in groups else missing_group(group, log, groups)


class ConnectionOption(click.Option):
    """An option about the connection: `NodeCommand` lists it separately."""


class NodeCommand(click.Command):
    """A command whose help lists its own options first, and connection options in a section of their own."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See click."""
        for title, of_connection in (("Options", False), ("Connection options", True)):
            listed = [
                one for one in self.get_params(ctx) if isinstance(one, ConnectionOption) is of_connection
            ]
            records = [record for one in listed if (record := one.get_help_record(ctx)) is not None]
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class NodeGroup(click.Group):
    """A group of commands of this kind."""

    command_class = NodeCommand


_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
_option: Final = partial(click.option, cls=ConnectionOption)
_OPTIONS: Final = (
    _option(
        "--url",
        envvar="AMQP_STREAMS_URL",
        metavar="URL",
        default=URL_DEFAULT,
        show_default=True,
        show_envvar=True,
        help=(
            "The node: amqp:// amqps:// ws:// wss://[USER[:PASSWORD]@]HOST[:PORT]; several nodes of a cluster"
            " with commas: amqp://a,b,c:5673. "
            "Other users can see arguments: put a URL with a password into the variable."
        ),
    ),
    _option(
        "--context",
        metavar="NAME",
        shell_complete=completed(CONTEXTS),
        help="The stored connection NAME ('amqp-streams context').  [env var: AMQP_STREAMS_CONTEXT]",
    ),
    _option(
        "--user",
        envvar="AMQP_STREAMS_USER",
        metavar="NAME",
        show_envvar=True,
        help="The user; the password is in the URL, in AMQP_STREAMS_PASSWORD, or on stdin.",
    ),
    _option("--password-stdin", is_flag=True, help="Read the password from the first line of stdin."),
    _option(
        "--token-file",
        type=_FILE,
        metavar="FILE",
        envvar="AMQP_STREAMS_TOKEN_FILE",
        show_envvar=True,
        help=(
            "Log in with the OAuth token in this file, which is read for each connection; or"
            " AMQP_STREAMS_TOKEN."
        ),
    ),
    _option(
        "--sasl-mechanism",
        metavar="NAME",
        envvar="AMQP_STREAMS_SASL_MECHANISM",
        show_envvar=True,
        help="Log in with this mechanism only, for example PLAIN or SCRAM-SHA-256.",
    ),
    _option("--plain-without-tls", is_flag=True, help="Allow sending the password or token without TLS."),
    _option(
        "--ca",
        type=_FILE,
        metavar="FILE",
        envvar="AMQP_STREAMS_CA",
        show_envvar=True,
        help="Trust these authorities, PEM.",
    ),
    _option(
        "--cert",
        type=_FILE,
        metavar="FILE",
        envvar="AMQP_STREAMS_CERT",
        show_envvar=True,
        help="The client's certificate, PEM.",
    ),
    _option(
        "--key-file",
        type=_FILE,
        metavar="FILE",
        envvar="AMQP_STREAMS_KEY_FILE",
        show_envvar=True,
        help="Its private key, PEM.",
    ),
    _option("--insecure", is_flag=True, help="Do not check the node's certificate. Only for tests."),
)


def client_options(command: Command) -> Command:
    """The options of every command that connects to a node; the command gets them as `endpoint`."""

    @wraps(command)
    def with_endpoint(*args: Any, url: str, context: str | None, password_stdin: bool, **more: Any) -> Any:
        own = {name: more.pop(name) for name in _DEFAULTS if name != "url"}
        endpoint = endpoint_of(
            click.get_current_context(),
            {"url": url, "context": context, **own},
            password=password_from_stdin() if password_stdin else None,
        )
        return command(*args, endpoint=endpoint, **more)

    # The last decorator is the first option of the help.
    options: Callable[..., Any] = with_endpoint
    for option in reversed(_OPTIONS):
        options = option(options)
    return options  # type: ignore[return-value]  # click's decorators keep the callable but change its parameters


def _endpoint(
    here: click.Context, choice: Choice | None, given_values: Mapping[str, Any], password: str | None
) -> Endpoint:
    """The node of a context, or of options and variables. `password`: from stdin."""
    values = merged(here, choice, given_values, _DEFAULTS)
    # Secrets of a context belong to the user of the context.
    names_user = choice is not None and given(here, "user")
    settings = None if choice is None or names_user else choice.settings
    token: str | Callable[[], str] | None
    if values["token_file"] is not None:
        # Read for each connection: tokens expire, and their file is replaced.
        token = partial(_token_in, Path(values["token_file"]))
    elif settings is not None:
        token = secret(settings, "token")
    else:
        token = None if names_user else os.environ.get("AMQP_STREAMS_TOKEN") or None
    if password is None:
        # Without a user, the password is for the user in the URL, unless the URL has a password.
        password = (
            os.environ.get("AMQP_STREAMS_PASSWORD") if settings is None else secret(settings, "password")
        )
    mechanism = values["sasl_mechanism"]
    sasl = SaslOptions(
        token=token,
        mechanisms=None if mechanism is None else (mechanism.upper(),),
        plain_without_tls=values["plain_without_tls"],
    )
    tls = TlsOptions(
        ca_file=_path(values["ca"]),
        certificate_file=_path(values["cert"]),
        key_file=_path(values["key_file"]),
        verify=not values["insecure"],
    )
    return Endpoint(values["url"], values["user"], password, tls, sasl)


def _path(text: str | Path | None) -> Path | None:
    return None if text is None else Path(text)


def endpoint_of(here: click.Context, params: Mapping[str, Any], *, password: str | None = None) -> Endpoint:
    """The node that the options of a command, a context or variables name. `password`: from stdin.

    Raises:
        click.UsageError: the command line has --url and --context.
        SettingError: the context cannot be used.
    """
    url = params.get("url") or URL_DEFAULT
    root = here.find_root().params
    # The command's own --url counts first, then that of `amqp-streams --url U COMMAND`, then the variable.
    if here.get_parameter_source("url") is not ParameterSource.COMMANDLINE:
        url = root.get("url") or url
    values = {name: params.get(name, default) for name, default in _DEFAULTS.items()} | {"url": url}
    choice = chosen(
        CONTEXTS,
        os.environ,
        named=params.get("context") or root.get("context"),
        address_given=given(here, "url"),
    )
    endpoint = _endpoint(here, choice, values, password)
    if choice is None:
        return endpoint
    return replace(endpoint, elsewhere=_endpoint(here, None, values, password))


def managed(
    endpoint: Endpoint,
    ask: Callable[[Management], Awaitable[T]],
    *,
    log: str | None = None,
    group: str | None = None,
) -> T:
    """Call the node's `$management`, about a log or a group of it if they are named."""

    async def asked() -> T:
        async with opened(endpoint, log, group=group) as client:
            return await ask(client.management)

    return run(asked())


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a command's asynchronous part. Ctrl-C cancels it and raises KeyboardInterrupt."""
    # uvloop: the loop limits how fast events are sent and received.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def _token_in(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        message = f"{file} is not a text file"
        raise ConfigError(message) from None
