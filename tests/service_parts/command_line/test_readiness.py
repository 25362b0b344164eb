"""The process that started the node learns its addresses, in whole lines only."""

import json
import os
import socket
from pathlib import Path

import pytest

from service_parts.command_line.readiness import announcer

ADDRESSES = {"amqp": ["127.0.0.1:5672"], "admin": []}


def test_the_file_appears_whole_when_ready_and_goes_with_the_node(tmp_path: Path) -> None:
    file = tmp_path / "node.json"
    with announcer(file=file, descriptor=None, notify_socket=None) as ready:
        assert not file.exists()
        ready(ADDRESSES)
        assert json.loads(file.read_text()) == ADDRESSES
        assert list(tmp_path.iterdir()) == [file]
    assert not file.exists()


def test_a_file_left_by_a_node_that_was_killed_does_not_pass_for_readiness(tmp_path: Path) -> None:
    file = tmp_path / "node.json"
    file.write_text("{}")
    with announcer(file=file, descriptor=None, notify_socket=None):
        assert not file.exists()


def test_the_file_goes_when_the_node_fails_too(tmp_path: Path) -> None:
    file = tmp_path / "node.json"

    def fail() -> None:
        with announcer(file=file, descriptor=None, notify_socket=None) as ready:
            ready(ADDRESSES)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert not file.exists()


def test_a_descriptor_gets_one_line_and_is_closed() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading) as lines, announcer(file=None, descriptor=writing, notify_socket=None) as ready:
        ready(ADDRESSES)
        assert json.loads(lines.read()) == ADDRESSES  # read() ends because the other side is closed


def test_systemd_is_notified(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address)
        with announcer(file=None, descriptor=None, notify_socket=address) as ready:
            ready(ADDRESSES)
        assert systemd.recv(100) == b"READY=1"
