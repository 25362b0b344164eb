"""A node with every door open, on real sockets, in the test's own loop."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from argon2 import PasswordHasher

from amqp_streams.authentication import ClientCertificates, TlsSettings
from amqp_streams.client import Client, RetryPolicy, SaslOptions, TlsOptions, connect
from amqp_streams.config import Listener, LogSettings, NodeSettings
from amqp_streams.server.connection import AmqpConnection
from amqp_streams.server.identity.users import UsersFile
from amqp_streams.server.run import Server
from amqp_streams.testing import MemoryStore
from tests.amqp_streams.server.issuer import KeyFolder, jwk
from tests.amqp_streams.server.peers import Authority

PASSWORD = "correct-horse-battery"
CHEAP = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
LOCAL = "127.0.0.1"
_ISSUED: dict[tuple[Path, str], TlsSettings] = {}


@dataclass
class Doors:
    """Files for a node, and the node while it runs."""

    folder: Path
    authority: Authority
    settings: dict[str, Any] = field(default_factory=dict)
    server: Server | None = None

    def __post_init__(self) -> None:
        tls = self.issue("localhost")
        made = UsersFile.load(self.users, hasher=CHEAP, scram_iterations=4096)
        made.add("ann", PASSWORD)
        self.keys = KeyFolder(self.folder).jwks(jwk("ES256"))
        self.settings = {
            "data_dir": self.folder,
            "listen": (Listener(host=LOCAL, port=0), Listener(host=LOCAL, port=0, tls=True)),
            "admin_listen": Listener(host=LOCAL, port=0, tls=True),
            "tls": tls.model_copy(
                update={"client_ca": self.authority.ca, "client_certificates": ClientCertificates.OPTIONAL}
            ),
            "users": self.users,
            "anonymous": "never",
            "logs": {"temps": LogSettings()},
            "external": [{"name": "cn", "pattern": "device-(.+)", "user": "{1}"}],
            "oauth": self.keys.oauth(),
        } | self.settings

    def issue(self, name: str) -> TlsSettings:
        """A certificate of this name; one is enough for all tests of an authority."""
        key = self.authority.folder, name
        if key not in _ISSUED:
            _ISSUED[key] = self.authority.issue(name)
        return _ISSUED[key]

    @property
    def users(self) -> Path:
        """The path of the users file."""
        return self.folder / "users.json"

    @contextlib.asynccontextmanager
    async def open(self, **changes: Any) -> AsyncIterator["Doors"]:
        """Start the node."""
        self.server = Server(NodeSettings.model_validate(self.settings | changes))
        try:
            await self.server.start(MemoryStore())
            yield self
        finally:
            await self.server.stop()

    def url(self, scheme: str, user: str = "") -> str:
        """Return the URL of a listener: amqp, amqps or wss."""
        assert self.server is not None
        addresses = self.server.addresses
        where = {"amqp": addresses["amqp"][0], "amqps": addresses["amqp"][1], "wss": addresses["admin"][0]}[
            scheme
        ]
        return f"{scheme}://{user}{'@' if user else ''}{where}"

    def client(self, scheme: str, user: str = "", *, certificate: str | None = None, **sasl: Any) -> Client:
        """Return a client with a certificate. `certificate`: its common name."""
        return connect(
            self.url(scheme, user),
            tls=self.shows(certificate),
            sasl=SaslOptions(**sasl),
            retry=RetryPolicy(first_ms=1, wait_max_ms=20),
        )

    def shows(self, certificate: str | None) -> TlsOptions:
        """The certificates that a client trusts and presents."""
        shown = None if certificate is None else self.issue(certificate)
        return TlsOptions(
            ca_file=self.authority.ca,
            server_hostname="localhost",
            certificate_file=None if shown is None else shown.certificate,
            key_file=None if shown is None else shown.key,
        )

    @property
    def inside(self) -> list[tuple[str | None, str | None]]:
        """The logged-in users, and their mechanisms."""
        assert self.server is not None
        assert self.server.service is not None
        return [
            (one.user, one.mechanism)
            for one in self.server.service.connections
            if isinstance(one, AmqpConnection)
        ]

    @property
    def counts(self) -> dict[tuple[str, str], int]:
        """Logins by mechanism and result."""
        assert self.server is not None
        assert self.server._guard is not None
        return dict(self.server._guard.counts)
