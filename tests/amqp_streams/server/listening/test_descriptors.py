"""The share of the limit of open files that connections may use is computed."""

import pytest

from amqp_streams.server.listening.descriptors import KEPT, connections_possible


@pytest.mark.parametrize(
    ("descriptors", "partitions", "possible"),
    [
        (1 << 16, 100, 10_000),
        (1 << 16, 10_000, 10_000),
        (4096, 100, 4096 - KEPT - 200),
        (1024, 100, 512),
        (100, 10, 50),
    ],
)
def test_connections_leave_descriptors_for_the_store_and_the_probes(
    descriptors: int, partitions: int, possible: int
) -> None:
    assert connections_possible(10_000, descriptors=descriptors, partitions=partitions) == possible
