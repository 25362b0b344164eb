"""Event objects about writes: one for each change that a person wants to see."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from knative_gateway.controller import events
from knative_gateway.controller.deciding.plan import ObjectEvent, Write
from knative_gateway.controller.reporting import event_objects
from knative_gateway.ports import Key
from knative_gateway.resources.conditions import is_false, is_true, living
from knative_gateway.resources.objects import Object, child, name_of
from tests.knative_gateway.controller.world import NOW_MS

NOW = "2026-01-31T12:00:00Z"
READY, NOT_READY = (
    {"conditions": living([condition], {}, NOW)} for condition in (is_true("A"), is_false("A", "Broken", ""))
)


def write(name: str) -> Write:
    about: dict[str, Any] = {
        "apiVersion": "eventing.knative.dev/v1",
        "kind": "Broker",
        "metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": "7"},
    }
    key = Key("eventing.knative.dev", "Broker", "n", name)
    return Write(key, {**about, "status": NOT_READY}, {**about, "status": READY})


def test_a_repetition_replaces_the_event_object_that_it_counts_in() -> None:
    ((key, (first, before)),) = event_objects([write("a")], {}, NOW_MS).items()
    assert (first["reason"], first["count"], before) == ("BrokerReady", 1, 0)
    stored = {**first, "metadata": {**child(first, "metadata"), "resourceVersion": "12"}}
    ((again, (second, before)),) = event_objects([write("a")], {key: stored}, NOW_MS).items()
    assert (again, second["count"], before) == (key, 2, 12)


def test_an_event_that_cannot_be_made_costs_no_other_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the fault is, the task that writes the statuses of all tenants must not see it."""
    of_change = events.of_change

    def faulty(before: Object, after: Object) -> list[ObjectEvent]:
        if name_of(after) == "bad":
            raise ValueError("a fault")
        return of_change(before, after)

    monkeypatch.setattr(events, "of_change", faulty)
    with capture_logs() as logs:
        made = event_objects([write("a"), write("bad"), write("z")], {}, NOW_MS)
    assert [child(each, "involvedObject")["name"] for each, _ in made.values()] == ["a", "z"]
    assert [(each["event"], each["name"]) for each in logs if each["log_level"] == "error"] == [
        ("event_not_made", "bad")
    ]
