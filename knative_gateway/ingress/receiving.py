"""The attributes that the ingress adds to an event. Pure.

A Broker counts how often an event went through Brokers (`knativebrokerttl`), and adds the time of arrival
(`knativearrivaltime`), as Knative's Broker does. The trace in the headers of a request becomes the
distributed tracing extension, unless the event already has this extension. Data and other attributes do not
change.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from event_formats.event import CloudEvent
from knative_gateway.delivery.ttl import ARRIVAL, TTL, TTL_DEFAULT, ttl_of
from knative_gateway.errors import BadRequestError

TRACE_PARENT: Final = "traceparent"


class Arrivals:
    """Times as text in the form of RFC 3339 with microseconds.

    The text of the current second is reused, because formatting a date is slow and every event needs one.
    """

    __slots__ = ("_second", "_text")

    def __init__(self) -> None:
        self._second = -1
        self._text = ""

    def text(self, now_ns: int) -> str:
        """Return the text of a time. `now_ns`: nanoseconds since 1970 UTC."""
        second, rest = divmod(now_ns, 1_000_000_000)
        if second != self._second:
            self._second = second
            self._text = datetime.fromtimestamp(second, UTC).isoformat()[:19]
        return f"{self._text}.{rest // 1000:06d}Z"


def received(event: CloudEvent, arrival: str | None, trace: Mapping[str, str] | None = None) -> CloudEvent:
    """Return the event in the form that is stored.

    `arrival`: the time of arrival at a Broker; None for a Channel, which adds neither counter nor time.

    Raises:
        BadRequestError: the event went through too many Brokers.
    """
    attributes = event.attributes
    # The attribute wins over the header: the extension describes the trace of the event, the header only that
    # of this request.
    if trace is not None and TRACE_PARENT in trace and TRACE_PARENT not in attributes:
        attributes = {**attributes, **trace}
    if arrival is None:
        return event if attributes is event.attributes else CloudEvent(attributes, event.data)
    left = TTL_DEFAULT
    if TTL in attributes:
        held = ttl_of(attributes)
        # An attribute that is not a number is replaced and not refused, because any sender may have set it.
        # The count begins again.
        left = TTL_DEFAULT if held is None else held - 1
        if left <= 0:
            message = f"{TTL} is used up: the event went through too many Brokers"
            raise BadRequestError(message)
    return CloudEvent({**attributes, TTL: left, ARRIVAL: arrival}, event.data)
