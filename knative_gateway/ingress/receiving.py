"""What the ingress adds to an event. Pure. Its data and the attributes it came with stay as they are.

A Broker counts how often an event went through Brokers (`knativebrokerttl`) and says when it came
(`knativearrivaltime`), as Knative's does. The trace in the request's headers becomes the distributed tracing
extension, unless the event has one of its own.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from event_formats.event import CloudEvent
from knative_gateway.delivery.ttl import TTL, TTL_DEFAULT, ttl_of
from knative_gateway.errors import BadRequestError

ARRIVAL: Final = "knativearrivaltime"
TRACE_PARENT: Final = "traceparent"


class Arrivals:
    """Times as text, RFC 3339 with microseconds; what is the same for a whole second is written once."""

    __slots__ = ("_second", "_text")

    def __init__(self) -> None:
        self._second = -1
        self._text = ""

    def text(self, now_ns: int) -> str:
        """`now_ns`: nanoseconds since 1970 UTC."""
        second, rest = divmod(now_ns, 1_000_000_000)
        if second != self._second:
            self._second = second
            self._text = datetime.fromtimestamp(second, UTC).isoformat()[:19]
        return f"{self._text}.{rest // 1000:06d}Z"


def received(event: CloudEvent, arrival: str | None, trace: Mapping[str, str] | None = None) -> CloudEvent:
    """The event as it is stored. `arrival`: when it came to a Broker; None: to a Channel, which neither
    counts nor dates.

    Raises:
        BadRequestError: it went round too often.
    """
    attributes = event.attributes
    if trace is not None and TRACE_PARENT in trace and TRACE_PARENT not in attributes:
        attributes = {**attributes, **trace}
    if arrival is None:
        return event if attributes is event.attributes else CloudEvent(attributes, event.data)
    left = TTL_DEFAULT
    if TTL in attributes:
        held = ttl_of(attributes)
        left = TTL_DEFAULT if held is None else held - 1
        if left <= 0:
            message = f"{TTL} is used up: this event went round as often as it may"
            raise BadRequestError(message)
    return CloudEvent({**attributes, TTL: left, ARRIVAL: arrival}, event.data)
