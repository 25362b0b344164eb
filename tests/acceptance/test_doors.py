"""The doors of a node: TLS, WebSocket, IPv6, users, the admin listener, and peers that hold a door open."""

import json
import os
import signal
import socket
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from proton import Connection, Transport

from amqp_streams.client import AuthenticationError, Event, TlsOptions, connect
from amqp_streams.client.blocking import connect as connect_blocking
from examples.node import NodeProcess
from tests.acceptance.conftest import Cli, StartNode
from tests.amqp_streams.server.peers import Authority


def round_trip(
    url: str, *, tls: TlsOptions | None = None, user: str | None = None, password: str | None = None
) -> int:
    """Send one event to `temps`; how many there are now."""
    with connect_blocking(url, tls=tls, user=user, password=password) as client:
        with client.producer("temps") as producer:
            producer.send(Event("x"))
        return sum(partition.event_count or 0 for partition in client.info("temps").partitions)


def get(node: NodeProcess, path: str) -> tuple[int, str]:
    """Status and text of an HTTP request to the admin listener."""
    try:
        with urllib.request.urlopen(f"http://{node.addresses['admin'][0]}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_tls_is_served_with_the_nodes_certificate(start_node: StartNode, authority: Authority) -> None:
    issued = authority.issue("node")
    node = start_node(
        "--listen-tls", "127.0.0.1:0", "--tls-certificate", str(issued.certificate),
        "--tls-key", str(issued.key), log="temps:1"
    )  # fmt: skip
    url = f"amqps://{node.addresses['amqp'][1]}"
    assert round_trip(url, tls=TlsOptions(ca_file=authority.ca)) == 1


def test_sighup_takes_a_new_certificate_and_open_connections_stay(
    start_node: StartNode, authority: Authority, tmp_path: Path
) -> None:
    old, new = authority.issue("old"), authority.issue("new")
    certificate, key = tmp_path / "node.pem", tmp_path / "node.key"
    certificate.write_bytes(old.certificate.read_bytes())
    key.write_bytes(old.key.read_bytes())
    node = start_node(
        "--listen-tls",
        "127.0.0.1:0",
        "--tls-certificate",
        str(certificate),
        "--tls-key",
        str(key),
        log="temps:1",
    )
    host, _, port = node.addresses["amqp"][1].partition(":")

    def shown() -> str:
        with (
            socket.create_connection((host, int(port)), timeout=60) as plain,
            authority.client_context().wrap_socket(plain, server_hostname="localhost") as secured,
        ):
            return str(dict(pair[0] for pair in secured.getpeercert()["subject"])["commonName"])  # type: ignore[index,misc]

    assert shown() == "old"
    with (
        connect_blocking(f"amqps://{host}:{port}", tls=TlsOptions(ca_file=authority.ca)) as client,
        client.producer("temps") as producer,
    ):
        producer.send(Event("before"))
        certificate.write_bytes(new.certificate.read_bytes())
        key.write_bytes(new.key.read_bytes())
        os.kill(node.pid, signal.SIGHUP)
        deadline = time.monotonic() + 60
        while shown() != "new":
            assert time.monotonic() < deadline, node.words
            time.sleep(0.05)
        assert producer.send(Event("after")).attempts == 1


def test_a_certificate_of_an_unknown_authority_is_not_trusted(
    start_node: StartNode, authority: Authority, tmp_path: Path
) -> None:
    issued = Authority(tmp_path / "strangers").issue("node")
    node = start_node(
        "--listen-tls",
        "127.0.0.1:0",
        "--tls-certificate",
        str(issued.certificate),
        "--tls-key",
        str(issued.key),
    )
    host, _, port = node.addresses["amqp"][1].partition(":")
    with (
        socket.create_connection((host, int(port)), timeout=60) as plain,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        authority.client_context().wrap_socket(plain, server_hostname="localhost")


def test_amqp_over_websocket_comes_through_the_admin_listener(start_node: StartNode) -> None:
    node = start_node("--admin-listen", "127.0.0.1:0", log="temps:1")
    assert round_trip(f"ws://{node.addresses['admin'][0]}") == 1


def test_health_readiness_and_metrics_are_served_over_http(start_node: StartNode, cli: Cli) -> None:
    node = start_node("--admin-listen", "127.0.0.1:0", log="temps:1")
    assert get(node, "/healthz")[0] == 200
    assert get(node, "/readyz")[0] == 200
    cli(node, "send", "temps", given="one\ntwo\n")
    status, figures = get(node, "/metrics")
    assert status == 200
    assert any(
        line.startswith("amqp_streams_") and 'log="temps"' in line and line.endswith(" 2.0")
        for line in figures.splitlines()
    )
    assert get(node, "/nothing")[0] == 404


def test_ipv6_is_served(start_node: StartNode) -> None:
    if not socket.has_ipv6 or not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    node = start_node(listen="[::1]:0", log="temps:1")
    assert node.url.startswith("amqp://[::1]:")
    assert round_trip(node.url) == 1


def test_users_of_the_file_get_in_with_the_right_password_only_and_new_ones_after_sighup(
    start_node: StartNode, cli: Cli, tmp_path: Path
) -> None:
    users = tmp_path / "users"
    node = NodeProcess(tmp_path / "unused")
    cli(
        node,
        "user",
        "add",
        "alice",
        "--users",
        str(users),
        "--password-stdin",
        given="s3cret\n",
        url="amqp://127.0.0.1:1",
    )
    assert "s3cret" not in users.read_text()
    node = start_node("--users", str(users), "--anonymous", "never", log="temps:1")
    assert round_trip(node.url, user="alice", password="s3cret") == 1
    for user, password in (("alice", "wrong"), ("bob", "s3cret"), (None, None)):
        with pytest.raises(AuthenticationError):
            round_trip(node.url, user=user, password=password)
    cli(node, "user", "add", "bob", "--users", str(users), "--password-stdin", given="s3cret\n")
    os.kill(node.pid, signal.SIGHUP)
    deadline = time.monotonic() + 60
    while "reloaded" not in node.words:
        assert time.monotonic() < deadline, node.words
        time.sleep(0.05)
    assert round_trip(node.url, user="bob", password="s3cret") == 2
    assert "s3cret" not in node.words


def test_unauthenticated_clients_are_admitted_on_loopback_only(start_node: StartNode) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: asks for our address towards the world
            own = probe.getsockname()[0]
        except OSError:
            pytest.skip("this machine has no address but loopback")
    node = start_node(listen=f"{own}:0", log="temps:1")
    with pytest.raises(AuthenticationError):
        round_trip(node.url)


def test_a_peer_that_falls_silent_is_dropped_after_the_idle_timeout(
    start_node: StartNode, tmp_path: Path
) -> None:
    """A half-open connection: the peer opened it, then its machine failed, and no more bytes arrive, not even
    an end.
    """
    config = tmp_path / "node.toml"
    config.write_text('[limits]\nidle_timeout = "1s"\n')
    node = start_node("--config", str(config), log="temps:1")
    host, _, port = node.addresses["amqp"][0].partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as silent:
        began = time.monotonic()
        silent.sendall(_opening())
        while silent.recv(65536):
            pass
        assert time.monotonic() - began > 0.5
    with connect_blocking(node.url, idle_timeout_ms=1000) as lively:
        time.sleep(2.5)
        assert lively.info("temps").partitions, "one that sends heartbeats stays"


def _opening() -> bytes:
    connection, transport = Connection(), Transport()
    connection.container = "silent"
    connection.open()
    transport.bind(connection)
    opening = transport.peek(4096)
    assert opening
    transport.unbind()
    return bytes(opening)


async def test_two_hundred_connections_are_served_at_once(start_node: StartNode) -> None:
    node = start_node(log="temps:4")
    clients = [connect(node.url, container_id=f"client-{number}", timeout=60) for number in range(200)]
    try:
        for start in range(0, 200, 20):
            for client in clients[start : start + 20]:
                await client.connect()
        producers = [client.producer("temps") for client in clients]
        for producer in producers:
            await producer.open()
        pending = [await producer.post(Event(str(number))) for number, producer in enumerate(producers)]
        for one in pending:
            await one
        info = await clients[0].info("temps")
        assert sum(partition.event_count or 0 for partition in info.partitions) == 200
        for producer in producers:
            await producer.close()
    finally:
        for client in clients:
            await client.close()


def test_the_ready_file_names_every_address(start_node: StartNode) -> None:
    node = start_node("--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
    told = json.loads((node.folder / "ready.json").read_text())
    assert told == node.addresses
    assert [len(told[kind]) for kind in ("amqp", "admin")] == [2, 1]
