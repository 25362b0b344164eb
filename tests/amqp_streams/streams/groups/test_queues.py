"""Long queues of attaches: what one change of a group costs."""

import sys
from collections.abc import Callable

import pytest

from amqp_streams.streams.groups.ownership import GroupLink, Ownership
from tests.amqp_streams.streams.groups.claiming import any_of, ownership


def calls_of(work: Callable[[], object]) -> int:
    """How many functions are called, those in C included."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def queue_of(length: int) -> tuple[Ownership, GroupLink, list[GroupLink]]:
    """A group with one partition, its owner, and a queue of links of other members."""
    owned = ownership(1, waiting_max=length)
    owner, _ = owned.claim(any_of("owner"), 0)
    return owned, owner, [owned.claim(any_of(f"m{number}"), 0)[0] for number in range(length)]


def end_queue(length: int) -> int:
    owned, _, queue = queue_of(length)
    return calls_of(lambda: [owned.release(link, 1) for link in queue])


def pass_through_queue(length: int) -> int:
    """Each link gets the partition and ends at once, as links do that are refused for another reason."""
    owned, owner, queue = queue_of(length)
    return calls_of(lambda: [owned.release(link, 1) for link in (owner, *queue)])


@pytest.mark.parametrize("work", [end_queue, pass_through_queue])
def test_the_work_for_a_long_queue_grows_with_its_length_and_not_with_the_square(
    work: Callable[[int], int],
) -> None:
    assert work(400) < 5 * work(100)
