"""[io] A part of a page that is read from the gateway repeatedly, as server-sent events."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from starlette.requests import Request

from web_console.figures.stream import KEEP_ALIVE, server_event
from web_console.gateway.api import ApiError, AwayError
from web_console.gateway.inventory import FRESH_S, fresh_s
from web_console.gateway.session import GatewaySession, away_words
from web_console.views.requests import console_of


async def repeated(
    request: Request, session: GatewaySession, read: Callable[[], Awaitable[tuple[bytes, float]]]
) -> AsyncGenerator[bytes, None]:
    """Yield what `read` returns, and problems of the gateway as `away`. An event that does not change is
    sent once.

    `read`: returns the event, and how many seconds the gateway took for it. The pause before the next reading
    is `fresh_s` of these seconds. The events end when the gateway does not accept the session's token.
    """
    last = b""
    while True:
        pause_s = FRESH_S
        try:
            async with session.turn():
                event, took_s = await read()
        except ApiError as error:
            if error.code == 401:
                yield server_event("ended", "refused")
                return
            event = server_event("away", str(error))
        except AwayError as error:
            event = server_event("away", away_words(console_of(request).settings.url, error))
        else:
            request.app.state.touch(request)
            pause_s = fresh_s(took_s)
        yield KEEP_ALIVE if event == last else event
        last = event
        await asyncio.sleep(pause_s)
