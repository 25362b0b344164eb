"""An echoing AMQP stand-in and certificates, for tests of the listeners."""

import asyncio
import contextlib
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from amqp_streams.authentication import TlsSettings
from amqp_streams.config import Listener
from amqp_streams.server.listening.channel import ByteChannel
from amqp_streams.server.listening.listener import Listeners

LOCAL = Listener(host="127.0.0.1", port=0)

Listen = Callable[..., Awaitable[Listeners]]
Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[..., Awaitable[Peer]]


@dataclass
class Echo:
    """Sends back the received bytes, and records its calls."""

    channel: ByteChannel
    calls: list[str] = field(default_factory=list)
    got: bytearray = field(default_factory=bytearray)
    room: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    def received(self, data: memoryview) -> None:
        self.calls.append("received")
        self.got += data
        self.channel.write(bytes(data))

    def drained(self) -> None:
        self.calls.append("drained")
        self.room.set()

    def lost(self) -> None:
        self.calls.append("lost")
        self.gone.set()


@dataclass
class Echoes:
    """A factory of Echo connections that can be awaited."""

    made: list[Echo] = field(default_factory=list)
    _more: asyncio.Event = field(default_factory=asyncio.Event)

    def __call__(self, channel: ByteChannel) -> Echo:
        echo = Echo(channel)
        self.made.append(echo)
        self._more.set()
        return echo

    async def number(self, index: int) -> Echo:
        """Return the connection with number `index`, as soon as it exists."""
        while len(self.made) <= index:
            self._more.clear()
            await self._more.wait()
        return self.made[index]


@dataclass(frozen=True)
class Authority:
    """A certificate authority of a test's own, in a folder."""

    folder: Path

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")  # Python 3.13 wants it
        openssl(
            "req",
            "-x509",
            *_KEY,
            "-keyout",
            self.folder / "ca.key",
            "-out",
            self.ca,
            "-subj",
            "/CN=test CA",
            "-days",
            "2",
            *usage,
        )

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    def issue(self, name: str, names: str = "DNS:localhost,IP:127.0.0.1,IP:::1") -> TlsSettings:
        """Return a certificate for `name` that is valid for `names`."""
        certificate, key, request = (self.folder / f"{name}.{ending}" for ending in ("pem", "key", "csr"))
        extension = self.folder / f"{name}.ext"
        extension.write_text(
            f"subjectAltName={names}\nauthorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n"
        )
        openssl("req", "-new", *_KEY, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        signer = ("-CA", self.ca, "-CAkey", self.folder / "ca.key", "-CAcreateserial", "-days", "2")
        openssl("x509", "-req", "-in", request, *signer, "-extfile", extension, "-out", certificate)
        return TlsSettings(certificate=certificate, key=key)

    def client_context(self, presenting: TlsSettings | None = None) -> ssl.SSLContext:
        """Return the TLS context of a client that trusts this authority and presents a certificate."""
        context = ssl.create_default_context(cafile=self.ca)
        if presenting:
            context.load_cert_chain(presenting.certificate, presenting.key)
        return context


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def closed_without_a_word(peer: Peer) -> bool:
    """Return whether the node ends this connection without sending anything. A reset counts, too."""
    try:
        return await peer[0].read(-1) == b""
    except ConnectionResetError:
        return True


_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
