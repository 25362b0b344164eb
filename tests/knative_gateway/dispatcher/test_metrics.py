"""The metrics of subscribers.

Spec: knative-data-plane-contract, Observability: SHOULD expose event-delivery telemetry.
"""

import asyncio
import threading

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from knative_gateway.delivery import Window
from knative_gateway.dispatcher.metrics import DispatcherMetrics
from knative_gateway.dispatcher.settings import DispatchSettings
from knative_gateway.ports import Delivery
from tests.knative_gateway.dispatcher.rig import Rig, event, subscriber, until
from tests.knative_gateway.dispatcher.subscriber import Got, SubscriberServer


def told(rig: Rig) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(DispatcherMetrics(rig.dispatcher))
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {
        sample.name: sample.value
        for family in families
        for sample in family.samples
        if sample.labels.get("le", "+Inf") == "+Inf"
    }


async def test_every_end_is_counted() -> None:
    async with (
        Rig(partitions=1) as rig,
        SubscriberServer(answers=[202, 500, 202, 400]) as server,
        SubscriberServer() as sink,
    ):
        await rig.serve(
            subscriber(
                "u", server.url(), in_flight_max=1, delivery=Delivery(retry=1, dead_letter_url=sink.url())
            )
        )
        await rig.send(event(1), event(2), event(3))
        await until(lambda: rig.store.positions["u"][0] == f"{2:016d}")
        values = told(rig)
    prefix = "knative_gateway_subscriber_"
    expected = {
        "matched": 3,
        "delivered": 2,
        "retried": 1,
        "failed_attempts": 2,
        "dead_lettered": 1,
        "dropped": 0,
    }
    assert {name: values[f"{prefix}{name}_total"] for name in expected} == expected
    assert values[f"{prefix}request_seconds_count"] == 4
    assert values[f"{prefix}delivery_seconds_count"] == 3
    assert values["knative_gateway_partitions"] == 1
    assert values["knative_gateway_resent_total"] == 0
    assert [
        values[f"knative_gateway_{name}"] for name in ("reply_bytes", "reply_bytes_max", "replies_waiting")
    ] == [0, 64 << 20, 0]
    assert (values[f"{prefix}in_flight"], values[f"{prefix}lag_events"], values[f"{prefix}lag_seconds"]) == (
        0,
        0,
        0,
    )


async def test_a_subscriber_that_is_paused_is_shown_as_such() -> None:
    async with Rig(partitions=1) as rig, SubscriberServer() as server:
        await rig.serve(subscriber("u", server.url(), paused=True))
        assert told(rig)["knative_gateway_subscriber_paused"] == 1
        await rig.serve(subscriber("u", server.url()))
        assert told(rig)["knative_gateway_subscriber_paused"] == 0


async def test_a_subscriber_that_is_behind_has_lag() -> None:
    """The lag is in events and in seconds, and includes events that were not read yet."""
    answer = asyncio.Event()

    async def slow(_: Got) -> web.StreamResponse:
        await answer.wait()
        return web.Response(status=202)

    async with Rig(partitions=1) as rig, SubscriberServer(slow) as server:
        await rig.serve(subscriber("u", server.url(), in_flight_max=1))
        await rig.send(*(event(number) for number in range(700)))
        await until(lambda: rig.dispatcher.lag("u").events == 700)
        values = told(rig)
        assert values["knative_gateway_subscriber_lag_events"] == 700
        assert values["knative_gateway_subscriber_lag_seconds"] > 0
        assert values["knative_gateway_subscriber_in_flight"] == 1
        answer.set()
        await until(lambda: rig.dispatcher.lag("u").events == 0)


async def test_figures_made_in_a_thread_leave_the_windows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop changes them at the same moment: positions would stay where they are forever."""
    answer = asyncio.Event()

    async def slow(_: Got) -> web.StreamResponse:
        await answer.wait()
        return web.Response(status=202)

    changed_by: list[threading.Thread] = []
    skip_to = Window.skip_to

    def noted(self: Window, offset: str) -> None:
        changed_by.append(threading.current_thread())
        skip_to(self, offset)

    settings = DispatchSettings(flush_ms=60_000, idle_flush_ms=60_000, drain_s=0.2)
    async with Rig(settings, partitions=1) as rig, SubscriberServer(slow) as server:
        await rig.serve(subscriber("u", server.url(), filters=[{"exact": {"type": "wanted"}}]))
        await rig.send(event(1, "wanted"), event(2), event(3))
        (worker,) = rig.dispatcher.workers.values()
        await until(lambda: worker.readers[0].read.offset == f"{2:016d}")
        monkeypatch.setattr(Window, "skip_to", noted)
        values = await asyncio.to_thread(told, rig)
        assert values["knative_gateway_subscriber_lag_events"] == 3
        answer.set()
        await until(lambda: rig.dispatcher.lag("u").events == 0)
        assert not changed_by


async def test_a_subscriber_that_goes_while_figures_are_made_is_still_in_them() -> None:
    async with Rig(partitions=1) as rig, SubscriberServer() as server:
        await rig.serve(subscriber("a", server.url()), subscriber("b", server.url()))
        told_of = rig.dispatcher.subscribers()
        first = next(told_of)
        await rig.serve()
        assert {dispatcher.spec.uid for _, dispatcher, _ in [first, *told_of]} == {"a", "b"}


async def test_counters_survive_changes() -> None:
    async with Rig(partitions=1) as rig, SubscriberServer() as server:
        await rig.serve(subscriber("u", server.url()))
        await rig.send(event(1))
        await until(lambda: rig.dispatcher.figures("u")["delivered"] == 1)
        await rig.dispatcher.replay_from_offsets("u", "0=@earliest")
        await until(lambda: rig.dispatcher.figures("u").get("delivered") == 2)
        assert rig.dispatcher.counters()["u"]["inFlight"] == 0


async def test_a_subscriber_without_events_has_no_histogram() -> None:
    async with Rig(partitions=1) as rig, SubscriberServer() as server:
        await rig.serve(subscriber("u", server.url()))
        values = told(rig)
    assert values["knative_gateway_subscriber_matched_total"] == 0
    assert not [name for name in values if "_seconds_" in name and "subscriber" in name]
