"""[io] The own reader of a subscriber that is behind the shared reader of a partition."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Final, cast

import structlog

from knative_gateway.dispatcher import positions
from knative_gateway.dispatcher.arrival import read_arrival
from knative_gateway.dispatcher.subscribers.partition import SubscriberPartition
from knative_gateway.errors import GatewayError
from knative_gateway.ports import Stored

log_ = structlog.get_logger(__name__)

STEPS_AT_ONCE: Final = 1 << 18
"""Steps of filters after which other tasks run: about a millisecond."""
TURN_BATCHES: Final = 20
"""Batches that an own reader takes before it lets another own reader read."""
QUIET_S: Final = 5.0
"""How long an own reader waits for the next batch. At the end of the log, it would otherwise block other own
readers.
"""
_RETRY_S: Final = 1.0

Admit = Callable[[SubscriberPartition], bool]
"""Asks the shared reader to bring the events from now on. False: the subscriber is still behind."""


async def catch_up(partition: SubscriberPartition, log: str, admit: Admit) -> None:
    """Read until the shared reader takes over.

    A reader without room is closed after `patience_s`, because its unread events use memory.
    """
    state = partition.state
    while True:
        # A paused subscriber reads nothing: its events stay in the log and not in memory.
        await state.running.wait()
        while not partition.has_room:
            await partition.held.wait()
        try:
            if admit(partition):
                return
            # Taken only when there is room: a subscriber that hangs must not hold one of the few places for
            # reading.
            async with state.context.reading:
                if await _read_on(partition, log, admit):
                    return
        except GatewayError as error:
            log_.warning("reading_failed", log=log, subscriber=state.spec.uid, reason=str(error))
            await asyncio.sleep(_RETRY_S)
        except Exception:
            # An internal error. The task must not end, because the subscriber depends on it.
            log_.exception("reading_fault", log=log, subscriber=state.spec.uid)
            await asyncio.sleep(_RETRY_S)


async def _read_on(partition: SubscriberPartition, log: str, admit: Admit) -> bool:
    """Read until the shared reader takes over. Returns whether it did.

    False: no room, no more events, or other own readers wait.
    """
    context, cursor = partition.state.context, partition.cursor
    stream = context.log.read(log, {partition.number: positions.read_from(cursor.own.offset)})
    turn = 0
    async with aclosing(cast("AsyncGenerator[Sequence[Stored], None]", stream)) as batches:
        # `locked`: no place for reading is free, so another own reader may wait. Otherwise this reader
        # continues and saves the cost of opening a link again.
        while turn < TURN_BATCHES or not context.reading.locked():
            turn += 1
            try:
                async with asyncio.timeout(QUIET_S):
                    batch = await anext(batches)
            except TimeoutError:
                return False
            if not await _take(partition, batch):
                return False
            if partition.has_room and admit(partition):
                return True
    return False


async def _take(partition: SubscriberPartition, batch: Sequence[Stored]) -> bool:
    """Offer the events of a batch. False: the subscriber had no room for too long; the remaining events are
    read again.
    """
    state, own, steps = partition.state, partition.cursor.own, 0
    for after, last in positions.gaps(own.offset, [stored.offset for stored in batch]):
        partition.overtaken(after, last)
    for count, stored in enumerate(batch, 1):
        if stored.offset <= own.offset:
            continue
        arrival = await read_arrival(stored, own.offset)
        if arrival.attributes is None:
            state.skip(arrival)
        elif state.wants(arrival):
            while not partition.offer(arrival):
                if not await partition.held.wait(state.context.settings.patience_s):
                    return False
        own.offset = stored.offset
        partition.read_ms = stored.timestamp_ms
        steps += state.filters.work.spent
        # Let other tasks run: a long batch that matches nothing has no other await.
        if count % 64 == 0 or steps > STEPS_AT_ONCE:
            steps = 0
            await asyncio.sleep(0)
    return True
