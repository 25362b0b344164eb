"""A backup is not faster than its rate, and does not make up for pauses."""

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.storage.backups.pace import Pace

MIB = 1 << 20


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now += seconds


@given(st.lists(st.tuples(st.integers(0, MIB), st.floats(0, 3)), max_size=30))
def test_the_rate_holds_in_every_stretch_of_time(work: list[tuple[int, float]]) -> None:
    clock = Clock()
    pace = Pace(MIB, clock=clock, sleep=clock.sleep)
    times, done = [0.0], [0]
    for count, busy in work:
        clock.now += busy
        pace(count)
        times.append(clock.now)
        done.append(done[-1] + count)
    for first in range(len(times)):
        for last in range(first, len(times)):
            allowed = (times[last] - times[first] + 0.1) * MIB + MIB
            assert done[last] - done[first] <= allowed + 1


def test_without_a_rate_nothing_waits() -> None:
    clock = Clock()
    pace = Pace(None, clock=clock, sleep=clock.sleep)
    pace(1 << 40)
    assert clock.now == 0
