"""Nodes with `Peers` on real sockets, and other programs that connect to them."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from amqp_streams.homes.messages import (
    Answer,
    Asked,
    Change,
    Described,
    Description,
    Identity,
    Inquiry,
    Outcome,
    Report,
    Reported,
    Subject,
)
from amqp_streams.homes.protocol import frames
from amqp_streams.homes.protocol.dialogue import NONCE_BYTES, Dialogue, Role
from amqp_streams.homes.protocol.frames import FRAME_BYTES_MAX, Frame, Splitter
from amqp_streams.peering_settings import PeeringSettings
from amqp_streams.server.homes.peering import Peers
from amqp_streams.streams.groups.claims import Claim, Wanted

SECRET = "0123456789abcdef0123456789abcdef"
WAIT_S = 30.0


def secret_file(folder: Path, *secrets: str, name: str = "secret") -> Path:
    path = folder / name
    path.touch(mode=0o600)
    path.write_text("\n".join(secrets or (SECRET,)) + "\n")
    return path


def identity(process: str, cluster: str = "cluster", prefix: str = "prefix") -> Identity:
    return Identity(process, cluster, prefix)


def report(node: str, number: int = 1, *, bucket: int = 0, links: int = 1) -> Report:
    wanted = Wanted("log", "user", "container", "link", Claim("group", None, None, "member"), True, (0, 0))
    return Report(node, bucket, 1, number, tuple(Reported(each, wanted) for each in range(links)))


def answer(number: int = 1, *, bucket: int = 0) -> Answer:
    return Answer(bucket, 1, number, processed=True, remaining_ms=3000)


async def until(condition: Callable[[], object], tick: Callable[[], None] = lambda: None) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            tick()
            await asyncio.sleep(0.002)


def asked(number: int = 1, group: str = "g") -> Asked:
    kept = frozenset({"manage", "receive"})
    return Asked(
        number, 0, Change.REMOVE, "consumer-group", "log", group, None, None, "user", kept, ((0, 7), (1, 8))
    )


def inquiry(number: int = 1, *, subjects: int = 1) -> Inquiry:
    return Inquiry(number, tuple(Subject(3, "log", f"group {each}") for each in range(subjects)))


def owning(at: int) -> Described:
    return Described(at, True, True, 1, ((0, "m" * 100), (1, "n")))


class Heard:
    """What becomes of the questions of a node, or of its inquiries."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[str, int, object]] = []

    def of(self, what: str) -> list[tuple[int, object]]:
        return [(number, more) for kind, number, more in self.outcomes if kind == what]

    def sent(self, number: int) -> None:
        self.outcomes.append(("sent", number, None))

    def answered(self, address: str, result: Outcome | Description) -> None:
        self.outcomes.append(("answered", result.number, result))

    def lost(self, address: str, number: int) -> None:
        self.outcomes.append(("lost", number, address))

    def not_taken(self, address: str, number: int) -> None:
        self.outcomes.append(("not taken", number, address))


class Node:
    """A node: what it heard, and a home that answers each report.

    It answers each change and inquiry, unless it is `mute`.
    """

    def __init__(self, me: Identity, settings: PeeringSettings) -> None:
        self.reports: list[Report] = []
        self.answers: list[Answer] = []
        self.asked: list[tuple[str, Asked]] = []
        self.inquired: list[tuple[str, Inquiry]] = []
        self.heard, self.described = Heard(), Heard()
        self.me = me
        self.fails = self.mute = False
        self.peers = Peers(
            me,
            settings,
            on_report=self._reported,
            on_answer=self.answers.append,
            on_asked=self._asked,
            questions=self.heard,
            on_inquiry=self._inquired,
            inquiries=self.described,
        )

    def _asked(self, process: str, asked: Asked, answer: Callable[[Outcome], None]) -> None:
        self.asked.append((process, asked))
        if not self.mute:
            answer(Outcome(asked.number, 200, "moved", "{}"))

    def _inquired(self, process: str, inquiry: Inquiry, answer: Callable[[Description], None]) -> None:
        self.inquired.append((process, inquiry))
        if not self.mute:
            items = tuple(owning(at) for at in range(len(inquiry.subjects)))
            answer(Description(inquiry.number, (), items))

    def _reported(self, report: Report) -> None:
        if self.fails:
            raise RuntimeError("a fault of the home")
        self.reports.append(report)
        self.peers.send_answer(report.node, answer(report.number, bucket=report.bucket))


Start = Callable[..., Awaitable[Node]]


@contextlib.asynccontextmanager
async def starting(folder: Path) -> AsyncIterator[Start]:
    """Starts nodes with the usual secret, and closes them."""
    nodes: list[Node] = []

    async def start(process: str = "", cluster: str = "cluster", **settings: Any) -> Node:
        given = {"listen": "127.0.0.1:0", "secret_file": folder / "secret"} | settings
        if given["secret_file"] == folder / "secret" and not (folder / "secret").exists():
            secret_file(folder)
        node = Node(
            identity(process or f"process {len(nodes)}", cluster), PeeringSettings.model_validate(given)
        )
        nodes.append(node)
        await node.peers.open()
        return node

    try:
        yield start
    finally:
        for node in nodes:
            await node.peers.close()


class Stranger:
    """Another program, connected to a node."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.splitter = Splitter()
        self.splitter.bytes_max = FRAME_BYTES_MAX

    @classmethod
    async def to(cls, address: str) -> "Stranger":
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    def send(self, *data: bytes) -> None:
        self.writer.writelines(data)

    async def frame(self) -> Frame | None:
        """The next frame. None: the node has closed the connection."""
        async with asyncio.timeout(WAIT_S):
            while (found := self.splitter.next()) is None:
                try:
                    data = await self.reader.read(1 << 16)
                except ConnectionResetError:
                    data = b""
                if not data:
                    return None
                self.splitter.feed(data)
        return found

    async def frames(self) -> list[Frame]:
        """All frames until the node closes the connection."""
        found = []
        while (frame := await self.frame()) is not None:
            found.append(frame)
        return found

    async def prove(self, process: str, secret: str = SECRET) -> None:
        """Become a node."""
        dialogue = Dialogue(Role.CALLER, identity(process), (secret.encode(),), os.urandom(NONCE_BYTES))
        self.send(*dialogue.begin())
        while not dialogue.done:
            frame = await self.frame()
            assert frame is not None, "the node closed the connection"
            self.send(*dialogue.take(frame))

    async def close(self) -> None:
        if self.writer.is_closing():
            return
        self.writer.transport.abort()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


Connect = Callable[[str], Awaitable[Stranger]]


@contextlib.asynccontextmanager
async def connecting() -> AsyncIterator[Connect]:
    """Connects strangers, and closes their connections."""
    strangers: list[Stranger] = []

    async def connect(address: str) -> Stranger:
        strangers.append(await Stranger.to(address))
        return strangers[-1]

    try:
        yield connect
    finally:
        for stranger in strangers:
            await stranger.close()


def bodies(kind: frames.Kind, *parts: bytes) -> bytes:
    return b"".join(frames.encoded(kind, part) for part in parts)
