"""The connections of a process, and the calls that are retried."""

import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from amqp_streams.client import (
    AuthenticationError,
    ClosedError,
    ConnectError,
    LinkRefusedError,
    ManagementError,
)
from amqp_streams.client.blocking import Client
from amqp_streams.client.endpoints.rotation import Health
from examples.node import NodeProcess
from spark_connector.errors import NodeError, StreamNotFoundError
from spark_connector.node import connections
from spark_connector.options.settings import ConnectionOptions, read_options
from tests.spark_connector import logs


@pytest.fixture
def options(node: NodeProcess) -> Iterator[ConnectionOptions]:
    found = ConnectionOptions((node.url,), user=None, retries=3, retry_interval_ms=1)
    yield found
    connections.drop(found)


def test_a_process_has_one_connection_of_a_kind(options: ConnectionOptions) -> None:
    first = connections.client(options)
    assert connections.client(ConnectionOptions(options.endpoints, retries=3, retry_interval_ms=1)) is first
    connections.drop(options)
    assert connections.client(options) is not first


def test_a_child_makes_its_own(options: ConnectionOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    first = connections.client(options)
    monkeypatch.setattr("os.getpid", lambda: -1)
    second = connections.client(options)
    assert second is not first
    connections.drop(options)


def caused(cause: Exception) -> ConnectError:
    error = ConnectError("no connection")
    error.__cause__ = cause
    return error


def failing(*errors: Exception) -> Callable[[Client], str]:
    left = list(errors)

    def work(_: Client) -> str:
        if left:
            raise left.pop(0)
        return "done"

    return work


@pytest.mark.parametrize(
    "error",
    [
        ConnectError("nobody"),
        ClosedError("closed"),
        LinkRefusedError("amqp:internal-error", "x"),
        ManagementError(503, "later"),
        ConnectionResetError(),
        TimeoutError(),
        caused(ssl.SSLEOFError()),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_temporary_failure_is_retried(
    options: ConnectionOptions, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert connections.retried(options, "asking", failing(error, error)) == "done"
    assert [record.getMessage().split()[0] for record in caplog.records] == ["node_retry", "node_retry"]


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (AuthenticationError("no"), "login failed"),
        (LinkRefusedError("amqp:unauthorized-access", "not you"), "asking failed: .*not you"),
        (ManagementError(403, "not you"), "asking failed: 403: not you"),
        (
            caused(ssl.SSLCertVerificationError("self-signed")),
            "TLS with this node failed: no connection .*tlsCaFile",
        ),
    ],
    ids=["login", "link", "management", "certificate"],
)
def test_a_permanent_failure_is_reported_at_once(
    options: ConnectionOptions, error: Exception, wanted: str
) -> None:
    with pytest.raises(NodeError, match=wanted):
        connections.retried(options, "asking", failing(error))


@pytest.mark.parametrize(
    "error",
    [LinkRefusedError("amqp:not-found", "no log"), ManagementError(404, "no log")],
    ids=["link", "management"],
)
def test_a_log_that_does_not_exist_is_reported_at_once(options: ConnectionOptions, error: Exception) -> None:
    with pytest.raises(StreamNotFoundError, match=r"no log .log 't', node amqp://"):
        connections.retried(options, "asking", failing(error), where="log 't'")


def test_after_enough_tries_the_error_says_what_where_and_how_often() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        options = ConnectionOptions(
            (f"amqp://127.0.0.1:{port}",), user="me", password="S3CRET", retries=2, retry_interval_ms=1
        )
        with pytest.raises(
            NodeError,
            match=rf"asking failed 3 times in a row, last: .*log 't', node amqp://127.0.0.1:{port}.*retries",
        ) as error:
            connections.retried(options, "asking", failing(), where="log 't'")
    assert "S3CRET" not in str(error.value)


def test_a_node_that_comes_back_is_asked_again(start_node: Callable[..., NodeProcess]) -> None:
    running = start_node()
    options = ConnectionOptions((running.url,), retries=200, retry_interval_ms=20)
    try:
        log = logs.made(connections.client(options))
        running.kill()
        running.launch()
        assert log in connections.retried(options, "asking", lambda client: client.extents([log]))
    finally:
        connections.drop(options)


def test_an_endpoint_that_is_silent_hides_no_other_and_is_tried_last_afterwards(
    node: NodeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that takes data and never answers: powered off, behind a firewall, or hung."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        first = f"amqp://127.0.0.1:{silent.getsockname()[1]}"
        options = ConnectionOptions((first, node.url), connect_timeout_ms=2000, retries=0)
        # The order is that of the list, and a pause is 20 s.
        monkeypatch.setitem(connections._health, options, Health(lambda: 40.0))
        try:
            log = logs.made(connections.client(options))
            assert log in connections.retried(options, "asking", lambda client: client.extents([log]))
            silent.settimeout(60)
            silent.accept()[0].close()
            silent.setblocking(False)
            connections.drop(options)
            assert log in connections.client(options).extents([log])
            with pytest.raises(BlockingIOError):
                silent.accept()
        finally:
            connections.drop(options)


def test_the_error_of_several_endpoints_names_each(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        ports = silent.getsockname()[1], nobody.getsockname()[1]
        options = ConnectionOptions(
            tuple(f"amqp://127.0.0.1:{port}" for port in ports), connect_timeout_ms=200, retries=0
        )
        with pytest.raises(NodeError, match=rf"127.0.0.1:{ports[0]}.*127.0.0.1:{ports[1]}"):
            connections.retried(options, "asking", failing())


def test_secrets_are_read_from_files_when_connecting(tmp_path: Path) -> None:
    options = ConnectionOptions(
        ("amqp://127.0.0.1:1",), user="me", password_file=str(tmp_path / "none"), retries=0
    )
    with pytest.raises(NodeError, match="the file of option 'passwordFile' cannot be read"):
        connections.client(options)
    (tmp_path / "none").write_bytes(b"\xff")
    with pytest.raises(NodeError, match="the file of option 'passwordFile' is not valid UTF-8"):
        connections.client(options)


@pytest.mark.parametrize("option", ["tlsCaFile", "tlsCertificateFile", "tlsKeyFile"])
def test_a_file_of_tls_that_is_missing_is_named(option: str) -> None:
    given = {
        "endpoint": "amqps://127.0.0.1:1",
        "stream": "any",
        "tlsCertificateFile": __file__,
        option: "/none/of/these.pem",
    }
    with pytest.raises(
        NodeError, match=f"the file of option '{option}' cannot be read: .*/none/of/these.pem"
    ):
        connections.client(read_options(given, streaming=False).connection)
