"""Event objects and log lines about writes that succeeded. [io: the log]

A fault in the Events of one object costs the Events of this object only.
"""

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import uuid4

import structlog

from knative_gateway.controller import events
from knative_gateway.controller.deciding.plan import ObjectEvent, Write
from knative_gateway.controller.mirror import version_of
from knative_gateway.ports import Key
from knative_gateway.resources.objects import Object, name_of

log: Final = structlog.get_logger("knative_gateway.controller")


def event_objects(
    writes: Iterable[Write], known: Mapping[Key, Object], now_ms: int
) -> dict[Key, tuple[Object, int]]:
    """Return the Event objects to store about these writes, each with the version that it replaces.

    `known`: all objects, with the Event objects whose counts continue.
    """
    made: dict[Key, tuple[Object, int]] = {}
    for write in writes:
        try:
            made |= [_event(each, known, now_ms) for each in events.of_change(write.before, write.object)]
        except Exception as error:  # it affects only this object
            key = write.key
            log.error("event_not_made", kind=key.kind, namespace=key.namespace, name=key.name, exc_info=error)
    return made


def _event(
    object_event: ObjectEvent, known: Mapping[Key, Object], now_ms: int
) -> tuple[Key, tuple[Object, int]]:
    key = events.key_of(object_event)
    before = known.get(key)
    made = events.event(object_event, before, now_ms, str(uuid4()))
    log.info(
        "resource_changed",
        kind=object_event.about.get("kind"),
        namespace=key.namespace,
        name=name_of(object_event.about),
        reason=object_event.reason,
        message=object_event.message,
    )
    return key, (made, version_of(before))
