"""Which connections end when clients do not read too many bytes of answers."""

from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.http.holding import SHED_PART
from knative_gateway.http.unread import Unread, UnreadAnswers
from tests.knative_gateway.http.wire import Echo, Wire

MAX = 1_000


class Clients:
    """Clients that do not read. `cut`: those that were disconnected, in order."""

    def __init__(self) -> None:
        self.answers = UnreadAnswers(MAX)
        self.cut: list[str] = []

    def stall(self, name: str, held: int, since: float = 0.0, network: str = "a") -> Unread:
        return self.answers.add(Unread(network, held, since, lambda: self.cut.append(name)))


def test_the_client_that_has_not_read_for_longest_is_disconnected() -> None:
    clients = Clients()
    clients.stall("later", 400, 2.0)
    clients.stall("first", 400, 1.0)
    clients.stall("other", 200, 0.0, network="b")
    assert clients.cut == []
    clients.stall("new", 100, 3.0)
    assert clients.cut == ["first"]
    assert (clients.answers.bytes, clients.answers.cut_count) == (700, 1)


def test_a_client_that_reads_frees_its_bytes() -> None:
    clients = Clients()
    reading = clients.stall("reading", 900)
    clients.answers.remove(reading)
    clients.answers.remove(reading)
    clients.answers.remove(None)
    clients.stall("new", 900)
    assert (clients.cut, clients.answers.bytes) == ([], 900)


def test_an_answer_that_is_larger_than_the_limit_is_sent() -> None:
    clients = Clients()
    clients.stall("large", 5 * MAX)
    assert clients.cut == []
    clients.stall("small", 1)
    assert clients.cut == ["large"]


@given(st.lists(st.tuples(st.integers(1, MAX), st.sampled_from("abc")), max_size=40))
def test_the_bytes_have_a_limit(stalls: list[tuple[int, str]]) -> None:
    clients = Clients()
    for number, (held, network) in enumerate(stalls):
        clients.stall(str(number), held, float(number), network)
        assert clients.answers.bytes <= max(MAX, MAX - MAX // SHED_PART + held)
    left = [held for number, (held, _) in enumerate(stalls) if str(number) not in clients.cut]
    assert clients.answers.bytes == sum(left)


def test_a_connection_whose_client_does_not_read_is_closed_for_others() -> None:
    wire = Wire(Echo, unread_max=MAX)
    wire.send(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    wire.transport.waiting = MAX
    wire.connection.pause_writing()
    assert wire.service.unread.bytes == MAX
    wire.connection.resume_writing()
    assert wire.service.unread.bytes == 0
    wire.connection.pause_writing()
    wire.service.unread.add(Unread("b", 1, 0.0, lambda: None))
    assert wire.transport.is_closed
    wire.connection.connection_lost(None)
    assert wire.service.unread.bytes == 1
