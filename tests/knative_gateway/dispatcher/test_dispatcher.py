"""Events from a log to their subscribers, through all parts except the node."""

from collections.abc import AsyncIterator

import pytest

from knative_gateway.ports import Start
from tests.knative_gateway.dispatcher.rig import LOG, Rig, event, subscriber, until
from tests.knative_gateway.dispatcher.subscriber import SubscriberServer


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with Rig() as made:
        yield made


@pytest.fixture
async def server() -> AsyncIterator[SubscriberServer]:
    async with SubscriberServer() as running:
        yield running


async def test_every_event_reaches_its_subscriber(rig: Rig, server: SubscriberServer) -> None:
    await rig.serve(subscriber("u", server.url()))
    events = [event(number, data=b"\x00\xff", subject="s") for number in range(50)]
    await rig.send(*events)
    got = await server.wait(50)
    assert sorted(int(each.id) for each in got) == list(range(50))
    assert next(each.event for each in got if each.id == "7") == events[7]


async def test_each_match_is_a_delivery_of_its_own(rig: Rig, server: SubscriberServer) -> None:
    """Spec: knative-eventing-test-spec, Content Based Routing: duplicate matches with the same destination
    MUST each generate separate event delivery attempts, one per Trigger match."""
    await rig.serve(*(subscriber(f"u{number}", server.url()) for number in range(3)))
    await rig.send(event(1))
    assert len(await server.wait(3)) == 3


async def test_filters_choose(rig: Rig, server: SubscriberServer) -> None:
    """Spec: knative-eventing-test-spec, Content Based Routing:

    MUST evaluate the Trigger's spec.filter and, if matched, deliver.
    """
    await rig.serve(subscriber("u", server.url(), filters=({"exact": {"type": "wanted"}},)))
    await rig.send(event(1, "other"), event(2, "wanted"), event(3, "other"), event(4, "wanted"))
    await server.wait(2)
    await until(lambda: rig.store.positions["u"] == {0: f"{1:016d}", 1: f"{1:016d}"})
    assert sorted(server.ids) == ["2", "4"]


async def test_a_new_subscriber_gets_what_comes_from_now_on(rig: Rig, server: SubscriberServer) -> None:
    """The position is durable before the subscriber is reported as served, so that nothing is missed if the
    process ends then.
    """
    await rig.send(event(1), event(2))
    await rig.serve(subscriber("u", server.url()))
    assert rig.store.positions["u"] == {0: f"{0:016d}", 1: f"{0:016d}"}
    await rig.send(event(3))
    assert [got.id for got in await server.wait(1)] == ["3"]


async def test_a_new_subscriber_of_an_empty_log_has_a_cursor_too(rig: Rig, server: SubscriberServer) -> None:
    await rig.serve(subscriber("u", server.url()))
    assert rig.store.positions["u"] == {0: "", 1: ""}


@pytest.mark.parametrize(
    ("start", "at", "expected"),
    [
        (Start.EARLIEST, None, {"1", "2", "3", "4", "5", "6"}),
        (Start.TIME, "1970-01-01T00:00:00.004Z", {"4", "5", "6"}),
        (Start.OFFSET, f"0={0:016d},1=@earliest", {"1", "3", "4", "5", "6"}),
        (Start.OFFSET, "0=@latest", set()),
    ],
)
async def test_a_subscriber_begins_where_it_wants(
    rig: Rig, server: SubscriberServer, start: Start, at: str | None, expected: set[str]
) -> None:
    await rig.send(*(event(number) for number in range(1, 7)))
    await rig.serve(subscriber("u", server.url(), start=start, start_at=at))
    await rig.send(event("last"))
    await server.wait(len(expected) + 1)
    assert set(server.ids) == expected | {"last"}


async def test_a_known_subscriber_continues_from_its_cursor(server: SubscriberServer) -> None:
    async with Rig() as first:
        await first.serve(subscriber("u", server.url()))
        await first.send(event(1), event(2))
        await server.wait(2)
    async with Rig(log=first.memory, kept=first.store) as second:
        await second.send(event(3), event(4))
        await second.serve(subscriber("u", server.url(), start=Start.EARLIEST))
        await until(lambda: second.dispatcher.figures("u")["delivered"] >= 2)
    assert sorted(server.ids) == ["1", "2", "3", "4"]


async def test_a_recreated_log_is_read_from_its_beginning(rig: Rig, server: SubscriberServer) -> None:
    """Positions of its predecessor do not apply to it, and all its events are newer."""
    rig.store.positions["u"] = {0: f"{99:016d}", 1: f"{0:016d}"}
    rig.store.incarnations["u"] = "the one before"
    await rig.send(event(1), event(2))
    await rig.serve(subscriber("u", server.url()))
    await server.wait(2)


async def test_a_message_that_is_not_an_event_is_skipped_and_reported(
    rig: Rig, server: SubscriberServer
) -> None:
    await rig.serve(subscriber("u", server.url()))
    await rig.log.append(LOG, b"\x00\x53\x77\xa1\x05hello")
    await rig.send(event(1))
    await server.wait(1)
    await until(lambda: rig.store.failures.get("u"))
    [failure] = rig.store.failures["u"]
    assert (failure.end, failure.event_id) == ("skipped", "")
    await until(lambda: set(rig.store.positions["u"].values()) == {f"{0:016d}"})
