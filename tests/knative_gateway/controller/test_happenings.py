from knative_gateway.controller.happenings import KEPT_MS, event, is_old, key_of
from knative_gateway.controller.plan import Happening
from knative_gateway.resources.schema import check
from tests.knative_gateway.controller.world import NOW_MS
from tests.knative_gateway.resources.made import kind

TRIGGER = {
    "apiVersion": "eventing.knative.dev/v1",
    "kind": "Trigger",
    "metadata": {"name": "t", "namespace": "n", "uid": "u", "resourceVersion": "7"},
}
HAPPENING = Happening(TRIGGER, "Warning", "NotFound", "there is no Service n/s")


def test_an_event_tells_of_what_and_why() -> None:
    made = event(HAPPENING, None, NOW_MS, "uid")
    assert not check(kind("Event").schema, {name: made[name] for name in made if name not in {"apiVersion", "kind", "metadata"}}).causes
    involved = {
        "apiVersion": "eventing.knative.dev/v1",
        "kind": "Trigger",
        "name": "t",
        "namespace": "n",
        "uid": "u",
        "resourceVersion": "7",
    }
    assert made["involvedObject"] == involved
    assert (made["type"], made["reason"], made["message"], made["count"]) == ("Warning", "NotFound", "there is no Service n/s", 1)
    assert made["metadata"] == {
        "name": key_of(HAPPENING).name,
        "namespace": "n",
        "uid": "uid",
        "creationTimestamp": "2023-11-14T22:13:20Z",
    }


def test_the_same_again_is_counted() -> None:
    first = event(HAPPENING, None, NOW_MS, "uid")
    again = event(HAPPENING, first, NOW_MS + 60_000, "other")
    assert (again["count"], again["firstTimestamp"], again["lastTimestamp"]) == (2, "2023-11-14T22:13:20Z", "2023-11-14T22:14:20Z")
    assert again["metadata"] == first["metadata"]


def test_another_reason_another_event() -> None:
    keys = {key_of(each) for each in (HAPPENING, Happening(TRIGGER, "Warning", "Other", HAPPENING.message), HAPPENING)}
    assert len(keys) == 2
    assert all(key.name.startswith("t.") and key.namespace == "n" for key in keys)


def test_an_event_is_kept_for_an_hour() -> None:
    made = event(HAPPENING, None, NOW_MS, "uid")
    assert not is_old(made, NOW_MS + KEPT_MS)
    assert is_old(made, NOW_MS + KEPT_MS + 1)
    assert not is_old({}, NOW_MS)
    assert is_old({"metadata": {"creationTimestamp": "2023-11-14T22:13:20Z"}}, NOW_MS + 2 * KEPT_MS)
