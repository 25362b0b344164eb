"""Clients without rights: the node refuses everything that they ask for, and stores nothing of theirs."""

from collections.abc import Mapping
from typing import Any, Final

from amqp_streams import names
from amqp_streams.streams import management
from amqp_streams.wire.types import Symbol, UInt
from tests.simulation.machine.schedule import MS
from tests.simulation.peers.client import Client
from tests.simulation.peers.connection import Connection
from tests.simulation.peers.frames import message_of
from tests.simulation.peers.links import Delivery, Receiver, Sender
from tests.simulation.peers.requests import answer_of, request

STRANGER: Final = "user-stranger"
"""A user without any right."""
_ADDRESS: Final = "10.9.9.9"


class Stranger(Client):
    """Logs in without rights, or tries to log in with a wrong password."""

    abuser = True

    def __init__(self, world: Any, name: str) -> None:
        super().__init__(world, name, user=STRANGER)
        self.address = _ADDRESS
        self.knows_password = self.random.random() < 0.7
        if not self.knows_password:
            self.password = "wrong"
            self.user = self.random.choice((STRANGER, "user-unknown"))

    def refused_login(self, words: str) -> None:
        """See `Client`."""
        assert not self.knows_password, words
        self.world.ledger.counts["strangers"] += 1

    def connected(self, connection: Connection) -> None:
        connection.opened = lambda: self._opened(connection)

    def _opened(self, connection: Connection) -> None:
        assert self.knows_password, "a login with a wrong password"
        log = self.world.any_log()
        group: dict[str, Any] = {"properties": {names.CONSUMER_GROUP: "g0"}}
        kept: dict[str, Any] = {"source": {"durable": UInt(2), "expiry-policy": Symbol("never")}}
        attempts: list[tuple[bool, str, dict[str, Any]]] = [
            (False, log, {}),
            (False, "nothing", {}),
            (True, log, {}),
            (True, log, group),
            (True, log, kept),
            (True, log + names.INFO_SUFFIX, {}),
        ]
        for number, (receives, address, options) in enumerate(self.random.sample(attempts, 3)):
            attach = connection.attach_receiver if receives else connection.attach_sender
            attach(f"attempt-{number}", address, attached=_forbidden, ended=self._refused, **options)
        relay: Sender = connection.attach_sender("relay", None, outcome=self._outcome)
        relay.credited = lambda: self._send(relay, log)
        self._ask(connection, log)
        wait_us = self.random.randint(500, 3000) * MS
        self.world.schedule.after(wait_us, connection.close)

    def _refused(self, condition: str | None) -> None:
        """A link ends; None: with its connection."""
        assert condition in (names.UNAUTHORIZED_ACCESS, names.CONNECTION_FORCED, None), condition
        self.world.ledger.counts["strangers"] += condition == names.UNAUTHORIZED_ACCESS

    def _send(self, relay: Sender, log: str) -> None:
        """Send an event with the null target; the ledger does not know the event."""
        relay.credited = lambda: None
        relay.send(message_of("strange", properties={}, padding=10, to=log))

    def _outcome(self, _number: int, outcome: str | None, condition: str | None) -> None:
        if (outcome, condition) == ("released", None):
            return  # the link was closing, for example because the node stops
        assert (outcome, condition) == ("rejected", names.UNAUTHORIZED_ACCESS), (outcome, condition)
        self.world.ledger.counts["strangers"] += 1

    def _ask(self, connection: Connection, log: str) -> None:
        replies: Receiver = connection.attach_receiver(
            "replies",
            names.MANAGEMENT,
            target={"address": "me"},
            attached=lambda _fields: replies.grant(10),
            delivered=self._answered,
        )
        sender: Sender = connection.attach_sender("requests", names.MANAGEMENT)

        def ask() -> None:
            sender.credited = lambda: None
            for number, operation in enumerate(("READ", "DELETE", "UPDATE", names.EXTENTS)):
                name = self.random.choice((log, "nothing"))
                asked = {names.OPERATION: operation, names.TYPE: names.LOG_TYPE, names.NAME: name}
                sender.send(request(asked, {}, number))

        sender.credited = ask

    def _answered(self, delivery: Delivery) -> None:
        status, words, _value = answer_of(delivery.raw)
        assert status == management.FORBIDDEN, f"{status} {words}"
        self.world.ledger.counts["strangers"] += 1


def _forbidden(fields: Mapping[str, Any]) -> None:
    raise AssertionError(f"a link without a right is granted: {fields['name']}")
