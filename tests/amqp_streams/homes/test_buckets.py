"""A bucket is the same for all nodes and versions."""

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.homes.buckets import BUCKETS, bucket_of
from amqp_streams.streams.groups.claims import Claim


def test_the_buckets_of_known_names_do_not_change() -> None:
    """Their states are stored there: another number would lose cursors and epochs."""
    found = [bucket_of("log", Claim("group", None, None, "m"), "c", "l"), bucket_of("log", None, "c", "l")]
    assert found == [4, 3]


@given(group=st.text(), member=st.text(), partition=st.integers(0, 9), container=st.text(), link=st.text())
def test_all_links_of_a_group_are_in_one_bucket(
    group: str, member: str, partition: int, container: str, link: str
) -> None:
    of_group = bucket_of("log", Claim(group, None, None, ""), "", "")
    assert 0 <= of_group < BUCKETS
    assert bucket_of("log", Claim(group, partition, 7, member), container, link) == of_group


def test_names_do_not_run_into_each_other() -> None:
    buckets = {bucket_of("log", None, "a" * size, "b" * (40 - size)) for size in range(40)}
    assert len(buckets) > 8
