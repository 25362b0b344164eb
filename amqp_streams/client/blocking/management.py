"""The blocking face of `$management`: the calls of `amqp_streams.client.management.calls` without `await`."""

from collections.abc import Mapping
from typing import Final, Unpack

from amqp_streams.client import aio
from amqp_streams.client.blocking.background import Background
from amqp_streams.client.management.info import LogInfo, LogSummary
from amqp_streams.client.management.places import CursorInfo, GroupInfo
from amqp_streams.client.options import StartAt
from amqp_streams.log_settings import LogSettingValues


class Management:
    """See `amqp_streams.client.management.calls.Management`."""

    def __init__(self, thread: Background, inner: aio.Management) -> None:
        self._thread: Final = thread
        self._inner: Final = inner

    def create_log(self, name: str, *, timeout: float | None = 30.0, **settings: Unpack[LogSettingValues]) -> LogInfo:
        """Create a log; durable when this returns. The settings are those of `amqp_streams.log_settings`."""
        return self._thread.call(self._inner.create_log(name, timeout=timeout, **settings))

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

    def list_cursors(self, log: str | None = None, *, timeout: float | None = 30.0) -> list[CursorInfo]:
        """The places kept in a log, or in all of them: those of subscriptions and of groups."""
        return self._thread.call(self._inner.list_cursors(log, timeout=timeout))

    def describe_cursor(self, log: str, cursor: str, *, timeout: float | None = 30.0) -> CursorInfo:
        """One of them, by its id."""
        return self._thread.call(self._inner.describe_cursor(log, cursor, timeout=timeout))

    def reset_cursor(self, log: str, cursor: str, to: StartAt, *, partition: str | None = None, timeout: float | None = 30.0) -> CursorInfo:
        """Move it in one partition or in all: the next event is the first after `to`. Refused (409) while a link uses it."""
        return self._thread.call(self._inner.reset_cursor(log, cursor, to, partition=partition, timeout=timeout))

    def delete_cursor(self, log: str, cursor: str, *, timeout: float | None = 30.0) -> None:
        """Forget it: whoever attaches with its name begins anew. Refused (409) while a link uses it."""
        self._thread.call(self._inner.delete_cursor(log, cursor, timeout=timeout))

    def list_groups(self, log: str | None = None, *, timeout: float | None = 30.0) -> list[GroupInfo]:
        """The consumer groups of a log, or of all."""
        return self._thread.call(self._inner.list_groups(log, timeout=timeout))

    def describe_group(self, log: str, group: str, *, timeout: float | None = 30.0) -> GroupInfo:
        """One of them: its place, epoch and owner in each partition."""
        return self._thread.call(self._inner.describe_group(log, group, timeout=timeout))

    def reset_group(self, log: str, group: str, to: StartAt, *, partition: str | None = None, timeout: float | None = 30.0) -> GroupInfo:
        """Move its place in one partition or in all: the next event is the first after `to`. Refused (409) while it has links."""
        return self._thread.call(self._inner.reset_group(log, group, to, partition=partition, timeout=timeout))

    def delete_group(self, log: str, group: str, *, timeout: float | None = 30.0) -> None:
        """Forget its place and its epochs. Refused (409) while it has links."""
        self._thread.call(self._inner.delete_group(log, group, timeout=timeout))
