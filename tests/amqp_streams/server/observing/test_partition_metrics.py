"""Figures of partitions, in parts that are the same together as one family."""

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.server.observing.partition_metrics import PREFIX, SAMPLES_A_PART, partition_metrics
from amqp_streams.server.observing.status import LogStatus
from amqp_streams.storage.ports import PartitionFacts


def log(name: str, partitions: int, first_ms: int | None) -> LogStatus:
    facts = PartitionFacts(3, 8, 99, first_ms, first_ms, None)
    return LogStatus(name, (facts,) * partitions, 0, 0, 0, 0)


@given(
    st.lists(st.tuples(st.integers(0, 3 * SAMPLES_A_PART), st.none() | st.integers(0, 1 << 40)), max_size=4)
)
def test_the_parts_of_a_family_follow_each_other_are_short_and_have_each_partition_once(
    wanted: list[tuple[int, int | None]],
) -> None:
    logs = [log(f"log-{number}", *each) for number, each in enumerate(wanted)]
    seen: dict[str, list[tuple[str, str]]] = defaultdict(list)
    names: list[str] = []
    for part in partition_metrics(logs):
        assert len(part.samples) <= SAMPLES_A_PART
        if part.name not in names[-1:]:
            assert part.name not in names
            names.append(part.name)
        seen[part.name] += [(each.labels["log"], each.labels["partition"]) for each in part.samples]
    every = [(each.name, str(index)) for each in logs for index in range(len(each.partitions))]
    timed = {each.name for each in logs for facts in each.partitions if facts.first_timestamp_ms is not None}
    assert seen[f"{PREFIX}partition_events"] == every
    assert seen[f"{PREFIX}partition_first_timestamp_seconds"] == [each for each in every if each[0] in timed]
    assert len(names) == 7
