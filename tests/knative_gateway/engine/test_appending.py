"""Appends that did not complete in time. The behaviour of a real node: test_event_log.py."""

import asyncio
import math
from contextlib import suppress
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from amqp_streams.client import Client, ReleasedError
from amqp_streams.errors import AmqpStreamsError
from knative_gateway.engine import appending
from knative_gateway.engine.appending import Appender, AppendLimits
from knative_gateway.errors import GatewayError, OverloadedError, UnavailableError

WAIT_S = 0.05


class SilentProducer:
    """A producer that accepts events and never reports an outcome. `attached`: it has a link."""

    def __init__(self, log: str, *, window: int) -> None:
        assert log
        self.window = window
        self.attached = True
        self.obstacle: AmqpStreamsError | None = None

    async def open(self, **_: float | None) -> None:
        """Open the producer at once."""

    def post_entries(self, entries: list[Any]) -> None:
        """Accept the events without any effect."""

    async def close(self, **_: float | None) -> None:
        """Close the producer at once."""


class SilentClient:
    """A client with a single producer."""

    def producer(self, log: str, *, window: int) -> SilentProducer:
        self.made = SilentProducer(log, window=window)
        return self.made


@pytest.mark.parametrize(
    ("attached", "expected"),
    [
        ((True, True, True), OverloadedError),
        ((False, False, False), UnavailableError),
        ((True, False, True), UnavailableError),
        ((False, True, True), UnavailableError),
    ],
)
async def test_a_node_that_was_away_for_a_while_did_not_push_back(
    attached: tuple[bool, ...], expected: type[GatewayError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """429 means that there are too many events. A node that was reachable again only a moment before the
    limit had no time.
    """
    monkeypatch.setattr(appending, "_SWEEP_S", 1.0)
    client, now_s = SilentClient(), 100.0
    with monkeypatch.context() as clock:
        clock.setattr(asyncio.get_running_loop(), "time", lambda: now_s)
        appender = Appender(cast("Client", client), AppendLimits(wait_s=len(attached)))
        waiting = asyncio.create_task(appender.append("l", b"m"))
        await asyncio.sleep(0)
        for each in attached:
            assert not waiting.done()
            client.made.attached = each
            now_s += 1.0
            # The timers of this second run in the next iteration, and what they wake in those after it.
            for _ in range(3):
                await asyncio.sleep(0)
        assert waiting.done()
    with pytest.raises(expected):
        await waiting
    await appender.close(0)


async def test_all_logs_together_are_bounded_and_stuck_ones_leave_room_for_the_others() -> None:
    appender = Appender(cast("Client", SilentClient()), AppendLimits(events=10, bytes=1000))
    told: list[GatewayError | None] = []
    taken = 0
    for number in range(20):
        with suppress(OverloadedError):
            for _ in range(10):
                appender.post(f"stuck-{number}", b"m", told.append)
                taken += 1
    assert 40 <= taken <= 40 * (1 + math.log(20 / 4)), (
        "four times what one log may, and for each that comes later a share: 40 / 5, 40 / 6 …"
    )
    appender.post("well", b"m", told.append)
    assert told == []
    await appender.close(0)


async def test_the_node_s_reason_goes_to_the_sender_and_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is not a log that is busy: 503 with the node's sentence, and one line in a while."""
    monkeypatch.setattr(appending, "_SWEEP_S", WAIT_S / 5)
    client = SilentClient()
    appender = Appender(cast("Client", client), AppendLimits(wait_s=WAIT_S))
    with capture_logs() as lines:
        waiting = [asyncio.create_task(appender.append("l", b"m")) for _ in range(3)]
        await asyncio.sleep(0)
        client.made.obstacle = ReleasedError("amqp:resource-limit-exceeded", "the disk is full")
        for each in waiting:
            with pytest.raises(UnavailableError, match=r"the event log node reports: .*the disk is full"):
                await each
    await appender.close(0)
    [line] = [line for line in lines if line["event"] == "events_not_stored"]
    assert "the disk is full" in line["reason"]


async def test_a_fault_of_one_callback_does_not_affect_the_others() -> None:
    appender = Appender(cast("Client", SilentClient()), AppendLimits())
    told: list[GatewayError | None] = []

    def fault(_: GatewayError | None) -> None:
        raise ZeroDivisionError

    appender.post("l", b"m", fault)
    appender.post("l", b"m", told.append)
    with capture_logs() as lines:
        appender.forget("l")
    assert [line["event"] for line in lines] == ["append_fault"]
    assert isinstance(told[0], UnavailableError)
