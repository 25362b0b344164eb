"""Compressed batches: a whole batch, compressed, is the only data section of another message. Both directions
use this encoding: docs/batched-sends.md, docs/batched-deliveries.md.

    00 53 71  d1 <size> 4              delivery annotations: a map
      amqp-streams:compression         symbol: the codec, `zstd` or `lz4`
      amqp-streams:uncompressed-size   uint: the bytes of the batch
    00 53 75  b0 <size> <frame>        one data section: one zstd frame (RFC 8878) that contains its content
                                       size, or one LZ4 frame

Laws: decompressing returns the batch that was compressed. A size is compared with its limit before memory is
allocated for it, and the output never exceeds the size that the annotation names. The libraries are optional
(extra `compression`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from struct import Struct
from typing import Final, Generic, TypeVar

from amqp_streams import names
from amqp_streams.errors import WireError
from amqp_streams.wire.encoder import encode
from amqp_streams.wire.layout import DATA_BINARY32, DELIVERY_ANNOTATIONS_HEAD
from amqp_streams.wire.types import Symbol, UInt
from service_parts.extras import MissingExtraError

ZSTD: Final = "zstd"
LZ4: Final = "lz4"
CODECS: Final = (ZSTD, LZ4)
ZSTD_LEVEL: Final = 1
"""For batches of small events, level 3 needs more time and saves nothing (`bench/compression.py`)."""
PLAIN_BYTES_MAX: Final = 512
"""Messages of at most this size are not compressed: it saves nearly nothing."""
COMPRESSED_BYTES_MAX: Final = 4 << 20
"""Messages larger than this are not compressed, because a loop iteration would take too long."""

_MAP: Final = Struct(">BII")
_MAP_CODE: Final = 0xD1
_LENGTH: Final = Struct(">I")
_CODEC, _SIZE = (encode(Symbol(name)) for name in (names.BATCH_COMPRESSION, names.BATCH_UNCOMPRESSED_SIZE))


class TooLargeBatchError(WireError):
    """A batch has more bytes than the reader takes, when it is decompressed."""


class UnknownCodecError(WireError):
    """A batch has a codec that the reader does not have."""


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Codec:
    """`decompress` gets a frame and the exact size of its content, and allocates nothing larger.

    It raises WireError if the bytes are not a frame with content of this size. Both functions can be called
    from any thread.
    """

    name: str
    compress: Callable[[bytes], bytes] = field(compare=False)
    decompress: Callable[[bytes, int], bytes] = field(compare=False)


def codec(name: str) -> Codec:
    """Return a codec.

    Raises:
        ValueError: the name is not in CODECS.
        MissingExtraError: its library is not installed.
    """
    if name not in CODECS:
        message = f"compression must be one of {', '.join(CODECS)} (got {name!r})"
        raise ValueError(message)
    found = available(name)
    if found is None:
        what = f"compression with {name}"
        raise MissingExtraError(what, "compression")
    return found


def available(name: object) -> Codec | None:
    """Return a codec; None if the name is unknown, or its library is not installed."""
    return _codec(name) if name in CODECS else None


def compressed(batch: bytes, with_: Codec | None) -> bytes:
    """Return a message with the compressed batch, or the batch itself if that is not larger."""
    if with_ is None or not PLAIN_BYTES_MAX < len(batch) <= COMPRESSED_BYTES_MAX:
        return batch
    frame = with_.compress(batch)
    pairs = _CODEC + encode(Symbol(with_.name)) + _SIZE + encode(UInt(len(batch)))
    head = DELIVERY_ANNOTATIONS_HEAD + _MAP.pack(_MAP_CODE, 4 + len(pairs), 4) + pairs
    if len(head) + 8 + len(frame) >= len(batch):
        return batch
    return b"".join((head, DATA_BINARY32, _LENGTH.pack(len(frame)), frame))


def decompressed(frame: bytes, name: object, size: object, bytes_max: int) -> bytes:
    """Return the batch in the data section of a compressed batch. `name`, `size`: its annotations.

    Raises:
        TooLargeBatchError: the batch has more than `bytes_max` bytes.
        UnknownCodecError: the name is not in CODECS, or the library of the codec is not installed.
        WireError: the size is missing, or the frame does not have it.
    """
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise WireError(f"a compressed batch needs {names.BATCH_UNCOMPRESSED_SIZE}, a uint of at least 1")
    if size > bytes_max:
        raise TooLargeBatchError(
            f"the batch has {size} bytes when it is decompressed, and the limit is {bytes_max}"
        )
    found = available(name)
    if found is None:
        known = ", ".join(each for each in CODECS if available(each) is not None) or "none"
        raise UnknownCodecError(f"compression {str(name)[:32]!r} is not supported; supported: {known}")
    return found.decompress(frame, size)


@cache
def _codec(name: str) -> Codec | None:
    try:
        return _zstd() if name == ZSTD else _lz4()
    except ImportError:
        return None


class _Idle(Generic[_T]):
    """Objects that no call uses now, at most as many as calls that ran at the same time.

    A new object for each call costs more than the work. Two threads must not use one object at once.
    """

    def __init__(self, make: Callable[[], _T]) -> None:
        self.kept: Final[list[_T]] = []
        self._make: Final = make

    def take(self) -> _T:
        """Return an object for one call. If the call ends without an error, it is appended to `kept`."""
        try:
            return self.kept.pop()
        except IndexError:
            return self._make()


def _zstd() -> Codec:
    from zstandard import (  # noqa: PLC0415  the library is optional, and imported when it is needed
        CONTENTSIZE_UNKNOWN,
        ZstdCompressor,
        ZstdDecompressor,
        ZstdError,
        get_frame_parameters,
    )

    compressors = _Idle(lambda: ZstdCompressor(level=ZSTD_LEVEL))
    decompressors = _Idle(ZstdDecompressor)

    def compress(batch: bytes) -> bytes:
        compressor = compressors.take()
        frame = compressor.compress(batch)
        compressors.kept.append(compressor)
        return frame

    def decompress(frame: bytes, size: int) -> bytes:
        try:
            # The library allocates the size that the frame names, so it must be the one that was checked.
            found = get_frame_parameters(frame).content_size
            if found == CONTENTSIZE_UNKNOWN:
                raise WireError("the zstd frame of a compressed batch does not contain its content size")
            if found != size:
                raise _other_size(ZSTD, size)
            decompressor = decompressors.take()
            batch = decompressor.decompress(frame, max_output_size=size, allow_extra_data=False)
            decompressors.kept.append(decompressor)
        except ZstdError as error:
            raise _damaged(ZSTD, error) from error
        if len(batch) != size:
            raise _other_size(ZSTD, size)
        return batch

    return Codec(ZSTD, compress, decompress)


def _lz4() -> Codec:
    from lz4 import frame as lz4_frame  # noqa: PLC0415  as above

    def compress(batch: bytes) -> bytes:
        made: bytes = lz4_frame.compress(batch, store_size=True)
        return made

    def decompress(frame: bytes, size: int) -> bytes:
        decoder = lz4_frame.LZ4FrameDecompressor()
        try:
            batch: bytes = decoder.decompress(frame, max_length=size)
        except RuntimeError as error:
            raise _damaged(LZ4, error) from error
        if len(batch) != size or not decoder.eof or decoder.unused_data:
            raise _other_size(LZ4, size)
        return batch

    return Codec(LZ4, compress, decompress)


def _damaged(name: str, error: Exception) -> WireError:
    return WireError(f"the data of a compressed batch are not a valid {name} frame: {error}")


def _other_size(name: str, size: int) -> WireError:
    return WireError(f"the data of a compressed batch are not one {name} frame with {size} bytes of content")
