"""Sends batches that a program has encoded itself, for example from columns. See docs/batched-sends.md."""

from collections.abc import Sequence

from amqp_streams import names
from amqp_streams.client.connection.endpoint import Endpoint
from amqp_streams.client.errors import LinkRefusedError
from amqp_streams.client.producing.batching import Batching
from amqp_streams.client.producing.lingering import Linger
from amqp_streams.client.producing.outbox import Entry, Outbox


class EncodedSends(Endpoint):
    """The part of a producer that takes whole batches. Each batch is one event of the outbox."""

    _outbox: Outbox
    _batching: Batching
    _linger: Linger

    @property
    def batch_events(self) -> int:
        """The most events of a batch on the current link; 0: the node does not take batches, or no link."""
        return self._batching.events_max

    def post_encoded(self, batches: Sequence[bytes]) -> None:
        """Send batches, as `raw.encoded_batch` makes them, without waiting: the caller bounds their number.

        `flush` waits for the outcomes. A refused batch fails as a whole. Events of a producer with an id
        contain their numbers (`raw.SEQUENCE_FRONT`).

        Raises:
            LinkRefusedError: the node does not take batches, or no link is attached. What stopped the
                producer.
        """
        self._check()
        if not self.batch_events:
            raise LinkRefusedError(names.NOT_IMPLEMENTED, "the node does not take batches")
        self._outbox.add([Entry(batch, batch, names.BATCH_MESSAGE_FORMAT) for batch in batches])
        self._linger.added()
