"""Lines are found in bytes no matter how the bytes are divided, and files and pipes are read in the same
way.
"""

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.cli.terminal.reading import InputError, Lines, chunks, descriptor_of, password_from_stdin
from amqp_streams.errors import ConfigError


def lines_of(*pieces: bytes, quotes: bool = False) -> list[bytes]:
    """Return the lines of bytes that arrive in these pieces."""
    lines = Lines(quotes=quotes)
    found = [line for piece in pieces for line in lines.feed(piece)]
    return found + lines.finish()


def test_a_line_ends_with_lf_or_cr_lf_or_the_input() -> None:
    assert lines_of(b"a\nb\r\n\nc") == [b"a", b"b", b"", b"c"]


def test_nothing_after_the_last_line_end_is_not_a_line() -> None:
    assert lines_of(b"a\n") == [b"a"]
    assert lines_of(b"") == []


@given(
    st.binary(max_size=60).map(lambda data: data.replace(b"\x00", b"\n").replace(b"\x01", b'"')), st.data()
)
def test_lines_are_the_same_however_the_bytes_come(data: bytes, choose: st.DataObject) -> None:
    cuts = sorted(choose.draw(st.lists(st.integers(0, len(data)), max_size=6)))
    pieces = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    assert lines_of(*pieces) == lines_of(data)
    if data.count(b'"') % 2 == 0:
        assert lines_of(*pieces, quotes=True) == lines_of(data, quotes=True)


def test_a_line_end_in_quotes_ends_no_row() -> None:
    assert lines_of(b'a,"x\ny\r\nz"\r\nb,"', b'c"\n', quotes=True) == [b'a,"x\ny\r\nz"', b'b,"c"']


def test_a_quote_that_is_never_closed_is_found() -> None:
    with pytest.raises(InputError, match="not closed"):
        lines_of(b'a\n"b\nc\n', quotes=True)


def test_a_line_without_an_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amqp_streams.cli.terminal.reading.LINE_BYTES_MAX", 1000)
    with pytest.raises(InputError, match="longer than 1000 bytes"):
        lines_of(*[b"x" * 100] * 11)


async def collected(descriptor: int) -> bytes:
    """Return everything that arrives."""
    return b"".join([data async for data in chunks(descriptor)])


async def test_a_file_is_read_to_its_end(tmp_path: Path) -> None:
    data = os.urandom(700_000)
    file = tmp_path / "data"
    file.write_bytes(data)
    with descriptor_of(str(file)) as descriptor:
        assert await collected(descriptor) == data


async def test_a_pipe_is_read_as_data_arrives_and_the_loop_continues() -> None:
    reading, writing = os.pipe()
    try:
        came = chunks(reading)
        first = asyncio.ensure_future(anext(came))
        await asyncio.sleep(0)
        assert not first.done()
        os.write(writing, b"20.5\n")
        assert await first == b"20.5\n"
        os.close(writing)
        assert [data async for data in came] == []
    finally:
        os.close(reading)


def on_stdin(data: bytes, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Put bytes in place of stdin for reads of single bytes. Unread bytes stay in the list."""
    left = [data]

    def read(descriptor: int, count: int) -> bytes:
        assert descriptor == 0
        taken, left[0] = left[0][:count], left[0][count:]
        return taken

    monkeypatch.setattr("amqp_streams.cli.terminal.reading.os.read", read)
    return left


def test_a_password_is_the_first_line_of_stdin_and_the_other_lines_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = on_stdin("s\u00e9cret \r\n20.5\n".encode(), monkeypatch)
    assert password_from_stdin() == "s\u00e9cret "
    assert left == [b"20.5\n"]


@pytest.mark.parametrize("data", [b"", b"\n", b"x" * 5000])
def test_no_password_or_an_endless_one_is_refused(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    on_stdin(data, monkeypatch)
    with pytest.raises(ConfigError, match="--password-stdin"):
        password_from_stdin()
