"""Lost records are found after looks at Kafka: with answers of new leaders that the test gives."""

from collections.abc import Iterator, Mapping

import pytest

from amqp_streams.errors import StorageError
from amqp_streams.kafka.brokers.administration import Extent
from amqp_streams.kafka.brokers.comparing import Mark
from amqp_streams.kafka.brokers.jobs import Jobs
from amqp_streams.kafka.brokers.taking import Place
from amqp_streams.kafka.losses import Losses
from amqp_streams.testing import ManualLoop

FIRST, SECOND = Place("t", 0), Place("t", 1)


class Leaders:
    """What the new leaders answer."""

    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.jobs = Jobs(self.loop.call)
        self.answers: list[Mapping[Place, int | None] | StorageError] = []
        self.asked: list[Mapping[Place, Mark]] = []
        self.lost: list[tuple[Place, int]] = []
        self.losses = Losses(self.jobs, self.compare, lambda place, first: self.lost.append((place, first)))

    def compare(self, marks: Mapping[Place, Mark]) -> Mapping[Place, int | None]:
        self.asked.append(marks)
        answer = self.answers.pop(0)
        if isinstance(answer, StorageError):
            raise answer
        return answer

    def look(self, epoch: int, end: int) -> None:
        found = {place: Extent(0, end, epoch) for place in (FIRST, SECOND)}
        self.losses.looked(found, dict.fromkeys(found, end), {})


@pytest.fixture
def leaders() -> Iterator[Leaders]:
    leaders = Leaders()
    yield leaders
    leaders.jobs.close()


def test_each_partition_that_lost_records_is_named_once(leaders: Leaders) -> None:
    leaders.answers = [{FIRST: 7, SECOND: None}]
    leaders.look(5, 10)
    leaders.look(6, 12)
    leaders.loop.run_until(lambda: bool(leaders.lost))
    leaders.look(6, 13)
    assert leaders.lost == [(FIRST, 7)]
    assert leaders.asked == [{FIRST: Mark(10, 5), SECOND: Mark(10, 5)}]


def test_a_loss_that_is_known_is_not_looked_for_again(leaders: Leaders) -> None:
    """The end of a partition that is read shows a loss before the look does."""
    leaders.answers = [{FIRST: 7, SECOND: 7}]
    leaders.look(5, 10)
    leaders.look(6, 8)
    leaders.losses.forget(FIRST)
    leaders.loop.run_until(lambda: bool(leaders.lost))
    assert leaders.lost == [(SECOND, 7)]
    leaders.look(6, 9)
    assert len(leaders.asked) == 1


def test_leaders_that_did_not_answer_are_asked_again_at_the_next_look(leaders: Leaders) -> None:
    leaders.answers = [StorageError("away"), {FIRST: None}, {SECOND: 3}]
    leaders.look(5, 10)
    for _ in range(3):
        leaders.look(6, 12)
        # While Kafka is asked, looks ask nothing.
        leaders.look(6, 12)
        leaders.loop.run_until(lambda: leaders.losses._request.pending is None)
    assert leaders.lost == [(SECOND, 3)]
    assert leaders.asked[1:] == [{FIRST: Mark(10, 5), SECOND: Mark(10, 5)}, {SECOND: Mark(10, 5)}]
