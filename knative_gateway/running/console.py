"""[io] The web console of a gateway: `knative-gateway console` as a child process.

A gateway with several workers has one console, which its parent process starts.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from knative_gateway.config import ConsoleSettings, GatewaySettings
from knative_gateway.errors import ConfigError
from knative_gateway.running.stopping import Parts
from service_parts import console_child
from service_parts.console_child import ConsoleChild, options
from service_parts.errors import raised_as
from service_parts.networks import reachable
from service_parts.settings.listeners import Listener


def check_console(console: ConsoleSettings) -> None:
    """Check what a console needs, except its address.

    Raises:
        ConfigError: the extra is not installed, or a file cannot be read.
    """
    with raised_as(ConfigError):
        console_child.check_console(console)


def gateway_url(bound: str) -> str:
    """Return the URL of an address without TLS, HOST:PORT, as a process of this machine reaches it."""
    listener = Listener.parse(bound)
    return f"http://{Listener(host=reachable(listener.host), port=listener.port)}"


class GatewayConsole:
    """The console of a gateway process, and where it is."""

    def __init__(self, settings: GatewaySettings, *, several: bool) -> None:
        """`several`: the parent process runs the console. The settings have its address."""
        self._settings: Final = settings
        self._several: Final = several
        self._at: Listener | None = (
            settings.console.listen if settings.console is not None and several else None
        )

    async def start(self, parts: Parts, addresses: dict[str, list[str]]) -> None:
        """Start the console, if the settings have one, as one of `parts`, and add its address to `addresses`.

        Raises:
            ConfigError: its address cannot be bound, or what it needs is missing.
        """
        console = self._settings.console
        if console is not None and not self._several:
            running = running_console(console, self._settings, addresses["http"][0])
            child = await parts.enter("console", running)
            self._at, addresses["console"] = child.address, child.addresses

    def location(self, host: str) -> str | None:
        """Return the URL for a browser that reached the gateway as `host`; None: not yet."""
        return None if self._at is None else console_child.location(self._at, host)


@asynccontextmanager
async def running_console(
    console: ConsoleSettings, settings: GatewaySettings, bound: str
) -> AsyncIterator[ConsoleChild]:
    """Run the console within this context. `bound`: the first address of the gateway, HOST:PORT.

    Raises:
        ConfigError: the address of the console cannot be bound, or what it needs is missing.
    """
    given = options(console, console.trusted_proxies, settings.log_format, plain_without_tls=False)
    url = console.url or gateway_url(bound)
    child = ConsoleChild(console, "knative_gateway.cli", ["--server", url, *given])
    try:
        with raised_as(ConfigError):
            await child.start()
        yield child
    finally:
        await child.stop()
