"""What an event gets on its way in. Pure. Its data and the attributes it came with stay as they are.

A Broker counts how often an event went through Brokers (`knativebrokerttl`) and says when it came (`knativearrivaltime`), as Knative's
does. The trace in the request's headers becomes the distributed tracing extension, unless the event has one of its own.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from knative_gateway.cloudevents.event import CloudEvent
from knative_gateway.delivery.ttl import TTL, TTL_DEFAULT, ttl_of
from knative_gateway.errors import InvalidEventError

ARRIVAL: Final = "knativearrivaltime"
TRACE_PARENT: Final = "traceparent"


def received(event: CloudEvent, *, broker: bool, now: datetime, trace: Mapping[str, str] | None = None) -> CloudEvent:
    """The event as it is stored. `now` is in UTC.

    Raises:
        InvalidEventError: it went round too often.
    """
    attributes = event.attributes
    if trace is not None and TRACE_PARENT in trace and TRACE_PARENT not in attributes:
        attributes = {**attributes, **trace}
    if not broker:
        return event if attributes is event.attributes else CloudEvent(attributes, event.data)
    left = TTL_DEFAULT
    if TTL in attributes:
        held = ttl_of(attributes)
        left = TTL_DEFAULT if held is None else held - 1
        if left <= 0:
            message = f"{TTL} is used up: this event went round as often as it may"
            raise InvalidEventError(message)
    return CloudEvent({**attributes, TTL: left, ARRIVAL: now.isoformat(timespec="microseconds")[:26] + "Z"}, event.data)
