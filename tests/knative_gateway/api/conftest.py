"""An API over its own store, with a clock that does not move."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from knative_gateway.api import Api
from knative_gateway.store import Store, open_store, sqlite_url

NOW_MS = 1_700_000_000_000


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with open_store(sqlite_url(tmp_path)) as opened:
        yield opened


@pytest.fixture
async def api(store: Store) -> AsyncIterator[Api]:
    made = Api(store.resources, store.cursors, now_ms=lambda: NOW_MS)
    await made.start()
    yield made
    await made.close()
