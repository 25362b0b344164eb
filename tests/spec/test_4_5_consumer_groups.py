"""Section 4.5: consumer groups and epochs are not served yet, and nobody is left to believe that they are."""

import pytest

from amqp_streams import names
from amqp_streams.testing_amqp import EnginePair
from tests.spec.reading import bound


def test_a_link_with_a_consumer_group_is_refused(client: EnginePair) -> None:
    """4.5: "A consumer link MAY be bound to a consumer group". Not served yet: a member that believed itself the only reader of its
    partition would be wrong, so the attach is refused, amqp:not-implemented.
    """
    for properties in ({names.CONSUMER_GROUP: "g"}, bound(1) | {names.CONSUMER_GROUP: "g"}):
        assert client.receiver("temps", properties=properties).refused == names.NOT_IMPLEMENTED


def test_a_link_with_an_epoch_is_refused(client: EnginePair) -> None:
    """4.5.2: "Any subsequent attempt to attach a link to the same combination of partition and consumer group of an already active link
    MUST be rejected UNLESS the newly attaching receiver provides an epoch counter greater than the current". Not served yet.
    """
    assert client.receiver("temps", properties=bound(1) | {names.EPOCH: 1}).refused == names.NOT_IMPLEMENTED


@pytest.mark.parametrize("properties", [None, bound(1)])
def test_the_node_assigns_no_group_on_its_own(client: EnginePair, properties: dict[str, object] | None) -> None:
    """4.5: "The event log node MUST NOT assign a consumer group on its own." """
    answered = client.receiver("temps", properties=properties).link.remote_properties or {}
    assert names.CONSUMER_GROUP not in answered
    assert names.EPOCH not in answered
