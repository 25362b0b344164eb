"""Messages between processes."""

import asyncio
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.running.channel import UNSENT_MAX, Channel, Message, framed, received

JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5)


@given(st.builds(Message, st.text(), st.dictionaries(st.text(), JSON, max_size=4), st.binary(max_size=2000)))
def test_a_message_arrives_as_it_was_sent(message: Message) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(framed(message))
        assert received(theirs) == message


def test_an_end_before_the_first_message_is_an_error() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        ours.close()
        with pytest.raises(EOFError):
            received(theirs)


async def test_messages_arrive_in_order_also_when_they_arrive_in_parts() -> None:
    ours, theirs = socket.socketpair()
    channel = await Channel.open(theirs)
    whole = b"".join(framed(Message("n", {"number": number}, b"x" * number)) for number in range(3))
    loop = asyncio.get_running_loop()
    ours.setblocking(False)
    for byte in whole:
        await loop.sock_sendall(ours, bytes([byte]))
    for number in range(3):
        assert await channel.receive() == Message("n", {"number": number}, b"x" * number)
    ours.close()
    assert await channel.receive() is None
    channel.send("late")
    channel.close()


async def test_notices_do_not_pile_up_for_a_process_that_does_not_read() -> None:
    ours, theirs = socket.socketpair()
    channel = await Channel.open(ours)
    for _ in range(20_000):
        channel.offer("wrote", why="x" * 100)
    theirs.setblocking(False)
    taken = 0
    loop = asyncio.get_running_loop()
    channel.close()
    while part := await loop.sock_recv(theirs, 1 << 20):
        taken += len(part)
    # What the kernel's buffer took, and what may wait in ours.
    assert taken < UNSENT_MAX + (1 << 20)
    theirs.close()
