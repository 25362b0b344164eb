"""Much data is written to stdout without blocking the event loop, and the command notices when the reader
ends.
"""

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from amqp_streams.cli.terminal.writing import Output


@contextmanager
def stdout_is(descriptor: int) -> Iterator[None]:
    """Put an open descriptor in place of stdout. This is in the test itself, because pytest replaces stdout
    between a fixture and its test.
    """
    before = sys.stdout
    with os.fdopen(descriptor, "w") as stdout:
        sys.stdout = stdout
        try:
            yield
        finally:
            sys.stdout = before


async def test_a_pipe_takes_more_than_its_capacity_while_the_loop_continues() -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    data = os.urandom(300_000)
    taken = bytearray()
    with stdout_is(writing):
        written = asyncio.ensure_future(Output().write(data))
        while len(taken) < len(data):
            await asyncio.sleep(0)
            with suppress(BlockingIOError):
                taken += os.read(reading, 65_536)
        await written
    os.close(reading)
    assert bytes(taken) == data


async def test_a_pipe_without_a_reader_is_noticed_with_nothing_to_write() -> None:
    reading, writing = os.pipe()
    with stdout_is(writing):
        output = Output()
        output.check()
        os.close(reading)
        with pytest.raises(BrokenPipeError):
            output.check()


async def test_a_file_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with stdout_is(os.open(path, os.O_WRONLY | os.O_CREAT)):
        await Output().write(b"x" * 100_000)
    assert path.read_bytes() == b"x" * 100_000
