"""Readers of a log, and what they read, as positions."""

from amqp_streams.filters import Compiled, compile_filters
from amqp_streams.storage.ports import StoredLog
from amqp_streams.streams.consuming.reader import Later, Passed, Reader, Run
from amqp_streams.wire.types import Described, Symbol

Position = tuple[int, int]


def sql(text: str) -> Compiled:
    return compile_filters({"sql": Described(Symbol("amqp:sql-filter"), text)})


def from_start(log: StoredLog, filters: Compiled | None = None) -> Reader:
    return Reader([(partition, 0) for partition in log.partitions], filters)


def run_of(taken: Run | Passed | Later | None) -> Run:
    assert isinstance(taken, Run)
    return taken


def positions(run: Run) -> list[Position]:
    return [(run.partition.index, run.first + index) for index in range(run.count)]


def read(reader: Reader, count_max: int) -> list[Position]:
    """All that there is, in runs of at most `count_max`."""
    got: list[Position] = []
    while run := reader.take(count_max):
        if isinstance(run, Run):
            assert 1 <= run.count <= count_max
            got += positions(run)
    return got
