"""[io] A durable subscription of Proton that settles second: it settles an event after the node has.

The node settles an event of such a receiver when the cursor that has passed it is in the state topic. So an
event that the node has settled must not come again.
"""

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import proton
import proton.handlers
import proton.reactor

from amqp_streams import names

if TYPE_CHECKING:
    from bench.brokers.groups.member import Journal, Role

_AGAIN_S: Final = 0.5
_STOP_S: Final = 10.0
_CREDIT: Final = 100
_HEARTBEAT_S: Final = 5.0


class _Second(proton.reactor.LinkOption):
    """A durable source, read from the earliest event on, and the settlement mode."""

    def apply(self, link: proton.Link) -> None:
        link.snd_settle_mode, link.rcv_settle_mode = proton.Link.SND_UNSETTLED, proton.Link.RCV_SECOND
        link.source.durability, link.source.expiry_policy = (
            proton.Terminus.DELIVERIES,
            proton.Terminus.EXPIRE_NEVER,
        )


def _earliest() -> proton.reactor.Filter:
    name = proton.symbol(names.FILTER_DELIVERY_ANNOTATIONS)
    conditions: dict[Any, Any] = {proton.symbol(names.OFFSET): proton.symbol("@earliest")}
    return proton.reactor.Filter({name: proton.Described(name, conditions)})


class SecondReceiver(proton.handlers.MessagingHandler):
    """A receiver in a thread of its own. It connects again after every error, to the next node."""

    def __init__(self, urls: Sequence[str], role: "Role", journal: "Journal") -> None:
        super().__init__(prefetch=_CREDIT, auto_accept=False)
        self._urls: Final = urls
        self._role: Final = role
        self._journal: Final = journal
        self._attempts = 0
        self._stopping = threading.Event()
        self._connection: Any = None
        self._waiting: Final[dict[Any, tuple[int, int]]] = {}
        """What the node has not settled: partition and offset by delivery."""
        self._container: Final = proton.reactor.Container(self)
        self._container.container_id = role.name
        self._thread: Final = threading.Thread(target=self._container.run, name="second", daemon=True)

    def start(self) -> None:
        """Begin to receive."""
        self._thread.start()

    def stop(self) -> None:
        """Detach, and end the thread."""
        self._stopping.set()
        self._thread.join(_STOP_S)

    # -- from Proton, in the thread

    def on_start(self, event: Any) -> None:  # noqa: ARG002 - Proton passes it
        """The container runs."""
        self._connect()

    def on_timer_task(self, event: Any) -> None:  # noqa: ARG002 - Proton passes it
        """It is time to connect again, or to look whether to stop."""
        if self._stopping.is_set():
            if self._connection is not None:
                self._connection.close()
            self._container.stop()
        elif self._connection is None:
            self._connect()
        else:
            self._container.schedule(_AGAIN_S, self)

    def on_message(self, event: Any) -> None:
        """An event has come."""
        annotations = event.message.instructions or {}
        partition = int(annotations[names.SOURCE_PARTITION])
        offset = int(annotations[names.OFFSET])
        self._journal.got(self._role, partition, offset, bytes(event.message.body))
        self._journal.note("settles", self._role, partition, [offset])
        self._waiting[event.delivery] = partition, offset
        event.delivery.update(proton.Delivery.ACCEPTED)

    def on_settled(self, event: Any) -> None:
        """The node has settled: the cursor has passed it."""
        found = self._waiting.pop(event.delivery, None)
        if found is not None:
            self._journal.note("settled", self._role, *found)
        event.delivery.settle()

    def on_transport_error(self, event: Any) -> None:
        """The connection is lost."""
        condition = event.transport.condition
        self._lost(f"{condition.name}: {condition.description}" if condition else "the connection is lost")

    def on_link_error(self, event: Any) -> None:
        """The node has closed the link."""
        condition = event.link.remote_condition
        self._lost(f"{condition.name}: {condition.description}" if condition else "the link is closed")
        event.connection.close()

    def on_connection_error(self, event: Any) -> None:
        """The node has closed the connection."""
        condition = event.connection.remote_condition
        self._lost(f"{condition.name}: {condition.description}" if condition else "closed")

    def on_disconnected(self, event: Any) -> None:
        """The socket is closed."""
        if self._connection is event.connection:
            self._lost("disconnected")

    def _lost(self, why: str) -> None:
        self._journal.note("error", self._role, why[:300])
        self._connection = None
        self._waiting.clear()

    def _connect(self) -> None:
        url = self._urls[self._attempts % len(self._urls)]
        self._attempts += 1
        # Its own way to connect again does not go on to the next address after a refusal.
        self._connection = self._container.connect(url, reconnect=False, heartbeat=_HEARTBEAT_S)
        name = self._role.key.rpartition(" ")[2]
        self._container.create_receiver(
            self._connection, self._role.log, name=name, options=[_Second(), _earliest()]
        )
        self._container.schedule(_AGAIN_S, self)
