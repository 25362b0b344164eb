"""A PostgreSQL server that takes requests and does not answer: packets are lost, nothing is reset."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from knative_gateway.errors import UnavailableError
from knative_gateway.store import Store, database, engines, open_store
from tests.knative_gateway.store.test_feed import key

SOCKET = ".s.PGSQL.5432"


class End(asyncio.Protocol):
    """One side of a connection. Its bytes go to the other side, at once or when the line opens."""

    def __init__(self, line: "Line", other: "End | None" = None) -> None:
        self.line, self.other, self.transport = line, other, None
        self.held: list[bytes] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.line.ends.add(self)
        if self.other is None:
            other = self.other = End(self.line, self)
            task = asyncio.ensure_future(
                asyncio.get_running_loop().create_unix_connection(lambda: other, self.line.target)
            )
            task.add_done_callback(lambda _: self.pass_on())

    def data_received(self, data: bytes) -> None:
        self.held.append(data)
        self.pass_on()

    def pass_on(self) -> None:
        if self.line.is_open and self.other is not None and self.other.transport is not None:
            for data in self.held:
                self.other.transport.write(data)
            self.held.clear()

    def connection_lost(self, error: Exception | None) -> None:
        self.line.ends.discard(self)
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class Line:
    """The line between a gateway and its database. While it is closed, nothing passes."""

    def __init__(self, socket_dir: Path) -> None:
        self.is_open = True
        self.target = str(socket_dir / SOCKET)
        self.ends: set[End] = set()

    def set_open(self, is_open: bool) -> None:
        self.is_open = is_open
        for end in self.ends:
            end.pass_on()


@pytest.fixture
async def line(socket_dir: Path) -> AsyncIterator[tuple[Line, Path]]:
    """The line, and the folder of its socket."""
    made = Line(socket_dir)
    with tempfile.TemporaryDirectory(prefix="pg") as folder:  # the path of a socket must be short
        server = await asyncio.get_running_loop().create_unix_server(
            lambda: End(made), str(Path(folder) / SOCKET)
        )
        yield made, Path(folder)
        server.close()
        for end in list(made.ends):
            if end.transport is not None:
                end.transport.abort()
        while made.ends:  # noqa: ASYNC110  the transports call their protocols, not us
            await asyncio.sleep(0.01)


async def written(store: Store, name: str) -> None:
    """Write an object, as often as it takes: a busy machine may need longer than the store waits."""
    while True:
        with suppress(UnavailableError):
            await store.resources.write(key(name), {}, expected_version=0)
            return


async def test_a_database_that_does_not_answer_is_unavailable_until_it_does(
    postgresql_url: str, line: tuple[Line, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request ends in its time; when the line is open again, so is the store. It also closes in time."""
    monkeypatch.setattr(engines, "COMMAND_S", 1)
    monkeypatch.setattr(engines, "CONNECT_S", 1)
    monkeypatch.setattr(database, "CLOSE_S", 0.5)
    between, folder = line
    url = postgresql_url.partition("?")[0] + f"?host={folder}"
    async with asyncio.timeout(90), open_store(url, poll_s=600) as store:
        await written(store, "a")
        between.set_open(False)
        with pytest.raises(UnavailableError):
            await store.resources.list("", "ConfigMap")
        with pytest.raises(UnavailableError):
            await store.resources.write(key("b"), {}, expected_version=0)
        between.set_open(True)
        await written(store, "c")
        between.set_open(False)
