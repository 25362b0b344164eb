"""Limits of the dispatcher. Pure."""

from dataclasses import dataclass

from knative_gateway.dispatcher.spans import NO_TRACES, Tracer


@dataclass(frozen=True, slots=True)
class DispatchSettings:
    """The unit of a limit is the end of its name. A limit without a unit counts events.

    - `look_ahead`: events of one partition that are held for one subscriber and are not completed.
    - `held_bytes_max`: bytes of all events that are held for one subscriber. One event may always be held.
    - `in_flight_max`: requests to one subscriber in flight.
    - `waiting_max`: events of one subscriber that wait for a retry. At this number, no new event is begun.
    - `jitter`: the fraction by which a wait may be shortened at random.
    - `flush_ms`: the time between two flushes of cursors.
    - `idle_flush_ms`: the same for subscribers that only skip events.
    - `drain_s`: how long a stop waits for answers.
    - `patience_s`: how long the own reader of a slow subscriber stays open without room for more events.
    - `readers_max`: own readers of all subscribers that are open at once.
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
    tracer: Tracer = NO_TRACES
