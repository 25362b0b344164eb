"""Invariants of reconciling, for any objects. The demands of the specification: test_sources.py,
test_subscribers.py.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knative_gateway.controller.deciding.plan import Figures
from knative_gateway.ports import Failure, Key
from knative_gateway.resources.objects import Object, at, child, drop, entries, number, put, text, walk
from tests.knative_gateway.controller.world import (
    World,
    addressable,
    anew,
    broker,
    channel,
    made,
    ref,
    service,
    subscription,
    trigger,
)
from tests.properties import examples

DESTINATIONS = st.sampled_from(
    [
        {"uri": "http://there/"},
        ref("s"),
        {**ref("s"), "uri": "/p"},
        ref("k", api_version="serving.knative.dev/v1"),
        ref("b", "Broker", "eventing.knative.dev/v1"),
        ref("c", "Channel", "messaging.knative.dev/v1"),
        ref("none"),
    ]
)
DELIVERIES = st.none() | st.builds(
    lambda sink, retry: {"deadLetterSink": sink, "retry": retry}, DESTINATIONS, st.integers(0, 3)
)
NAMES = st.sampled_from("bc")


def spec(delivery: object) -> dict[str, object]:
    return {} if delivery is None else {"delivery": delivery}


OBJECTS = st.one_of(
    st.builds(lambda name, delivery: broker(name, spec(delivery)), NAMES, DELIVERIES),
    st.builds(
        lambda name, to, of, delivery: trigger(f"t{name}", to=to, of=of, **spec(delivery)),
        NAMES,
        DESTINATIONS,
        NAMES,
        DELIVERIES,
    ),
    st.builds(
        lambda name, kind, delivery: channel(name, spec(delivery), kind=kind),
        NAMES,
        st.sampled_from(["Channel", "InMemoryChannel"]),
        DELIVERIES,
    ),
    st.builds(
        lambda name, of, kind, where, to, delivery: subscription(
            f"s{name}", of=of, kind=kind, **{where: to}, **spec(delivery)
        ),
        NAMES,
        NAMES,
        st.sampled_from(["Channel", "InMemoryChannel", "Broker"]),
        st.sampled_from(["subscriber", "reply"]),
        DESTINATIONS,
        DELIVERIES,
    ),
    st.just(service("s")),
    st.sampled_from([addressable("k"), addressable("k", "http://k/")]),
)


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(OBJECTS, max_size=9), st.data())
def test_every_state_settles_and_only_what_is_served_is_ready(
    objects: list[dict[str, object]], data: st.DataObject
) -> None:
    world = World()
    for object_ in objects:
        kind, name = text(object_, "kind"), text(object_, "metadata", "name")
        if not any((key.kind, key.name) == (kind, name) for key in world.objects):
            world.send(object_)
    world.settle()
    if len(world.objects) > 0 and data.draw(st.booleans()):
        world.delete(data.draw(st.sampled_from(sorted(world.objects, key=str))))
        world.settle()
    served = {each.uid for route in world.routes.by_path.values() for each in route.subscribers}
    for key in world.objects:
        if key.kind in {"Trigger", "Subscription"}:
            uid = text(world.objects[key], "metadata", "uid")
            assert (world.ready(key)[0] != "True") or uid in served
        if key.kind in {"Broker", "Trigger", "Channel", "InMemoryChannel", "Subscription"}:
            assert world.status(key)["observedGeneration"] == at(world.objects[key], "metadata", "generation")
            assert world.ready(key)[0] in {"True", "False"}


@given(st.lists(OBJECTS, max_size=6))
def test_the_same_input_gives_the_same_plan(objects: list[dict[str, object]]) -> None:
    world = World()
    for index, object_ in enumerate(objects):
        world.send({**object_, "metadata": {**child(object_, "metadata"), "name": f"x{index}"}})
    plans = [
        anew(dict(order), world.state, world.settings, now_ms=world.now_ms)
        for order in (world.objects.items(), reversed(world.objects.items()))
    ]
    assert plans[0].writes == plans[1].writes
    assert plans[0].routes == plans[1].routes


def settled(*objects: dict[str, object]) -> dict[Key, Object]:
    """Return the state of a cluster with these objects."""
    world = World()
    for object_ in objects:
        world.send(object_)
    return world.settle().objects


CONFIG = {
    "config": {"apiVersion": "v1", "kind": "ConfigMap", "name": "c"},
    "delivery": {"deadLetterSink": ref("s"), "retry": 1},
}
WELL = settled(
    {**made("v1", "ConfigMap", "c"), "data": {"partitions": "3", "retention": "P1D", "delivery": "retry: 1"}},
    service("s", {"type": "ExternalName", "externalName": "there", "ports": [{"port": 80}]}),
    broker(spec=CONFIG),
    trigger(
        to={**ref("s"), "uri": "/p"},
        filters=[{"exact": {"type": "a"}}],
        delivery={"backoffPolicy": "linear", "backoffDelay": "PT1S"},
    ),
    channel(spec={"channelTemplate": {"apiVersion": "a", "kind": "b", "spec": {"partitions": 2}}}),
    channel(kind="InMemoryChannel"),
    subscription(
        subscriber=ref("b", "Broker", "eventing.knative.dev/v1"),
        reply={"uri": "http://back"},
        delivery={"timeout": "PT1S"},
    ),
)
PLACES = [
    (key, path)
    for key, object_ in WELL.items()
    for whole, _ in walk(object_)
    for path in {whole[:end] for end in range(1, len(whole) + 1)}
]
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        True,
        -1,
        1 << 70,
        0.5,
        "",
        "x",
        "http://[",
        "é" * 300,
        [],
        [None],
        [[]],
        {},
        {"": {}},
        {"type": [], "uid": 1},
        [{"uri": 1}],
    ]
)


@settings(deadline=None, max_examples=examples(150))
@given(
    st.lists(st.tuples(st.sampled_from(sorted(PLACES, key=str)), ODD), min_size=1, max_size=4), st.booleans()
)
def test_no_object_brings_reconciling_down(
    changes: list[tuple[tuple[Key, tuple[str, ...]], object]], works: bool
) -> None:
    """Objects were validated when they were stored, by this version or another. An object that cannot be read
    counts as missing.
    """
    world = World(objects=dict(WELL), works=works)
    for (key, path), odd in changes:
        world.objects[key] = put(world.objects[key], path, odd)
    for _ in range(3):
        world.step()


@pytest.mark.parametrize("works", [True, False])
def test_objects_without_an_identity_do_not_share_one(works: bool) -> None:
    """Without a uid, an object could be confused with another one: it is treated as absent."""
    world = World(objects=dict(WELL), works=works)
    for key in WELL:
        if key.kind in {"Trigger", "Subscription"}:
            world.objects[key] = drop(world.objects[key], ("metadata", "uid"))
    for _ in range(3):
        world.step()
    assert [route.subscribers for route in world.routes.by_path.values()] == [()] * len(world.routes.by_path)


def test_routes_that_did_not_change_keep_their_version() -> None:
    world = World()
    world.send(broker())
    first = world.settle().routes
    key = world.send(trigger())
    second = world.settle().routes
    world.patch(key, {"metadata": {"labels": {"a": "b"}}})
    assert (first.version, second.version, world.settle().routes) == (1, 2, second)


def test_an_unchanged_world_has_an_empty_plan() -> None:
    world = World()
    world.send(broker())
    world.send(trigger())
    world.settle()
    world.now_ms += 60_000
    assert world.step().writes == {}


def test_a_replica_that_knows_less_takes_nothing_back() -> None:
    """Another replica, or the same one after a start, has no reports of its data plane yet. Ready means that
    positions in the log are stored.
    """
    world = World()
    world.send(broker())
    world.send(channel())
    key = world.send(trigger())
    world.send(subscription())
    world.settle()
    other = World(objects=world.objects, works=False)
    assert other.step().writes == {}
    other.patch(key, {"spec": {"subscriber": {"uri": "http://elsewhere/"}}})
    other.step()
    assert other.ready(key) == ("Unknown", "Configuring")


def test_times_of_transition_are_those_of_the_change() -> None:
    """Section "Error Signalling"."""
    world = World()
    world.send(broker())
    key = world.send(trigger(to=ref("s")))
    world.settle()
    world.now_ms += 60_000
    world.send(service("s"))
    world.settle()
    times = {
        text(each, "type"): text(each, "lastTransitionTime")
        for each in entries(world.status(key), "conditions")
    }
    assert times["Ready"] == times["SubscriberResolved"] == "2023-11-14T22:14:20Z"
    assert times["BrokerReady"] == "2023-11-14T22:13:20Z"


def test_each_change_is_reported_once_with_its_reason() -> None:
    world = World()
    world.send(broker())
    world.send(trigger(to=ref("s")))
    world.settle()
    world.send(service("s"))
    world.settle()
    told = [
        (each.type, each.reason)
        for plan in world.plans
        for each in plan.events
        if text(each.about, "kind") == "Trigger"
    ]
    assert told == [("Warning", "NotFound"), ("Normal", "TriggerReady")]


def test_counts_of_the_data_plane_are_in_the_status() -> None:
    world = World()
    world.send(broker())
    key = world.send(trigger())
    world.settle()
    failure = Failure(world.now_ms, "id", "source", 0, "0001", 2, 500, "status 500", "no")
    unanswered = replace(failure, code=None, body="")
    uid = text(world.objects[key], "metadata", "uid")
    world.state = replace(
        world.state, figures={uid: Figures({"delivered": 3}, [failure, *[unanswered] * 20])}
    )
    world.settle()
    assert world.status(key)["deliveries"] == {"delivered": 3}
    history = entries(world.status(key), "history")
    assert len(history) == 10
    assert history[0] == {
        "time": "2023-11-14T22:13:20Z",
        "eventId": "id",
        "eventSource": "source",
        "partition": 0,
        "offset": 1,
        "attempt": 2,
        "reason": "status 500",
        "code": 500,
        "body": "no",
    }
    assert "code" not in child(history[1])
    world.state = replace(world.state, figures={})
    assert world.step().writes == {}, "what was counted stays until it is counted anew"


def test_a_definition_that_is_stored_is_served() -> None:
    world = World()
    names = {"kind": "Service", "plural": "services"}
    versions = [{"name": "v1", "served": True, "storage": True}]
    declared = {"group": "serving.knative.dev", "scope": "Namespaced", "names": names, "versions": versions}
    key = world.send(
        made("apiextensions.k8s.io/v1", "CustomResourceDefinition", "services.serving.knative.dev", declared),
        namespace="",
    )
    world.settle()
    assert world.conditions(key)["Established"] == "True"
    assert world.status(key)["storedVersions"] == ["v1"]


def test_a_channel_s_list_counts_its_generation_in_the_same_write() -> None:
    """Sections "Channel": observedGeneration and conditions MUST be updated in the same transaction."""
    world = World()
    key = world.send(channel())
    world.settle()
    world.send(subscription())
    for _ in range(4):
        plan = world.step()
        if key in plan.writes:
            new = plan.writes[key]
            assert number(new, "status", "observedGeneration") == number(new, "metadata", "generation")
    assert number(world.objects[key], "metadata", "generation") == 2


def test_objects_of_other_kinds_are_left_alone() -> None:
    world = World()
    world.send(service("s"))
    world.objects[Key("x", "Y", "n", "z")] = {"kind": "Y"}
    assert world.step().writes == {}


def counted(world: World, *changed: Key) -> int:
    """How many results are worked out when these objects were reported."""
    for key in changed:
        world.reconciler.changed(key)
    steps = 0
    while world.reconciler.step(1):
        steps += 1
    world.reconciler.writes(1_000, world.now_ms)
    return steps


def test_work_is_proportional_to_what_changed() -> None:
    """Not to all existing objects: not to those of others, and not to an object without references to it."""
    world = World()
    for number_ in range(20):
        world.send(broker(f"b{number_}"))
        world.send(trigger(f"t{number_}", of=f"b{number_}"))
    for number_ in range(50):
        world.send(subscription(f"s{number_}"))
    channel_key = world.send(channel())
    config = world.send({**made("v1", "ConfigMap", "unrelated"), "data": {"a": "b"}})
    event = world.send({**made("v1", "Event", "e"), "involvedObject": {}})
    world.settle()
    assert counted(world, config, event) == 0
    assert counted(world, world.send(trigger("one-more", of="b3"))) == 2, (
        "the Trigger, and its Broker's route"
    )
    assert counted(world, world.send(subscription("one-more"))) == 2, "not the other Subscriptions"
    assert counted(world, channel_key) <= 3, "a Channel whose list grew is the same for its Subscriptions"


def test_a_change_is_followed_only_to_the_objects_that_refer_to_it() -> None:
    world = World()
    world.send(broker())
    for number_ in range(9):
        world.send(trigger(f"t{number_}", to=ref("s") if number_ == 4 else "http://there/"))
    world.settle()
    assert counted(world, world.send(service("s"))) == 2
    world.settle()
    assert [each.name for each in world.routes.by_path["/broker/default/b"].subscribers] == [
        f"t{number_}" for number_ in range(9)
    ]


def test_an_object_that_cannot_be_reconciled_costs_itself_only() -> None:
    """This holds for any exception; the object recovers when it is corrected."""
    world = World()
    world.send(broker())
    bad, good = world.send(trigger("bad")), world.send(trigger("good"))
    world.settle()

    class Poison(dict[str, object]):
        def get(self, *_: object) -> object:
            raise KeyError

    stored = world.objects[bad]
    world.objects[bad] = {**stored, "spec": Poison(child(stored, "spec"))}
    world.reconciler.changed(bad)
    world.send(trigger("later"))
    world.reconciler.changed(Key("eventing.knative.dev", "Trigger", "default", "later"))
    while world.reconciler.step(1):
        pass
    [problem] = world.reconciler.problems
    assert (problem.key, type(problem.error)) == (bad, KeyError)
    written = {write.key: write.object for write in world.reconciler.writes(10, world.now_ms)}
    conditions = {
        text(each, "type"): text(each, "reason") for each in entries(written[bad], "status", "conditions")
    }
    assert conditions["Ready"] == "InternalError"
    after = world.reconciler.routes().by_path["/broker/default/b"].subscribers
    assert [each.name for each in after] == ["bad", "good", "later"], "what was served is served on"
    world.objects[bad] = stored
    world.reconciler.problems.clear()
    world.settle()
    assert (world.ready(bad)[0], world.ready(good)[0]) == ("True", "True")


def test_a_successor_of_the_same_name_has_no_route_before_its_own_log_is_known() -> None:
    """Section "Broker": the events of the predecessor do not belong to the successor."""
    world = World()
    key = world.send(broker())
    world.settle()
    world.delete(key)
    world.step()
    world.works = False
    world.send(broker())
    reconciler = world.reconciler
    reconciler.changed(key)
    while reconciler.step(1):
        pass
    assert reconciler.needs["broker.default.b"].owner == text(world.objects[key], "metadata", "uid")
    assert reconciler.routes().by_path == {}
    reconciler.log_known("broker.default.b", reconciler.needs["broker.default.b"].owner, None)
    while reconciler.step(1):
        pass
    assert list(reconciler.routes().by_path) == ["/broker/default/b"]
