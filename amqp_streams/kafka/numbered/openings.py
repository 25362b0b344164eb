"""An attach that waits until its producer is open."""

from collections.abc import Callable
from typing import Final

from amqp_streams.errors import PeerError, StorageError
from amqp_streams.kafka.numbered.records import ProducerKey
from amqp_streams.storage.ports import ReadRequest


class Opening:
    """See `PendingRead`. `home`: for a producer that is not known yet.

    `on_cancelled`: called if the client leaves before the producer is open.
    """

    def __init__(
        self,
        key: ProducerKey,
        home: int,
        request: ReadRequest,
        on_cancelled: Callable[["Opening"], None],
    ) -> None:
        self.key: Final = key
        self.home: Final = home
        self.ended = False
        self.error: StorageError | PeerError | None = None
        self._request: Final = request
        self._on_cancelled: Final = on_cancelled
        self._cancelled = False

    def cancel(self) -> None:
        """See `PendingRead.cancel`."""
        self._cancelled = True
        if not self.ended:
            self._on_cancelled(self)

    def end(self, error: StorageError | PeerError | None) -> None:
        """The producer is open, or why it is not."""
        self.ended, self.error = True, error
        if not self._cancelled:
            self._request.ready()
