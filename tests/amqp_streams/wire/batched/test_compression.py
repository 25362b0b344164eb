"""A compressed batch is the batch that was compressed, or an error, within the limit of its reader."""

import builtins
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams import names
from amqp_streams.errors import WireError
from amqp_streams.wire.batched import compression
from amqp_streams.wire.batched.compression import (
    CODECS,
    COMPRESSED_BYTES_MAX,
    PLAIN_BYTES_MAX,
    TooLargeBatchError,
    UnknownCodecError,
    available,
    codec,
    compressed,
    decompressed,
)
from amqp_streams.wire.codec import Described, Symbol, UInt, ULong, decode
from amqp_streams.wire.layout import sections
from service_parts.extras import MissingExtraError

NAMES = st.sampled_from(CODECS)
BOMB_BYTES = 64 << 20


def bomb(name: str, size: int) -> bytes:
    """A frame of zeros that says its size."""
    zeros = bytes(size)
    return (
        zstandard.ZstdCompressor().compress(zeros)
        if name == compression.ZSTD
        else bytes(lz4.frame.compress(zeros, store_size=True))
    )


@given(NAMES, st.binary(min_size=1, max_size=3000), st.integers(1, 50))
def test_frames_are_decompressed_to_what_was_compressed(name: str, part: bytes, times: int) -> None:
    batch, used = part * times, codec(name)
    assert used.name == name
    assert used.decompress(used.compress(batch), len(batch)) == batch


@given(NAMES, st.binary(min_size=1, max_size=3000), st.integers(-3000, 3000))
def test_another_size_than_that_of_the_content_is_an_error(name: str, batch: bytes, more: int) -> None:
    used = codec(name)
    if more and len(batch) + more > 0:
        with pytest.raises(WireError, match=f"not one {name} frame"):
            used.decompress(used.compress(batch), len(batch) + more)


@given(NAMES, st.binary(min_size=1, max_size=3000), st.data())
def test_changed_bytes_are_another_batch_of_this_size_or_an_error(
    name: str, batch: bytes, data: st.DataObject
) -> None:
    frame = bytearray(codec(name).compress(batch))
    at = data.draw(st.integers(0, len(frame)))
    frame[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    try:
        found = codec(name).decompress(bytes(frame), len(batch))
    except WireError:
        return
    assert len(found) == len(batch)


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize(
    "change", [lambda frame: frame + b"x", lambda frame: frame * 2, lambda frame: frame[:-1]]
)
def test_the_data_are_one_frame(name: str, change: Callable[[bytes], bytes]) -> None:
    batch = bytes(1000)
    with pytest.raises(WireError, match="frame"):
        codec(name).decompress(change(codec(name).compress(batch)), len(batch))


@pytest.mark.parametrize("name", CODECS)
def test_a_small_frame_with_much_content_costs_no_memory(name: str) -> None:
    """Neither if the size in the annotation is too large, nor if it is a lie."""
    frame = bomb(name, BOMB_BYTES)
    tracemalloc.start()
    try:
        with pytest.raises(TooLargeBatchError, match=f"has {BOMB_BYTES} bytes .* the limit is 4096"):
            decompressed(frame, name, BOMB_BYTES, 4096)
        with pytest.raises(WireError, match="4096 bytes of content"):
            decompressed(frame, name, 4096, 4096)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_zstd_frame_contains_its_size() -> None:
    """Otherwise the library would have to guess how much to allocate."""
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1000))
    with pytest.raises(WireError, match="does not contain its content size"):
        decompressed(frame, compression.ZSTD, 1000, 4096)


@pytest.mark.parametrize("size", [None, 0, -1, True, "5", 5.0])
def test_the_size_is_a_number(size: object) -> None:
    with pytest.raises(WireError, match=names.BATCH_UNCOMPRESSED_SIZE):
        decompressed(b"", compression.ZSTD, size, 4096)


@pytest.mark.parametrize("name", ["gzip", "", "z" * 1000, 7, None, False])
def test_an_unknown_codec_is_named_with_those_that_are_known(name: object) -> None:
    with pytest.raises(UnknownCodecError, match="supported: zstd, lz4") as caught:
        decompressed(b"", name, 5, 4096)
    assert len(str(caught.value)) < 150
    with pytest.raises(ValueError, match="must be one of zstd, lz4"):
        codec(str(name))


@pytest.mark.parametrize("name", CODECS)
def test_without_its_library_a_codec_is_not_available(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import_ = builtins.__import__

    def missing(module: str, *rest: Any) -> Any:
        if module.partition(".")[0] in {"lz4", "zstandard"}:
            raise ModuleNotFoundError(name=module)
        return import_(module, *rest)

    compression._codec.cache_clear()
    try:
        with monkeypatch.context() as patched:
            patched.setattr(builtins, "__import__", missing)
            assert available(name) is None
            with pytest.raises(MissingExtraError, match=r"compression with \w+ needs the compression extra"):
                codec(name)
            with pytest.raises(UnknownCodecError, match="supported: none"):
                decompressed(b"", name, 5, 4096)
    finally:
        compression._codec.cache_clear()
    assert available(name) is not None


@pytest.mark.parametrize("name", CODECS)
def test_threads_share_a_codec(name: str) -> None:
    """Its objects are used by one call at a time, and an error leaves nothing behind."""
    used = codec(name)

    def work(number: int) -> None:
        random = Random(number)
        for _ in range(30):
            batch = random.randbytes(50) * random.randrange(1, 4000)
            assert used.decompress(used.compress(batch), len(batch)) == batch
            with pytest.raises(WireError):
                used.decompress(used.compress(batch)[:-1], len(batch))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(8)))


@given(NAMES, st.binary(min_size=1, max_size=40))
def test_a_compressed_batch_is_a_message_as_the_standard_has_it(name: str, part: bytes) -> None:
    batch = (part * 600)[:10_000]
    message = compressed(batch, codec(name))
    assert len(message) < len(batch)
    annotations, data = [decode(message, section.start)[0] for section in sections(message)]
    assert annotations == Described(
        ULong(0x71),
        {
            Symbol(names.BATCH_COMPRESSION): Symbol(name),
            Symbol(names.BATCH_UNCOMPRESSED_SIZE): UInt(len(batch)),
        },
    )
    assert isinstance(data, Described)
    assert isinstance(data.value, bytes)
    assert codec(name).decompress(data.value, len(batch)) == batch


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize(
    "batch",
    [bytes(PLAIN_BYTES_MAX), Random(1).randbytes(100_000), bytes(COMPRESSED_BYTES_MAX + 1)],
    ids=["small", "random", "large"],
)
def test_a_batch_for_which_compression_does_not_pay_stays_as_it_is(name: str, batch: bytes) -> None:
    assert compressed(batch, codec(name)) is batch


def test_without_a_codec_nothing_is_compressed() -> None:
    assert compressed(bytes(1000), None) == bytes(1000)
