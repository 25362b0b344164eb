"""The IP addresses of the names in endpoints. Each of them is an endpoint of its own."""

import asyncio
import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from amqp_streams.client.endpoints.address import Address
from amqp_streams.client.endpoints.rotation import Choice

IPS_MAX: Final = 32
"""The most addresses of one name that are tried."""


async def choices_of(addresses: Iterable[Address], limit_s: float) -> list[Choice]:
    """Return the endpoints to try: those with a name that has several IP addresses once for each of these.

    The name itself is left for the connection to look up if it has one address, does not exist, or is not
    found within `limit_s`. The error is then that of the connection.
    """
    found = await asyncio.gather(*(_choices(address, limit_s) for address in addresses))
    return [choice for choices in found for choice in choices]


async def _choices(address: Address, limit_s: float) -> list[Choice]:
    if _is_ip(address.host):
        return [Choice(address)]
    try:
        async with asyncio.timeout(limit_s):
            infos = await asyncio.get_running_loop().getaddrinfo(
                address.host, address.port, type=socket.SOCK_STREAM
            )
    # ValueError: the host name is not valid.
    except (OSError, ValueError):
        return [Choice(address)]
    ips = {str(sockaddr[0]): family for family, *_, sockaddr in infos[:IPS_MAX]}
    if len(ips) < 2:
        return [Choice(address)]
    # The system puts the family first that this machine can use best.
    best = next(iter(ips.values()))
    return [Choice(replace(address, ip=ip), int(family != best)) for ip, family in ips.items()]


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
