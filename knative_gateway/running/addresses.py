"""The addresses at which clients reach the gateway."""

import structlog

from knative_gateway.config import GatewaySettings
from service_parts.networks import EVERYWHERE, reachable
from service_parts.settings.listeners import Listener

log = structlog.get_logger("knative_gateway")


def base_url(settings: GatewaySettings, bound: str, *, shared: bool) -> str:
    """Return the beginning of the addresses of Brokers and Channels.

    `bound` is the first address of the HTTP listener, as HOST:PORT. `shared` means that other gateways use
    the same store.
    """
    if settings.public_url is not None:
        return settings.public_url.rstrip("/")
    if shared:
        message = "each gateway writes its own address into the status of Brokers and Channels"
        log.warning("public_url_not_set", message=message, remedy="set public_url")
    host, _, port = bound.rpartition(":")
    if host.strip("[]") in EVERYWHERE:
        # A wildcard address is valid for binding only. A sender on this machine needs an address that it can
        # connect to.
        message = "other machines cannot reach the addresses of Brokers and Channels"
        log.warning("public_url_not_set", message=message, remedy="set public_url")
    listener = Listener(host=reachable(host.strip("[]")), port=int(port))
    return f"{'http' if settings.tls is None else 'https'}://{listener}"
