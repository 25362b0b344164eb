"""The IP addresses of names."""

import asyncio
import socket
from typing import Any

import pytest

from amqp_streams.client.endpoints.address import Address
from amqp_streams.client.endpoints.resolving import IPS_MAX, choices_of
from amqp_streams.client.endpoints.rotation import Choice


class Names:
    """Answers of a resolver, by name; a name without an answer does not exist, `slow` never answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **known: list[str]) -> None:
        self.known = known
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", self.getaddrinfo)

    async def getaddrinfo(self, host: str, port: int, **_: Any) -> list[Any]:
        if host == "slow":
            await asyncio.Event().wait()
        if host not in self.known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [
            (socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port))
            for ip in self.known[host]
        ]


async def shown(*urls: str) -> list[tuple[str, int]]:
    choices = await choices_of(map(Address.parse, urls), 0.05)
    return [(str(address), rank) for address, rank in choices]


async def test_a_name_with_several_addresses_is_several_endpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch, nodes=["10.0.0.1", "10.0.0.2"], one=["10.0.0.9"])
    assert await shown("amqp://nodes", "amqp://one", "amqp://10.0.0.7", "amqp://[::1]") == [
        ("amqp://nodes:5672 (10.0.0.1)", 0),
        ("amqp://nodes:5672 (10.0.0.2)", 0),
        ("amqp://one:5672", 0),
        ("amqp://10.0.0.7:5672", 0),
        ("amqp://[::1]:5672", 0),
    ]


async def test_the_family_that_the_system_prefers_is_tried_first(monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch, both=["fd00::1", "10.0.0.1", "fd00::2"])
    assert [rank for _, rank in await shown("amqp://both")] == [0, 1, 0]


async def test_a_name_that_is_not_found_is_left_to_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch)
    long = f"amqp://{'a' * 300}"
    assert await choices_of([Address.parse("amqp://none"), Address.parse("amqp://slow")], 0.05) == [
        Choice(Address("amqp", "none", 5672)),
        Choice(Address("amqp", "slow", 5672)),
    ]
    monkeypatch.undo()
    assert [rank for _, rank in await shown(long)] == [0]


async def test_a_name_with_too_many_addresses_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch, many=[f"10.0.{number // 250}.{number % 250}" for number in range(1000)])
    assert len(await shown("amqp://many")) == IPS_MAX
