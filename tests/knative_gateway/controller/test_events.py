from itertools import pairwise

from knative_gateway.controller.deciding.plan import ObjectEvent
from knative_gateway.controller.events import KEPT_MAX, KEPT_MS, event, key_of, of_change, old
from knative_gateway.ports import Document, Key
from knative_gateway.resources.schema.checking import check
from tests.knative_gateway.controller.world import NOW_MS
from tests.knative_gateway.resources.made import kind

TRIGGER = {
    "apiVersion": "eventing.knative.dev/v1",
    "kind": "Trigger",
    "metadata": {"name": "t", "namespace": "n", "uid": "u", "resourceVersion": "7"},
}
EVENT = ObjectEvent(TRIGGER, "Warning", "NotFound", "there is no Service n/s")


def test_an_event_has_its_object_and_its_reason() -> None:
    made = event(EVENT, None, NOW_MS, "uid")
    assert not check(
        kind("Event").schema,
        {name: made[name] for name in made if name not in {"apiVersion", "kind", "metadata"}},
    ).causes
    involved = {
        "apiVersion": "eventing.knative.dev/v1",
        "kind": "Trigger",
        "name": "t",
        "namespace": "n",
        "uid": "u",
        "resourceVersion": "7",
    }
    assert made["involvedObject"] == involved
    assert (made["type"], made["reason"], made["message"], made["count"]) == (
        "Warning",
        "NotFound",
        "there is no Service n/s",
        1,
    )
    assert made["metadata"] == {
        "name": key_of(EVENT).name,
        "namespace": "n",
        "uid": "uid",
        "creationTimestamp": "2023-11-14T22:13:20Z",
    }


def test_the_same_again_is_counted() -> None:
    first = event(EVENT, None, NOW_MS, "uid")
    again = event(EVENT, first, NOW_MS + 60_000, "other")
    assert (again["count"], again["firstTimestamp"], again["lastTimestamp"]) == (
        2,
        "2023-11-14T22:13:20Z",
        "2023-11-14T22:14:20Z",
    )
    assert again["metadata"] == first["metadata"]


def test_another_reason_another_event() -> None:
    keys = {key_of(each) for each in (EVENT, ObjectEvent(TRIGGER, "Warning", "Other", EVENT.message), EVENT)}
    assert len(keys) == 2
    assert all(key.name.startswith("t.") and key.namespace == "n" for key in keys)


def test_events_that_were_lost_to_a_subscriber_are_an_event_that_counts() -> None:
    """`kubectl describe` shows the Event, also if the subscriber is Ready."""
    counted = [
        {**TRIGGER, "status": {"deliveries": {"dropped": dropped, "removed": removed}}}
        for dropped, removed in ((2, 0), (5, 0), (6, 3))
    ]
    changes = [of_change(before, after) for before, after in pairwise([TRIGGER, *counted, counted[-1]])]
    assert [[each.reason for each in change] for change in changes] == [
        ["EventsDropped"],
        ["EventsDropped"],
        ["EventsDropped", "EventsRemoved"],
        [],
    ]
    assert {each.type for change in changes for each in change} == {"Warning"}
    assert len({key_of(each).name for change in changes for each in change}) == 2


def test_figures_that_restart_are_not_a_loss() -> None:
    before, after = ({**TRIGGER, "status": {"deliveries": {"dropped": dropped}}} for dropped in (5, 0))
    assert of_change(before, after) == []


def test_an_event_is_kept_for_an_hour() -> None:
    made = event(EVENT, None, NOW_MS, "uid")
    created = {"metadata": {"creationTimestamp": "2023-11-14T22:13:20Z"}}
    events: list[tuple[Key, Document]] = [
        (key_of(EVENT), made),
        (Key("", "Event", "n", "without-a-time"), {}),
        (Key("", "Event", "n", "created"), created),
    ]
    assert old(events, NOW_MS + KEPT_MS) == []
    assert old(events, NOW_MS + KEPT_MS + 1) == [key_of(EVENT), Key("", "Event", "n", "created")]


def test_of_too_many_events_the_oldest_go() -> None:
    newest_first = [
        event(EVENT, None, NOW_MS - 1000 * (number // 3), "uid")
        for number in range(0, 3 * KEPT_MAX, KEPT_MAX)
    ]
    made = [(Key("", "Event", "n", str(place)), newest_first[0]) for place in range(KEPT_MAX)]
    made += [
        (Key("", "Event", "n", "old"), newest_first[1]),
        (Key("", "Event", "n", "older"), newest_first[2]),
    ]
    assert {key.name for key in old(made, NOW_MS)} == {"old", "older"}
