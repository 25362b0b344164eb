"""[io] Retention of one partition: write old records to a segment, close it, drop it, in this order."""

from amqp_streams.config import LogSettings
from amqp_streams.storage.commits.flushing import Flusher
from amqp_streams.storage.partitions.partition_log import PartitionLog
from amqp_streams.storage.plans.retention import AHEAD_MS, expired
from amqp_streams.storage.removing import Removal


def has_retention(settings: LogSettings) -> bool:
    """Whether a log with these settings may lose events."""
    return settings.retention_ms is not None or settings.retention_bytes is not None


def retain(partition: PartitionLog, flusher: Flusher, now_ms: int) -> Removal | None:
    """Drop what is past retention; returns what to remove."""
    segments, settings = partition.segments, partition.settings
    # A stopped partition keeps its files for a repair. A write in flight changes the list of segments.
    if not partition.writable or partition.busy:
        return None
    if segments.active_is_due(now_ms, settings.segment_ms):
        flusher.seal(partition)
    else:
        _flush_aged(partition, flusher, now_ms)
    count = expired(
        segments.closed(now_ms),
        total_bytes=segments.bytes,
        now_ms=now_ms,
        retention_ms=settings.retention_ms,
        retention_bytes=settings.retention_bytes,
    )
    count = flusher.spare_producers(partition, count)
    if not count:
        return None
    dropped = segments.drop(count)
    partition.start = segments.row[0].base
    flusher.forget(partition, partition.start)
    paths = [path for segment in dropped for path in segment.files]
    paths += [segment.index_path for segment in dropped]
    return Removal(partition.start, paths)


def _flush_aged(partition: PartitionLog, flusher: Flusher, now_ms: int) -> None:
    """Write records to a segment that are in memory too long, or that have timestamps in the future.

    Too long: longer than a segment may stay open. Retention removes only segments, so these records would
    never expire in memory.
    """
    oldest = next(iter(partition.unflushed()), None)
    if oldest and not -AHEAD_MS <= now_ms - oldest.timestamps[0] < partition.settings.segment_ms:
        flusher.flush(partition)
