"""[io] The check of `knative-gateway serve --check`: reads everything that a gateway reads at its start."""

import asyncio
import tempfile
from pathlib import Path

from knative_gateway.addressing import ServiceMap
from knative_gateway.api import Api, ApiSettings, Namespaces, load_directory
from knative_gateway.config import GatewaySettings
from knative_gateway.http.listening import server_context
from knative_gateway.part_settings import destinations, subscribers_tls
from knative_gateway.running.console import check_console
from knative_gateway.security.access import Gate
from knative_gateway.security.tokens import credentials, wall_ms
from knative_gateway.store.database import Database
from knative_gateway.store.opening import open_store, sqlite_url


def check_settings(settings: GatewaySettings) -> None:
    """Read certificates, tokens, keys and the directory of resources, and check URLs, rules and the console.

    Does not connect to the node, the state database or subscribers.

    Raises:
        GatewayError: a gateway cannot start with these settings; the message gives the reason.
    """
    ServiceMap.parse(settings.services)
    destinations(settings)
    if settings.console is not None:
        check_console(settings.console)
    asyncio.run(_check_stored(settings, check_files(settings)))


def check_files(settings: GatewaySettings) -> Gate:
    """Read the files that a gateway reads again on SIGHUP. Returns what its tokens and rules allow.

    Raises:
        ConfigError: a file cannot be read or is not valid.
    """
    tokens, rules = credentials(settings, wall_ms)
    if settings.tls is not None:
        server_context(settings.tls)
    subscribers_tls(settings)
    return Gate(tokens, rules)


async def _check_stored(settings: GatewaySettings, gate: Gate) -> None:
    if settings.store is not None:
        await Database(settings.store).close()
    if settings.resources is None:
        return
    with tempfile.TemporaryDirectory(prefix="knative-gateway-check-") as folder:
        async with open_store(sqlite_url(Path(folder))) as store:
            api = Api(
                store.resources,
                store.cursors,
                settings=ApiSettings(namespaces=Namespaces(settings.namespaces)),
                gate=gate,
            )
            await api.start()
            try:
                await load_directory(api, settings.resources)
            finally:
                await api.close()
