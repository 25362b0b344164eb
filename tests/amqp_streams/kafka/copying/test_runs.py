"""Each record keeps one offset in Kafka, and each position leads to the first record that it means."""

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.kafka.copying.runs import Run, Runs

STEPS = st.lists(st.integers(1, 4), min_size=1, max_size=40)


@given(STEPS, STEPS, st.lists(st.integers(1, 9), min_size=1, max_size=40))
def test_every_number_leads_to_its_offset(olds: list[int], news: list[int], sizes: list[int]) -> None:
    """Whatever the gaps on either side, and however the records come."""
    count = min(len(olds), len(news))
    numbers = [sum(olds[: index + 1]) for index in range(count)]
    offsets = [sum(news[: index + 1]) for index in range(count)]
    runs, at = Runs(), 0
    while at < count:
        # What is added follows each other in the log.
        end = at + 1
        while end < count and numbers[end] == numbers[end - 1] + 1 and end - at < sizes[at % len(sizes)]:
            end += 1
        runs.add(numbers[at], offsets[at:end])
        at = end
    after = offsets[-1] + 7
    assert runs.count == count
    for number in range(numbers[-1] + 3):
        wanted = next((offset for old, offset in zip(numbers, offsets, strict=True) if old >= number), after)
        assert runs.new_of(number, after) == wanted
    pairs = [(run.old + index, run.new + index) for run in runs for index in range(run.records)]
    assert pairs == list(zip(numbers, offsets, strict=True))


def test_records_that_follow_each_other_on_both_sides_are_one_run() -> None:
    runs = Runs()
    runs.add(5, [0, 1, 2])
    runs.add(8, [3, 5, 6])
    assert list(runs) == [Run(5, 0, 4), Run(9, 5, 2)]
    assert [runs.new_of(number, 8) for number in (0, 5, 8, 9, 10, 11)] == [0, 0, 3, 5, 6, 8]
    assert Runs().new_of(3, 0) == 0
