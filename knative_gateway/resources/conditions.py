"""Conditions describe the state of an object, each with a reason. The condition Ready summarizes the others.

- Ready is False if any condition is False, else Unknown if any is Unknown, else True.
- The time of transition changes only when the status of the condition changes.
- A condition that is not True has a reason.

Spec: knative-eventing-test-spec, "Error Signalling", and Knative's common conditions.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from knative_gateway.resources.objects import Object, entries, moment_ms, text

TRUE: Final = "True"
FALSE: Final = "False"
UNKNOWN: Final = "Unknown"
READY: Final = "Ready"
PAUSED: Final = "Paused"
"""The reason of a True condition while a user has paused the object. Ready takes the reason over."""
NO_REASON: Final = "Unknown"
"""The reason of a stored condition that has no reason and is not True."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition. `reason` is one CamelCase word for programs; `message` is for people."""

    type: str
    status: str = TRUE
    reason: str = ""
    message: str = ""

    def __post_init__(self) -> None:
        assert self.status in {TRUE, FALSE, UNKNOWN}
        assert self.reason or self.status == TRUE, f"{self.type} is {self.status} without a reason"


def is_true(type_: str, reason: str = "", message: str = "") -> Condition:
    """Return a condition with the status True."""
    return Condition(type_, TRUE, reason, message)


def is_false(type_: str, reason: str, message: str) -> Condition:
    """Return a condition with the status False: it stays so until a user changes an object."""
    return Condition(type_, FALSE, reason, message)


def is_unknown(type_: str, reason: str, message: str) -> Condition:
    """Return a condition with the status Unknown: a later reconciliation decides."""
    return Condition(type_, UNKNOWN, reason, message)


def condition_of(entry: object) -> Condition:
    """Return one entry of the `status.conditions` of a stored object.

    A client may store any text as a status, and leave out the reason: such a status counts as Unknown, such a
    reason as `NO_REASON`.
    """
    status = text(entry, "status")
    status = status if status in {TRUE, FALSE} else UNKNOWN
    reason = text(entry, "reason") or ("" if status == TRUE else NO_REASON)
    return Condition(text(entry, "type"), status, reason, text(entry, "message"))


def summary(conditions: Iterable[Condition]) -> Condition:
    """Return Ready: the first False condition, else the first Unknown one, each with its reason, else True.

    A True Ready has the reason PAUSED if a condition has it.
    """
    worst = Condition(READY)
    for condition in conditions:
        if condition.status == FALSE:
            return Condition(READY, FALSE, condition.reason, condition.message)
        if worst.status == TRUE and (condition.status == UNKNOWN or condition.reason == PAUSED):
            worst = Condition(READY, condition.status, condition.reason, condition.message)
    return worst


def living(conditions: Sequence[Condition], before: Object, now: str) -> list[dict[str, object]]:
    """Return the list for `status.conditions`, including Ready, sorted by type.

    `before` is the object as it was: a condition with an unchanged status keeps its time of transition, if
    it is a time. Clients can store any text there, and programs in Go cannot decode a list with such a text.
    """
    times = {
        text(each, "type"): (text(each, "status"), text(each, "lastTransitionTime"))
        for each in entries(before, "status", "conditions")
    }
    listed: list[dict[str, object]] = []
    for condition in sorted([*conditions, summary(conditions)], key=lambda each: each.type):
        status, since = times.get(condition.type, ("", ""))
        made: dict[str, object] = {"type": condition.type, "status": condition.status}
        made |= {
            name: value
            for name, value in (("reason", condition.reason), ("message", condition.message))
            if value
        }
        kept = status == condition.status and moment_ms(since) is not None
        listed.append({**made, "lastTransitionTime": since if kept else now})
    return listed


def status_of(object_: Object, type_: str) -> str:
    """Return the status of a condition of a stored object; empty if the object does not have the
    condition.
    """
    return next(
        (
            text(each, "status")
            for each in entries(object_, "status", "conditions")
            if text(each, "type") == type_
        ),
        "",
    )


def is_ready(object_: Object) -> bool:
    """Return whether a stored object is Ready."""
    return status_of(object_, READY) == TRUE
