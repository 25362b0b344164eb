"""The rules for status, each with its document and section: what the controller must report."""

import pytest

from knative_gateway.resources.objects import Object, at, entries
from tests.knative_gateway.controller.world import World, broker, channel, ref, subscription, trigger

KINDS = {
    "Broker": broker(),
    "Trigger": trigger(),
    "Channel": channel(),
    "InMemoryChannel": channel("i", kind="InMemoryChannel"),
    "Subscription": subscription(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_observations_and_conditions_are_one_write(kind: str) -> None:
    """test-spec, Broker, Trigger, Channel, Subscription, Status: if observedGeneration is updated, conditions
    MUST be, in the same transaction.

    Every write of status that is of a new generation has the conditions of that generation: here a sink that
    leads nowhere.
    """
    world = World()
    keys = {each: world.send(object_) for each, object_ in KINDS.items()}
    world.settle()
    key = keys[kind]
    assert world.ready(key)[0] == "True"
    generation = at(world.objects[key], "metadata", "generation")
    world.patch(key, {"spec": {"delivery": {"deadLetterSink": ref("none")}}})
    writes = [plan.writes[key] for plan in [world.step() for _ in range(4)] if key in plan.writes]
    observed = [write for write in writes if at(write, "status", "observedGeneration") != generation]
    assert observed
    for write in observed:
        assert at(write, "status", "observedGeneration") == at(write, "metadata", "generation")
        assert _ready(write) == "False"


@pytest.mark.parametrize("kind", KINDS)
def test_an_older_generation_s_conditions_are_never_shown_for_a_new_one(kind: str) -> None:
    """test-spec, Detailed Resources, Status: until it is reconciled, observedGeneration is that of the
    conditions shown.
    """
    world = World()
    keys = {each: world.send(object_) for each, object_ in KINDS.items()}
    world.settle()
    key = keys[kind]
    before = world.status(key)
    world.patch(key, {"spec": {"delivery": {"retry": 1}}})
    assert world.status(key) == before
    assert world.status(key)["observedGeneration"] != at(world.objects[key], "metadata", "generation")


def _ready(object_: Object) -> object:
    (found,) = (each for each in entries(object_, "status", "conditions") if at(each, "type") == "Ready")
    return at(found, "status")
