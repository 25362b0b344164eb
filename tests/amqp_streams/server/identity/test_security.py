"""Logging in, by bytes and without sockets: questions and answers, limits and delays, by a clock of the
test's own.
"""

from typing import Any

import pytest
import structlog

from amqp_streams.client.connection.mechanisms import Credentials
from amqp_streams.client.connection.sasl import SaslClient
from amqp_streams.client.errors import AuthenticationError, ConnectError
from amqp_streams.config import Limits
from amqp_streams.server.connection import AmqpConnection
from amqp_streams.server.identity.guard import Guard
from amqp_streams.server.identity.security import LIMITED_MS
from amqp_streams.testing_amqp import InMemoryNode
from amqp_streams.wire.security.mechanisms import ScramAlgorithm, ScramKeys
from amqp_streams.wire.security.scram import make_keys, unmeetable_keys

KEYS = {one: make_keys(one, "ann", "secret", salt=b"salt", iterations=4096) for one in ScramAlgorithm}
LIMITS = Limits(login_failures=4, user_login_failures=3, login_interval_ms=10_000, unauthenticated_ms=5000)


class Users:
    """Users with one user, Ann."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def verify(self, name: str, password: str) -> bool:
        self.asked.append(name)
        return (name, password) == ("ann", "secret")

    def called(self, name: str) -> str | None:
        return name if name == "ann" else None

    def offers(self, algorithm: ScramAlgorithm) -> bool:
        return True

    def has_keys(self, name: str, algorithm: ScramAlgorithm) -> bool:
        return True

    def keys(self, name: str, algorithm: ScramAlgorithm) -> ScramKeys:
        return (
            KEYS[algorithm]
            if name == "ann"
            else unmeetable_keys(algorithm, name, secret=b"", iterations=4096)
        )


class Dialling:
    """A peer that logs in with our client's SASL, and stops there."""

    def __init__(
        self, node: InMemoryNode, users: Users, credentials: Credentials, *, loopback: bool = True
    ) -> None:
        self.node = node
        self.client = SaslClient(credentials, None)
        self.error: Exception | None = None
        self.lost = False
        self.channel = node.connect(self, users=users, loopback=loopback)
        node.run()

    def output(self) -> bytes:
        return self.client.take_output()

    def input(self, data: bytes) -> None:
        try:
            if not self.client.done:
                self.client.receive(data)
        except (AuthenticationError, ConnectError) as error:
            self.error = error

    def closed(self) -> None:
        self.lost = True


def dial(
    node: InMemoryNode, users: Users, user: str, password: str, mechanism: str = "SCRAM-SHA-256"
) -> Dialling:
    return Dialling(node, users, Credentials(user, password, only=(mechanism,)))


def counts_of(node: InMemoryNode) -> dict[tuple[str, str], int]:
    (guard,) = node._guards.values()
    assert isinstance(guard, Guard)
    return dict(guard.counts)


MECHANISMS = pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])


@MECHANISMS
def test_a_client_that_knows_the_password_logs_in_as_that_user(mechanism: str) -> None:
    node, users = InMemoryNode(anonymous="never"), Users()
    peer = dial(node, users, "ann", "secret", mechanism)
    assert peer.client.done
    (connection,) = node.service.connections
    assert isinstance(connection, AmqpConnection)
    assert (connection.user, connection.mechanism) == ("ann", mechanism)
    assert counts_of(node) == {(mechanism, "ok"): 1}


@MECHANISMS
def test_a_user_that_is_removed_during_its_login_is_not_logged_in(mechanism: str) -> None:
    """The reload found no connection of the user, so nothing else would end this one."""

    class Removing(Users):
        def __init__(self) -> None:
            super().__init__()
            self.is_removed = False

        def called(self, name: str) -> str | None:
            return None if self.is_removed else super().called(name)

        def verify(self, name: str, password: str) -> bool:
            self.is_removed = True
            return super().verify(name, password)

        def keys(self, name: str, algorithm: ScramAlgorithm) -> ScramKeys:
            self.is_removed = True
            return super().keys(name, algorithm)

    node = InMemoryNode(anonymous="never")
    peer = dial(node, Removing(), "ann", "secret", mechanism)
    assert peer.lost
    assert all(connection.user is None for connection in node.service.connections)


@MECHANISMS
@pytest.mark.parametrize(("user", "password"), [("ann", "wrong"), ("bob", "secret")])
def test_a_wrong_password_is_refused_alike_for_known_and_unknown_users(
    mechanism: str, user: str, password: str
) -> None:
    node = InMemoryNode(anonymous="never")
    peer = dial(node, Users(), user, password, mechanism)
    assert isinstance(peer.error, AuthenticationError)
    assert (str(peer.error), peer.lost) == ("wrong user name or password", True)
    assert counts_of(node) == {(mechanism, "failed"): 1}


@MECHANISMS
@pytest.mark.parametrize("user", ["ann", "bob"])
def test_a_client_that_guesses_too_often_is_refused_later_and_for_a_time(mechanism: str, user: str) -> None:
    """The right password is refused as well, because otherwise guessing would be possible."""
    node, users = InMemoryNode(anonymous="never", limits=LIMITS), Users()
    for number in range(3):
        assert isinstance(dial(node, users, user, f"guess-{number}", mechanism).error, AuthenticationError)
    asked = len(users.asked)
    peer = dial(node, users, user, "secret", mechanism)
    assert (peer.error, peer.lost) == (None, False)
    node.advance(LIMITED_MS - 1)
    assert (peer.error, peer.lost) == (None, False)
    node.advance(1)
    assert isinstance(peer.error, ConnectError)
    assert not isinstance(peer.error, AuthenticationError)
    assert peer.lost
    assert len(users.asked) == asked, "nothing was looked at"
    assert counts_of(node) == {(mechanism, "failed"): 3, (mechanism, "limited"): 1}
    node.advance(10_000)
    assert dial(node, users, user, "secret", mechanism).client.done is (user == "ann")


def test_an_address_is_limited_over_all_users_and_ways() -> None:
    node, users = InMemoryNode(anonymous="never", limits=LIMITS), Users()
    for number, mechanism in enumerate(["PLAIN", "SCRAM-SHA-256", "PLAIN", "SCRAM-SHA-512"]):
        dial(node, users, f"user-{number}", "x", mechanism)
    peer = dial(node, users, "ann", "secret")
    node.advance(LIMITED_MS)
    assert isinstance(peer.error, ConnectError)


def test_a_user_with_an_earlier_login_is_not_kept_out_by_others() -> None:
    node, users = InMemoryNode(anonymous="never", limits=LIMITS), Users()
    assert dial(node, users, "ann", "secret").client.done
    for number in range(8):
        dial(node, users, f"user-{number}", "x")
    assert dial(node, users, "ann", "secret").client.done


def test_proofs_that_were_all_asked_for_before_are_judged_one_by_one() -> None:
    """Many connections that have their challenges already gain no more guesses than one."""
    node, users = InMemoryNode(anonymous="never", limits=LIMITS), Users()
    peers = []
    for number in range(20):
        peer = Dialling.__new__(Dialling)
        peer.node, peer.error, peer.lost = node, None, False
        peer.client = SaslClient(Credentials("ann", f"guess-{number}", only=("SCRAM-SHA-256",)), None)
        peer.channel = node.connect(peer, users=users)
        peers.append(peer)
    node.run()
    refused = [peer for peer in peers if isinstance(peer.error, AuthenticationError)]
    assert len(refused) == 3
    node.advance(LIMITED_MS)
    assert all(peer.lost for peer in peers)
    assert counts_of(node) == {("SCRAM-SHA-256", "failed"): 3, ("SCRAM-SHA-256", "limited"): 17}


def test_a_limited_peer_that_leaves_or_sends_more_does_no_harm() -> None:
    node, users = InMemoryNode(anonymous="never", limits=LIMITS), Users()
    for number in range(4):
        dial(node, users, f"user-{number}", "x")
    gone, talking = dial(node, users, "ann", "secret"), dial(node, users, "ann", "secret", "PLAIN")
    node.disconnect(gone)
    (connection,) = node.service.connections
    assert isinstance(connection, AmqpConnection)
    connection.received(memoryview(b"AMQP\x00\x01\x00\x00" * 100))
    node.advance(LIMITED_MS)
    assert talking.lost
    assert not node.service.connections


def test_a_failed_login_and_a_protocol_error_are_distinguished() -> None:
    node, users = InMemoryNode(anonymous="never"), Users()
    with structlog.testing.capture_logs() as lines:
        dial(node, users, "ann", "wrong")
        peer = Dialling.__new__(Dialling)
        peer.node, peer.error, peer.lost, peer.client = (
            node,
            None,
            False,
            SaslClient(Credentials("ann", "x", only=("PLAIN",)), None),
        )
        peer.client._output = bytearray(b"AMQP\x03\x01\x00\x00\x00\x00\x00\x08\x02\x01\x00\x00")
        peer.channel = node.connect(peer, users=users)
        node.run()
    events: list[tuple[Any, ...]] = [
        (line["event"], line["mechanism"], line.get("user"))
        for line in lines
        if line["log_level"] == "warning"
    ]
    assert events == [("login_failed", "SCRAM-SHA-256", "ann"), ("sasl_failed", "", None)]
    assert counts_of(node) == {("SCRAM-SHA-256", "failed"): 1}
