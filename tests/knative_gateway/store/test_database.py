"""One writer at a time, and nobody waits for it for ever."""

import asyncio
from pathlib import Path

import pytest

from knative_gateway.errors import UnavailableError
from knative_gateway.store import sqlite_url
from knative_gateway.store.database import Database


async def test_a_write_behind_one_that_does_not_end_is_told_soon(tmp_path: Path) -> None:
    database = Database(sqlite_url(tmp_path), write_wait_s=0.01)
    await database.open()
    async with asyncio.timeout(20):
        async with database.write():
            with pytest.raises(UnavailableError, match=r"other writes take longer than 0.01 s"):
                async with database.write():
                    pass
        async with database.write():
            pass
    await database.close()
