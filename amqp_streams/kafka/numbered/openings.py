"""An attach that waits until its producer is open."""

from typing import Final

from amqp_streams.errors import PeerError, StorageError
from amqp_streams.kafka.numbered.records import ProducerKey
from amqp_streams.storage.ports import ReadRequest


class Opening:
    """See `PendingRead`. `home`: for a producer that is not known yet."""

    def __init__(self, key: ProducerKey, home: int, request: ReadRequest) -> None:
        self.key: Final = key
        self.home: Final = home
        self.ended = False
        self.error: StorageError | PeerError | None = None
        self._request: Final = request
        self._cancelled = False

    def cancel(self) -> None:
        """See `PendingRead.cancel`. The producer is opened nevertheless, and given up a moment later."""
        self._cancelled = True

    def end(self, error: StorageError | PeerError | None) -> None:
        """The producer is open, or why it is not."""
        self.ended, self.error = True, error
        if not self._cancelled:
            self._request.ready()
