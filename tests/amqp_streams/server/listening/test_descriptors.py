"""The limit of open files is raised in a process of its own; what connections may take of it is arithmetic."""

import subprocess
import sys

import pytest

from amqp_streams.server.listening.descriptors import KEPT, connections_possible

_PROGRAM = """
import resource
from amqp_streams.server.listening.descriptors import raise_descriptors
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 900))
print(raise_descriptors(500), raise_descriptors(400), raise_descriptors(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_the_limit_is_raised_as_far_as_the_system_allows_and_never_lowered() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["500", "500", "900", "900", "900"]


@pytest.mark.parametrize(
    ("descriptors", "partitions", "possible"),
    [(1 << 16, 100, 10_000), (1 << 16, 10_000, 10_000), (4096, 100, 4096 - KEPT - 200), (1024, 100, 512), (100, 10, 50)],
)
def test_connections_leave_descriptors_for_the_store_and_the_probes(descriptors: int, partitions: int, possible: int) -> None:
    assert connections_possible(10_000, descriptors=descriptors, partitions=partitions) == possible
