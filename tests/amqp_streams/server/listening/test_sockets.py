"""Admission, addresses, and the log lines that unauthenticated clients cause. Accepting itself is in
test_listener.py.
"""

import ssl

import pytest
from structlog.testing import capture_logs

from amqp_streams.config import Listener
from amqp_streams.errors import ConfigError
from amqp_streams.server.listening import sockets
from amqp_streams.server.listening.sockets import (
    Admission,
    BoundAddress,
    Seldom,
    _reason,
    bind,
)


def test_an_address_is_written_as_in_urls() -> None:
    assert str(BoundAddress("::1", 5671, tls=True)) == "[::1]:5671"


async def test_admission_counts_each_member_once_and_forgets_other_containers() -> None:
    admission = Admission(2)
    assert admission.enter("a", peer="p")
    assert admission.enter("b", peer="p")
    assert not admission.enter("c", peer="p")
    assert (admission.count, admission.refused) == (2, 1)
    admission.leave("c")
    admission.leave("a")
    admission.leave("a")
    assert admission.count == 1
    assert admission.enter("c", peer="p")
    assert admission.count == 2


async def test_unauthenticated_clients_give_their_slots_up_oldest_of_the_busiest_address_first() -> None:
    admission, gone = Admission(4), list[str]()

    def come(name: str, address: str) -> bool:
        return admission.enter(name, peer=f"{address}:40000", send_away=lambda: gone.append(name))

    assert all(
        [come("a1", "10.0.0.1"), come("a2", "10.0.0.1"), come("a3", "10.0.0.1"), come("b1", "10.0.0.2")]
    )
    admission.opened("a1")
    assert come("c1", "10.0.0.3")
    assert gone == ["a2"]
    assert come("a4", "10.0.0.1"), "an address that has as many as any other makes room by itself"
    assert gone == ["a2", "a3"]
    assert come("d1", "10.0.0.4")
    assert gone == ["a2", "a3", "b1"], "each has one: the oldest one is closed"
    for each in ("c1", "a4", "d1"):
        admission.opened(each)
    assert not come("e1", "10.0.0.5"), "a connection that has logged in does not make room for a new one"
    assert (admission.count, admission.refused) == (4, 4)
    admission.leave("a1")
    assert come("e1", "10.0.0.5")
    admission.leave("e1")
    assert len(admission._unauthenticated) == len(admission._send_away) == 0


async def test_unauthenticated_clients_cause_one_line_and_a_count(monkeypatch: pytest.MonkeyPatch) -> None:
    seldom = Seldom("connection_refused")
    with capture_logs() as lines:
        for number in range(1000):
            seldom.warning(peer=number)
        assert [(line["peer"], line["left_out"]) for line in lines] == [(0, 0)]
        monkeypatch.setattr(sockets, "QUIET_S", 0.0)
        seldom = Seldom("connection_refused")
        seldom.warning(peer="x")
        seldom.warning(peer="y")
    assert [line["peer"] for line in lines] == [0, "x", "y"]


async def test_the_line_after_the_quiet_time_shows_how_many_were_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seldom = Seldom("handshake_failed")
    with capture_logs() as lines:
        for _ in range(5):
            seldom.warning()
        seldom._next_at = float("-inf")  # the quiet time is over
        seldom.warning()
    assert [line["left_out"] for line in lines] == [0, 4]


async def test_a_failed_bind_leaves_nothing_bound() -> None:
    (sock,) = await bind(Listener(host="127.0.0.1", port=0))
    with (
        sock,
        pytest.raises(ConfigError, match=r"^cannot listen on 127\.0\.0\.1:\d+: Address already in use$"),
    ):
        await bind(Listener(host="127.0.0.1", port=sock.getsockname()[1]))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            ConnectionAbortedError(),
            "the peer closed the connection: perhaps it does not trust the certificate, or does not use TLS",
        ),
        (ConnectionResetError(104, "Connection reset by peer"), "[Errno 104] Connection reset by peer"),
        (ssl.SSLError(1, "[SSL] alert unknown ca"), "[SSL] alert unknown ca"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_a_failed_handshake_always_has_a_reason(error: OSError, words: str) -> None:
    assert words in _reason(error)
