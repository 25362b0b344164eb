"""Resources and times of a gateway, and the remotes that it depends on: subscribers, its node, files."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from typing import Final

from attack.report import BrokenError, Table, expect
from attack.room import Room, gateway_room, wait_for
from attack.settings import NINA
from attack.tables.pipelines import request
from attack.tables.subscribers import API, Subscriber, attack_on, send_events
from attack.tables.timers import SLACK_S, ends_within
from knative_gateway.api import handlers
from knative_gateway.http.listening import HELD_BYTES_MIN

EVENT: Final = "ce-specversion: 1.0\r\nce-id: 1\r\nce-source: /m\r\nce-type: m\r\n"
STOPPED_S: Final = 0.4
RUNNING_S: Final = 0.1
SLOW_EVENTS: Final = 20


def _body(room: Room) -> Iterator[str]:
    size = int(room.gateway_limits.body) + 1
    told = {
        room.send("/broker/m/default", "large", b"x" * size),
        room.ask("POST", f"{API}/brokers", b"{" * (4 << 20))[0],
    }
    expect(told == {413}, f"statuses {told}")
    yield f"{size} bytes of an event, 4 MiB of an object: 413"


def _batch(room: Room) -> Iterator[str]:
    count = room.gateway_limits.batch_events + 1
    one = {"specversion": "1.0", "source": "/m", "type": "m"}
    body = json.dumps([{**one, "id": str(number)} for number in range(count)]).encode()
    status, words = room.ask(
        "POST", "/broker/m/default", body, content_type="application/cloudevents-batch+json"
    )
    expect(status in {400, 413}, f"{count} events in a batch: {status} {words}")
    yield f"{count} events in a batch: {status}"


def _partitions(room: Room) -> Iterator[str]:
    """A Broker with more partitions than a log may have."""
    told = []
    for number, text in enumerate(("1025", "0", "-1", "1" * 5000)):
        room.make("ConfigMap", "v1", "m", f"wide-{number}", {"data": {"partitions": text}})
        spec = {"spec": {"config": {"apiVersion": "v1", "kind": "ConfigMap", "name": f"wide-{number}"}}}
        room.make("Broker", "eventing.knative.dev/v1", "m", f"wide-{number}", spec)
        wait_for(partial(_is_not_ready, room, f"wide-{number}"), "Ready is False")
        told.append(text[:8])
    yield f"Brokers with partitions {', '.join(told)}: Ready is False"
    for number in range(len(told)):
        room.ask("DELETE", f"{API}/brokers/wide-{number}")


def _is_not_ready(room: Room, broker: str) -> bool:
    return '"False"' in room.ask("GET", f"{API}/brokers/{broker}")[1]


def _connections(room: Room) -> Iterator[str]:
    """Idle connections of one address up to the limit: another address gets in, and so do probes."""
    host, _, port = room.http.rpartition(":")
    count = min(room.gateway_limits.connections, 5000) + 20
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(
                socket.create_connection((host, int(port)), timeout=30, source_address=("127.0.0.2", 0))
            )
        status, _ = room.get("/readyz")
        expect(status == 200, f"/readyz is {status} while strangers hold connections")
        expect(room.send("/broker/n/default", "late", user=NINA) == 202, "a tenant cannot send")
        yield f"{count} idle connections; a probe and an event get in"


def _idle(room: Room) -> Iterator[str]:
    """A client that sends nothing more after a request."""
    host, _, port = room.http.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        yield "a connection without a further request"
        ends_within(client, room.gateway_limits.idle)


def _unfinished(room: Room) -> Iterator[str]:
    """Many large bodies that do not end."""
    host, _, port = room.http.rpartition(":")
    body = b"x" * (int(room.gateway_limits.body) - 100_000)
    sent = request(room, "/broker/m/default", method="POST", body=body, more=EVENT)[:-1]
    held_max = int(room.gateway_limits.pending) + int(room.gateway_limits.body) + HELD_BYTES_MIN
    with ExitStack() as stack:
        clients = [
            stack.enter_context(socket.create_connection((host, int(port)), timeout=60))
            for _ in range(held_max // len(sent) + 20)
        ]
        for client in clients:
            with suppress(ConnectionError):  # it is refused before all is sent
                client.sendall(sent)
        answers = []
        for client in clients[:10]:
            with suppress(ConnectionError):
                answers.append(client.recv(64)[9:12])
        expect(
            b"503" in answers and set(answers) <= {b"503", b""},
            f"the oldest of {len(clients)} bodies: {answers}",
        )
        yield f"{len(clients)} bodies without an end: 503 for the oldest"


def _watches(room: Room) -> Iterator[str]:
    host, _, port = room.http.rpartition(":")
    count = 30 if room.is_small else handlers.WATCHES_MAX + 1
    with ExitStack() as stack:
        last = b""
        for _ in range(count):
            client = stack.enter_context(socket.create_connection((host, int(port)), timeout=60))
            client.sendall(request(room, "/api/v1/namespaces/m/configmaps?watch=1"))
        last = client.recv(4096)
        room.make("ConfigMap", "v1", "m", f"watched-{time.time_ns()}", {"data": {"text": "x" * 10_000}})
        wanted = b"200" if room.is_small else b"429"
        expect(wanted in last[:16], f"watch {count}: {last[:60]!r}")
        yield f"{count} watches; the last is answered with {last[9:12].decode()}"


# -- the log node and files


def _node_pid(room: Room) -> int:
    pid = room.process.node_pid  # type: ignore[attr-defined]  # a GatewayProcess
    assert isinstance(pid, int)
    return pid


def _silent_node(room: Room) -> Iterator[str]:
    """The node stops for a while: senders are told within limits.append, and everything goes on after it."""
    with gateway_room(room.folder / "silent-node", is_small=True, beside=False, append=2.0) as own:
        pid = _node_pid(own)
        os.kill(pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            status = own.send("/broker/m/default", "1")
            took = time.monotonic() - began
            expect(status == 503, f"an event while the node does not answer: {status}")
            expect(took < own.gateway_limits.append + SLACK_S, f"the answer took {took:.1f} s")
            told = _flood_events(own)
            yield f"503 after {took:.1f} s; {told}"
            wait_for(lambda: own.get("/readyz")[0] == 503, "/readyz says so")
        finally:
            os.kill(pid, signal.SIGCONT)
        wait_for(
            lambda: own.get("/readyz")[0] == 200 and own.send("/broker/m/default", "2") == 202,
            "events are taken again",
        )


def _slow_node(room: Room) -> Iterator[str]:
    """The node is stopped most of the time: events are taken, later."""
    with gateway_room(room.folder / "slow-node", is_small=True, beside=False) as own:
        pid = _node_pid(own)
        ended = threading.Event()

        def stutter() -> None:
            while not ended.is_set():
                os.kill(pid, signal.SIGSTOP)
                time.sleep(STOPPED_S)
                os.kill(pid, signal.SIGCONT)
                time.sleep(RUNNING_S)

        worker = threading.Thread(target=stutter)
        worker.start()
        try:
            statuses = [own.send("/broker/m/default", str(number)) for number in range(SLOW_EVENTS)]
            expect(set(statuses) == {202}, f"events while the node is slow: {statuses}")
            yield (
                f"{len(statuses)} events while the node is stopped {STOPPED_S:g} s of "
                f"{STOPPED_S + RUNNING_S:g} s: 202"
            )
        finally:
            ended.set()
            worker.join()
        wait_for(lambda: own.get("/readyz")[0] == 200, "the gateway is ready")


def _flood_events(room: Room) -> str:
    """More events than may wait: each is answered with 503."""
    host, _, port = room.http.rpartition(":")
    sent = request(room, "/broker/m/default", method="POST", body=b"x" * 20_000, more=EVENT)
    count = int(room.gateway_limits.pending) // 20_000 + 50
    answers: list[bytes] = []
    with ExitStack() as stack:
        held = [
            stack.enter_context(socket.create_connection((host, int(port)), timeout=60))
            for _ in range(min(count, room.gateway_limits.connections - 40))
        ]
        for client in held:
            client.sendall(sent * 2)
        answers = [client.recv(64)[9:12] for client in held]
    expect(set(answers) == {b"503"}, f"answers {set(answers)}")
    return f"{len(answers)} events at once: 503"


def _killed_node(room: Room) -> Iterator[str]:
    """The node is killed: the gateway starts it again."""
    with gateway_room(room.folder / "killed-node", is_small=True, beside=False) as own:
        os.kill(_node_pid(own), signal.SIGKILL)
        yield "the node is killed"
        wait_for(
            lambda: own.get("/readyz")[0] == 200 and own.send("/broker/m/default", "1") == 202,
            "events are taken again",
        )


def _locked_database(room: Room) -> Iterator[str]:
    """Another process holds the lock of the state database: objects are refused with 503, events go on."""
    [path] = [
        each for each in (room.process.data_dir).glob("*") if each.suffix in {".db", ".sqlite", ".sqlite3"}
    ]
    database = sqlite3.connect(path, isolation_level=None, timeout=10)
    try:
        database.execute("BEGIN EXCLUSIVE")
        began = time.monotonic()
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"locked-{time.time_ns()}"}}
        status, _ = room.ask("POST", "/api/v1/namespaces/m/configmaps", body)
        took = time.monotonic() - began
        expect(status == 503, f"an object while the database is locked: {status}")
        yield f"a write of an object: 503 after {took:.1f} s"
    finally:
        database.close()
    wait_for(
        lambda: room.ask("POST", "/api/v1/namespaces/m/configmaps", body)[0] in {201, 409},
        "objects are written again",
    )


def _lying_keys(room: Room) -> Iterator[str]:
    """The files of tokens and keys are broken, then gone: the old ones stay in force."""
    tokens, keys = room.folder / "tokens.csv", room.folder / "jwt.pem"
    before = tokens.read_text(), keys.read_bytes()
    refused = "not_reloaded", "reload_incomplete", "reload_failed"

    def told() -> int:
        return sum(room.words.count(word) for word in refused)

    try:
        for broken in ("\x00" * 100, None):
            earlier = told()
            for path in (tokens, keys):
                path.write_text(broken) if broken is not None else path.unlink()
            os.kill(room.process.pid, signal.SIGHUP)
            wait_for(partial(_more, told, earlier), "the reload is refused in the log")
            expect(room.ask("GET", "/api/v1/namespaces/m/configmaps")[0] == 200, "the old tokens are gone")
            expect(
                room.ask("GET", "/api/v1/namespaces/m/configmaps", user=None)[0] == 401, "no token is needed"
            )
        yield "broken and missing files of tokens: the old ones stay"
    finally:
        tokens.write_text(before[0])
        tokens.chmod(0o600)
        keys.write_bytes(before[1])
        room.reload()


def _more(count: Callable[[], int], than: int) -> bool:
    return count() > than


def _drain(room: Room) -> Iterator[str]:
    """SIGTERM while a subscriber and clients hang."""
    subscriber = Subscriber(None)
    with (
        gateway_room(room.folder / "draining", is_small=True, beside=False) as own,
        subscriber.listening() as url,
        ExitStack() as stack,
    ):
        own.trigger("m", "hangs", "default", url)
        send_events(own, 20)
        host, _, port = own.http.rpartition(":")
        for _ in range(10):
            client = stack.enter_context(socket.create_connection((host, int(port)), timeout=60))
            client.sendall(request(own, "/api/v1/namespaces/m/configmaps?watch=1"))
            half = stack.enter_context(socket.create_connection((host, int(port)), timeout=60))
            half.sendall(b"POST /broker/m/default HTTP/1.1\r\ncontent-length: 100\r\n\r\n")
        process = own.process.process
        assert process is not None
        process.send_signal(signal.SIGTERM)
        yield "20 deliveries, 10 watches and 10 half requests that hang"
        try:
            status = process.wait(own.gateway_limits.drain + 10 + SLACK_S)
        except subprocess.TimeoutExpired:
            message = "the gateway does not end"
            raise BrokenError(message) from None
        expect(status == 0, f"the gateway ended with {status}")


ATTACKS: Final = (
    attack_on(
        "large bodies that do not end",
        "limits.pending",
        _unfinished,
        "gateway limits: pending",
    ),
    attack_on("events and objects that are too large", "limits.body", _body, "gateway limits: body"),
    attack_on("a batch of too many events", "limits.batch_events", _batch, "gateway limits: batch_events"),
    attack_on(
        "Brokers with odd numbers of partitions", "logs.partitions", _partitions, "gateway logs: partitions"
    ),
    attack_on(
        "idle connections up to the limit", "limits.connections", _connections, "gateway limits: connections"
    ),
    attack_on(
        "a client without a further request",
        "limits.idle",
        _idle,
        "gateway limits: idle",
        table=Table.TIMERS,
        is_patient=True,
    ),
    attack_on(
        "as many watches as may be", "WATCHES_MAX", _watches, "knative_gateway.api.handlers:WATCHES_MAX"
    ),
    attack_on(
        "the log node does not answer",
        "limits.append, limits.pending",
        _silent_node,
        "gateway limits: append",
        "gateway limits: pending",
        "gateway limits: pending_events",
        "log node: silent",
        "knative_gateway.engine.event_log:_ANSWER_S",
        table=Table.REMOTES,
        own=True,
    ),
    attack_on(
        "the log node is slow",
        "limits.append",
        _slow_node,
        "log node: slow",
        table=Table.REMOTES,
        own=True,
    ),
    attack_on(
        "the log node is killed",
        "the gateway starts it again",
        _killed_node,
        "log node: refusing",
        table=Table.REMOTES,
        own=True,
    ),
    attack_on(
        "the database file is locked",
        "BUSY_MS",
        _locked_database,
        "database file: silent",
        "database file: refusing",
        "knative_gateway.store.engines:BUSY_MS",
        "knative_gateway.store.database:WRITE_WAIT_S",
        table=Table.REMOTES,
    ),
    attack_on(
        "files of tokens are broken and missing",
        "the old ones stay",
        _lying_keys,
        "keys of tokens: lying",
        "keys of tokens: refusing",
        table=Table.REMOTES,
    ),
    attack_on(
        "deliveries, watches and requests that hang at the end",
        "limits.drain",
        _drain,
        "gateway limits: drain",
        "knative_gateway.running.stopping:EXIT_S",
        table=Table.TIMERS,
        own=True,
    ),
)
