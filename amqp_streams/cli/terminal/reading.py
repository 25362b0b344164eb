"""Reads files and stdin without a thread, and splits bytes into lines.

The event loop waits for a pipe or terminal, so that data is sent at once and Ctrl-C does not block in a read.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from amqp_streams.errors import AmqpStreamsError, ConfigError

CHUNK_BYTES: Final = 256 << 10
_PASSWORD_BYTES_MAX: Final = 4096
LINE_BYTES_MAX: Final = 256 << 20
"""The largest possible message of a node (limits.message_bytes); a longer line is an error."""


class InputError(AmqpStreamsError):
    """The input is not in its declared format; the message names file and line."""


@contextmanager
def descriptor_of(file: str) -> Iterator[int]:
    """An open descriptor of a file; `-` is stdin, which is not closed."""
    if file == "-":
        yield 0
        return
    # A descriptor and not a file object: `chunks` reads what is there, without a buffer that waits for more.
    descriptor = os.open(Path(file), os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


async def chunks(descriptor: int) -> AsyncIterator[bytes]:
    """The bytes of an open file, pipe or terminal, as they come, at most `CHUNK_BYTES` at a time."""
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()
    try:
        loop.add_reader(descriptor, arrived.set)
    except (OSError, ValueError):
        # An event loop cannot wait for regular files; they never block.
        while data := os.read(descriptor, CHUNK_BYTES):
            yield data
        return
    try:
        while True:
            await arrived.wait()
            arrived.clear()
            data = os.read(descriptor, CHUNK_BYTES)
            if not data:
                return
            yield data
    finally:
        loop.remove_reader(descriptor)


def password_from_stdin() -> str:
    """The first line of stdin, read byte by byte so that the following lines remain for others.

    Raises:
        ConfigError: the line is empty or too long.
    """
    line = bytearray()
    while len(line) < _PASSWORD_BYTES_MAX and (byte := os.read(0, 1)) not in (b"", b"\n"):
        line += byte
    password = line.decode(errors="replace").rstrip("\r")
    if not password or len(line) == _PASSWORD_BYTES_MAX:
        message = (
            f"--password-stdin: the first line of stdin must be a password of 1 to {_PASSWORD_BYTES_MAX - 1}"
            " bytes"
        )
        raise ConfigError(message)
    return password


class Lines:
    """Splits bytes into lines without line ends (LF or CR LF).

    With `quotes`, line ends in double quotes do not count.
    """

    def __init__(self, *, quotes: bool = False) -> None:
        self._quotes: Final = quotes
        self._parts: list[bytes] = []
        self._size = 0
        self._open = False

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that these bytes complete.

        Raises:
            InputError: a line longer than `LINE_BYTES_MAX`.
        """
        pieces = data.split(b"\n")
        lines: list[bytes] = []
        for piece in pieces[:-1]:
            line = self._joined(piece)
            if line is not None:
                lines.append(line)
        self._keep(pieces[-1])
        return lines

    def finish(self) -> list[bytes]:
        """The last line, if it has no line end.

        Raises:
            InputError: the input ended inside double quotes.
        """
        if self._open:
            message = "a double quote is not closed"
            raise InputError(message)
        last = b"".join(self._parts)
        self._parts.clear()
        return [last.removesuffix(b"\r")] if last else []

    def _joined(self, piece: bytes) -> bytes | None:
        if not self._parts:
            line = piece
        else:
            self._parts.append(piece)
            line = b"".join(self._parts)
            self._parts.clear()
            self._size = 0
        # CSV doubles a quote inside quotes, so an odd number means that the cell continues in the next line.
        if self._quotes and line.count(b'"') % 2:
            self._open = True
            self._keep(line + b"\n")
            return None
        self._open = False
        return line.removesuffix(b"\r")

    def _keep(self, piece: bytes) -> None:
        if not piece:
            return
        self._parts.append(piece)
        self._size += len(piece)
        # Input without line ends must not fill the memory.
        if self._size > LINE_BYTES_MAX:
            message = f"a line is longer than {LINE_BYTES_MAX} bytes" + (
                ": a double quote is not closed" if self._open else ""
            )
            raise InputError(message)
