"""Messages in parts: all of them, in their order, or nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.homes.protocol.fields import Fields, Json
from amqp_streams.homes.protocol.frames import FrameError
from amqp_streams.homes.protocol.parts import PART_BYTES, Parts, Unfinished, parts_of

HEAD: Json = {"number": 7}


def take(parts: Parts[str], body: bytes) -> tuple[str, ...] | None:
    fields = Fields.of(body, "report")
    items = [each.text("t") for each in fields.inner_list("items")]
    return parts.take(fields, fields.whole("number"), items, len(body))


@given(st.lists(st.integers(0, PART_BYTES * 2), max_size=8))
def test_parts_are_the_message(sizes: list[int]) -> None:
    items = ["ä" * (size // 2) for size in sizes]
    bodies = list(parts_of(HEAD, "items", ({"t": item} for item in items)))
    parts: Parts[str] = Parts("report", 1 << 20)
    assert [take(parts, body) for body in bodies] == [None] * (len(bodies) - 1) + [tuple(items)]
    assert all(len(body) < 4 * PART_BYTES for body in bodies)


def test_a_message_of_small_items_is_cut_at_the_size_of_a_part() -> None:
    bodies = list(parts_of(HEAD, "items", ({"t": "x" * 100} for _ in range(1000))))
    assert len(bodies) > 5
    assert all(len(body) <= PART_BYTES + 500 for body in bodies)


def body(part: int, *, more: bool = True, number: int = 7) -> bytes:
    return b'{"number":%d,"part":%d,"more":%s,"items":[{"t":"%d"}]}' % (
        number, part, b"true" if more else b"false", part,
    )  # fmt: skip


@pytest.mark.parametrize(
    "bodies",
    [
        [body(1)],
        [body(0), body(2)],
        [body(0), body(1), body(1)],
        [body(0), body(1, number=8)],
        [body(0, more=False), body(1)],
        [body(0), body(1, more=False), body(2)],
    ],
)
def test_a_part_that_does_not_follow_is_refused(bodies: list[bytes]) -> None:
    parts: Parts[str] = Parts("report", 1 << 20)
    for each in bodies[:-1]:
        take(parts, each)
    with pytest.raises(FrameError, match=r"report.part must be the next part"):
        take(parts, bodies[-1])


def test_a_new_message_replaces_an_unfinished_one() -> None:
    parts: Parts[str] = Parts("report", 1 << 20)
    assert take(parts, body(0)) is None
    assert take(parts, body(0, number=8)) is None
    assert take(parts, body(1, number=8, more=False)) == ("0", "1")


def test_a_message_without_an_end_is_refused_at_the_limit() -> None:
    parts: Parts[str] = Parts("report", 10 * len(body(0)))
    for part in range(10):
        take(parts, body(part))
    with pytest.raises(FrameError, match="report has more than"):
        take(parts, body(10))


def test_all_unfinished_messages_together_are_bounded_and_the_oldest_is_given_up() -> None:
    size = len(body(0))
    unfinished = Unfinished(10 * size)
    liars: list[Parts[str]] = [Parts("report", 1 << 20, unfinished) for _ in range(10)]
    for liar in liars:
        take(liar, body(0))
    good: Parts[str] = Parts("report", 1 << 20, unfinished)
    assert take(good, body(0)) is None
    assert (unfinished.bytes, unfinished.given_up) == (10 * size, 1)
    for part in range(1, 6):
        assert take(good, body(part)) is None
    assert take(good, body(6, more=False)) == tuple(map(str, range(7)))
    assert unfinished.bytes == (10 - unfinished.given_up) * size
    # What was given up is not an error: its node knows nothing of it, and its next message counts.
    assert take(liars[0], body(1)) is None
    assert take(liars[0], body(2, more=False)) is None
    assert take(liars[0], body(0, more=False)) == ("0",)
    for liar in liars:
        liar.give_up()
    assert unfinished.bytes == 0


def test_a_message_that_is_larger_than_the_bound_of_all_is_given_up_alone() -> None:
    unfinished = Unfinished(3 * len(body(0)))
    parts: Parts[str] = Parts("report", 1 << 20, unfinished)
    for part in range(5):
        assert take(parts, body(part)) is None
    assert take(parts, body(5, more=False)) is None
    assert (unfinished.bytes, unfinished.given_up) == (0, 1)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=40))
def test_the_bytes_are_those_of_what_is_unfinished(steps: list[tuple[int, bool]]) -> None:
    unfinished = Unfinished(1 << 20)
    all_parts: list[Parts[str]] = [Parts("report", 1 << 20, unfinished) for _ in range(4)]
    following = [0] * 4
    for which, more in steps:
        take(all_parts[which], body(following[which], more=more))
        following[which] = following[which] + 1 if more else 0
    assert unfinished.bytes == sum(len(body(part)) for count in following for part in range(count))
