"""Event objects (core/v1): what the controller did and why, counted while it repeats. They are kept for an hour."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from knative_gateway.controller.plan import Happening
from knative_gateway.ports import Key
from knative_gateway.resources.objects import Object, child, moment_ms, name_of, namespace_of, number, text, timestamp, uid_of

KEPT_MS: Final = 3_600_000
COMPONENT: Final = "knative-gateway"
MESSAGE_CHARACTERS_MAX: Final = 1024


def key_of(happening: Happening) -> Key:
    """The name of its Event: the same for the same happening to the same object."""
    about = happening.about
    told = "\0".join((uid_of(about), happening.type, happening.reason, happening.message))
    name = f"{name_of(about)}.{sha256(told.encode()).hexdigest()[:16]}"
    return Key("", "Event", namespace_of(about) or "default", name)


def event(happening: Happening, before: Object | None, now_ms: int, uid: str) -> dict[str, object]:
    """The Event, counting on from the one that is there. `uid`: for a new one."""
    about, key, now = happening.about, key_of(happening), timestamp(now_ms)
    metadata: Mapping[str, object] = {"name": key.name, "namespace": key.namespace, "uid": uid, "creationTimestamp": now}
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
        "involvedObject": {**fields, "uid": uid_of(about), "resourceVersion": text(about, "metadata", "resourceVersion")},
        "type": happening.type,
        "reason": happening.reason,
        "message": happening.message[:MESSAGE_CHARACTERS_MAX],
        "count": number(before, "count") + 1,
        "firstTimestamp": text(before, "firstTimestamp") or now,
        "lastTimestamp": now,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": "",
    }


def is_old(event_: Object, now_ms: int) -> bool:
    """Whether it has been kept long enough."""
    last = moment_ms(text(event_, "lastTimestamp") or text(event_, "metadata", "creationTimestamp"))
    return last is not None and now_ms - last > KEPT_MS
