"""[io] The web console of a node: `amqp-streams console` as a child process."""

from collections.abc import Sequence

from amqp_streams.config import NodeSettings
from amqp_streams.errors import ConfigError
from amqp_streams.server.listening.sockets import BoundAddress
from service_parts import console_child
from service_parts.console_child import ConsoleChild, options
from service_parts.errors import raised_as
from service_parts.networks import format_address, reachable
from service_parts.settings.consoles import ConsoleSettings


def node_url(addresses: Sequence[BoundAddress]) -> str:
    """Return the URL of the first address without TLS, as a process of this machine reaches it."""
    address = next(one for one in addresses if not one.tls)
    return f"amqp://{format_address(reachable(address.host), address.port)}"


def check_console(console: ConsoleSettings) -> None:
    """Check what a console needs, except its address.

    Raises:
        ConfigError: the extra is not installed, or a file cannot be read.
    """
    with raised_as(ConfigError):
        console_child.check_console(console)


class Console(ConsoleChild):
    """The child process. It runs from `start` to `stop`."""

    def __init__(self, settings: NodeSettings, console: ConsoleSettings, url: str) -> None:
        """`url`: of the node."""
        given = options(
            console,
            settings.trusted_proxies,
            settings.log_format,
            plain_without_tls=settings.plain_without_tls,
        )
        super().__init__(console, "amqp_streams.cli", ["--url", url, *given])

    async def start(self) -> None:
        """Bind the address, and keep the console running.

        Raises:
            ConfigError: the address cannot be bound, or what the console needs is missing.
        """
        with raised_as(ConfigError):
            await super().start()

    def location(self, host: str) -> str:
        """Return the URL for a browser that reached the node as `host`."""
        return console_child.location(self.address, host)
