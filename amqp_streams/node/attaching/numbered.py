"""The links of idempotent producers.

If several nodes share the logs, one node has a producer at a time: the store opens it before the attach is
decided, and says when another node has taken it over. Links of one producer at one node share it.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.node.lookups import Answering, asked
from amqp_streams.storage.ports import Partition, Store, StoredLog
from amqp_streams.storage.questions import OpenProducer
from amqp_streams.streams.attach import AttachRequest, Grant, Pending, Producing
from amqp_streams.streams.numbering import Numbering, home_of, producer_id, stored_id


class NumberedLinks:
    """Attaches and detaches them."""

    def __init__(self, store: Store, numbering: Numbering) -> None:
        self._store: Final = store
        self._numbering: Final = numbering

    def opening(self, request: AttachRequest, log: StoredLog) -> Answering[None]:
        """Let the store open the producer of this attach, if it has one, and only one node may have it.

        Raises:
            PeerError: its id is not valid, or too many producers are in use.
            StorageError: the store cannot open it now.
        """
        given = request.properties.get(names.PRODUCER_ID)
        wanted = given is not None and not request.consumer and log.refusal is None
        if self._store.others is None or not wanted:
            return
        name = producer_id(given)
        question = OpenProducer(log.name, stored_id(request.user, name), home_of(name, log))
        yield from asked(self._store, question, request.connection)

    def attached(self, request: AttachRequest, grant: Producing) -> None:
        """Make the grant that of an idempotent producer, if the attach asks for it.

        Raises:
            PeerError: the id of the producer is not valid, or missing.
            StorageError: the store failed.
        """
        given = request.properties.get(names.PRODUCER_ID)
        if given is None:
            if names.CAPABILITY_IDEMPOTENT_PRODUCER in request.capabilities:
                description = f"an idempotent producer needs an id in link property {names.PRODUCER_ID}"
                raise PeerError(names.INVALID_FIELD, description, {"field": "properties"})
            return
        name, others = producer_id(given), self._store.others
        if others is None:
            # Only now does the directory need the newer format: older versions refuse it.
            self._store.allow_numbers()
            grant.numbered = self._numbering.attach(grant.log, name, grant.partition, user=request.user)
            return
        grant.log, home = others.attached(grant.log, stored_id(request.user, name))
        if grant.partition is not None:
            grant.partition = grant.log.partitions[grant.partition.index]
        grant.numbered = self._numbering.attach(
            grant.log, name, grant.partition, user=request.user, home=home, durable=True
        )

    def let_go(self, link: Grant | Pending) -> None:
        """A link has ended. A second call changes nothing."""
        if not isinstance(link, Producing) or link.numbered is None or not link.numbered.attached:
            return
        self._numbering.detach(link.numbered)
        if self._store.others is not None:
            self._store.others.detached(link.log)


def taken(links: Iterable[Grant], partitions: tuple[Partition, ...]) -> Iterator[Producing]:
    """The links of a producer that appends to these partitions, which are those of this producer alone."""
    for link in links:
        if isinstance(link, Producing) and link.log.partitions and link.log.partitions[0] is partitions[0]:
            yield link
