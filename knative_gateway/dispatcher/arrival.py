"""[io] An event as it comes out of a log, decoded when somebody looks, once for all who get it."""

from collections.abc import Hashable
from typing import Final

from knative_gateway.amqp_binding import KEY_ATTRIBUTE, decode, passed_on
from knative_gateway.cloudevents.event import CloudEvent
from knative_gateway.cloudevents.http import HttpMessage, to_binary
from knative_gateway.delivery.ttl import departing
from knative_gateway.errors import InvalidEventError
from knative_gateway.ports import Stored

OVERHEAD_BYTES: Final = 1024
"""What an event takes beside the bytes of its message."""


class Arrival:
    """One stored event. `before`: the position just before it; `event` None: what is stored is no CloudEvent, and `problem` says why.

    `passed_on`: headers of the request that brought it, which go with it.
    """

    __slots__ = ("_inside", "_outside", "before", "event", "offset", "partition", "passed_on", "problem", "size", "timestamp_ms")

    def __init__(self, stored: Stored, before: str) -> None:
        self.partition: Final = stored.partition
        self.offset: Final = stored.offset
        self.timestamp_ms: Final = stored.timestamp_ms
        self.size: Final = len(stored.message) + OVERHEAD_BYTES
        self.before: Final = before
        self.passed_on: Final = tuple(passed_on(stored.message))
        self.event: CloudEvent | None = None
        self.problem = ""
        self._inside: HttpMessage | None = None
        self._outside: HttpMessage | None = None
        try:
            self.event = decode(stored.message)
        except InvalidEventError as error:
            self.problem = str(error)

    @property
    def key(self) -> Hashable | None:
        """What deliveries by key go by."""
        return None if self.event is None else self.event.attributes.get(KEY_ATTRIBUTE)

    def request(self, *, departs: bool) -> HttpMessage:
        """The event as it is sent to subscribers, made once for all. `departs`: from a Broker, whose own attributes stay inside."""
        assert self.event is not None
        if departs:
            if self._outside is None:
                self._outside = to_binary(departing(self.event))
            return self._outside
        if self._inside is None:
            self._inside = to_binary(self.event)
        return self._inside
