"""Objects with their computed status, and Channels with their list of subscribers. Pure.

Spec: knative-eventing-test-spec, "Detailed Resources", Status.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from knative_gateway.controller.deciding.plan import Figures
from knative_gateway.controller.deciding.relations import CHANNELS
from knative_gateway.controller.deciding.sources import conditions
from knative_gateway.controller.deciding.subscribers import Member, Parent, subscriber_spec, subscriber_status
from knative_gateway.offsets import offset_number
from knative_gateway.ports import Failure
from knative_gateway.resources.conditions import (
    READY,
    TRUE,
    Condition,
    condition_of,
    is_false,
    living,
    status_of,
)
from knative_gateway.resources.kinds import established
from knative_gateway.resources.objects import (
    Object,
    at,
    child,
    drop,
    entries,
    number,
    put,
    same,
    text,
    timestamp,
)

HISTORY_MAX: Final = 10
"""Failures in a status. The API returns more."""
RECONCILED: Final = "Reconciled"
"""The condition of an object that could not be reconciled. Other objects do not have it."""


def _with_status(
    object_: Object,
    status: Mapping[str, object],
    conditions_: Sequence[Condition],
    now: str,
) -> dict[str, object]:
    """observedGeneration and conditions MUST be updated in the same transaction, so one write
    contains both.
    """
    generation = number(object_, "metadata", "generation")
    annotations = child(object_, "status", "annotations")
    kept = {"annotations": annotations} if annotations else {}
    return {
        **object_,
        "status": {
            "observedGeneration": generation,
            "conditions": living(conditions_, object_, now),
            **kept,
            **status,
        },
    }


def of_source(parent: Parent, members: Sequence[Member], now: str) -> Object:
    """Return a Broker or Channel with its status; a Channel also with its subscribers."""
    source_, delivery = parent.source, parent.delivery
    status: dict[str, object] = {
        **({"address": {"url": source_.url}} if source_.url else {}),
        **delivery.status(),
    }
    object_ = source_.resource
    if source_.key.kind in CHANNELS:
        object_ = _with_subscribers(
            object_, [subscriber_spec(each) for each in members if each.subscriber is not None]
        )
        if members:
            status["subscribers"] = [subscriber_status(each) for each in members]
    return _with_status(object_, status, conditions(source_, delivery), now)


def _with_subscribers(channel: Object, subscribers: list[dict[str, object]]) -> Object:
    """Return the Channel with its list of subscribers.

    The server writes this list, but it is a part of the spec, so the generation changes.
    """
    if same(entries(channel, "spec", "subscribers"), subscribers):
        return channel
    changed = (
        put(channel, ("spec", "subscribers"), subscribers)
        if subscribers
        else drop(channel, ("spec", "subscribers"))
    )
    return put(changed, ("metadata", "generation"), number(channel, "metadata", "generation") + 1)


def of_member(each: Member, figures: Figures | None, now: str) -> Object:
    """Return a Trigger or Subscription with its status. `figures` None: the counters do not change."""
    before = child(each.resource, "status")
    counted = {name: before[name] for name in ("deliveries", "history") if name in before}
    if figures is not None:
        counted = {"deliveries": dict(figures.counters)} if figures.counters else {}
        counted |= (
            {"history": [_failure(failure) for failure in figures.history[:HISTORY_MAX]]}
            if figures.history
            else {}
        )
    return _with_status(each.resource, {**each.status, **counted}, each.conditions, now)


def _failure(failure: Failure) -> dict[str, object]:
    """Return a failure in the form of a status."""
    made: dict[str, object] = {
        "time": timestamp(failure.at_ms),
        "eventId": failure.event_id,
        "eventSource": failure.event_source,
    }
    made |= {
        "partition": failure.partition,
        "offset": offset_number(failure.offset),
        "attempt": failure.attempt,
        "reason": failure.reason,
    }
    made |= {} if failure.code is None else {"code": failure.code}
    return made | {name: value for name, value in (("body", failure.body), ("end", failure.end)) if value}


def of_broken(object_: Object, now: str) -> Object:
    """Return the status of an object that could not be reconciled.

    Other fields of its status do not change.
    """
    broken = is_false(
        RECONCILED,
        "InternalError",
        "the gateway failed to reconcile this object: see the gateway's log",
    )
    known = [
        condition_of(each)
        for each in entries(object_, "status", "conditions")
        if text(each, "type") not in {READY, RECONCILED, ""}
    ]
    kept = {
        name: value
        for name, value in child(object_, "status").items()
        if name not in {"observedGeneration", "conditions", "annotations"}
    }
    return _with_status(object_, kept, [broken, *known], now)


def of_definition(definition: Object, now: str) -> Object:
    """Return the status of a CustomResourceDefinition. Its kinds are served as soon as it is stored."""
    if status_of(definition, "Established") == TRUE:
        return definition
    stored = [
        text(version, "name")
        for version in entries(definition, "spec", "versions")
        if at(version, "storage") is True
    ]
    return {**definition, "status": established(child(definition, "spec", "names"), stored, now)}
