"""Readings of a real gateway: parts of lists, how long a reading is used, and rates."""

import asyncio
import time
from dataclasses import replace

import pytest

from examples.gateway import GatewayProcess
from tests.web_console.gateway.conftest import ADMIN, READER
from web_console.gateway import inventory as module
from web_console.gateway.api import Api, ApiError, server_of
from web_console.gateway.inventory import FRESH_S, FRESH_S_MAX, Inventory, Listing


def api_of(gateway: GatewayProcess, token: str) -> Api:
    return Api(server_of(gateway.base_url), None, token)


async def test_a_list_is_read_in_parts(
    guarded_gateway: GatewayProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = api_of(guarded_gateway, ADMIN)
    for namespace, count in (("weather", 3), ("", 6)):
        whole = await Inventory(api).read(namespace)
        assert len(whole.receivers) == count
        with monkeypatch.context() as patched:
            patched.setattr(module, "_PART", 1)
            parts = await Inventory(api).read(namespace)
            assert (parts.sources, parts.receivers) == (whole.sources, whole.receivers)
            assert parts.is_whole
            patched.setattr(module, "ROWS_MAX", 1)
            cut = await Inventory(api).read(namespace)
            assert not cut.is_whole
            assert len(cut.receivers) == 2  # one of each kind


async def test_a_user_without_the_right_to_list_namespaces_sees_their_own(
    guarded_gateway: GatewayProcess,
) -> None:
    inventory = Inventory(api_of(guarded_gateway, READER))
    listing = await inventory.read("weather")
    assert [one.name for one in listing.sources] == ["temps", "temps-channel"]
    assert listing.namespaces == ()
    with pytest.raises(ApiError, match="forbidden"):
        await inventory.read("vault")


async def test_a_reading_is_used_again(guarded_gateway: GatewayProcess) -> None:
    inventory = Inventory(api_of(guarded_gateway, ADMIN))
    first = await inventory.read("weather")
    assert await inventory.read("weather") is first
    for namespace in ("a", "b", "c", "d"):
        await inventory.read(namespace)
    assert await inventory.read("weather") is not first


async def test_views_that_are_opened_during_a_reading_share_the_next_one(
    guarded_gateway: GatewayProcess,
) -> None:
    inventory = Inventory(api_of(guarded_gateway, ADMIN))
    first = asyncio.create_task(inventory.read("weather", anew=True))
    await asyncio.sleep(0)
    second, third = await asyncio.gather(
        inventory.read("weather", anew=True), inventory.read("weather", anew=True)
    )
    assert second is third
    assert second is not await first, "it may lack what was changed after it began"


def test_a_reading_is_used_for_a_hundred_times_as_long_as_it_took() -> None:
    listing = Listing((), (), (), True, 0.0, 0.001)
    assert listing.fresh_s == FRESH_S
    assert replace(listing, took_s=0.5).fresh_s == 50
    assert replace(listing, took_s=2.0).fresh_s == 200
    assert replace(listing, took_s=10.0).fresh_s == FRESH_S_MAX


async def test_the_rate_is_that_of_the_readings(guarded_gateway: GatewayProcess) -> None:
    inventory = Inventory(api_of(guarded_gateway, ADMIN))
    listing = await inventory.read("weather")
    one = replace(listing.receivers[0], delivered=10)
    now = time.monotonic()
    assert inventory.rate(replace(listing, at_s=now), one) is None
    later = replace(listing, at_s=now + 10)
    assert inventory.rate(later, replace(one, delivered=110)) == pytest.approx(10)
    # The same reading for another view.
    assert inventory.rate(later, replace(one, delivered=110)) == pytest.approx(10)
    assert inventory.rate(later, replace(one, delivered=None)) is None
