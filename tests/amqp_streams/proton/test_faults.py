"""The faults that the engine only logs."""

import gc

import cproton

from amqp_streams.proton import links
from amqp_streams.proton.engine import Engine
from amqp_streams.proton.faults import watch_faults
from amqp_streams.testing_amqp import frame_of
from amqp_streams.wire.security.sasl import AMQP_HEADER
from amqp_streams.wire.types import UInt, UShort


def client() -> Engine:
    return Engine(serving=False, frame_bytes_max=4096, idle_timeout_ms=20_000)


def test_a_client_that_goes_beyond_what_the_peer_takes_has_a_fault_with_its_reason() -> None:
    engine = client()
    faults = watch_faults(engine)
    engine.push(AMQP_HEADER + frame_of("open", container_id="peer", channel_max=UShort(0)))
    engine.open(container_id="c")
    for _ in range(2):
        links.open_link(links.new_sender(engine.begin(1 << 20), "l"))
    b"".join(iter(engine.pull, b""))
    assert len(faults) == 1
    assert "process error" in faults[0]
    engine.free()


def test_a_connection_that_works_has_none_and_other_connections_have_their_own() -> None:
    engine, other = client(), client()
    faults, others = watch_faults(engine), watch_faults(other)
    engine.push(AMQP_HEADER + frame_of("open", container_id="peer"))
    engine.push(frame_of("begin", next_outgoing_id=UInt(0), incoming_window=UInt(1), outgoing_window=UInt(1)))
    other.push(b"garbage!")
    engine.open(container_id="c")
    b"".join(iter(engine.pull, b""))
    assert (faults, others) == ([], [])
    engine.free()
    other.free()


def test_the_fault_handler_ends_with_its_engine() -> None:
    gc.collect()
    before = cproton.retained_count()
    for _ in range(100):
        engine = client()
        watch_faults(engine)
        engine.free()
    assert cproton.retained_count() == before
