"""The extents of logs."""

import pytest

from spark_connector.planning.holdings import Held


def test_the_average_size_is_of_what_is_held() -> None:
    assert Held(10, 20, 1001).average_bytes == 101
    assert Held(10, 10, 0).average_bytes == 1
    assert Held(0, 5, 0).average_bytes == 1


def test_a_partition_that_ends_before_it_begins_cannot_be() -> None:
    with pytest.raises(AssertionError):
        Held(5, 4)
