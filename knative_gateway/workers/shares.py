"""What one of several workers gets of the limits of the gateway. Pure.

Limits on what the gateway holds at once are limits of the whole gateway: each worker gets an equal part,
rounded up. Limits on one request, one connection, one event or one partition are the same in each worker.
"""

from typing import Final

from pydantic.fields import FieldInfo

from knative_gateway.config import GatewaySettings, Limits, SubscriberSettings

OF_LIMITS: Final = ("connections", "pending_events", "pending")
OF_SUBSCRIBERS: Final = ("in_flight", "connections", "held", "waiting", "replies")


def share(settings: GatewaySettings, workers: int) -> GatewaySettings:
    """Return the settings of one worker. A part is never smaller than the smallest value of its setting."""
    limits, subscribers = settings.limits, settings.subscribers
    return settings.model_copy(
        update={
            "limits": limits.model_copy(update=_parts(limits, OF_LIMITS, workers)),
            "subscribers": subscribers.model_copy(update=_parts(subscribers, OF_SUBSCRIBERS, workers)),
        }
    )


def _parts(settings: Limits | SubscriberSettings, names: tuple[str, ...], workers: int) -> dict[str, object]:
    fields = type(settings).model_fields
    parts = {}
    for name in names:
        value = getattr(settings, name)
        parts[name] = type(value)(max(_smallest(fields[name]), -(-value // workers)))
    return parts


def _smallest(field: FieldInfo) -> int:
    return next(int(bound.ge) for bound in field.metadata if hasattr(bound, "ge"))
