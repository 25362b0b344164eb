"""The target of a link redirect (AMQP 1.0 core 2.8.18, Event Streams 4). Pure.

Law: a client that connected with TLS does not follow a redirect without TLS. User, password and certificate
are sent only to a container that is reached as securely as the first one.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from amqp_streams import names
from amqp_streams.client.endpoints.address import Address

_PORTS: Final = range(1, 65_536)
_DIGITS_MAX: Final = 5


def target(info: Mapping[str, object], came_from: Address) -> Address:
    """Return the address of the container in a redirect's `info`. User and path are those of `came_from`.

    Raises:
        ValueError: it has no host or port, or is less secure; the message says which.
    """
    host = info.get(names.REDIRECT_NETWORK_HOST) or info.get(names.REDIRECT_HOSTNAME)
    if not isinstance(host, str):
        message = f"it has no {names.REDIRECT_NETWORK_HOST}"
        raise ValueError(message)
    try:
        way = Address.parse(f"{info.get(names.REDIRECT_SCHEME) or came_from.scheme}://host")
    except ValueError as error:
        message = f"its scheme is not valid: {error}"
        raise ValueError(message) from None
    if came_from.secure and not way.secure:
        message = f"it leads from {came_from.scheme}:// to {way.scheme}://, without TLS"
        raise ValueError(message)
    hostname = info.get(names.REDIRECT_HOSTNAME)
    return replace(
        came_from,
        scheme=way.scheme,
        host=str(host),
        port=_port(info.get(names.REDIRECT_PORT)),
        hostname=str(hostname) if isinstance(hostname, str) and hostname != host else None,
        ip=None,
    )


def address_there(info: Mapping[str, object], log: str) -> str:
    """Return the log's address at that container; `log` if the redirect does not name one."""
    address = info.get(names.REDIRECT_ADDRESS)
    return str(address) if isinstance(address, str) and address else log


def _port(value: object) -> int:
    """Return the port. Digits as text are accepted too, because some peers send only strings in the map."""
    number = (
        int(value)
        if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= _DIGITS_MAX
        else value
    )
    if isinstance(number, bool) or not isinstance(number, int) or number not in _PORTS:
        message = f"it has no {names.REDIRECT_PORT} from 1 to 65535"
        raise ValueError(message)
    return int(number)
