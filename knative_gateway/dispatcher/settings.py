"""Limits of the dispatcher. Pure."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from knative_gateway.tracing import Traces


@dataclass(frozen=True, slots=True)
class DispatchSettings:
    """All bounds have a unit in their name or count events.

    `look_ahead`: events of one partition held for one subscriber: those that are not completed. `held_bytes_max`: of one
    subscriber, in all partitions; one event may always be held. `in_flight_max`: POSTs of one subscriber at once, at most. `waiting_max`:
    events of one subscriber that wait for a retry: beyond it no new ones are begun. `jitter`: the part of a wait that chance may take off.
    `flush_ms`: how often places are made durable; `idle_flush_ms`: of subscribers that only pass events over. `drain_s`: how long a stop
    waits for answers. `patience_s`: how long a reader of one slow subscriber stays open while there is no room. `readers_max`: readers of
    single subscribers at once, of all of them together; the others wait for their turn. `traces`: where each POST
    is a span; None: nowhere.
    """

    look_ahead: int = 512
    held_bytes_max: int = 8 << 20
    in_flight_max: int = 256
    waiting_max: int = 1000
    jitter: float = 0.0
    flush_ms: int = 200
    idle_flush_ms: int = 5_000
    drain_s: float = 10.0
    patience_s: float = 1.0
    readers_max: int = 64
    traces: "Traces | None" = None
