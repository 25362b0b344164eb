"""Clients may write any status that the schema allows, as in Kubernetes. The controller replaces it with its
own, and the objects of others do not notice.
"""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from knative_gateway.controller import events
from knative_gateway.ports import Key
from knative_gateway.resources import admission
from knative_gateway.resources.admission import Request
from knative_gateway.resources.conditions import is_ready
from knative_gateway.resources.kinds import BUILT_IN
from knative_gateway.resources.objects import Object, put
from knative_gateway.resources.patches import json_patches
from knative_gateway.resources.refusals import StatusError
from tests.knative_gateway.controller.rig import Here, here_at
from tests.knative_gateway.controller.world import NOW_MS, World, broker, channel, subscription, trigger
from tests.properties import examples

WORDS = st.sampled_from(
    ["", "True", "False", "Unknown", "nonsense", "Ready", "Addressable", "IngressReady", "SubscriptionReady"]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | WORDS,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(WORDS, below, max_size=3),
    max_leaves=4,
)
CONDITION = st.fixed_dictionaries(
    {"type": WORDS, "status": WORDS},
    optional={"reason": WORDS, "message": WORDS, "lastTransitionTime": WORDS | st.just("2020-01-01")},
)
STATUSES = ANYTHING | st.fixed_dictionaries(
    {},
    optional={
        "observedGeneration": ANYTHING | st.integers(-1, 3),
        "conditions": st.lists(CONDITION | ANYTHING, max_size=4) | st.lists(CONDITION, max_size=4) | ANYTHING,
        "address": st.fixed_dictionaries({"url": st.sampled_from(["http://[::::", "/", ""])}) | ANYTHING,
        "annotations": ANYTHING,
        "deliveries": st.dictionaries(st.sampled_from(["dropped", "removed"]), ANYTHING) | ANYTHING,
        "history": ANYTHING,
        "subscriberUri": ANYTHING,
        "physicalSubscription": ANYTHING,
        "subscribers": ANYTHING,
    },
)


def with_status(stored: Object, key: Key, status: object) -> Object:
    """Return the object after a client's PATCH of its status; unchanged if the API refuses the patch."""
    kind = next(each for each in BUILT_IN.kinds if (each.group, each.kind) == (key.group, key.kind))
    request = Request(kind, key.namespace, key.name, NOW_MS, subresource="status")
    change = [{"op": "add", "path": "/status", "value": status}]
    try:
        return admission.patch(request, stored, json_patches.JSON, change).object
    except StatusError as error:
        if error.code != 422:
            raise
        return stored


@settings(deadline=None, max_examples=examples(100))
@given(st.lists(STATUSES, min_size=4, max_size=4))
def test_any_status_of_a_client_is_replaced_and_raises_nothing(statuses: list[object]) -> None:
    world = World()
    keys = [world.send(each) for each in (broker(), trigger(), channel(), subscription())]
    world.settle()
    for key, status in zip(keys, statuses, strict=True):
        world.objects[key] = with_status(world.objects[key], key, status)
    world.settle()
    assert [world.ready(key)[0] for key in keys] == ["True"] * 4


@settings(deadline=None, max_examples=examples(100))
@given(STATUSES, STATUSES)
def test_events_are_made_of_any_two_statuses(before: object, after: object) -> None:
    """Also of statuses that an earlier build stored without a check."""
    for object_event in events.of_change({"status": before}, {**trigger(), "status": after}):
        made = events.event(object_event, {"count": before, "metadata": after}, NOW_MS, "uid")
        assert made["type"] in {"Normal", "Warning"}
        assert made["reason"]


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Here]:
    async with here_at(tmp_path) as made:
        yield made


BAD_CONDITIONS: tuple[Mapping[str, str], ...] = (
    {"type": "Ready", "status": "Unknown"},
    {"type": "Ready", "status": "False"},
    {"type": "Ready", "status": "nonsense"},
    {"type": "Ready", "status": ""},
)


@pytest.mark.parametrize("condition", BAD_CONDITIONS)
async def test_the_controller_goes_on_after_a_status_of_a_client(
    here: Here, condition: Mapping[str, str]
) -> None:
    with capture_logs() as logs:
        async with here.controller() as controller:
            key = await here.send(broker())
            stored = await here.ready(key)
            patched = with_status(stored, key, {"conditions": [condition]})
            assert patched != stored
            await here.store.resources.write(key, patched, expected_version=None)
            await here.ready(key)
            await here.ready(await here.send(broker("other"), "elsewhere"))
            await controller.settled()
    assert not [each for each in logs if each["log_level"] in {"warning", "error"}]


def test_the_time_of_transition_is_a_time() -> None:
    """One condition with another text as its time would break `kubectl get` of the whole list."""
    world = World()
    key = world.send(broker())
    world.settle()
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": "never"}]
    world.objects[key] = put(world.objects[key], ("status", "conditions"), conditions)
    world.settle()
    assert is_ready(world.objects[key])
    assert "never" not in str(world.objects[key])
