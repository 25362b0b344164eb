"""The addresses at which clients reach the gateway."""

import structlog

from knative_gateway.config import GatewaySettings
from service_parts.networks import EVERYWHERE, reachable
from service_parts.settings.listeners import Listener

log = structlog.get_logger("knative_gateway")


def guessed(settings: GatewaySettings, *, shared: bool) -> str | None:
    """Return why the addresses of Brokers and Channels may be wrong for others; None: they are right.

    `shared` means that other gateways use the same store.
    """
    if settings.public_url is not None:
        return None
    if shared:
        return "Each gateway writes its own address into the status of Brokers and Channels"
    if settings.listen[0].host.strip("[]") in EVERYWHERE:
        return "Other machines cannot reach the addresses of Brokers and Channels"
    return None


def base_url(settings: GatewaySettings, bound: str, *, shared: bool) -> str:
    """Return the beginning of the addresses of Brokers and Channels.

    `bound` is the first address of the HTTP listener, as HOST:PORT. `shared` means that other gateways use
    the same store.
    """
    if settings.public_url is not None:
        return settings.public_url.rstrip("/")
    reason = guessed(settings, shared=shared)
    if reason is not None:
        log.warning("public_url_not_set", message=reason, remedy="set public_url")
    host, _, port = bound.rpartition(":")
    # A wildcard address is valid for binding only. A sender on this machine needs an address that it can
    # connect to: `reachable` returns one.
    listener = Listener(host=reachable(host.strip("[]")), port=int(port))
    return f"{'http' if settings.tls is None else 'https'}://{listener}"
