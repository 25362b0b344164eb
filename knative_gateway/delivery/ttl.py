"""How many times an event may go through Brokers, so that replies do not circulate without limit.

The attribute is `knativebrokerttl`. The ingress adds it to events without one, and decreases it in others.
Subscribers do not see it. A reply has the value of the event that caused it, less one. An event that is sent
to a Broker's log over AMQP counts as new.
"""

import re
from collections.abc import Mapping
from typing import Final

from event_formats.event import CloudEvent, Value

TTL: Final = "knativebrokerttl"
TTL_DEFAULT: Final = 255

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,9}", re.ASCII)


def ttl_of(attributes: Mapping[str, Value]) -> int | None:
    """The value of the attribute, at least 0; None: the event does not have it, or it is not an integer."""
    value = attributes.get(TTL)
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        value = int(value)
    return max(0, value) if isinstance(value, int) and not isinstance(value, bool) else None


def arriving(event: CloudEvent, default: int = TTL_DEFAULT) -> CloudEvent | None:
    """The event as a Broker stores it; None: it has been through too many Brokers, and is not stored."""
    held = ttl_of(event.attributes)
    left = default if held is None else held - 1
    return None if left <= 0 else CloudEvent({**event.attributes, TTL: left}, event.data)


def departing(event: CloudEvent) -> CloudEvent:
    """The event as subscribers see it: without the attribute."""
    if TTL not in event.attributes:
        return event
    return CloudEvent({name: value for name, value in event.attributes.items() if name != TTL}, event.data)


def reply_to(cause: CloudEvent, reply: CloudEvent, default: int = TTL_DEFAULT) -> CloudEvent | None:
    """The reply as the Broker of its cause stores it; None: the chain of replies is too long.

    The subscriber's own value of the attribute is ignored.
    """
    held = ttl_of(cause.attributes)
    return arriving(CloudEvent({**reply.attributes, TTL: default if held is None else held}, reply.data))
