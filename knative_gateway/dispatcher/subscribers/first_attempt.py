"""[io] The first attempt of a delivery, without a task of its own, because a task for each event is
expensive.

Nearly all deliveries need only this attempt. An attempt ends in one of three ways: the subscriber accepts the
event (`Owner.accepted`), a plan continues the delivery (`Owner.unfinished`), or the attempt is dropped when
its partition is released.
"""

import asyncio
from functools import lru_cache
from typing import Final, Protocol

from knative_gateway.delivery import Answer
from knative_gateway.delivery.headers import delivery_headers
from knative_gateway.dispatcher.arrival import LARGE_BYTES
from knative_gateway.dispatcher.posting.connection import Connection
from knative_gateway.dispatcher.posting.sending import Sender, lines
from knative_gateway.dispatcher.subscribers.source import Source
from knative_gateway.dispatcher.subscribers.steps import trace_of
from knative_gateway.ports import Subscriber
from knative_gateway.security.inward import looks_inward


class Owner(Protocol):
    """Receives the outcome of an attempt: one call, unless the attempt was dropped."""

    def accepted(self, attempt: "FirstAttempt", elapsed_ms: int) -> None:
        """The subscriber accepted the event without a reply."""

    def unfinished(self, attempt: "FirstAttempt", answer: Answer | None) -> None:
        """Any other answer, including a reply. None: the subscriber has not seen the event."""


class FirstAttempt:
    """`spec`: the specification of the subscriber when the attempt began."""

    __slots__ = ("_connection", "_ended", "_owner", "arrival", "entry", "source", "spec")

    def __init__(self, owner: Owner, spec: Subscriber, source: Source) -> None:
        """Take the next event of the source."""
        entry, arrival = source.take()
        self.spec: Final = spec
        self.source: Final = source
        self.entry: Final = entry
        self.arrival: Final = arrival
        self._owner: Final = owner
        self._connection: Connection | None = None
        self._ended: asyncio.Future[None] | None = None

    def begin(self, sender: Sender) -> bool:
        """Send the event. False: the delivery needs a plan, or no connection to the subscriber is idle."""
        spec, plain = self.spec, self.arrival.plain
        # URLs that may lead back to a Broker need the count of hops, which only the plan adds.
        if plain is None or spec.subscriber_url is None or looks_inward(spec.subscriber_url):
            return False
        if spec.delivery.structured and self.arrival.size > LARGE_BYTES:
            return False  # a thread writes the request
        departs = spec.departs(spec.subscriber_url)
        if spec.delivery.structured:
            headers, body = self.arrival.request(departs=departs, structured=True)
            fields = lines(headers)
        else:
            fields, body = plain.lines if departs else plain.lines + plain.own, plain.data or b""
        fields += _delivery_fields(spec.namespace)
        # Only now the event is decoded: most events have no trace.
        if "traceparent" in plain.attributes:
            event = self.arrival.event
            assert event is not None
            fields += lines(trace_of(event))
        self._connection = sender.begin(
            spec.subscriber_url,
            fields,
            body,
            timeout_ms=spec.delivery.timeout_ms,
            reply_wanted=True,
            to=self,
            owner=spec.uid,
        )
        return self._connection is not None

    def ended(self) -> "asyncio.Future[None]":
        """Return a future that is done when the attempt has ended."""
        if self._ended is None:
            self._ended = asyncio.get_running_loop().create_future()
        return self._ended

    def end(self) -> None:
        """Wake the tasks that wait for the end of the attempt."""
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def drop(self) -> None:
        """Stop waiting for the answer. A later answer is ignored."""
        assert self._connection is not None
        # The connection is of no further use: an answer to this request would be read as the answer to the
        # next one.
        self._connection.abort()
        self._connection = None

    # -- called by the sender

    def accepted(self, elapsed_ms: int) -> None:
        """Called by the sender, as `Outcomes.accepted`. Ignored after `drop`."""
        if self._connection is not None:
            self._owner.accepted(self, elapsed_ms)

    def answered(self, answer: Answer) -> None:
        """Called by the sender, as `Outcomes.answered`. Ignored after `drop`."""
        if self._connection is not None:
            self._owner.unfinished(self, answer)

    def not_received(self) -> None:
        """Called by the sender, as `Outcomes.not_received`. Ignored after `drop`."""
        if self._connection is not None:
            self._owner.unfinished(self, None)


# The headers depend only on the namespace. The bound is there because users create namespaces.
@lru_cache(1024)
def _delivery_fields(namespace: str) -> bytes:
    return lines(delivery_headers(reply_wanted=True, namespace=namespace))
