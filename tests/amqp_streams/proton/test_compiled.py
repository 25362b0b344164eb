"""The law of the compiled loops: they do what the loops in Python do, byte for byte."""

import os
import subprocess
import sys
from array import array
from collections.abc import Callable
from itertools import accumulate, product
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amqp_streams import names
from amqp_streams.config import Limits
from amqp_streams.errors import WireError
from amqp_streams.proton import compiled, links, outcomes, receiving, sending
from amqp_streams.proton.engine import Engine
from amqp_streams.testing_amqp import InMemoryNode, ScriptedPeer, frame_of
from amqp_streams.wire import formats as wire_formats
from amqp_streams.wire.batched.arrays import join_sections, split_sections
from amqp_streams.wire.batched.packed import Packed
from amqp_streams.wire.formats import FormatFinder
from amqp_streams.wire.nuls import NulFinder
from amqp_streams.wire.types import Described, Symbol, UByte, UInt, ULong, Value
from tests.amqp_streams.loops import KINDS, use_loops
from tests.properties import examples

EARLIEST: Value = {Symbol(names.FILTER_DELIVERY_ANNOTATIONS): {Symbol(names.OFFSET): Symbol("@earliest")}}
LIMIT = 1024

pytestmark = pytest.mark.skipif(compiled.loops is None, reason="the compiled loops are not built here")


def event(size: int) -> bytes:
    return b"\x00\x53\x75\xb0" + size.to_bytes(4) + b"x" * size


def sent_by(node: InMemoryNode, frames: bytes, *, begin: bytes, block_bytes: int) -> bytes:
    """Everything that the node answers to these frames, which arrive in blocks."""
    peer = ScriptedPeer(node)
    peer.open(container_id="script")
    peer.write(begin)
    for at in range(0, len(frames), block_bytes):
        peer.write(frames[at : at + block_bytes])
    return bytes(peer.got)


# A delivery: the sizes of its parts, whether it is aborted, whether the sender settles it. Some parts exceed
# the largest message, some messages are no valid sections.
deliveries = st.tuples(
    st.lists(st.integers(0, 700), min_size=1, max_size=3),
    st.booleans(),
    st.booleans(),
    st.sampled_from((b"", b"", b"", b"\xff")),
)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(deliveries, max_size=20), st.integers(40, 5_000))
def test_both_take_the_same_events_and_answer_the_same_bytes(
    script: list[tuple[list[int], bool, bool, bytes]], block_bytes: int
) -> None:
    frames = bytearray()
    for number, (sizes, aborted, settled, front) in enumerate(script):
        message = front + event(sum(sizes))
        ends = [len(message) - sum(sizes[index:]) for index in range(1, len(sizes))] + [len(message)]
        start = 0
        for index, end in enumerate(ends):
            more = index + 1 < len(ends)
            frames += frame_of(
                "transfer",
                message[start:end],
                handle=UInt(0),
                delivery_id=UInt(number),
                delivery_tag=b"%d" % number,
                settled=settled,
                more=more,
                aborted=aborted and not more and index > 0,
            )
            start = end
    attach = frame_of(
        "attach",
        name="in",
        handle=UInt(0),
        role=False,
        source=Described(ULong(0x28), []),
        target=Described(ULong(0x29), ["temps"]),
        initial_delivery_count=UInt(0),
    )
    results = []
    for kind in KINDS:
        with pytest.MonkeyPatch.context() as patch:
            use_loops(patch, kind)
            # A node tells its clients the identity of its store, which is random.
            patch.setattr("amqp_streams.testing.memory_store.uuid4", lambda: UUID(int=0))
            node = InMemoryNode({"temps": 1}, limits=Limits(message_bytes=LIMIT))
            answered = sent_by(node, bytes(frames), begin=attach, block_bytes=block_bytes)
            chunk = node.store.logs["temps"].partitions[0].read(0, 1 << 24)
            results.append((answered, [] if chunk is None else list(chunk.messages)))
    assert results[0] == results[1]


states = st.sampled_from((0x24, 0x25, 0x26, 0x27))
dispositions = st.tuples(st.integers(0, 30), st.integers(0, 30), states, st.booleans())


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(1, 30), st.integers(0, 40), st.booleans(), st.lists(dispositions), st.integers(40, 5_000))
def test_both_send_the_same_bytes_and_settle_the_same_deliveries(
    count: int,
    credit: int,
    presettled: bool,
    script: list[tuple[int, int, int, bool]],
    block_bytes: int,
) -> None:
    frames = bytearray(
        frame_of(
            "flow",
            handle=UInt(0),
            delivery_count=UInt(0),
            link_credit=UInt(credit),
            next_incoming_id=UInt(0),
            incoming_window=UInt(1 << 20),
            next_outgoing_id=UInt(0),
            outgoing_window=UInt(1 << 20),
        )
    )
    for first, length, state, settled in script:
        frames += frame_of(
            "disposition",
            role=True,
            first=UInt(first),
            last=UInt(first + length),
            settled=settled,
            state=Described(ULong(state), []),
        )
    attach = frame_of(
        "attach",
        name="out",
        handle=UInt(0),
        role=True,
        source=Described(ULong(0x28), ["temps", None, None, None, None, None, None, EARLIEST]),
        target=Described(ULong(0x29), []),
        snd_settle_mode=UByte(1) if presettled else None,
    )
    results = []
    for kind in KINDS:
        with pytest.MonkeyPatch.context() as patch:
            use_loops(patch, kind)
            # A node tells its clients the identity of its store, which is random.
            patch.setattr("amqp_streams.testing.memory_store.uuid4", lambda: UUID(int=0))
            node = InMemoryNode({"temps": 1})
            node.append("temps", *(b"%d" % number for number in range(count)))
            results.append(sent_by(node, bytes(frames), begin=attach, block_bytes=block_bytes))
    assert results[0] == results[1]


def transfer(tag: bytes, message_format: int | None, content: bytes) -> bytes:
    number = None if message_format is None else UInt(message_format)
    return frame_of(
        "transfer",
        content,
        handle=UInt(0),
        delivery_id=UInt(1),
        delivery_tag=tag,
        message_format=number,
        settled=False,
    )


# Frames of every kind, and contents that look like frames.
look_alikes = st.sampled_from(
    (b"\x00\x53\x12\xc0", b"\x00\x53\x14\xc0\x05\x05CCC", b"\x00\x00\x00\x08\x02\x00")
)
frames = st.one_of(
    st.builds(transfer, st.binary(max_size=40), st.none(), look_alikes),
    st.builds(transfer, st.binary(max_size=3), st.integers(0, 3), st.binary(max_size=300)),
    st.builds(lambda count: frame_of("flow", handle=UInt(0), link_credit=UInt(count)), st.integers(0, 300)),
    st.builds(
        lambda last: frame_of("disposition", role=True, first=UInt(0), last=UInt(last)), st.integers(0, 9)
    ),
    st.builds(
        lambda name: frame_of("attach", name=name, handle=UInt(0), role=False), st.text("a\0", max_size=4)
    ),
    st.just(b"\x00\x00\x00\x08\x02\x00\x00\x00"),
)


@given(st.lists(frames, max_size=12), st.lists(st.integers(1, 400), max_size=12))
def test_the_compiled_search_finds_the_formats_and_names_that_the_expressions_find(
    sent: list[bytes], sizes: list[int]
) -> None:
    """However the frames are divided among blocks."""
    stream = b"AMQP\0\1\0\0" + b"".join(sent)
    ends = [0, 8]
    for frame in sent:
        ends.append(ends[-1] + len(frame))
    found = []
    for plainness, walked in product((None, compiled.loops.plainness), (0, 5, 32)):
        formats, names_found, at = FormatFinder(plainness), NulFinder(), 0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(wire_formats, "_WALKED_MAX", walked)
            for size in [*sizes, len(stream)]:
                block = stream[at : at + size]
                before, at = at, at + len(block)
                whole = max(end for end in ends if end <= at)
                if block:
                    formats.feed(block, at - 8 if at < 8 else at - whole)
                    ended = [frame for frame, end in zip(sent, ends[2:], strict=True) if before < end <= at]
                    assert not formats.transfers or all(frame[8:11] == b"\x00\x53\x14" for frame in ended)
                    names_found.feed(block, opened=True, plain=formats.plain)
        found.append((formats.waiting, names_found.names))
    assert found == found[:1] * len(found)


def test_a_block_of_plain_transfers_is_not_searched_for_flows() -> None:
    """Also if it begins and ends in the middle of a transfer."""
    plain, flow = transfer(b"tag", 0, b"x" * 50), frame_of("flow", handle=UInt(0), link_credit=UInt(1))
    for frames_sent, only in (([plain] * 40, True), ([plain] * 20 + [flow] + [plain] * 19, False)):
        stream, finder = b"".join(frames_sent), FormatFinder(compiled.loops.plainness)
        finder.feed(b"AMQP\0\1\0\0", 0)
        finder.feed(stream[:20], 20)
        finder.feed(stream[20:-5], len(frames_sent[-1]) - 5)
        assert (finder.plain, finder.transfers) == (True, only)


@given(st.binary(max_size=30), st.lists(st.binary(max_size=9), max_size=20), st.binary(max_size=5))
def test_sections_of_messages_in_a_buffer_are_those_of_a_list(
    head: bytes, messages: list[bytes], front: bytes
) -> None:
    sizes = array("I", map(len, messages))
    ends = list(accumulate(sizes, initial=len(front)))
    packed = Packed(front + b"".join(messages) + b"more", ends)
    written = join_sections(head, sizes, packed, compiled.loops.join_sections)
    expected = [b"\x00\x53\x75\xb0" + len(message).to_bytes(4) + message for message in messages]
    assert written == head + b"".join(expected)
    if messages:
        assert join_sections(head, sizes, packed) == join_sections(head, sizes, messages) == written


def test_sections_that_the_buffer_does_not_have_raise_an_error() -> None:
    join = compiled.loops.join_sections
    for at, sizes in ((0, [5]), (4, [1]), (5, []), (-1, [1]), (0, [2**32 - 1] * 9), (2, [1, 2])):
        with pytest.raises(ValueError, match="longer than the buffer"):
            join(b"", b"1234", at, array("I", sizes))
    assert join(b"", b"1234", 4, array("I")) == b""


@given(
    st.binary(max_size=9),
    st.one_of(
        st.lists(st.binary(max_size=30), min_size=1, max_size=20),
        st.tuples(st.binary(max_size=30), st.integers(1, 20)).map(lambda drawn: [drawn[0]] * drawn[1]),
    ),
    st.data(),
)
def test_sections_are_split_as_in_python(head: bytes, messages: list[bytes], data: st.DataObject) -> None:
    """Also if a byte of a section's front is another one."""
    sizes, split = array("I", map(len, messages)), compiled.loops.split_sections
    batch = join_sections(head, sizes, messages)
    found = split_sections(batch, len(head), sizes, split)
    assert isinstance(found, Packed)
    assert found == messages
    index = data.draw(st.integers(0, len(messages) - 1))
    at = len(head) + sum(sizes[:index]) + 8 * index + data.draw(st.integers(0, 7))
    changed = bytearray(batch)
    changed[at] ^= 1 << data.draw(st.integers(0, 7))
    assert split(bytes(changed), len(head), sizes) is None
    for chosen in (None, split):
        with pytest.raises(WireError, match="are not those of its sizes"):
            split_sections(bytes(changed), len(head), sizes, chosen)


def test_sections_that_the_message_does_not_have_raise_an_error() -> None:
    split = compiled.loops.split_sections
    for at, sizes in ((0, [6]), (4, [2]), (12, []), (-1, [6]), (0, [2**32 - 1] * 9), (14, [])):
        with pytest.raises(ValueError, match="are not those of the sizes"):
            split(event(4) + b"x", at, array("I", sizes))
    assert split(b"1234", 4, array("I")) == b""


@given(st.binary(max_size=80), st.integers(-3, 90), st.integers(-3, 90))
def test_the_search_stays_within_any_block(block: bytes, begin: int, end: int) -> None:
    """With the address sanitizer, a read outside of the block ends the process."""
    plainness: Callable[[memoryview, int, int], int] = compiled.loops.plainness
    framed = (len(block) + 8).to_bytes(4) + b"\x02\x00\x00\x00\x00\x53\x14\xc0" + block
    for searched in (block, framed):
        assert plainness(memoryview(bytearray(searched)), begin, end) in (0, 1, 2)


@pytest.fixture(autouse=True)
def loops() -> None:
    """The tests of this file choose the loops themselves."""


@pytest.fixture
def engine() -> Engine:
    return Engine(serving=False, frame_bytes_max=4096, idle_timeout_ms=0)


def test_addresses_become_pointers_again(engine: Engine) -> None:
    link = links.new_sender(engine.begin(1 << 20), "out")
    sending.send_message(link, b"message", number=1)
    receiver = links.new_receiver(engine.begin(1 << 20), "in")
    found = compiled.Deliveries()
    assert (len(found), list(found)) == (0, [])
    found.append(receiver)
    found.append(link)
    assert (len(found), found[1], found[-1]) == (2, link, link)
    assert found[0:1] == [receiver]
    with pytest.raises(IndexError):
        found[2]
    engine.free()


def test_wrong_arguments_raise_instead_of_crashing(engine: Engine) -> None:
    loops = compiled.loops
    link = compiled.address(links.new_sender(engine.begin(1 << 20), "out"))
    with pytest.raises(ValueError, match="address of an engine's object is 0"):
        loops.pass_deliveries(0)
    with pytest.raises(TypeError, match="not a Deliveries object"):
        loops.receive(link, [], [], 1, 1)
    with pytest.raises(TypeError, match="not a Deliveries object"):
        loops.give([], outcomes.ACCEPTED)
    times = array("q", [1])
    with pytest.raises(TypeError):
        loops.send_records(link, 0, 0, b"", b"", times, b"\0", ["text"], 0, 1, 0, False)
    with pytest.raises(TypeError):
        loops.send_records(link, 0, 0, b"", b"", times, b"\0", (b"a tuple",), 0, 1, 0, False)
    with pytest.raises(ValueError, match="header section is longer"):
        loops.send_records(link, 0, 0, b"", b"", times, b"\2", [b"x"], 0, 1, 0, False)
    for start, stop, some, sizes in ((0, 2, times, b"\0\0"), (-1, 1, times, b"\0"), (1, 0, times, b"\0")):
        with pytest.raises(ValueError, match="each record needs"):
            loops.send_records(link, 0, 0, b"", b"", some, sizes, [b"x"], start, stop, 0, False)
    with pytest.raises(ValueError, match="each record needs"):
        loops.send_records(link, 0, 0, b"", b"", times, b"", [b"x"], 0, 1, 0, False)
    with pytest.raises(ValueError, match="each record needs"):
        loops.send_records(link, 0, 0, b"", b"", array("q"), b"\0", [b"x"], 0, 1, 0, False)
    with pytest.raises(ValueError, match="less output"):
        loops.take_output(compiled.address(engine.transport), 1 << 20)
    with pytest.raises(SystemError):
        loops.take_output(compiled.address(engine.transport), -1)
    with pytest.raises(TypeError):
        loops.settle_accepted("address")
    with pytest.raises(ValueError, match="bind needs 17 addresses"):
        loops.bind(b"too few", 0, 0)
    assert len(compiled.FUNCTIONS) == 17
    engine.free()


@pytest.mark.parametrize(("pure", "kind"), [("", "receive_compiled"), ("1", "receive_in_python")])
def test_an_environment_variable_disables_the_compiled_loops(pure: str, kind: str) -> None:
    program = "from amqp_streams.proton import receiving; print(receiving.receive.__name__)"
    environment = {**os.environ, compiled.PURE_VARIABLE: pure}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == kind


def test_a_count_limits_what_is_taken_and_the_rest_is_kept() -> None:
    taken = []
    original = receiving.receive

    def few(link, partial, size_max, count_max=2):
        arrivals = original(link, partial, size_max, count_max)
        taken.append(len(arrivals.deliveries))
        return arrivals

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(receiving, "receive", few)
        node = InMemoryNode({"temps": 1})
        peer = ScriptedPeer(node)
        peer.open()
        peer.attach(0, target="temps")
        peer.write(
            b"".join(
                frame_of("transfer", event(9), handle=UInt(0), delivery_id=UInt(n), delivery_tag=b"%d" % n)
                for n in range(3)
            )
        )
        peer.transfer(0, 3, event(9))
    assert taken[0] == 2
