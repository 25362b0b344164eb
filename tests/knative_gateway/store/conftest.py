"""Stores to try: each test that takes `url` runs on SQLite and on PostgreSQL."""

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from knative_gateway.store import Store, open_store, sqlite_url
from tests.forks import shared_folder
from tests.knative_gateway import postgresql

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def socket_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with postgresql.server(shared_folder(tmp_path_factory)) as directory:
        yield directory


@pytest.fixture
async def postgresql_url(socket_dir: Path) -> str:
    """A database of the test's own."""
    name = f"gateway_{next(_numbers)}"
    connection = await asyncpg.connect(host=str(socket_dir), user="tester", database="postgres")
    await connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    await connection.close()
    return f"postgresql://tester@/{name}?host={socket_dir}"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return sqlite_url(tmp_path)
    made: str = request.getfixturevalue("postgresql_url")
    return made


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with open_store(url) as opened:
        yield opened
