"""Which requests end when the connections hold too many bytes, and that no byte is forgotten in the count."""

import re
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.http.connection import Connection
from knative_gateway.http.holding import SHED_PART, Holdings, chosen
from tests.knative_gateway.http.wire import Echo, Transport, Wire

HEAD = b"POST /p HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
CHUNKED = b"POST /p HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
WATCH = b"GET /watch HTTP/1.1\r\nhost: x\r\n\r\n"
MAX = 400_000


@dataclass(eq=False)
class Client:
    """A connection that frees its bytes when its request is refused."""

    holdings: "Holdings[Client]"
    network: str = "a"
    held: int = 0
    held_since: float = 0.0
    is_shed: bool = False

    def hold(self, held: int, since: float = 0.0, *, arrives: bool = True) -> "Client":
        change, self.held, self.held_since = held - self.held, held, since
        self.holdings.note(self, change, arrives=arrives)
        return self

    def shed(self) -> None:
        assert not self.is_shed, "it was refused before"
        self.is_shed = True
        self.hold(0, arrives=False)


def test_the_oldest_of_the_network_that_holds_the_most_ends_first() -> None:
    holdings: Holdings[Client] = Holdings(1_000)
    other = Client(holdings, "b").hold(300, 1.0)
    young, old = Client(holdings).hold(300, 3.0), Client(holdings).hold(300, 2.0)
    Client(holdings, "c").hold(150, 4.0)
    assert (other.is_shed, young.is_shed, old.is_shed) == (False, False, True)
    assert holdings.shed_count == 1


def test_at_the_limit_a_part_is_freed_at_once() -> None:
    holdings: Holdings[Client] = Holdings(1_000)
    clients = [Client(holdings).hold(10, float(number)) for number in range(101)]
    assert [each.is_shed for each in clients].count(True) == 1_000 // SHED_PART // 10 + 1 + 1
    assert holdings.bytes == sum(each.held for each in clients) <= 1_000 - 1_000 // SHED_PART


def test_a_request_that_has_arrived_is_not_refused() -> None:
    holdings: Holdings[Client] = Holdings(1_000)
    arrived = Client(holdings).hold(1_000, arrives=False)
    late = Client(holdings).hold(1, 5.0)
    assert (arrived.is_shed, late.is_shed) == (False, True)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 9)), max_size=12),
    st.integers(0, 60),
)
def test_the_choice_is_that_of_a_naive_one(clients: list[tuple[str, int, int]], bytes_min: int) -> None:
    holdings: Holdings[Client] = Holdings(1_000)
    left = [Client(holdings, network, held, float(since)) for network, held, since in clients]
    found = chosen(left, bytes_min)
    freed = 0
    for each in found:
        assert freed < bytes_min
        total = {n: sum(one.held for one in left if one.network == n) for n in "abc"}
        assert total[each.network] == max(total.values())
        rivals = [one for one in left if one.network == each.network and one.held]
        assert each.held_since == min(one.held_since for one in rivals)
        left.remove(each)
        freed += each.held
    assert freed >= bytes_min or not any(each.held for each in left)


class Peers:
    """Connections of several networks to one listener."""

    def __init__(self, handler: Any = Echo) -> None:
        self.wire = Wire(handler, connections_max=1_000, held_max=MAX)
        self.connections: list[tuple[Connection, Transport]] = []

    def connect(self, network: str = "192.0.2.1") -> int:
        connection, transport = Connection(self.wire.service), Transport()
        connection.connection_made(transport)
        connection.network = network
        self.connections.append((connection, transport))
        return len(self.connections) - 1

    def send(self, number: int, data: bytes) -> None:
        connection, transport = self.connections[number]
        if not transport.is_closed:
            connection.data_received(data)
            self.wire.run()

    def lose(self, number: int) -> None:
        self.connections[number][0].connection_lost(None)

    def answers(self, number: int) -> list[int]:
        written = bytes(self.connections[number][1].written)
        return [int(status) for status in re.findall(rb"HTTP/1\.1 ([0-9]{3}) [A-Z]", written)]

    @property
    def held(self) -> int:
        return self.wire.service.holdings.bytes


class Collecting(Echo):
    """Collects the body, as the ingress does."""

    def begin(self) -> None:
        self.exchange.collects = True
        self.received()

    def received(self) -> None:
        if self.exchange.is_whole and self.exchange.target != b"/watch":
            self.answer()


@pytest.mark.parametrize("handler", [Collecting, Echo])
@pytest.mark.parametrize("chunked", [True, False])
def test_bodies_that_do_not_end_take_no_more_than_the_limit(handler: Any, chunked: bool) -> None:
    """Whether the handler collects the body, or takes each part and keeps it."""
    peers = Peers(handler)
    honest = peers.connect("198.51.100.7")
    peers.send(honest, HEAD % 60_000 + b"x" * 50_000)
    for _ in range(100):
        number = peers.connect()
        peers.wire.now += 0.01
        if chunked:
            peers.send(number, CHUNKED + b"9c40\r\n" + b"x" * 39_900)
        else:
            peers.send(number, HEAD % 50_000 + b"x" * 40_000)
        assert peers.held <= MAX
    answers = [peers.answers(number) for number in range(1, 101)]
    assert answers[0] == [503]
    assert b"retry-after: 1\r\n" in bytes(peers.connections[1][1].written)
    assert peers.connections[1][1].is_ended
    assert answers[-5:] == [[]] * 5, "the youngest go on"
    peers.send(honest, b"x" * 10_000)
    assert peers.answers(honest) == [200], "the request of another address goes on"
    peers.send(100, b"x" * 100 + b"\r\n0\r\n\r\n" if chunked else b"x" * 10_000)
    assert peers.answers(100) == [200]
    for number in range(101):
        peers.lose(number)
    assert peers.held == 0


def test_requests_behind_an_answer_without_an_end_are_counted() -> None:
    """A client that sends requests ahead of a watch would otherwise keep their bodies as long as it likes."""
    peers = Peers(Collecting)
    first = peers.connect()
    for number in (first, *(peers.connect() for _ in range(9))):
        peers.wire.now += 1.0
        peers.send(number, WATCH)
        peers.send(number, (HEAD % 30_000 + b"x" * 30_000) * 2)
        assert peers.held <= MAX
    assert peers.connections[first][1].is_closed
    assert not peers.connections[9][1].is_closed


def test_headers_that_do_not_end_are_counted() -> None:
    peers = Peers()
    number = peers.connect()
    peers.send(number, b"POST / HTTP/1.1\r\ncontent-length: 1\r\n")
    for _ in range(20):
        peers.send(number, b"a: %b\r\n" % (b"b" * 1_000))
    assert peers.held > 20_000
    peers.send(number, b"\r\n")
    assert peers.held > 20_000, "the body is missing"
    peers.send(number, b"x")
    assert peers.answers(number) == [200]
    assert peers.held == 0


SENT = st.sampled_from(
    [
        HEAD % 5_000 + b"x" * 5_000,
        HEAD % 5_000,
        b"x" * 2_500,
        b"x" * 5_000,
        CHUNKED,
        b"5\r\nhello\r\n",
        b"0\r\n\r\n",
        WATCH,
        WATCH[:9],
        WATCH[9:],
        (HEAD % 3 + b"abc") * 40,
        b"\r\n",
    ]
)


@pytest.mark.parametrize("handler", [Collecting, Echo])
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 2), SENT | st.sampled_from(["lose", "take", "shed"])), max_size=25
    )
)
def test_the_count_is_that_of_all_connections(handler: Any, steps: list[tuple[int, Any]]) -> None:
    peers = Peers(handler)
    for _ in range(3):
        peers.connect()
    for number, step in steps:
        connection, transport = peers.connections[number]
        if step == "lose":
            peers.lose(number)
            transport.is_closed = True
        elif step == "shed":
            if not transport.is_closed and connection.held:
                connection.shed()
        elif step == "take":
            for each in peers.wire.handlers:
                if each.exchange.target == b"/watch" and not each.exchange.is_answered:
                    each.answer()
        else:
            peers.send(number, step)
        assert peers.held == sum(each.held for each, _ in peers.connections) >= 0
        if transport.is_ended and not connection._queue:
            assert connection.held == 0
    for number in range(3):
        peers.lose(number)
    assert peers.held == 0
