"""A node in a process of its own, behind real sockets: conversations with and without a log-in, HTTP and
WebSocket, several at once and cut off anywhere. After each input a client that behaves must be served; the
node's log must hold no traceback, and its memory must stay.
"""

import atexit
import base64
import contextlib
import re
import socket
import tempfile
import time
from pathlib import Path
from typing import Final

from amqp_streams.client import blocking
from amqp_streams.server.identity.users import UsersFile
from amqp_streams.wire.encoder import encode
from amqp_streams.wire.frames import frame
from amqp_streams.wire.types import Described, Symbol, ULong
from examples.node import NodeProcess
from fuzz.draw import Draw
from fuzz.target import Target, WrongError
from fuzz.targets.engine.sasl import login
from fuzz.targets.engine.speech import conversation

_CONNECTIONS_MAX: Final = 6
_WARM_UP: Final = 100
_GROWTH_BYTES_MAX: Final = 96 << 20
_TIMEOUT_S: Final = 10.0
_TRACEBACK: Final = re.compile(rb"Traceback|\[critical|\[error ")
_CONFIGURATION: Final = """
sync = "never"
log_level = "info"
[logs.health]
[logs.events]
partitions = 2
segment_bytes = "1MiB"
retention_bytes = "4MiB"
[logs.single]
[limits]
unauthenticated = "2s"
message_bytes = "256KiB"
frame_bytes = "64KiB"
partitions = 64
"""


class Node:
    """The process, started with the first input; a new one when it died."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fuzz-server-")
        folder = Path(self._folder.name)
        UsersFile.load(folder / "users.json").add("user", "password")
        (folder / "node.toml").write_text(_CONFIGURATION)
        options = (
            "--config",
            str(folder / "node.toml"),
            "--users",
            str(folder / "users.json"),
            "--admin-listen",
            "127.0.0.1:0",
        )
        self.process = NodeProcess(folder, *options)
        self.process.start()
        self._read = 0
        self._inputs = 0
        self._warm_bytes = 0

    def address(self, listener: str) -> tuple[str, int]:
        """Where it listens."""
        host, _, port = self.process.addresses[listener][0].rpartition(":")
        return host, int(port)

    def check(self) -> None:
        """That it is alive, said nothing that it should not, and did not grow.

        Raises:
            WrongError: otherwise.
        """
        process = self.process.process
        if process is None or process.poll() is not None:
            words = f"the node ended with {process and process.returncode}: {self.process.words[-3000:]}"
            self.stop()
            raise WrongError(words)
        with (self.process.folder / "node.log").open("rb") as words_now:
            words_now.seek(self._read)
            said = words_now.read()
        self._read += len(said)
        if found := _TRACEBACK.search(said):
            words = (
                "the node logged:"
                f" {said[max(0, found.start() - 500) : found.start() + 4000].decode(errors='replace')}"
            )
            raise WrongError(words)
        self._inputs += 1
        used = _resident_bytes(process.pid)
        # A password that is checked takes 64 MiB meanwhile: only memory that stays counts.
        until = time.monotonic() + _TIMEOUT_S
        while self._grown(used) and time.monotonic() < until:
            time.sleep(0.1)
            used = _resident_bytes(process.pid)
        if self._inputs == _WARM_UP:
            self._warm_bytes = used
        if self._grown(used):
            words = (
                f"the node's memory grew from {self._warm_bytes >> 20} MiB to {used >> 20} MiB in"
                f" {self._inputs - _WARM_UP} inputs"
            )
            self._warm_bytes = used
            raise WrongError(words)

    def _grown(self, used: int) -> bool:
        return bool(self._warm_bytes) and used > self._warm_bytes + _GROWTH_BYTES_MAX

    def stop(self) -> None:
        """End it."""
        global _node  # noqa: PLW0603  one a process
        _node = None
        self.process.__exit__()
        self._folder.cleanup()


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


_node: Node | None = None


def _running() -> Node:
    global _node  # noqa: PLW0603  one a process
    if _node is None:
        _node = Node()
        atexit.register(close)
    return _node


def close() -> None:
    """End the node, if there is one."""
    if _node is not None:
        _node.stop()


def run(data: bytes) -> str:
    """Some connections at once."""
    draw = Draw(data)
    node = _running()
    speakers = [_speak(node, draw) for _ in range(1 + draw.below(_CONNECTIONS_MAX))]
    shown = []
    for speaker in speakers:
        if draw.chance(3):
            speaker.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00"
            )  # a reset instead of an end
        elif draw.chance(2):
            speaker.settimeout(0.02)
            with contextlib.suppress(OSError):
                shown.append(len(speaker.recv(65536)) // 64)
        speaker.close()
    _serves_others(node)
    node.check()
    return str(sorted(shown)[:2])


def _speak(node: Node, draw: Draw) -> socket.socket:
    kind = draw.below(9)
    speaker = socket.create_connection(
        node.address("admin" if kind >= 6 and "admin" in node.process.addresses else "amqp"), timeout=2
    )
    match kind:
        case 0 | 1 | 2 | 3:
            blocks = conversation(draw)
        case 4:
            blocks = [_LOGIN, *conversation(draw)]
        case 5:
            blocks = login(draw)
        case 6:
            blocks = [_upgrade(draw), *[_websocket(draw, block) for block in conversation(draw)]]
        case 7:
            blocks = [_upgrade(Draw(b"")), *[_websocket(draw, draw.raw(60)) for _ in range(draw.below(8))]]
        case _:
            blocks = [
                draw.pick((b"GET ", b"POST ", b""))
                + draw.pick((b"/metrics", b"/healthz", b"/", draw.raw(30)))
                + draw.pick((_REST, draw.raw(60)))
            ]
    with contextlib.suppress(OSError):
        for block in blocks:
            speaker.sendall(block)
    return speaker


_LOGIN: Final = b"AMQP\x03\x01\x00\x00" + frame(
    0, encode(Described(ULong(0x41), [Symbol("ANONYMOUS"), b"x"])), type=1
)
_REST: Final = b" HTTP/1.1\r\nHost: x\r\n\r\n"


def _upgrade(draw: Draw) -> bytes:
    protocol = draw.pick((b"amqp", b"amqp", b"amqp", b"x", draw.raw(10)))
    key = base64.b64encode(draw.raw(16).ljust(16, b"\0"))
    return (
        b"GET " + draw.pick((b"/", b"/amqp", b"/ws")) + b" HTTP/1.1\r\nHost: x\r\n"
        b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: " + key + b"\r\nSec-WebSocket-Protocol: " + protocol + b"\r\n\r\n"
    )  # fmt: skip


def _websocket(draw: Draw, block: bytes) -> bytes:
    """One frame of RFC 6455, masked with nothing, and now and then not what it should be."""
    first = draw.pick((0x82, 0x82, 0x82, 0x02, 0x80, 0x81, 0x89, 0x88, 0xF2))
    size = len(block)
    head = bytes((first, 0x80 | size)) if size < 126 else bytes((first, 0xFE)) + size.to_bytes(2)
    return head + bytes(4) + block if not draw.chance(12) else head[:1] + draw.raw(10) + block


def _serves_others(node: Node) -> None:
    try:
        with (
            blocking.connect(node.process.url) as client,
            client.consumer("health") as consumer,
            client.producer("health") as producer,
        ):
            producer.send(b"\x00\x53\x75\xa0\x02ok", timeout=_TIMEOUT_S)
            events = consumer.receive(1, timeout=_TIMEOUT_S)
    except Exception as error:
        words = (
            f"a client that behaves was not served: {type(error).__name__}:"
            f" {error}\n{node.process.words[-1500:]}"
        )
        raise WrongError(words) from error
    if not events:
        words = "a client that behaves got nothing"
        raise WrongError(words)


TARGET: Final = Target("server", run, seconds_max=20.0, guided=False, share=4.0, close=close)
