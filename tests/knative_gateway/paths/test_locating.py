"""Dead letters and replies are looked for in bounds."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from event_formats.amqp_binding import encode
from knative_gateway.paths import locating
from knative_gateway.paths.locating import LOCATED_MAX, Search, Sought
from knative_gateway.ports import Route
from tests.knative_gateway.dispatcher.rig import event
from tests.knative_gateway.memory_log import MemoryEventLog

LOG = "channel.default.c"
ROUTE = Route("uid", "Channel", "default", "c", "/channel/default/c", LOG, ())
URL = "http://gateway.example/channel/default/c"


async def log_with(count: int) -> MemoryEventLog:
    log = MemoryEventLog()
    await log.ensure(LOG, partitions=1, retention_ms=None)
    for number in range(count):
        await log.append(LOG, encode(event(number)))
    return log


def search(log: MemoryEventLog) -> Search:
    return Search({ROUTE.path: ROUTE}, log, "default")


async def test_the_latest_one_before_the_time_is_found() -> None:
    log = await log_with(9)
    await log.append(LOG, encode(event(3)))
    found = await search(log).at_url(URL, Sought("3", "/s", 10_000))
    assert found == {"kind": "Channel", "namespace": "default", "name": "c", "partition": 0, "offset": 9}
    # 2 s before its time is the limit for a difference of the clocks.
    earlier = await search(log).at_url(f"{URL}/", Sought("3", "/s", 4 - 2_000))
    assert earlier["offset"] == 3


async def test_all_searches_of_an_answer_look_at_so_many_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locating, "LOCATED_MAX", 300)
    both = search(await log_with(1000))
    for number, words in (
        ("999x", "not among the events"),
        ("998x", "not searched"),
        ("997x", "not searched"),
    ):
        assert words in str(await both.at_url(URL, Sought(number, "/s", 10_000)))
    assert LOCATED_MAX == 5_000


async def test_the_same_letter_of_many_subscribers_is_looked_for_once() -> None:
    log = await log_with(10)
    one = search(log)
    for _ in range(5):
        await one.at_url(URL, Sought("3", "/s", 10_000))
    assert log.asked == 1


async def test_a_log_that_does_not_answer_ends_the_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locating, "LOCATED_S_MAX", 0.01)
    log = await log_with(1)

    async def silent(_: str) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(log, "extents", silent)
    one = search(log)
    assert "took too long" in str(await one.at_url(URL, Sought("1", "/s", 1)))
    assert "not searched" in str(await one.at_url(URL, Sought("2", "/s", 1)))


async def test_a_log_that_is_gone_is_named_as_not_searched() -> None:
    assert "took too long" in str(await search(MemoryEventLog()).at_url(URL, Sought("1", "/s", 1)))


async def test_a_route_of_another_namespace_is_as_one_that_does_not_exist() -> None:
    log = await log_with(4)
    path = "/channel/vault/c"
    vault = replace(ROUTE, namespace="vault", path=path)
    sought = Sought("3", "/s", 10_000)
    url = f"http://gateway.example{path}"
    there = await Search({ROUTE.path: ROUTE, path: vault}, log, "default").at_url(url, sought)
    assert there == await search(log).at_url(url, sought)
    assert "not a Broker or Channel of this namespace" in str(there)
    assert log.asked == 0
    assert (await Search({path: vault}, log, "vault").at_url(url, sought))["offset"] == 3


@pytest.mark.parametrize(
    "url", ["", "http://[", "http://x/other", "http://gateway.example/channel/default/d"]
)
async def test_other_urls_are_not_searched(url: str) -> None:
    found = await search(MemoryEventLog()).at_url(url, Sought("1", "/s", 1))
    assert "not a Broker or Channel" in str(found)
