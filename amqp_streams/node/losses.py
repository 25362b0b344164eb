"""What consumers get when durable records of a partition were lost: see `Others.on_truncated`.

Law: a link that has passed the first lost record is closed, and a link cannot be attached behind the end of
what is left. Otherwise new events, which get the offsets of the lost ones, would be skipped in silence.
"""

from collections.abc import Callable, Iterable, Iterator

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.storage.ports import Partition
from amqp_streams.streams.attach import Consuming, Grant


def passed(links: Iterable[Grant], partition: Partition, first: int) -> Iterator[tuple[Consuming, PeerError]]:
    """The links to close, with their errors. The others read again what they have in memory."""
    error = PeerError(
        names.RESOURCE_DELETED,
        f"the events of partition {partition.index} of log {partition.log!r} from offset {first} on were"
        f" lost, and new events get their offsets: read again from offset {first}",
    )
    for link in links:
        if isinstance(link, Consuming):
            if link.reader.positions.get(partition.index, 0) > first:
                yield link, error
            else:
                link.reader.forget_chunks()


def require_left(
    positions: Iterable[tuple[Partition, int]], gone: Callable[[Partition, int], str | None]
) -> None:
    """Refuse positions of lost records.

    Raises PeerError: amqp:resource-deleted.
    """
    for partition, position in positions:
        reason = gone(partition, position) if position > partition.end else None
        if reason is not None:
            raise PeerError(names.RESOURCE_DELETED, reason)
