"""Ending a durable subscription over AMQP alone. Spec: AMQP 2.6.3."""

import pytest

from amqp_streams import names
from amqp_streams.errors import StorageError
from amqp_streams.streams.attach import AttachRequest, Closed, Denied, Ended, Kept, Pending
from tests.amqp_streams.node.bench import Bench, attach, member


@pytest.fixture
def bench() -> Bench:
    return Bench()


def durable() -> AttachRequest:
    return attach(consumer=True, link="s", durable=True)


def unsubscribe(link: str = "s") -> AttachRequest:
    return attach(None, consumer=True, no_source=True, link=link)


def test_a_receiver_without_a_source_learns_what_is_kept_and_closing_it_ends_that(bench: Bench) -> None:
    """2.6.3: a link is resumed by its name. A client that ends a durable subscription attaches in this way,
    and closes the answered link.
    """
    bench.detach(bench.consume(durable()))
    kept = bench.attach(unsubscribe())
    assert isinstance(kept, Kept)
    assert kept.address == "temps"
    bench.detach(kept)
    assert isinstance(bench.attach(unsubscribe()), Kept), "a connection that was lost ends nothing"
    kept = bench.attach(unsubscribe())
    bench.detach(kept, closed=True)
    assert bench.refusal(unsubscribe()).condition == names.NOT_FOUND
    assert bench.store.states.items("") == []
    bench.append(0)
    assert bench.read(bench.consume(durable())) == []


def test_unsubscribing_ends_the_link_that_is_still_there(bench: Bench) -> None:
    consumer = bench.consume(durable())
    kept = bench.attach(unsubscribe())
    assert [each.grant for each in bench.node.take_effects() if isinstance(each, Closed)] == [consumer]
    bench.detach(kept, closed=True)
    bench.detach(kept, closed=True)
    bench.settle(consumer, (0, 0))
    bench.flush()
    assert bench.store.states.items("") == []


def test_a_receiver_without_a_source_and_without_a_cursor_is_refused(bench: Bench) -> None:
    assert bench.refusal(unsubscribe()).condition == names.NOT_FOUND
    assert (
        bench.refusal(attach(None, consumer=True, no_source=True, container="")).condition
        == names.INVALID_FIELD
    )
    bench.consume(member(durable=True, partition=0, link="s"))
    assert bench.refusal(unsubscribe()).condition == names.NOT_FOUND, "a group's cursor is the group's"


def test_closing_a_receiver_without_a_source_is_well_when_its_cursor_was_removed_meanwhile(
    bench: Bench,
) -> None:
    bench.detach(bench.consume(durable()))
    kept = bench.attach(unsubscribe())
    log = bench.store.logs["temps"]
    cursors = bench.node._consumers.cursors
    cursors.remove(cursors.of_log(log))
    bench.detach(kept, closed=True)
    assert bench.refusal(unsubscribe()).condition == names.NOT_FOUND


def test_the_end_of_a_subscription_is_reported_when_it_is_on_the_disk(bench: Bench) -> None:
    """A client that has the answer must not find the cursor again after a crash."""
    bench.detach(bench.consume(durable()))
    bench.complete()
    kept = bench.attach(unsubscribe())
    assert isinstance(kept, Kept)
    assert bench.detach(kept, closed=True) == [], "the deletion is in flight"
    assert bench.complete() == [Ended(kept, None)]
    bench.restart()
    assert bench.refusal(unsubscribe()).condition == names.NOT_FOUND


def test_the_end_of_a_subscription_that_is_not_on_the_disk_is_an_error(bench: Bench) -> None:
    bench.detach(bench.consume(durable()))
    bench.complete()
    kept = bench.attach(unsubscribe())
    bench.detach(kept, closed=True)
    (ended,) = bench.complete(StorageError("the disk is gone"))
    assert isinstance(ended, Ended)
    assert ended.error is not None
    assert (ended.error.condition, ended.error.description) == (names.INTERNAL_ERROR, "the disk is gone")
    again = bench.attach(unsubscribe())
    assert isinstance(again, Pending), "the disk may still have the cursor"
    (denied,) = bench.complete(StorageError("the disk is gone"))
    assert isinstance(denied, Denied)
    assert denied.error.condition == names.INTERNAL_ERROR
    assert bench.refusal(unsubscribe()).condition == names.NOT_FOUND
    bench.restart()
    assert bench.refusal(unsubscribe()).condition == names.NOT_FOUND


def test_a_client_that_asks_for_its_cursor_while_the_deletion_is_in_flight_waits(bench: Bench) -> None:
    bench.detach(bench.consume(durable()))
    bench.complete()
    bench.detach(bench.attach(unsubscribe()), closed=True)
    waiting = bench.attach(unsubscribe())
    assert isinstance(waiting, Pending)
    gone = bench.attach(unsubscribe())
    assert bench.detach(gone) == []
    ended, denied, _ = bench.complete()
    assert (type(ended), type(denied)) == (Ended, Denied)
    assert isinstance(bench.consume(durable()).request, AttachRequest), "the subscription begins again"


def test_closing_a_receiver_without_a_source_twice_ends_it_once(bench: Bench) -> None:
    bench.detach(bench.consume(durable()))
    kept = bench.attach(unsubscribe())
    bench.detach(kept, closed=True)
    bench.detach(kept, closed=True)
    assert [type(each) for each in bench.complete()] == [Ended]
