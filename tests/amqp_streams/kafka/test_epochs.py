"""Which marks of leaders are compared with the leaders after them, and what a comparison means."""

import pytest

from amqp_streams.kafka.brokers.administration import Extent
from amqp_streams.kafka.brokers.comparing import Mark
from amqp_streams.kafka.brokers.taking import Place
from amqp_streams.kafka.epochs import Marks

PLACE = Place("t", 0)


def look(
    marks: Marks, end: int, epoch: int, known: int = 0, *, written: int | None = None
) -> dict[Place, Mark]:
    ends = {} if written is None else {PLACE: written}
    return marks.look({PLACE: Extent(0, end, epoch)}, {PLACE: known}, ends)


def test_an_end_that_falls_without_an_election_means_nothing() -> None:
    """The answer may be older than what the node knows by now."""
    marks = Marks()
    assert look(marks, 10, 5) == {}
    assert look(marks, 8, 5, known=10) == {}
    assert look(marks, 10, 6) == {PLACE: Mark(10, 5)}


def test_what_a_leader_of_an_earlier_epoch_says_means_nothing() -> None:
    marks = Marks()
    look(marks, 10, 5)
    assert look(marks, 3, 4, known=10) == {}
    assert look(marks, 3, -1, known=10) == {}


def test_a_mark_is_compared_until_a_leader_has_answered() -> None:
    marks = Marks()
    look(marks, 10, 5)
    assert look(marks, 10, 6) == look(marks, 12, 7) == {PLACE: Mark(10, 5)}
    [mark] = look(marks, 12, 7).values()
    assert marks.compared(PLACE, mark, None) is None
    # From here on the mark is that of the new leader.
    assert look(marks, 11, 8) == {PLACE: Mark(12, 7)}


@pytest.mark.parametrize("known", [10, 12])
def test_a_leader_that_lacks_records_names_the_first_one(known: int) -> None:
    marks = Marks()
    look(marks, 10, 5)
    [mark] = look(marks, 8, 6, known=known).values()
    assert marks.compared(PLACE, mark, 7) == 7
    assert look(marks, 9, 6, known=8) == {}


def test_an_end_below_what_was_known_is_a_loss_although_the_leader_has_the_mark() -> None:
    """Records that were accepted after the last look of the epoch are lost."""
    marks = Marks()
    look(marks, 10, 5)
    [mark] = look(marks, 11, 6, known=15).values()
    assert marks.compared(PLACE, mark, None) == 10


def test_what_a_transaction_holds_back_is_no_loss() -> None:
    """Events behind an open transaction are accepted, and cannot be read before it ends."""
    marks = Marks()
    look(marks, 10, 5)
    [mark] = look(marks, 10, 6, known=15, written=16).values()
    assert marks.compared(PLACE, mark, None) is None
    [mark] = look(marks, 10, 7, known=16, written=14).values()
    assert marks.compared(PLACE, mark, None) == 10


def test_a_number_that_is_given_again_is_a_loss_although_the_end_is_greater() -> None:
    marks = Marks()
    look(marks, 10, 5)
    marks.fell(PLACE)
    [mark] = look(marks, 99, 6, known=15).values()
    assert marks.compared(PLACE, mark, None) == 10
    # Once only.
    [mark] = look(marks, 100, 7, known=100).values()
    assert marks.compared(PLACE, mark, None) is None


def test_a_comparison_with_a_topic_that_is_gone_means_nothing() -> None:
    marks = Marks()
    look(marks, 10, 5)
    [mark] = look(marks, 0, 6).values()
    marks.forget(PLACE)
    look(marks, 0, 0)
    assert marks.compared(PLACE, mark, 0) is None
    # A comparison that was made twice, too.
    [again] = look(marks, 0, 1).values()
    assert marks.compared(PLACE, again, 0) == 0
    assert marks.compared(PLACE, again, 0) is None


def test_a_partition_that_was_not_known_has_no_mark() -> None:
    """Another topic may have its place by now."""
    marks = Marks()
    assert marks.look({PLACE: Extent(0, 10, 5)}, {}, {}) == {}
    look(marks, 3, 6)
    assert look(marks, 3, 7) == {PLACE: Mark(3, 6)}
