"""Conditions: what is the matter with an object, each with a reason, and Ready that sums them up.

Laws: Ready is False if any is False, else Unknown if any is Unknown, else True; a time of transition changes
with the status only; what is False has a reason. Spec: knative-eventing-test-spec, "Error Signalling", and
Knative's common conditions.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from knative_gateway.resources.objects import Object, entries, text

TRUE: Final = "True"
FALSE: Final = "False"
UNKNOWN: Final = "Unknown"
READY: Final = "Ready"
PAUSED: Final = "Paused"
"""The reason of a condition that is True while a user has paused the object; Ready has it too."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition. `reason` is one word in CamelCase, `message` is for people."""

    type: str
    status: str = TRUE
    reason: str = ""
    message: str = ""

    def __post_init__(self) -> None:
        assert self.status in {TRUE, FALSE, UNKNOWN}
        assert self.reason or self.status == TRUE, f"{self.type} is {self.status} without a reason"


def is_true(type_: str, reason: str = "", message: str = "") -> Condition:
    """All is well."""
    return Condition(type_, TRUE, reason, message)


def is_false(type_: str, reason: str, message: str) -> Condition:
    """It is wrong until somebody changes something."""
    return Condition(type_, FALSE, reason, message)


def is_unknown(type_: str, reason: str, message: str) -> Condition:
    """It is not known yet."""
    return Condition(type_, UNKNOWN, reason, message)


def summary(conditions: Iterable[Condition]) -> Condition:
    """Ready: the first False, else the first Unknown, with its reason; a True one says whether it is paused."""
    worst = Condition(READY)
    for condition in conditions:
        if condition.status == FALSE:
            return Condition(READY, FALSE, condition.reason, condition.message)
        if worst.status == TRUE and (condition.status == UNKNOWN or condition.reason == PAUSED):
            worst = Condition(READY, condition.status, condition.reason, condition.message)
    return worst


def living(conditions: Sequence[Condition], before: Object, now: str) -> list[dict[str, object]]:
    """The list for the status, Ready among it, by type.

    `before`: the object as it was; a time holds while its status does.
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
        listed.append({**made, "lastTransitionTime": since if since and status == condition.status else now})
    return listed


def status_of(object_: Object, type_: str) -> str:
    """A condition's status in a stored object; empty if it has none."""
    return next(
        (
            text(each, "status")
            for each in entries(object_, "status", "conditions")
            if text(each, "type") == type_
        ),
        "",
    )


def is_ready(object_: Object) -> bool:
    """Whether a stored object is Ready."""
    return status_of(object_, READY) == TRUE
