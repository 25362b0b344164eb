"""Kubernetes Events: what the controller did and why, counted while it repeats, and kept for
an hour. Pure.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final

from knative_gateway.controller.deciding.plan import ObjectEvent
from knative_gateway.ports import Key
from knative_gateway.resources.conditions import READY, UNKNOWN, Condition, is_ready
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
KEPT_MAX: Final = 5_000
"""Event objects that are kept; if there are more, the oldest are removed."""
COMPONENT: Final = "knative-gateway"
MESSAGE_CHARACTERS_MAX: Final = 1024
_LOSSES: Final = (
    ("dropped", "EventsDropped", "events were given up without a dead letter: see status.history"),
    (
        "removed",
        "EventsRemoved",
        "retention removed events of the log before they were delivered: see status.deliveries",
    ),
)
"""Counters of `status.deliveries`. The messages have no numbers, so that repetitions are counted in one Event
object.
"""


def of_change(before: Object, after: Object) -> list[ObjectEvent]:
    """The Events of a change: Ready has another status or reason, or events were lost for a subscriber."""
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
            return Condition(READY, text(each, "status"), text(each, "reason"), text(each, "message"))
    return None


def key_of(object_event: ObjectEvent) -> Key:
    """The key of the Event object: the same if the same thing happens to the same object again."""
    about = object_event.about
    identity = "\0".join((uid_of(about), object_event.type, object_event.reason, object_event.message))
    name = f"{name_of(about)}.{sha256(identity.encode()).hexdigest()[:16]}"
    return Key("", "Event", namespace_of(about) or "default", name)


def event(object_event: ObjectEvent, before: Object | None, now_ms: int, uid: str) -> dict[str, object]:
    """Return the Event object. `before` is the stored Event whose count continues; `uid` is used if it is
    None.
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
    """The Event objects to remove: those older than `KEPT_MS`, and the oldest of more than `KEPT_MAX`."""
    by_age = sorted(((_last_ms(each, now_ms), key) for key, each in events), key=lambda each: each[0])
    too_many = max(0, len(by_age) - KEPT_MAX)
    return [
        key for rank, (last_ms, key) in enumerate(by_age) if rank < too_many or now_ms - last_ms > KEPT_MS
    ]


def _last_ms(stored: Object, now_ms: int) -> int:
    last = moment_ms(text(stored, "lastTimestamp") or text(stored, "metadata", "creationTimestamp"))
    return now_ms if last is None else last
