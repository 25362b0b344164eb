"""[io] What the dispatchers of all subscribers share: sender, log, limits, clocks."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from knative_gateway.dispatcher.cursor import Cursor
from knative_gateway.dispatcher.posting.sending import Sender
from knative_gateway.dispatcher.settings import DispatchSettings
from knative_gateway.ports import EventLog


@dataclass(frozen=True, slots=True)
class DispatchContext:
    """`now_ms`: milliseconds since 1970 UTC. `chance`: a random number from 0 to 1, for jitter.

    `reading`: a subscriber's own reader holds it while it reads, so it limits how many own readers are open.
    `moved`: cursors whose position changed since they were stored.
    """

    sender: Sender
    log: EventLog
    settings: DispatchSettings
    now_ms: Callable[[], int]
    chance: Callable[[], float]
    reading: asyncio.Semaphore
    moved: set[Cursor] = field(default_factory=set)
