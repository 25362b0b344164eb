"""The request of a link, and the answer that it gets."""

import pytest

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.storage.ports import StoredLog
from amqp_streams.streams.attach import (
    AttachRequest,
    Consuming,
    Grant,
    Informing,
    Managing,
    Producing,
    Relaying,
    Replying,
    answered_properties,
    named_partition,
    requested_partition,
)
from amqp_streams.streams.consuming.reader import Reader
from amqp_streams.wire.types import Symbol, Value


def request(**properties: Value) -> AttachRequest:
    return AttachRequest("link", "container", consumer=False, address="temps", properties=properties)


def consuming(log: StoredLog, *, bound: bool) -> Consuming:
    partitions = log.partitions[2:3] if bound else log.partitions
    return Consuming(request(), log, partitions, bound, Reader([]), {}, announce=not bound)


@pytest.mark.parametrize("wanted", [Symbol("2"), "2"])
def test_a_partition_is_asked_for_by_its_symbol(log: StoredLog, wanted: Value) -> None:
    """A string is accepted, too, because many clients send one."""
    assert requested_partition(request(**{names.PARTITION: wanted}), log) is log.partitions[2]


def test_a_request_without_a_partition_gets_none(log: StoredLog) -> None:
    assert requested_partition(request(other=7), log) is None
    assert requested_partition(request(**{names.PARTITION: None}), log) is None


@pytest.mark.parametrize("wanted", [2, b"2", ["2"], True])
def test_a_partition_of_the_wrong_type_is_an_invalid_field(log: StoredLog, wanted: Value) -> None:
    with pytest.raises(PeerError, match=names.PARTITION) as refused:
        requested_partition(request(**{names.PARTITION: wanted}), log)
    assert (refused.value.condition, refused.value.info) == (names.INVALID_FIELD, {"field": "properties"})


@pytest.mark.parametrize("name", ["4", "-1", "02", "", "two", "2 ", "٢", "9" * 500])
def test_a_partition_that_does_not_exist_is_not_found_and_the_error_says_which_do(
    log: StoredLog, name: str
) -> None:
    with pytest.raises(PeerError, match=r"0 to 3 \(see temps/\$info\)") as refused:
        named_partition(log, name)
    assert refused.value.condition == names.NOT_FOUND
    assert len(refused.value.description) < 300


def test_a_bound_link_learns_its_partition_and_an_agnostic_one_learns_none(log: StoredLog) -> None:
    """4.6.1: the property is the effective association. Without it, the link is agnostic."""
    bound = {names.PARTITION: Symbol("2")}
    assert answered_properties(Producing(log, log.partitions[2])) == bound
    assert answered_properties(consuming(log, bound=True)) == bound
    others: list[Grant] = [
        Producing(log, None),
        consuming(log, bound=False),
        Relaying(),
        Informing(log),
        Managing(),
        Replying(frozenset()),
    ]
    assert [answered_properties(grant) for grant in others] == [{}] * len(others)


def test_the_only_partition_of_a_log_is_not_a_binding(log: StoredLog) -> None:
    """A link that did not request a binding stays agnostic, even if that makes no difference with one
    partition.
    """
    one = Consuming(request(), log, log.partitions[:1], False, Reader([]), {}, announce=True)
    assert answered_properties(one) == {}
