"""Streams of server-sent events end with their session, also if it ends before they begin."""

from collections.abc import AsyncGenerator

import pytest
from starlette.responses import StreamingResponse

from web_console.sessions.visitor import TooManyRequestsError, Visitor
from web_console.views.streams import event_stream


async def events() -> AsyncGenerator[bytes, None]:
    yield b"data: 1\n\n"


async def read(response: object) -> list[bytes]:
    assert isinstance(response, StreamingResponse)
    return [bytes(chunk) async for chunk in response.body_iterator if not isinstance(chunk, str)]


async def test_a_stream_whose_session_ended_before_its_answer_began_ends_without_an_error() -> None:
    """The status is sent already, so it cannot say 429 any more."""
    session = Visitor("ann", "x", is_anonymous=False)
    assert await read(event_stream(session, events())) == [b"data: 1\n\n"]
    late = event_stream(session, events())
    session.end_streams()
    assert await read(late) == []
    with pytest.raises(TooManyRequestsError):
        event_stream(session, events())
