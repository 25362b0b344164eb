"""Every time of a node with a peer that does not answer: the wait ends, and what was held is free again."""

import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from typing import Final

import proton

from amqp_streams import names
from amqp_streams.client.connection.mechanisms import Credentials
from amqp_streams.client.errors import AuthenticationError, ConnectError
from amqp_streams.wire import frames
from amqp_streams.wire.codec import decode, encode
from amqp_streams.wire.types import Described, Symbol, ULong
from attack.peer import Peer, refusal, send
from attack.report import Attack, BrokenError, Place, Table, expect
from attack.room import WAIT_S_MAX, Room, node_room, wait_for
from attack.settings import GROUPS, NINA, PASSWORD, PASSWORD_USER, token
from attack.tables.links import attached
from attack.tables.strangers import refused_login

HEADER: Final = b"AMQP\x03\x01\x00\x00"
REFUSED, TRY_LATER, TOO_SLOW = 1, 4, -1
SLACK_S: Final = 20.0
"""Beside a limit: the machine of the tests may be busy. A wait without a limit does not end at all."""


_OF_PASSWORDS: Final = "127.0.0.2"
_OF_TOKENS: Final = "127.0.0.3"
"""From where the attackers log in: failures of one address do not count for the other."""


def ends_within(connection: socket.socket, seconds: float) -> float:
    """How long until the other side closes this connection.

    Raises:
        BrokenError: it does not.
    """
    began = time.monotonic()
    connection.settimeout(seconds + SLACK_S)
    try:
        while connection.recv(1 << 16):
            pass
    except TimeoutError:
        message = f"the connection is open after {seconds + SLACK_S:g} s"
        raise BrokenError(message) from None
    except OSError:
        pass
    return time.monotonic() - began


def _unauthenticated(room: Room) -> Iterator[str]:
    """Nothing, half a header, half a login, and a login without an open."""
    host, _, port = room.amqp.rpartition(":")
    sent = (b"", b"AMQP", b"AMQP\x03\x01\x00\x00\x00\x00\x00\x20\x02\x01", b"AMQP\x00\x01\x00\x00")
    held = [socket.create_connection((host, int(port)), timeout=10) for _ in sent]
    for connection, data in zip(held, sent, strict=True):
        connection.sendall(data)
    silent = Peer(room.amqp, Credentials(token=room.token("mallory")))
    held.append(silent.socket)
    yield f"{len(held)} clients that stop on the way to their open"
    took = [ends_within(each, room.limits.unauthenticated_ms / 1000) for each in held]
    for each in held:
        each.close()
    expect(max(took) < SLACK_S, f"it took {max(took):.1f} s")


def _idle(room: Room) -> Iterator[str]:
    """A client that is silent after its open."""
    with room.peer() as silent:
        yield "a client that sends no heartbeats"
        ends_within(silent.socket, room.limits.idle_timeout_ms / 1000)


def _unfinished(room: Room) -> Iterator[str]:
    """A client that sends heartbeats and never the end of its message."""
    with room.peer() as peer:
        link = peer.sender("m-log")
        peer.until(lambda: link.credit > 0, "no credit")
        link.delivery("half")
        link.stream(b"\x00Sw\xb0\x00\x01\x00\x00" + b"x" * 30_000)
        peer.pump(0.05)
        yield "half a message, then heartbeats"
        deadline = time.monotonic() + room.limits.idle_timeout_ms / 1000 + SLACK_S
        while refusal(link) is None and time.monotonic() < deadline:
            peer.raw(b"\x00\x00\x00\x08\x02\x00\x00\x00")
            peer.pump(0.3)
        expect(refusal(link) is not None, "the link of an unfinished message stays")


def _group_wait(room: Room) -> Iterator[str]:
    """An attach that waits for a partition whose owner does not release it."""
    with room.peer(container="owner") as owner, room.peer(container="waiter") as waiter:
        for partition in range(4):
            expect(
                attached(owner, owner.receiver("m-log", group="wait", partition=partition)), "no partition"
            )
        link = waiter.receiver("m-log", group="wait", partition=0)
        waiting = [waiter.receiver("m-log", group="wait") for _ in range(5)]
        yield "5 attaches wait for a partition"
        deadline = time.monotonic() + GROUPS["wait_ms"] / 1000 + SLACK_S
        while any(refusal(each) is None for each in waiting) and time.monotonic() < deadline:
            for peer in (owner, waiter):
                peer.raw(b"\x00\x00\x00\x08\x02\x00\x00\x00")
                peer.pump(0.1)
        expect(all(refusal(each) is not None for each in waiting), "an attach is never answered")
        expect(refusal(link) == names.RESOURCE_LOCKED, f"a claim of an owned partition: {refusal(link)}")


def _handover(room: Room) -> Iterator[str]:
    """A member that settles nothing while another member waits for its partition."""
    with room.peer(container="holder") as holder, room.peer(container="next") as following:
        producer = holder.sender("m-log")
        holder.until(lambda: producer.credit > 0, "no credit")
        for number in range(20):
            send(producer, proton.Message(body=b"x").encode(), f"h{number}")
        held = [holder.receiver("m-log", group="moves", credit=10) for _ in range(4)]
        for link in held:
            expect(attached(holder, link), "no partition")
        wanted = following.receiver("m-log", group="moves", credit=10)
        yield "a member that settles nothing owns all partitions"
        deadline = (
            time.monotonic()
            + (GROUPS["pause_ms"] + GROUPS["handover_ms"] + GROUPS["wait_ms"]) / 1000
            + SLACK_S
        )
        granted = False
        while not granted and time.monotonic() < deadline:
            for peer in (holder, following):
                peer.raw(b"\x00\x00\x00\x08\x02\x00\x00\x00")
                peer.pump(0.1)
            if refusal(wanted) is not None:
                wanted = following.receiver("m-log", group="moves", credit=10)
            granted = bool(wanted.state & proton.Endpoint.REMOTE_ACTIVE)
        expect(granted, "no partition moves to another member")


def _drain(room: Room) -> Iterator[str]:
    """SIGTERM while clients read nothing: the process ends in time."""
    with node_room(room.folder / "draining", is_small=True, beside=False) as own:
        peers = [own.peer() for _ in range(3)]
        for peer in peers:
            peer.receiver("m-log", credit=1000)
            peer.sender("m-log")
            peer.flush()
        process = own.process.process
        assert process is not None
        process.send_signal(signal.SIGTERM)
        yield "3 clients that do not answer the end"
        try:
            status = process.wait(2 * own.limits.drain_ms / 1000 + SLACK_S)
        except subprocess.TimeoutExpired:
            message = "the node does not end while clients do not answer"
            raise BrokenError(message) from None
        finally:
            for peer in peers:
                peer.close()
        expect(status == 0, f"the node ended with {status}")


_LATER: Final = "try again later"


def _wrong_passwords(room: Room) -> Iterator[str]:
    """Until the node looks at no more passwords; then time passes, and the right one is good again."""
    with ThreadPoolExecutor() as workers:
        unknown, known = workers.map(partial(_until_limited, room), ("nobody", PASSWORD_USER))
    expect(unknown == known, f"the answers to a known and an unknown user differ: {unknown}, {known}")
    with room.peer() as other:
        expect(not other.is_gone, "a token is refused because of the passwords of others")
    yield f"wrong passwords of a user: {' then '.join(unknown)}"
    wait_for(lambda: _logs_in(room), "the right password is good again", 60.0)


def _until_limited(room: Room, user: str) -> tuple[str, str]:
    """Guess until the answer is another one: the two answers. Raises BrokenError: it is always the same."""
    wrong = Credentials(user=user, password="x", only=("PLAIN",))
    first = ""
    deadline = time.monotonic() + WAIT_S_MAX
    while time.monotonic() < deadline:  # on a busy machine, logins are so slow that the limit comes late
        with suppress(ConnectionError):  # limits.unauthenticated: the machine is busy
            answer = refused_login(room, wrong, source=_OF_PASSWORDS)
            if not first and answer.endswith(_LATER):
                continue  # so many passwords are being checked that this one was not
            first = first or answer
            if answer != first:
                return first, answer
    message = f"logins of {user} are not limited"
    raise BrokenError(message)


def _wrong_tokens(room: Room) -> Iterator[str]:
    """Until the node looks at no more logins of this address; those who have logged in from it still can."""

    def refused(number: int) -> str:
        return refused_login(room, Credentials(token=token("x" * 64, f"u{number}")), source=_OF_TOKENS)

    with ThreadPoolExecutor(4) as workers:
        answers = set(workers.map(refused, range(room.limits.login_failures + 3)))
    expect(len(answers) == 2, f"logins are not limited: {answers}")
    with room.peer(NINA, source=_OF_TOKENS) as nina:
        expect(not nina.is_gone, "the neighbour cannot log in from an address of which others failed")
    count = room.limits.login_failures + 3
    yield f"{count} wrong tokens: {' then '.join(sorted(answers))}; a known user logs in"


def _password_checks(room: Room) -> Iterator[str]:
    """More logins with a password at once than may wait for their check."""
    host, _, port = room.amqp.rpartition(":")
    count = 2 * room.limits.password_checks
    with ExitStack() as stack:
        held = [
            stack.enter_context(socket.create_connection((host, int(port)), timeout=60)) for _ in range(count)
        ]
        for number, each in enumerate(held):
            each.sendall(HEADER + _plain(f"somebody-{number}"))
        yield f"{count} logins at once"
        outcomes = [_outcome(each) for each in held]
    expect(TRY_LATER in outcomes, f"every password is looked at: {outcomes}")
    expect(set(outcomes) <= {REFUSED, TRY_LATER, TOO_SLOW}, f"outcomes {outcomes}")


def _plain(user: str) -> bytes:
    body = encode(Described(ULong(0x41), [Symbol("PLAIN"), f"\0{user}\0wrong".encode()]))
    return frames.frame(0, body, type=frames.SASL)


def _outcome(connection: socket.socket) -> int:
    """The code of the outcome of a login; TOO_SLOW: limits.unauthenticated ended the connection before it."""
    data = b""
    while True:
        block = connection.recv(1 << 16)
        if not block:
            return TOO_SLOW
        data += block
        for frame in frames.read_frames(data[len(HEADER) :]):
            found, _ = decode(frame.body)
            if isinstance(found, Described) and found.descriptor == 0x44 and isinstance(found.value, list):
                return int(str(found.value[0]))


def _logs_in(room: Room) -> bool:
    try:
        right = Credentials(user=PASSWORD_USER, password=PASSWORD, only=("PLAIN",))
        Peer(room.amqp, right, source=_OF_PASSWORDS).close()
    except (AuthenticationError, ConnectError, ConnectionError):
        return False
    return True


def _attack(
    name: str,
    limit: str,
    run: Callable[[Room], Iterator[str]],
    *covers: str,
    is_judged: bool = True,
    is_patient: bool = True,
    table: Table = Table.TIMERS,
) -> Attack:
    return Attack(
        name,
        table,
        Place.NODE,
        frozenset(covers),
        limit,
        run,
        is_judged=is_judged,
        is_patient=is_patient,
    )


ATTACKS: Final = (
    _attack(
        "clients that never open",
        "limits.unauthenticated",
        _unauthenticated,
        "node limits: unauthenticated_ms",
        "AMQP: half requests",
    ),
    _attack("a client that is silent", "limits.idle_timeout", _idle, "node limits: idle_timeout_ms"),
    _attack(
        "a message that never ends",
        "limits.idle_timeout",
        _unfinished,
        "node limits: idle_timeout_ms",
        "AMQP: a slow body",
    ),
    _attack("attaches that wait for a partition", "groups.wait", _group_wait, "node groups: wait_ms"),
    _attack(
        "a member that settles nothing",
        "groups.handover",
        _handover,
        "node groups: handover_ms",
        "node groups: pause_ms",
    ),
    _attack(
        "clients that do not answer the end", "limits.drain", _drain, "node limits: drain_ms", is_judged=False
    ),
    _attack(
        "wrong passwords until they are not looked at",
        "limits.user_login_failures",
        _wrong_passwords,
        "node limits: user_login_failures",
        "node limits: login_interval_ms",
    ),
    _attack(
        "wrong tokens until they are not looked at",
        "limits.login_failures",
        _wrong_tokens,
        "node limits: login_failures",
        table=Table.RESOURCES,
    ),
    _attack(
        "more passwords at once than may wait",
        "limits.password_checks",
        _password_checks,
        "node limits: password_checks",
        is_patient=False,  # it fills the queue in which other logins with a password wait
        table=Table.RESOURCES,
    ),
)
