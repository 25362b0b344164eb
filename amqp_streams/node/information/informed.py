"""A short-lived cache of `<address>/$info` answers: links that ask at the same time share one.

Spec: Event Streams 6.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from amqp_streams.storage.ports import StoredLog
from amqp_streams.streams import info
from amqp_streams.streams.redirects import Redirected

KEPT_MS: Final = 200
"""An answer is not reused after this time, even if nothing changed."""
ANSWERS_MAX: Final = 16
"""The most cached answers; one takes up to some 200 KB."""


@dataclass(frozen=True, slots=True)
class _Kept:
    log: StoredLog
    elsewhere: Redirected
    mark: int
    until_ms: int
    message: bytes


class Informed:
    """The cached answers of logs."""

    def __init__(self, sync: str) -> None:
        self._sync: Final = sync
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def message(self, log: StoredLog, elsewhere: Redirected, now_ms: int) -> bytes:
        """The answer about a log, with all accepted events. `now_ms`: a monotonic clock."""
        # Starts and ends never decrease, so the sum differs after each change of the log.
        mark = sum([partition.start + partition.end for partition in log.partitions])
        kept = self._kept.get(log.name)
        if (
            kept
            and kept.log is log
            and kept.mark == mark
            and kept.elsewhere == elsewhere
            and now_ms < kept.until_ms
        ):
            return kept.message
        message = info.value_message(info.log_info(log, self._sync, elsewhere))
        self._kept[log.name] = _Kept(log, elsewhere, mark, now_ms + KEPT_MS, message)
        # The least recently computed answer is the first to go.
        self._kept.move_to_end(log.name)
        if len(self._kept) > ANSWERS_MAX:
            self._kept.popitem(last=False)
        return message

    def forget(self) -> None:
        """A partition failed: compute the next answers again."""
        self._kept.clear()
