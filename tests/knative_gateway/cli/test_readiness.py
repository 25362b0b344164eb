"""Whoever started the gateway is told where it listens."""

import json
import os
import socket
from pathlib import Path

from knative_gateway.cli.readiness import announcer


def test_the_file_is_whole_and_goes_at_the_end(tmp_path: Path) -> None:
    file = tmp_path / "ready.json"
    file.write_text("old")
    with announcer(file=file, descriptor=None, notify_socket=None) as ready:
        assert not file.exists()
        ready({"http": ["127.0.0.1:1"]})
        assert json.loads(file.read_text()) == {"http": ["127.0.0.1:1"]}
        assert [path.name for path in tmp_path.iterdir()] == ["ready.json"]
    assert not file.exists()


def test_a_descriptor_gets_one_line() -> None:
    reading, writing = os.pipe()
    with announcer(file=None, descriptor=writing, notify_socket=None) as ready:
        ready({"http": []})
    with os.fdopen(reading) as pipe:
        assert pipe.read() == '{"http": []}\n'


def test_systemd_is_told(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(path)
        with announcer(file=None, descriptor=None, notify_socket=path) as ready:
            ready({})
        assert systemd.recv(99) == b"READY=1"
