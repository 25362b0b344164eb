"""The control plane's few functions over Proton's inner ones."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.errors import AmqpStreamsError, PeerError
from amqp_streams.proton.engine import Engine, require_engine
from amqp_streams.testing_amqp import frame_of
from amqp_streams.wire.frames import frame, read_frames, read_performative
from amqp_streams.wire.security.sasl import AMQP_HEADER
from amqp_streams.wire.types import Array, Described, Symbol, UInt


@pytest.fixture
def engine() -> Engine:
    return Engine(serving=True, frame_bytes_max=4096, channels_max=8, idle_timeout_ms=20_000)


def test_the_release_that_is_pinned_is_installed() -> None:
    require_engine()


def test_another_release_is_refused_with_the_command_that_helps() -> None:
    with pytest.raises(
        AmqpStreamsError, match=r"but 0\.41\.0 is installed: run pip install python-qpid-proton==0\.40\.0"
    ):
        require_engine("0.41.0")


def test_an_open_has_the_node_s_identity(engine: Engine) -> None:
    engine.push(AMQP_HEADER)
    engine.open(container_id="node", offered=["A", "B"], properties={"product": "p"})
    output = engine.pull()
    assert output.startswith(AMQP_HEADER)
    (frame,) = read_frames(output[8:])
    fields = read_performative(frame.body).fields
    assert (fields["container-id"], fields["max-frame-size"], fields["channel-max"]) == ("node", 4096, 7)
    assert fields["offered-capabilities"] == Array(Symbol, (Symbol("A"), Symbol("B")))
    assert fields["properties"] == {"product": "p"}
    assert engine.pull() == b""
    assert not engine.finished
    engine.free()


def test_a_close_says_why_and_ends_the_output(engine: Engine) -> None:
    engine.push(AMQP_HEADER + frame_of("open", container_id="peer"))
    engine.open(container_id="node", offered=[], properties={})
    engine.close(PeerError("amqp:not-allowed", "no", {"field": "x"}))
    output = b"".join(iter(engine.pull, b""))
    *_, close = read_frames(output[8:])
    error = read_performative(close.body).fields["error"]
    assert isinstance(error, Described)
    assert error.value == ["amqp:not-allowed", "no", {"field": "x"}]
    engine.end_of_input()
    assert engine.finished
    engine.free()


def test_bytes_after_the_end_are_not_taken(engine: Engine) -> None:
    engine.end_of_input()
    assert engine.push(b"more") is False
    engine.free()


def test_memory_is_given_back_once(engine: Engine) -> None:
    engine.free()
    engine.free()
    assert engine.freed


def test_a_thousand_connections_come_and_go() -> None:
    """If the objects were freed in the wrong order, the process would crash."""
    for _ in range(1000):
        engine = Engine(serving=True, frame_bytes_max=4096, channels_max=8, idle_timeout_ms=20_000)
        engine.push(AMQP_HEADER)
        engine.open(container_id="node", offered=["A"], properties={})
        engine.pull()
        engine.free()


def test_output_comes_in_blocks_that_are_bounded(engine: Engine) -> None:
    engine.push(AMQP_HEADER)
    engine.open(container_id="n" * 3000, offered=["A" * 200] * 3, properties={})
    assert 3000 < len(engine.pull()) < 8192
    engine.free()


@given(
    st.lists(st.one_of(st.integers(0, 300), st.integers(4000, 32_000)), max_size=12),
    st.lists(st.integers(1, 40_000), max_size=10),
)
def test_the_engine_says_how_much_of_what_it_took_is_of_a_frame_that_is_not_complete(
    sizes: list[int], blocks: list[int]
) -> None:
    """The result does not depend on the size of the engine's buffer, which grows with the frames."""
    engine = Engine(serving=True, frame_bytes_max=32 << 10, channels_max=8, idle_timeout_ms=20_000)
    begin = frame_of("begin", next_outgoing_id=UInt(0), incoming_window=UInt(100), outgoing_window=UInt(100))
    frames = [AMQP_HEADER, frame_of("open", container_id="peer"), begin, frame(0, b"")]
    window = {"incoming_window": UInt(100), "next_outgoing_id": UInt(0), "outgoing_window": UInt(100)}
    frames += [frame_of("flow", **window, properties={Symbol("x"): bytes(size)}) for size in sizes]
    ends = list(accumulate(map(len, frames)))
    stream, at = b"".join(frames), 0
    for block in (*blocks, len(stream)):
        assert engine.push(stream[at : at + block])
        at = min(len(stream), at + block)
        whole = max([end for end in ends if end <= at], default=0)
        assert engine.incomplete == (at - whole if at >= len(AMQP_HEADER) else at - len(AMQP_HEADER))
    engine.free()
