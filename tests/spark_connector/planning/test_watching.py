"""How often the connector asks the node."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from spark_connector.planning.holdings import Available
from spark_connector.planning.watching import Watch


class World:
    """A clock that only sleeping moves, and a node that counts questions."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.asked: list[float] = []
        self.news: Callable[[float], bool] = lambda now: False

    def ask(self) -> Available:
        self.asked.append(self.now)
        return {}

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds

    def watch(self, every_ms: int) -> Watch:
        return Watch(self.ask, every_ms, lambda: self.now, self.sleep)


@given(st.integers(210, 2000))
def test_an_idle_query_asks_fewer_than_five_times_a_second(every_ms: int) -> None:
    world = World()
    watch = world.watch(every_ms)
    for _ in range(50):
        assert watch.until(lambda _: None) is None
    assert (len(world.asked) - 1) / (world.now - 1000.0) < 5
    assert world.now - 1000.0 <= 50 * every_ms / 1000 + 0.001


def test_known_events_are_not_waited_for() -> None:
    world = World()
    watch = world.watch(250)
    watch.fresh()
    assert watch.until(lambda _: "an end") == "an end"
    assert (world.now, len(world.asked)) == (1000.0, 1)


def test_a_known_end_is_asked_for_again_later() -> None:
    world = World()
    watch = world.watch(250)
    watch.fresh()
    world.now += 0.3
    watch.until(lambda _: "an end")
    assert len(world.asked) == 2


def test_after_a_batch_no_reader_waits_and_after_an_empty_answer_every_reader_waits() -> None:
    world = World()
    watch = world.watch(250)
    watch.fresh()
    assert watch.until(lambda _: "an end") == "an end"
    assert watch.until(lambda _: None) is None
    assert (world.now, len(world.asked)) == (1000.0, 2)
    assert watch.until(lambda _: None) is None
    assert (world.now, len(world.asked)) == (1000.25, 3)
