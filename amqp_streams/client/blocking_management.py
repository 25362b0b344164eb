"""The blocking face of `$management`: the calls of `amqp_streams.client.management` without `await`."""

from collections.abc import Mapping
from typing import Final

from amqp_streams.client import aio
from amqp_streams.client.background import Background
from amqp_streams.client.info import LogInfo, LogSummary


class Management:
    """See `amqp_streams.client.management.Management`."""

    def __init__(self, thread: Background, inner: aio.Management) -> None:
        self._thread: Final = thread
        self._inner: Final = inner

    def create_log(
        self,
        name: str,
        *,
        partitions: int = 1,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        segment_bytes: int | None = None,
        segment_ms: int | None = None,
        timeout: float | None = 30.0,
    ) -> LogInfo:
        """Make a log; durable when this returns. None: the server's default."""
        return self._thread.call(
            self._inner.create_log(
                name,
                partitions=partitions,
                retention_ms=retention_ms,
                retention_bytes=retention_bytes,
                segment_bytes=segment_bytes,
                segment_ms=segment_ms,
                timeout=timeout,
            )
        )

    def list_logs(self, *, timeout: float | None = 30.0) -> list[LogSummary]:
        """All logs, by name."""
        return self._thread.call(self._inner.list_logs(timeout=timeout))

    def describe_log(self, name: str, *, timeout: float | None = 30.0) -> LogInfo:
        """Settings and figures of one log."""
        return self._thread.call(self._inner.describe_log(name, timeout=timeout))

    def update_log(self, name: str, settings: Mapping[str, int | None], *, timeout: float | None = 30.0) -> LogInfo:
        """Change settings: keys `retention-ms`, `retention-bytes`, …; None takes a bound away."""
        return self._thread.call(self._inner.update_log(name, settings, timeout=timeout))

    def delete_log(self, name: str, *, timeout: float | None = 30.0) -> None:
        """Delete a log and its events."""
        self._thread.call(self._inner.delete_log(name, timeout=timeout))
