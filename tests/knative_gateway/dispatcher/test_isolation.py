"""Slow, dead and greedy subscribers, and that their neighbours are not affected."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

import pytest
from aiohttp import web

from knative_gateway.dispatcher.arrival import Arrival
from knative_gateway.dispatcher.settings import DispatchSettings
from knative_gateway.dispatcher.subscribers.catching_up import TURN_BATCHES
from knative_gateway.dispatcher.subscribers.partition import SubscriberPartition
from knative_gateway.filters import dialects
from knative_gateway.ports import Delivery, Failure, Order, Stored
from tests.knative_gateway.dispatcher.rig import Rig, event, subscriber, until
from tests.knative_gateway.dispatcher.subscriber import Got, SubscriberServer

SMALL = DispatchSettings(
    look_ahead=8, in_flight_max=4, flush_ms=20, idle_flush_ms=20, drain_s=0.2, patience_s=0.05
)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with Rig(SMALL) as made:
        yield made


@pytest.fixture
async def server() -> AsyncIterator[SubscriberServer]:
    async with SubscriberServer() as running:
        yield running


class Gate:
    """Requests wait while it is shut."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def __call__(self, got: Got) -> web.StreamResponse:
        await self.open.wait()
        return web.Response(status=202)


async def test_a_stuck_subscriber_delays_no_other_and_gets_everything_later(rig: Rig) -> None:
    gate = Gate()
    async with SubscriberServer(gate) as stuck, SubscriberServer() as quick:
        await rig.serve(subscriber("stuck", stuck.url()), subscriber("quick", quick.url()))
        await rig.send(*(event(number) for number in range(200)))
        await quick.wait(200)
        dispatcher = rig.dispatcher.dispatcher_of("stuck")
        assert dispatcher is not None
        assert all(each.window.open <= 8 for each in dispatcher.partitions.values())
        assert dispatcher.figures.in_flight <= 4
        assert stuck.in_flight_max <= 4
        gate.open.set()
        await stuck.wait(200)
        assert sorted(map(int, stuck.ids)) == list(range(200))
        assert len(quick.got) == 200
        await rig.send(*(event(number) for number in range(200, 210)))
        await stuck.wait(210)
        await until(lambda: all(each.cursor.is_shared for each in dispatcher.partitions.values()))


async def test_a_subscriber_that_is_alone_holds_up_its_reader_only(rig: Rig) -> None:
    """No other subscriber is delayed, so nothing is read twice."""
    gate = Gate()
    async with SubscriberServer(gate) as slow:
        await rig.serve(subscriber("slow", slow.url()))
        await rig.send(*(event(number) for number in range(100)))
        await slow.wait(4)
        dispatcher = rig.dispatcher.dispatcher_of("slow")
        assert dispatcher is not None
        assert all(each.cursor.is_shared for each in dispatcher.partitions.values())
        gate.open.set()
        await slow.wait(100)
        assert len(set(slow.ids)) == 100


async def test_a_newcomer_is_not_held_up_by_one_that_was_alone(rig: Rig) -> None:
    gate = Gate()
    async with SubscriberServer(gate) as slow, SubscriberServer() as quick:
        stuck = subscriber("slow", slow.url())
        await rig.serve(stuck)
        await rig.send(*(event(number) for number in range(100)))
        await slow.wait(4)
        await rig.serve(stuck, subscriber("quick", quick.url()))
        await rig.send(*(event(number) for number in range(100, 150)))
        await quick.wait(50)
        assert sorted(map(int, quick.ids)) == list(range(100, 150))
        gate.open.set()
        await slow.wait(150)
        assert len(set(slow.ids)) == 150


async def test_a_subscriber_can_join_as_soon_as_the_only_one_has_left_without_room(rig: Rig) -> None:
    """The reader waited for room in the partition that left. It must not access that partition again."""
    gate = Gate()
    async with SubscriberServer(gate) as slow:
        await rig.serve(subscriber("slow", slow.url()))
        await rig.send(*(event(number) for number in range(100)))
        await slow.wait(4)
        (worker,) = rig.dispatcher.workers.values()
        dispatcher = rig.dispatcher.dispatcher_of("slow")
        assert dispatcher is not None
        for number, partition in dispatcher.partitions.items():
            reader = worker.readers[number]
            await until(lambda reader=reader: reader._blocked is not None)
            await reader.leave(partition)
            assert reader.admit(partition), f"partition {number}"
        gate.open.set()
        await slow.wait(100)
        assert sorted(map(int, slow.ids)) == list(range(100))


async def test_a_dead_subscriber_costs_little_and_loses_nothing() -> None:
    """Every event fails. The number of events that wait for a retry is bounded, and the others stay in the
    log.
    """
    settings = DispatchSettings(look_ahead=32, waiting_max=5, flush_ms=20, idle_flush_ms=20, drain_s=0.2)
    async with Rig(settings) as rig, SubscriberServer(_failing) as dead, SubscriberServer() as quick:
        delivery = Delivery(retry=1000, backoff_delay_ms=60_000)
        await rig.serve(subscriber("dead", dead.url(), delivery=delivery), subscriber("quick", quick.url()))
        await rig.send(*(event(number) for number in range(300)))
        await quick.wait(300)
        await until(lambda: rig.dispatcher.figures("dead")["waiting"] >= 5)
        assert len(dead.got) < 20
        assert rig.store.positions["dead"] == {0: "", 1: ""}


async def _failing(_: Got) -> web.StreamResponse:
    return web.Response(status=500)


async def test_an_overloaded_subscriber_gets_less_at_once() -> None:
    """Spec: knative-eventing-test-spec, Event Acknowledgement:

    Brokers and Channels MUST implement congestion control.
    """

    async def busy(_: Got) -> web.StreamResponse:
        await asyncio.sleep(0.005)
        return web.Response(status=503 if overloaded.in_flight > 2 else 202)

    overloaded = SubscriberServer(busy)
    async with Rig() as rig, overloaded as server:
        await rig.serve(
            subscriber("u", server.url(), delivery=Delivery(retry=1000, backoff_delay_ms=1, backoff_max_ms=5))
        )
        await rig.send(*(event(number) for number in range(150)))
        await until(lambda: rig.dispatcher.figures("u")["delivered"] == 150)
        assert rig.dispatcher.figures("u")["dropped"] == 0
        half = len(server.got) // 2
        server.in_flight_max = 0
        await rig.send(*(event(number) for number in range(150, 200)))
        await until(lambda: rig.dispatcher.figures("u")["delivered"] == 200)
        assert server.in_flight_max <= 8
        assert half > 0


async def test_a_subscriber_has_no_more_in_flight_than_it_allows(rig: Rig) -> None:
    async def slow(_: Got) -> web.StreamResponse:
        await asyncio.sleep(0.002)
        return web.Response(status=202)

    async with SubscriberServer(slow) as server:
        await rig.serve(subscriber("u", server.url(), in_flight_max=2))
        await rig.send(*(event(number) for number in range(40)))
        await server.wait(40)
        assert server.in_flight_max <= 2


async def test_a_rate_is_kept() -> None:
    async with Rig() as rig, SubscriberServer() as server:
        await rig.serve(subscriber("u", server.url(), per_second_max=50.0))
        began = asyncio.get_running_loop().time()
        await rig.send(*(event(number) for number in range(15)))
        got = await server.wait(15)
        # A tenth of a second's allowance goes at once, the others 20 ms apart.
        assert got[-1].at_s - began >= 0.18


@pytest.mark.parametrize("keys", [1, 3])
async def test_order_by_key_is_kept_whatever_fails(keys: int) -> None:
    async with Rig(partitions=1) as rig, SubscriberServer() as server:
        answers = iter([202, 500, 500, 202, 500] * 100)

        async def flaky(_: Got) -> web.StreamResponse:
            await asyncio.sleep(0)
            return web.Response(status=next(answers))

        server.behaviour = flaky
        await rig.serve(subscriber("u", server.url(), order=Order.BY_KEY, delivery=Delivery(retry=1000)))
        await rig.send(*(event(number, partitionkey=f"k{number % keys}") for number in range(60)))
        await until(lambda: rig.dispatcher.figures("u")["delivered"] == 60)
        for key in range(keys):
            of_key = [int(got.id) for got in server.got if got.event.attributes["partitionkey"] == f"k{key}"]
            assert of_key == sorted(of_key)


async def test_ordered_is_one_after_the_other() -> None:
    async with Rig(partitions=1) as rig, SubscriberServer(answers=[500, 202, 500, 500]) as server:
        await rig.serve(subscriber("u", server.url(), order=Order.ORDERED, delivery=Delivery(retry=5)))
        await rig.send(*(event(number) for number in range(20)))
        await until(lambda: rig.dispatcher.figures("u")["delivered"] == 20)
        assert list(map(int, server.ids)) == sorted(map(int, server.ids))
        assert server.in_flight_max == 1


async def test_large_events_are_held_one_by_one() -> None:
    """By bytes as by count: an event that is larger than the limit is held alone."""
    settings = DispatchSettings(held_bytes_max=10_000, flush_ms=20, idle_flush_ms=20, drain_s=0.2)
    gate = Gate()
    async with Rig(settings) as rig, SubscriberServer(gate) as server:
        await rig.serve(subscriber("u", server.url()))
        await rig.send(*(event(number, data=b"x" * 20_000) for number in range(5)))
        await server.wait(1)
        dispatcher = rig.dispatcher.dispatcher_of("u")
        assert dispatcher is not None
        assert sum(each.window.open for each in dispatcher.partitions.values()) == 1
        gate.open.set()
        await server.wait(5)


async def test_a_filter_that_raises_costs_its_own_subscriber_the_event(
    server: SubscriberServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later events and all other subscribers continue."""

    def poisonous(attributes: Mapping[str, object]) -> bool:
        if attributes["id"] == "1":
            raise RecursionError
        return True

    compiled = dialects._COMPILED["cesql"]
    monkeypatch.setitem(
        dialects._COMPILED,
        "cesql",
        lambda content, work: poisonous if content == "true" else compiled(content, work),
    )
    async with Rig(partitions=1) as rig:
        await rig.serve(
            subscriber("poisoned", server.url("/poisoned"), filters=({"cesql": "true"},)),
            subscriber("healthy", server.url("/healthy")),
        )
        await rig.send(*(event(number) for number in range(3)))
        await until(lambda: rig.dispatcher.figures("healthy")["delivered"] == 3)
        await until(lambda: rig.dispatcher.figures("poisoned")["delivered"] == 2)
        await until(lambda: "poisoned" in rig.store.failures)
        [skipped] = rig.store.failures["poisoned"]
        assert (skipped.event_id, skipped.end, "internal error" in skipped.reason) == ("1", "skipped", True)
        assert "healthy" not in rig.store.failures


async def test_a_fault_while_an_event_is_taken_in_costs_that_event_only(
    server: SubscriberServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer = SubscriberPartition.offer

    def faulty(partition: SubscriberPartition, arrival: Arrival) -> bool:
        if partition.state.spec.uid == "faulty" and arrival.offset.endswith("1"):
            raise KeyError
        return offer(partition, arrival)

    monkeypatch.setattr(SubscriberPartition, "offer", faulty)
    async with Rig(partitions=1) as rig:
        await rig.serve(
            subscriber("faulty", server.url("/faulty")), subscriber("healthy", server.url("/healthy"))
        )
        await rig.send(*(event(number) for number in range(3)))
        await until(lambda: rig.dispatcher.figures("healthy")["delivered"] == 3)
        await until(lambda: rig.dispatcher.figures("faulty")["delivered"] == 2)
        assert rig.dispatcher.figures("faulty")["skipped"] == 1


async def test_history_that_cannot_be_kept_does_not_keep_back_that_of_others(
    server: SubscriberServer,
) -> None:
    async with Rig(partitions=1) as rig:
        record = rig.store.record

        async def refuse(failures: Mapping[str, Sequence[Failure]]) -> None:
            if "first" in failures:
                raise ValueError("cannot be written")
            await record(failures)

        rig.store.record = refuse  # type: ignore[method-assign]
        await rig.serve(*(subscriber(uid, "http://169.254.169.254/") for uid in ("first", "second")))
        await rig.send(event(0))
        await until(lambda: "second" in rig.store.failures)


async def test_histories_that_take_long_do_not_keep_back_positions(server: SubscriberServer) -> None:
    """Thousands of failing subscribers have much to record. A crash must not lose positions."""
    async with Rig(partitions=1) as rig:
        writing, done = asyncio.Event(), asyncio.Event()

        async def slow(failures: Mapping[str, Sequence[Failure]]) -> None:
            writing.set()
            await done.wait()

        rig.store.record = slow  # type: ignore[method-assign]
        await rig.serve(subscriber("failing", "http://169.254.169.254/"), subscriber("healthy", server.url()))
        await rig.send(event(0))
        await writing.wait()
        await rig.send(event(1))
        await until(lambda: rig.store.positions["healthy"][0] == f"{1:016d}")
        done.set()


async def test_a_stop_keeps_what_all_subscribers_have_in_one_transaction(server: SubscriberServer) -> None:
    """One for each would take longer than a stop may."""
    settings = DispatchSettings(flush_ms=60_000, idle_flush_ms=60_000, drain_s=0.2)
    async with Rig(settings, partitions=2) as rig:
        failing = [subscriber(f"failing{number}", "http://169.254.169.254/") for number in range(10)]
        await rig.serve(*(subscriber(f"u{number}", server.url()) for number in range(10)), *failing)
        await rig.send(*(event(number) for number in range(4)))
        await until(
            lambda: all(rig.dispatcher.figures(f"u{number}")["delivered"] == 4 for number in range(10))
        )
        await until(lambda: all(rig.dispatcher.figures(each.uid)["dropped"] == 4 for each in failing))
        before = rig.store.saved
    assert rig.store.saved == before + 1
    assert rig.store.recorded == 1
    assert len(rig.store.failures) == 10


async def test_readers_of_those_behind_take_turns() -> None:
    """A reader with much to read does not keep the others from reading."""
    settings = DispatchSettings(flush_ms=20, idle_flush_ms=20, drain_s=0.2, readers_max=1)
    count = 6 * TURN_BATCHES
    async with SubscriberServer() as server, Rig(settings, partitions=1) as rig:
        read, begun = rig.memory.read, 0

        async def one_by_one(log: str, after: Mapping[int, str | None]) -> AsyncIterator[Sequence[Stored]]:
            nonlocal begun
            begun += 1
            async for batch in read(log, after):
                for stored in batch:
                    yield [stored]
                    await asyncio.sleep(0)

        quick = subscriber("quick", server.url())
        await rig.serve(quick)
        await rig.send(*(event(number) for number in range(count)))
        await server.wait(count)
        rig.memory.read = one_by_one  # type: ignore[method-assign]
        behind = ("a", "b")
        rig.store.positions |= {uid: {0: ""} for uid in behind}
        nothing = ({"exact": {"type": "other"}},)
        await rig.serve(quick, *(subscriber(uid, server.url(), filters=nothing) for uid in behind))
        await until(lambda: all(rig.store.positions[uid] == {0: f"{count - 1:016d}"} for uid in behind))
        assert begun > 2 * len(behind), "each of them gave its turn up again and again"


async def test_slow_subscribers_share_few_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds for any number of slow subscribers. Those that do not answer leave the readers to the
    others.
    """
    monkeypatch.setattr("knative_gateway.dispatcher.subscribers.catching_up.QUIET_S", 0.05)
    settings = DispatchSettings(
        look_ahead=8,
        in_flight_max=4,
        flush_ms=20,
        idle_flush_ms=20,
        drain_s=0.2,
        patience_s=0.02,
        readers_max=2,
    )
    gate, stuck = Gate(), Gate()
    servers = SubscriberServer(gate), SubscriberServer(stuck), SubscriberServer()
    async with (
        servers[0] as slow,
        servers[1] as hanging,
        servers[2] as quick,
        Rig(settings, partitions=1) as rig,
    ):
        reading = most = 0
        read = rig.memory.read

        async def counted(log: str, after: Mapping[int, str | None]) -> AsyncIterator[Sequence[Stored]]:
            nonlocal reading, most
            reading += 1
            most = max(most, reading)
            try:
                async for batch in read(log, after):
                    yield batch
            finally:
                reading -= 1

        rig.memory.read = counted  # type: ignore[method-assign]
        slowly = [subscriber(f"slow{number}", slow.url(f"/{number}")) for number in range(6)]
        never = [subscriber(f"hanging{number}", hanging.url(f"/{number}")) for number in range(6)]
        await rig.serve(subscriber("quick", quick.url()), *slowly, *never)
        await rig.send(*(event(number) for number in range(100)))
        await quick.wait(100)
        gate.open.set()
        await slow.wait(600, timeout_s=60)
        assert most <= 3, "the shared one, and two"
