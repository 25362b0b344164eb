"""Lines of watches: encoded once, cached up to a size, sent in pieces."""

import asyncio
import json

from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.api.watching import lines
from knative_gateway.api.watching.lines import PIECE_BYTES, Lines, pieces
from knative_gateway.http.turns import Turns
from knative_gateway.resources.documents.large import PIECE_VALUES

LARGE = {f"k{number}": "x" for number in range(50 * PIECE_VALUES)}


class Encoded:
    """Events, and how often each was encoded."""

    def __init__(self, bytes_max: int = lines.KEPT_BYTES_MAX) -> None:
        self.lines = Lines(Turns(), bytes_max=bytes_max)
        self.made: list[object] = []

    async def line(self, key: object, event: object) -> bytes:
        def make() -> object:
            self.made.append(key)
            return event

        return await self.lines.line(key, make)


async def test_a_line_is_encoded_once_for_all_watches_also_at_the_same_time() -> None:
    encoded = Encoded()
    got = await asyncio.gather(*(encoded.line(1, LARGE) for _ in range(20)))
    assert {json.loads(line)["k7"] for line in got} == {"x"}
    assert all(line is got[0] for line in got), "they share the bytes"
    assert (await encoded.line(1, LARGE), encoded.made) == (got[0], [1])


async def test_an_event_without_a_key_is_encoded_for_each_watch() -> None:
    encoded = Encoded()
    assert [await encoded.line(None, number) for number in range(2)] == [b"0\n", b"1\n"]


async def test_old_lines_are_dropped() -> None:
    encoded = Encoded(bytes_max=10)
    for key in (1, 2, 1, 3, 1, 2):
        assert await encoded.line(key, "xx") == b'"xx"\n'
    assert encoded.made == [1, 2, 3, 2]
    assert len(await encoded.line(4, "x" * 50)) == 53
    assert (encoded.lines._bytes, len(encoded.lines._kept)) == (0, 0)


async def test_another_watch_encodes_a_line_when_the_first_one_ends() -> None:
    encoded = Encoded()
    first = asyncio.create_task(encoded.line(1, LARGE))
    await asyncio.sleep(0)
    others = [asyncio.create_task(encoded.line(1, LARGE)) for _ in range(3)]
    await asyncio.sleep(0)
    first.cancel()
    got = await asyncio.wait_for(asyncio.gather(*others), 30)
    assert len(set(got)) == 1
    assert encoded.made in ([1], [1, 1])
    assert encoded.lines._coming == {}


@given(st.integers(0, 5), st.integers(0, PIECE_BYTES - 1))
def test_pieces_are_the_line(whole: int, more: int) -> None:
    line = bytes(whole * PIECE_BYTES + more)
    cut = list(pieces(line))
    assert b"".join(cut) == line
    assert max(map(len, cut)) <= PIECE_BYTES
