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

    # Not a distance in the log: one event that fails for hours does not stop the events behind it
    # (docs/decisions/0009-deliveries.md).
    look_ahead: int = 512
    # With events of 1 MiB, the default limit of a body, the count alone would allow 512 MiB for each
    # partition.
    held_bytes_max: int = 8 << 20
    in_flight_max: int = 256
    # A dead subscriber costs a bounded amount of memory: its other events stay in the log.
    waiting_max: int = 1000
    jitter: float = 0.0
    # A crash repeats the deliveries of this time. A shorter time costs a transaction each, for all
    # subscribers together.
    flush_ms: int = 200
    # Completed ranges above the positions are stored as rarely: they only save repetitions after a crash.
    idle_flush_ms: int = 5_000
    drain_s: float = 10.0
    patience_s: float = 1.0
    # Each own reader has a link to the node and a batch of events in memory.
    readers_max: int = 64
    tracer: Tracer = NO_TRACES
