"""How commands reach a node: its URL, who asks, how TLS is checked; and how their asynchronous part is run.

No option is a password: it comes from the environment, alone or in the URL, or from the first line of stdin; a token from the environment
or a file. A URL on the command line may have one, which is then seen by every user of the machine: the help says so.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import uvloop

from amqp_streams.cli.reading import password_from_stdin
from amqp_streams.client import Client, Management, SaslOptions, TlsOptions, connect
from amqp_streams.errors import ConfigError

URL_DEFAULT: Final = "amqp://127.0.0.1:5672"
_SCHEMES: Final = ("amqp", "amqps", "ws", "wss")

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A node and how to speak to it."""

    url: str = URL_DEFAULT
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: TlsOptions | None = None
    sasl: SaslOptions | None = None

    def client(self, *, container_id: str | None = None) -> Client:
        """A client of this node, not connected yet; without a container-id it gets a random one.

        Raises:
            ConfigError: the URL is none.
        """
        try:
            return connect(self.url, user=self.user, password=self.password, tls=self.tls, sasl=self.sasl, container_id=container_id)
        except ValueError as error:
            message = f"--url (AMQP_STREAMS_URL): {error}; a node is amqp://[USER[:PASSWORD]@]HOST[:PORT]"
            raise ConfigError(message) from error

    def at(self, address: str) -> "tuple[Endpoint, str]":
        """The node and the log that an ADDRESS means: the name of a log at this node, or a URL with the log as its path.

        Raises:
            ConfigError: it is a URL without a log, or of another protocol.
        """
        if "://" not in address:
            return self, address
        node, _, log = address.rpartition("/")
        scheme, _, authority = node.partition("://")
        if scheme not in _SCHEMES or not authority or not log:
            message = f"{address!r} is no address: the name of a log, or {'|'.join(_SCHEMES)}://HOST[:PORT]/NAME"
            raise ConfigError(message)
        return Endpoint(node, self.user, self.password, self.tls, self.sasl), log


def client_options(command: Command) -> Command:
    """The flags of every command that talks to a node; the command gets them as `endpoint`."""

    @click.option("--url", envvar="AMQP_STREAMS_URL", metavar="URL", default=URL_DEFAULT, show_default=True, show_envvar=True,
                  help="The node: amqp:// amqps:// ws:// wss://[USER[:PASSWORD]@]HOST[:PORT]. "
                  "Arguments can be seen by others: put one with a password into the variable.")  # fmt: skip
    @click.option("--user", envvar="AMQP_STREAMS_USER", metavar="NAME", show_envvar=True,
                  help="Who asks; the password is in the URL, in AMQP_STREAMS_PASSWORD, or on stdin.")  # fmt: skip
    @click.option("--password-stdin", is_flag=True, help="Take the password from the first line of stdin.")
    @click.option("--token-file", type=_FILE, metavar="FILE", envvar="AMQP_STREAMS_TOKEN_FILE", show_envvar=True,
                  help="Log in with the OAuth token in this file, read for each connection; or in AMQP_STREAMS_TOKEN.")  # fmt: skip
    @click.option("--sasl-mechanism", metavar="NAME", envvar="AMQP_STREAMS_SASL_MECHANISM", show_envvar=True,
                  help="Log in by this mechanism and no other, such as PLAIN or SCRAM-SHA-256.")  # fmt: skip
    @click.option("--plain-without-tls", is_flag=True, help="Show password or token to a network without TLS, if the node wants that.")
    @click.option("--ca", type=_FILE, metavar="FILE", envvar="AMQP_STREAMS_CA", show_envvar=True, help="Trust these authorities, PEM.")
    @click.option("--cert", type=_FILE, metavar="FILE", envvar="AMQP_STREAMS_CERT", show_envvar=True, help="Our certificate, PEM.")
    @click.option("--key-file", type=_FILE, metavar="FILE", envvar="AMQP_STREAMS_KEY_FILE", show_envvar=True, help="Its private key, PEM.")
    @click.option("--insecure", is_flag=True, help="Do not check the node's certificate. For trying things out only.")
    @wraps(command)
    def with_endpoint(
        *args: Any, url: str, user: str | None, password_stdin: bool, token_file: Path | None, sasl_mechanism: str | None,
        plain_without_tls: bool, ca: Path | None, cert: Path | None, key_file: Path | None, insecure: bool, **more: Any,
    ) -> Any:  # fmt: skip
        password = password_from_stdin() if password_stdin else os.environ.get("AMQP_STREAMS_PASSWORD")
        # A password without a user belongs to nobody here: the URL may name one, and then has its own or takes this.
        sasl = SaslOptions(
            token=os.environ.get("AMQP_STREAMS_TOKEN") or None if token_file is None else partial(_token_in, token_file),
            mechanisms=None if sasl_mechanism is None else (sasl_mechanism.upper(),),
            plain_without_tls=plain_without_tls,
        )
        tls = TlsOptions(ca_file=ca, certificate_file=cert, key_file=key_file, verify=not insecure)
        return command(*args, endpoint=Endpoint(url, user, password, tls, sasl), **more)

    return with_endpoint  # type: ignore[return-value]  # click's decorators keep the callable; its parameters are click's from here on


def managed(endpoint: Endpoint, ask: Callable[[Management], Awaitable[T]]) -> T:
    """Ask the node's `$management`."""

    async def asked() -> T:
        async with endpoint.client() as client:
            return await ask(client.management)

    return run(asked())


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a command's asynchronous part; Ctrl-C cancels it and comes out as KeyboardInterrupt."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def _token_in(file: Path) -> str:
    return file.read_text(encoding="utf-8").strip()


_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
