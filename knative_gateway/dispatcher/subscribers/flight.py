"""[io] The first POST of one event to its subscriber, without a task: what nearly every delivery is.

Law: a flight that began ends in exactly one way: the subscriber took the event (`Courier.landed`), anything else was answered and the long
way goes on from there (`Courier.carry_on`), or it is dropped with all that is let go of.
"""

import asyncio
import secrets
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from event_formats.event import CloudEvent
from knative_gateway.delivery import Answer, Entry
from knative_gateway.delivery.headers import delivery_headers, trace_headers
from knative_gateway.dispatcher.arrival import Arrival
from knative_gateway.dispatcher.posting.connection import Connection
from knative_gateway.dispatcher.posting.sending import lines
from knative_gateway.ports import Subscriber
from knative_gateway.security.inward import looks_inward

if TYPE_CHECKING:
    from knative_gateway.dispatcher.subscribers.courier import Courier
    from knative_gateway.dispatcher.subscribers.redriving import Again
    from knative_gateway.dispatcher.subscribers.track import Track


class Flight:
    """One event on its way. `spec`: what the subscriber was when it began."""

    __slots__ = ("_connection", "_courier", "_landing", "arrival", "entry", "spec", "track")

    def __init__(self, courier: "Courier", track: "Track | Again", entry: Entry, arrival: Arrival) -> None:
        self.spec: Final[Subscriber] = courier.spec
        self.track: Final = track
        self.entry: Final = entry
        self.arrival: Final = arrival
        self._courier: Final = courier
        self._connection: Connection | None = None
        self._landing: asyncio.Future[None] | None = None

    def begin(self) -> bool:
        """Send it; False: this event is not for here, or no connection is there yet."""
        spec, plain = self.spec, self.arrival.plain
        if plain is None or spec.subscriber_url is None or looks_inward(spec.subscriber_url):
            return False
        departs = spec.departs(spec.subscriber_url)
        if spec.delivery.structured:
            headers, body = self.arrival.request(departs=departs, structured=True)
            fields = lines(headers)
        else:
            fields, body = plain.lines if departs else plain.lines + plain.own, plain.data or b""
        fields += _asked(spec.namespace)
        if "traceparent" in plain.attributes:
            event = self.arrival.event
            assert event is not None
            fields += lines(trace_of(event))
        self._connection = self._courier.outside.sender.begin(
            spec.subscriber_url, fields, body, timeout_ms=spec.delivery.timeout_ms, reply_wanted=True, to=self, owner=spec.uid
        )
        return self._connection is not None

    def landing(self) -> "asyncio.Future[None]":
        """Done when it has ended."""
        if self._landing is None:
            self._landing = asyncio.get_running_loop().create_future()
        return self._landing

    def end(self) -> None:
        """It has."""
        if self._landing is not None and not self._landing.done():
            self._landing.set_result(None)

    def drop(self) -> None:
        """Do not wait for the answer: whatever comes, nobody is told."""
        assert self._connection is not None
        self._connection.abort()
        self._connection = None

    # -- what the sender tells

    def accepted(self, elapsed_ms: int) -> None:
        """The subscriber took it."""
        if self._connection is not None:
            self._courier.landed(self, elapsed_ms)

    def answered(self, answer: Answer) -> None:
        """It did something else."""
        if self._connection is not None:
            self._courier.carry_on(self, answer)

    def missed(self) -> None:
        """It has not seen it."""
        if self._connection is not None:
            self._courier.carry_on(self, None)


def trace_of(event: CloudEvent) -> Sequence[tuple[str, str]]:
    """The headers of an attempt by which the trace of an event goes on as a child; none if it has none."""
    return trace_headers(event, secrets.token_hex(8)) if "traceparent" in event.attributes else ()


@lru_cache(1024)
def _asked(namespace: str) -> bytes:
    return lines(delivery_headers(reply_wanted=True, namespace=namespace))
