"""An API on a real socket, with its own event loop and thread, for programs of other projects."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from starlette.applications import Starlette

from knative_gateway.api import Api
from knative_gateway.config import Limits
from knative_gateway.http.listening import serve_http
from knative_gateway.security.access import Gate
from knative_gateway.store import open_store, sqlite_url
from service_parts.settings.listeners import Listener


@contextmanager
def served(state_dir: Path, gate: Gate | None = None) -> Iterator[str]:
    """The URL of an API, until the block ends."""
    started: list[str] = []
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    stopping = asyncio.Event()

    async def serve() -> None:
        async with open_store(sqlite_url(state_dir)) as store:
            api = Api(store.resources, store.cursors, gate=gate)
            await api.start()
            server = await serve_http(
                Starlette(routes=api.routes), [Listener(host="127.0.0.1", port=0)], limits=Limits()
            )
            started.append(f"http://{server.addresses[0]}")
            ready.set()
            await stopping.wait()
            await api.close()
            await server.close(5)

    def run() -> None:
        try:
            loop.run_until_complete(serve())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            ready.set()
            loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait(60)
    assert started, "it did not start"
    try:
        yield started[0]
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join(30)
        assert not thread.is_alive()
