"""Subscribers of the attacker: silent, slow, failing, lying, and the resources of a gateway that
they use up.
"""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

from attack.report import Attack, Place, Table, expect
from attack.room import Room, wait_for
from attack.tables.timers import SLACK_S
from knative_gateway.resources.kinds import EVENTING

API: Final = f"/apis/{EVENTING}/v1/namespaces/m"
OK: Final = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"


@dataclass
class Subscriber:
    """A server of the attacker: `answer` is what it sends after each request; None: nothing, ever."""

    answer: bytes | None
    pause_s: float = 0.0
    requests: int = 0
    _open: list[socket.socket] = field(default_factory=list)

    @contextmanager
    def listening(self) -> Iterator[str]:
        """Its URL."""
        server = socket.create_server(("127.0.0.1", 0), backlog=1024)
        worker = threading.Thread(target=self._serve, args=(server,), daemon=True)
        worker.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}/"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            server.close()
            for each in self._open:
                each.close()

    def _serve(self, server: socket.socket) -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            self._open.append(client)
            threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        try:
            while client.recv(1 << 20):
                self.requests += 1
                time.sleep(self.pause_s)
                if self.answer is not None:
                    client.sendall(self.answer)
        except OSError:
            pass


def send_events(room: Room, count: int, size: int = 100) -> None:
    for number in range(count):
        status = room.send("/broker/m/default", f"e{number}", b"x" * size)
        expect(status == 202, f"an event of the attacker: {status}")


def _delete(room: Room, *names: str) -> None:
    for name in names:
        room.ask("DELETE", f"{API}/triggers/{name}")


def _subscriber(
    answer: bytes | None,
    words: str,
    *,
    count: int = 60,
    size: int = 100,
    triggers: int = 3,
    pause_s: float = 0.0,
) -> Callable[[Room], Iterator[str]]:
    """Triggers to a subscriber that behaves like that, and more events than may be in flight."""

    def run(room: Room) -> Iterator[str]:
        subscriber = Subscriber(answer, pause_s)
        names = [f"bad-{number}" for number in range(triggers)]
        with subscriber.listening() as url:
            for name in names:
                room.trigger("m", name, "default", url)
            send_events(room, count, size)
            wait_for(lambda: subscriber.requests > 0, "the subscriber is asked")
            yield (
                f"{triggers} Triggers, {count} events to a subscriber that {words}; it got "
                f"{subscriber.requests} requests"
            )
            _delete(room, *names)

    return run


def _refusing_subscriber(room: Room) -> Iterator[str]:
    """Nothing listens there: attempts fail, and the failures can be read."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    delivery = {"retry": 1, "backoffPolicy": "linear", "backoffDelay": "PT0.1S"}
    room.trigger("m", "refused", "default", f"http://127.0.0.1:{port}/", delivery=delivery)
    send_events(room, 40)
    yield "40 events to a port that nobody listens on"

    def failures() -> str:
        return room.ask("GET", f"{API}/triggers/refused/deliveries")[1]

    wait_for(
        lambda: "dropped" in failures() or "refused" in failures().lower(), "the history names the failure"
    )
    _delete(room, "refused")


def _silent_subscriber_times_out(room: Room) -> Iterator[str]:
    """The attempt ends at its limit, is written down, and the event is given up after its retries."""
    subscriber = Subscriber(None)
    with subscriber.listening() as url:
        room.trigger("m", "silent", "default", url, delivery={"retry": 0})
        send_events(room, 5)
        yield "5 events to a subscriber that never answers"

        def ended() -> bool:
            _, words = room.ask("GET", f"{API}/triggers/silent/deliveries")
            return json.loads(words).get("dropped", 0) >= 1 or "dropped" in words

        wait_for(ended, "an attempt ends", room.subscribers.timeout + SLACK_S)
        _delete(room, "silent")


def _connecting(room: Room) -> Iterator[str]:
    """A subscriber whose host takes no connection: its queue is full and nobody accepts."""
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen(0)
    address = server.getsockname()
    with ExitStack() as stack:
        stack.callback(server.close)
        for _ in range(3):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(address)
        room.trigger("m", "deaf", "default", f"http://127.0.0.1:{address[1]}/", delivery={"retry": 0})
        send_events(room, 5)
        yield "5 events to a host that takes no connection"

        def ended() -> bool:
            return "dropped" in room.ask("GET", f"{API}/triggers/deaf/deliveries")[1]

        wait_for(ended, "a connection attempt ends", room.subscribers.connect_timeout + SLACK_S)
        _delete(room, "deaf")


def attack_on(
    name: str,
    limit: str,
    run: Callable[[Room], Iterator[str]],
    *covers: str,
    table: Table = Table.RESOURCES,
    own: bool = False,
    is_patient: bool = False,
) -> Attack:
    """A row. `own`: it needs a gateway of its own, because it stops that gateway or its node."""
    return Attack(
        name,
        table,
        Place.GATEWAY,
        frozenset(covers),
        limit,
        run,
        is_judged=not own,
        is_long=own,
        is_patient=is_patient,
    )


_REPLY: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-length: 900000\r\ncontent-type: application/json\r\nce-specversion: "
    b"1.0\r\n\r\n" + b"x" * 800_000
)
_LIES: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 7\r\ntransfer-encoding: chunked\r\n\r\n"
    + b"\xff" * 1000
)

ATTACKS: Final = (
    attack_on(
        "a subscriber never answers",
        "subscribers.in_flight",
        _subscriber(None, "never answers"),
        "gateway subscribers: in_flight",
        "gateway subscribers: look_ahead",
    ),
    attack_on(
        "a subscriber never answers large events",
        "subscribers.held",
        _subscriber(None, "never answers", count=20, size=50_000),
        "gateway subscribers: held",
    ),
    attack_on(
        "a subscriber always fails",
        "subscribers.waiting",
        _subscriber(b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n", "answers 500"),
        "gateway subscribers: waiting",
    ),
    attack_on(
        "replies that do not end",
        "subscribers.replies",
        _subscriber(_REPLY, "stops in large replies"),
        "gateway subscribers: replies",
    ),
    attack_on(
        "many Triggers to a subscriber that never answers",
        "subscribers.connections",
        _subscriber(None, "never answers", triggers=15),
        "gateway subscribers: connections",
    ),
    attack_on(
        "attempts that are never answered",
        "subscribers.timeout",
        _silent_subscriber_times_out,
        "gateway subscribers: timeout",
        "subscriber: silent",
        table=Table.TIMERS,
        is_patient=True,
    ),
    attack_on(
        "a host that takes no connection",
        "subscribers.connect_timeout",
        _connecting,
        "gateway subscribers: connect_timeout",
        table=Table.TIMERS,
        is_patient=True,
    ),
    attack_on(
        "a slow subscriber",
        "subscribers.in_flight",
        _subscriber(OK, "takes a second", pause_s=1.0),
        "subscriber: slow",
        table=Table.REMOTES,
    ),
    attack_on(
        "a subscriber that refuses",
        "delivery.retry",
        _refusing_subscriber,
        "subscriber: refusing",
        table=Table.REMOTES,
    ),
    attack_on(
        "a subscriber that lies",
        "the protocol",
        _subscriber(_LIES, "answers what is not HTTP"),
        "subscriber: lying",
        table=Table.REMOTES,
    ),
)
