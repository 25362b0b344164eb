"""[io] Answers that are streams of server-sent events."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress

from starlette.responses import Response, StreamingResponse

from web_console.sessions.visitor import TooManyRequestsError, Visitor


def event_stream(session: Visitor, events: AsyncGenerator[bytes, None]) -> Response:
    """Return an answer with these events. It counts as a stream of the session, and ends with the session.

    Raises:
        TooManyRequestsError: the session has too many streams.
    """
    if not session.has_room:
        raise TooManyRequestsError

    async def counted() -> AsyncIterator[bytes]:
        # The session may have ended since, or other streams have taken the room. The answer has begun, so it
        # ends: the page opens another stream, which learns why.
        with suppress(TooManyRequestsError):
            async with session.stream(), aclosing(events):
                async for event in events:
                    yield event

    # nginx would collect the events of a minute before it sends them.
    return StreamingResponse(counted(), media_type="text/event-stream", headers={"x-accel-buffering": "no"})
