"""Clients of a node that may not do what they ask for: refused with the right condition, and nothing learnt.

The rows of the wrong tenant are made from the product's own tables of requests and links.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import proton

from amqp_streams import names
from amqp_streams.client.connection.mechanisms import Credentials
from amqp_streams.client.errors import AuthenticationError, ConnectError
from attack import inventory
from attack.inventory import Stranger
from attack.peer import Peer, from_earliest, refusal, words_of
from attack.report import Attack, BrokenError, Place, Table, expect
from attack.room import Room
from attack.settings import MALLORY, NINA, OPERATOR, PASSWORD_USER, token

THERE, NOT_THERE = "n-log", "n-unknown"


def _no_login(room: Room) -> Iterator[str]:
    """AMQP without SASL, and SASL without a user."""
    with room.stranger() as peer:
        peer.until(lambda: peer.is_gone or refusal(peer.connection) is not None, "a stranger is not refused")
        got = refusal(peer.connection) or "closed"
    try:
        Peer(room.amqp, Credentials()).close()
    except (AuthenticationError, ConnectError) as error:
        yield f"without SASL: {got}; without a user: {error}"
    else:
        message = "a client without a user is let in"
        raise BrokenError(message)


def refused_login(room: Room, credentials: Credentials, *, source: str = "127.0.0.1") -> str:
    """The words of a login that must fail, from this address. Raises BrokenError: it does not."""
    try:
        Peer(room.amqp, credentials, source=source).close()
    except (AuthenticationError, ConnectError) as error:
        return str(error)
    message = "the login succeeds"
    raise BrokenError(message)


def _bad_credentials(room: Room) -> Iterator[str]:
    words = {
        refused_login(room, Credentials(token=token("x" * 64, MALLORY))),
        refused_login(room, Credentials(token=room.token(MALLORY, iss="https://another.invalid"))),
        refused_login(room, Credentials(token=room.token(MALLORY, aud="another"))),
        refused_login(room, Credentials(token="none.at.all")),
    }
    expect(len(words) == 1, f"refusals differ: {words}")
    known = refused_login(room, Credentials(user=PASSWORD_USER, password="wrong"))
    unknown = refused_login(room, Credentials(user="nobody", password="wrong"))
    expect(known == unknown, f"the answers to a known and an unknown user differ: {known!r}, {unknown!r}")
    yield f"{words.pop()}; known and unknown users alike"


def _expired(room: Room) -> Iterator[str]:
    """Expired before the login, and while connected: also of a client that never reads."""
    words = refused_login(room, Credentials(token=room.token(MALLORY, exp=int(time.time()) - 10)))
    soon = int(time.time()) + 3  # after both have logged in, and before limits.idle_timeout
    with (
        Peer(room.amqp, Credentials(token=room.token(MALLORY, exp=soon))).opened() as reads,
        Peer(room.amqp, Credentials(token=room.token(MALLORY, exp=soon))).opened() as silent,
    ):
        reads.until(lambda: refusal(reads.connection) is not None, "an expired token is not noticed", 30.0)
        condition, told = refusal(reads.connection), words_of(reads.connection)
        expect(condition == names.UNAUTHORIZED_ACCESS, f"closed with {condition}")
        yield f"{words}; while connected: {condition}, {told}"
        silent.until(
            lambda: silent.is_gone or refusal(silent.connection) is not None, "a silent one stays", 30.0
        )


def _revoked(room: Room) -> Iterator[str]:
    """The rules of a user are taken away while its links are attached; then they come back."""
    config = room.folder / "node.toml"
    before = config.read_text()
    with room.peer() as peer:
        sender, receiver = peer.sender("m-log"), peer.receiver("m-log", credit=1, filters=from_earliest())
        peer.until(lambda: sender.credit > 0, "no credit")
        try:
            config.write_text(before.replace(f'users = ["{MALLORY}"]', 'users = ["another"]'))
            room.reload()
            for link in (sender, receiver):
                peer.refused(link, "a link stays after the right is gone")
                expect(refusal(link) == names.UNAUTHORIZED_ACCESS, f"closed with {refusal(link)}")
            again = peer.sender("m-log")
            peer.until(lambda: refusal(again) is not None, "a new link is granted without a right")
            status, _ = peer.request(peer.management(), "READ", names.LOG_TYPE, "m-log")
            expect(status == 403, f"READ without a right: {status}")
            yield f"links closed with {refusal(sender)}, requests {status}"
        finally:
            config.write_text(before)
            room.reload()
    with room.peer() as peer:
        sender = peer.sender("m-log")
        peer.until(lambda: sender.credit > 0, "the right does not come back")


def _state(room: Room) -> object:
    """All that an attack could have changed in the neighbour's log."""
    with room.peer(OPERATOR) as peer:
        links = peer.management()
        _, log = peer.request(links, "READ", names.LOG_TYPE, THERE)
        _, cursors = peer.request(links, "QUERY", names.CURSOR_TYPE, log=THERE)
        _, groups = peer.request(links, "QUERY", names.GROUP_TYPE, log=THERE)
        settings = {
            name: value
            for name, value in log.items()
            if "partition" not in name and name not in {"event-count", "bytes"}
        }
        return str((sorted(settings.items()), [each["id"] for each in cursors["cursors"]], groups["groups"]))


def _wrong_tenant_asks(room: Room) -> Iterator[str]:
    """Every request to `$management`, about the neighbour's log and about one that does not exist."""
    before, asked = _state(room), 0
    with room.peer(NINA, container="keeper") as nina:
        kept = nina.receiver(THERE, name="kept", durable=True)
        nina.until(lambda: not kept.state & proton.Endpoint.REMOTE_UNINIT, "no answer")
        cursors = nina.request(nina.management(), "QUERY", names.CURSOR_TYPE, log=THERE)[1]["cursors"]
        cursor = cursors[0][names.CURSOR_ID]
        before = _state(room)
        with room.peer() as peer:
            links = peer.management()
            for entry in sorted(inventory.requests()):
                match entry.split(" "):
                    case ["$management", type_, operation]:
                        asked += 1
                        _ask_alike(peer, links, operation, type_, cursor)
                    case _:
                        pass
        expect(_state(room) == before, "a stranger has changed something")
        yield f"{asked} kinds of requests: refused alike for a log that is there and one that is not"
        kept.close()
        nina.pump(0.1)


def _ask_alike(peer: Peer, links: Any, operation: str, type_: str, cursor: str) -> None:
    told = []
    for log in (THERE, NOT_THERE):
        named = {names.LOG_TYPE: log, names.CURSOR_TYPE: cursor}.get(type_, "a-group")
        body: dict[str, Any] = {} if type_ == names.LOG_TYPE else {"log": log}
        if operation == "UPDATE":
            body |= {"retention_ms": 1000} if type_ == names.LOG_TYPE else {"position": "@earliest"}
        if operation == "CREATE":
            body["partitions"] = 1
        if operation == names.EXTENTS:
            body, named = {"logs": [log]}, ""
        status, words = peer.request(links, operation, type_, named, **body)
        if operation == "QUERY":
            listed = str(words)
            expect(log not in listed or status != 200, f"QUERY of {type_} shows {log}: {listed[:200]}")
            if type_ == names.CONNECTION_TYPE:
                others = [each for each in words["connections"] if each["user"] != MALLORY]
                expect(not others, f"QUERY of {type_} shows connections of others: {others}")
                words = "their own"  # with figures that change from one answer to the next
        else:
            expect(status == 403, f"{operation} of {type_} on {log}: {status} {words}")
        told.append((status, str(words).replace(NOT_THERE, THERE)))
    expect(told[0] == told[1], f"{operation} of {type_} tells whether a log exists: {told}")


def _wrong_tenant_attaches(room: Room) -> Iterator[str]:
    """Every kind of link to the neighbour's log and to one that does not exist."""
    kinds: dict[str, Callable[[Peer, str], Any]] = {
        "Producing": lambda peer, log: peer.sender(log),
        "Consuming": lambda peer, log: peer.receiver(log, credit=1, filters=from_earliest()),
        "Informing": lambda peer, log: peer.receiver(log + names.INFO_SUFFIX, credit=1),
        "Pending": lambda peer, log: peer.receiver(log, group="theirs"),
        "Kept": lambda peer, log: peer.receiver(log, name="kept", durable=True),
    }
    own = {"Managing", "Replying", "Relaying"}
    known = {entry.split(" ")[1] for entry in inventory.requests() if entry.startswith("attach ")}
    expect(known == set(kinds) | own, f"kinds of links without an attack: {known - set(kinds) - own}")
    with room.peer(container="keeper") as peer:
        for kind, attach in kinds.items():
            told = []
            for log in (THERE, NOT_THERE):
                link = attach(peer, log)
                peer.refused(link, f"{kind} on {log} is not refused")
                expect(refusal(link) == names.UNAUTHORIZED_ACCESS, f"{kind} on {log}: {refusal(link)}")
                told.append(words_of(link).replace(NOT_THERE, THERE))
                link.close()
                peer.pump(0.01)
                link.free()
            expect(told[0] == told[1], f"{kind} tells whether a log exists: {told}")
        words = _relayed(peer, THERE), _relayed(peer, NOT_THERE)
        expect(
            words[0].replace(NOT_THERE, THERE) == words[1].replace(NOT_THERE, THERE),
            f"a relay tells: {words}",
        )
        yield (
            f"{len(kinds)} kinds of links: {names.UNAUTHORIZED_ACCESS}, in the same words; a relay: rejected"
        )


def _relayed(peer: Peer, log: str) -> str:
    link = peer.sender(None)
    peer.until(lambda: link.credit > 0, "no credit for a relay")
    delivery = link.delivery(log)
    link.stream(proton.Message(body=b"x", address=log).encode())
    link.advance()
    peer.until(lambda: int(delivery.remote_state) != 0, "no outcome")
    expect(delivery.remote_state == proton.Delivery.REJECTED, f"a relay to {log} is {delivery.remote_state}")
    return str(delivery.remote.condition.description if delivery.remote.condition else "")


def _attack(name: str, stranger: Stranger, run: Callable[[Room], Iterator[str]]) -> Attack:
    return Attack(
        name, Table.ACCESS, Place.NODE, frozenset({f"node: {stranger}"}), "login and access rules", run
    )


ATTACKS: Final = (
    _attack("a client that does not log in", Stranger.NO_LOGIN, _no_login),
    _attack("wrong passwords and tokens of others", Stranger.BAD_CREDENTIALS, _bad_credentials),
    _attack("a token that expires", Stranger.EXPIRED, _expired),
    _attack("a user whose rules are taken away", Stranger.REVOKED, _revoked),
    _attack("a tenant asks about another's log", Stranger.WRONG_TENANT, _wrong_tenant_asks),
    _attack("a tenant attaches to another's log", Stranger.WRONG_TENANT, _wrong_tenant_attaches),
)
