"""Kubernetes Events about the controller's work. Repetitions are counted in one object, which is kept for an
hour. Pure.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final

from knative_gateway.controller.deciding.plan import ObjectEvent
from knative_gateway.ports import Key
from knative_gateway.resources.conditions import READY, UNKNOWN, Condition, condition_of, is_ready
from knative_gateway.resources.objects import (
    Object,
    child,
    entries,
    moment_ms,
    name_of,
    namespace_of,
    number,
    text,
    timestamp,
    uid_of,
)

KEPT_MS: Final = 3_600_000
"""An Event object is kept for this time after its last repetition."""
KEPT_MAX: Final = 5_000
"""How many Event objects are kept. If there are more, the oldest are removed."""
COMPONENT: Final = "knative-gateway"
MESSAGE_CHARACTERS_MAX: Final = 1024
_LOSSES: Final = (
    ("dropped", "EventsDropped", "events were dropped: see status.history"),
    (
        "removed",
        "EventsRemoved",
        "retention removed events of the log before they were delivered: see status.deliveries",
    ),
)
"""Counters of `status.deliveries`. The messages contain no numbers, so that repetitions are counted in one
Event object.
"""


def of_change(before: Object, after: Object) -> list[ObjectEvent]:
    """Return the Events of a change: Ready has another status or reason, or a subscriber lost events."""
    return [*_of_readiness(before, after), *_of_losses(before, after)]


def _of_losses(before: Object, after: Object) -> list[ObjectEvent]:
    return [
        ObjectEvent(after, "Warning", reason, message)
        for name, reason, message in _LOSSES
        if number(after, "status", "deliveries", name) > number(before, "status", "deliveries", name)
    ]


def _of_readiness(before: Object, after: Object) -> list[ObjectEvent]:
    kind = text(after, "kind")
    old, new = _ready(before), _ready(after)
    if new is None or (old is not None and (old.status, old.reason) == (new.status, new.reason)):
        return []
    if is_ready(after):
        return [ObjectEvent(after, "Normal", new.reason or f"{kind}Ready", new.message or f"{kind} is ready")]
    if new.status == UNKNOWN:
        return []
    return [ObjectEvent(after, "Warning", new.reason, new.message)]


def _ready(object_: Object) -> Condition | None:
    for each in entries(object_, "status", "conditions"):
        if text(each, "type") == READY:
            return condition_of(each)
    return None


def key_of(object_event: ObjectEvent) -> Key:
    """Return the key of the Event object. It is the same for repetitions of an Event about one object."""
    about = object_event.about
    identity = "\0".join((uid_of(about), object_event.type, object_event.reason, object_event.message))
    name = f"{name_of(about)}.{sha256(identity.encode()).hexdigest()[:16]}"
    return Key("", "Event", namespace_of(about) or "default", name)


def event(object_event: ObjectEvent, before: Object | None, now_ms: int, uid: str) -> dict[str, object]:
    """Return the Event object. `before`: the stored object, whose count continues; None: use `uid` for a new
    one.
    """
    about, key, now = object_event.about, key_of(object_event), timestamp(now_ms)
    metadata: Mapping[str, object] = {
        "name": key.name,
        "namespace": key.namespace,
        "uid": uid,
        "creationTimestamp": now,
    }
    fields = {
        "apiVersion": text(about, "apiVersion"),
        "kind": text(about, "kind"),
        "name": name_of(about),
        "namespace": namespace_of(about),
    }
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": child(before, "metadata") or metadata,
        "involvedObject": {
            **fields,
            "uid": uid_of(about),
            "resourceVersion": text(about, "metadata", "resourceVersion"),
        },
        "type": object_event.type,
        "reason": object_event.reason,
        "message": object_event.message[:MESSAGE_CHARACTERS_MAX],
        "count": number(before, "count") + 1,
        "firstTimestamp": text(before, "firstTimestamp") or now,
        "lastTimestamp": now,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": "",
    }


def old(events: Sequence[tuple[Key, Object]], now_ms: int) -> list[Key]:
    """Return the Event objects to remove: older than `KEPT_MS`, and the oldest if there are more than
    `KEPT_MAX`.
    """
    by_age = sorted(((_last_ms(each, now_ms), key) for key, each in events), key=lambda each: each[0])
    too_many = max(0, len(by_age) - KEPT_MAX)
    return [
        key for rank, (last_ms, key) in enumerate(by_age) if rank < too_many or now_ms - last_ms > KEPT_MS
    ]


def _last_ms(stored: Object, now_ms: int) -> int:
    last = moment_ms(text(stored, "lastTimestamp") or text(stored, "metadata", "creationTimestamp"))
    return now_ms if last is None else last
