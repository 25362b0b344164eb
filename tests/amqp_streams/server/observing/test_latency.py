"""Percentiles of recent commits."""

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.server.observing.latency import COMMITS_MAX, RECENT_MS, Latencies


@given(st.lists(st.floats(0, 100), min_size=1, max_size=50))
def test_percentiles_are_values_of_the_sample_in_order(times: list[float]) -> None:
    kept = Latencies()
    for seconds in times:
        kept.add(0, seconds)
    found = kept.recent(0)
    assert found is not None
    assert found.commits == len(times)
    assert found.p50_s in times
    assert found.p50_s <= found.p99_s <= found.max_s == max(times)
    assert sum(each < found.p50_s for each in times) <= len(times) / 2


def test_only_recent_commits_count() -> None:
    kept = Latencies()
    assert kept.recent(0) is None
    kept.add(0, 9.0)
    kept.add(RECENT_MS, 1.0)
    found = kept.recent(RECENT_MS + 1)
    assert found is not None
    assert (found.commits, found.max_s) == (1, 1.0)
    for _ in range(2 * COMMITS_MAX):
        kept.add(RECENT_MS, 2.0)
    found = kept.recent(RECENT_MS)
    assert found is not None
    assert (found.commits, found.p50_s) == (COMMITS_MAX, 2.0)
