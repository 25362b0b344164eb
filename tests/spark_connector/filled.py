"""Logs with numbers, and the contents of logs, through the engine's own client, for tests of whole
programs.
"""

from collections import Counter
from collections.abc import Sequence

from amqp_streams.client import EARLIEST, Event
from amqp_streams.client.blocking import connect


def fill(url: str, log: str, numbers: Sequence[int], *, partitions: int = 4) -> None:
    """Create a log with these numbers as bodies, distributed to its partitions round-robin."""
    with connect(url) as client:
        client.management.create_log(log, partitions=partitions)
        with client.producer(log) as producer:
            producer.post_batch([Event(str(number).encode()) for number in numbers])
            producer.flush()


def bodies(url: str, log: str) -> Counter[bytes]:
    """Return how often each body is in a log."""
    found: Counter[bytes] = Counter()
    with connect(url) as client, client.consumer(log, start=EARLIEST) as consumer:
        while batch := consumer.receive_retained():
            found.update(event.body for event in batch if isinstance(event.body, bytes))
    return found
