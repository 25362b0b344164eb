"""[io] Parts of pages that the server renders again whenever the node has answered."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from web_console.figures.stream import KEEP_ALIVE, server_event
from web_console.figures.watching import Asked, Question
from web_console.sessions.session import Session
from web_console.showing.words import is_away, sentence
from web_console.views.streams import event_stream

_WAIT_S: Final = 15.0


def live_part(
    request: Request, session: Session, question: Question, render: Callable[[Asked], str]
) -> Response:
    """Return a stream with the HTML of a part of a page, each time its question was answered.

    `render` also gets refusals: what the page shows may have ended meanwhile.

    Raises:
        TooManyRequestsError: the session has too many streams.
    """

    async def events() -> AsyncGenerator[bytes, None]:
        watcher, shown = session.watcher, 0.0
        async with watcher.view(question=question) as view:
            while True:
                try:
                    await asyncio.wait_for(view.changed.wait(), _WAIT_S)
                except TimeoutError:
                    yield KEEP_ALIVE
                    continue
                view.changed.clear()
                if watcher.latest.refused:
                    yield server_event("ended", "refused")
                    return
                asked = watcher.asked(question.key)
                if asked.at == shown:
                    continue
                shown = asked.at
                request.app.state.touch(request)
                if asked.error is not None and is_away(asked.error):
                    yield server_event("away", sentence(asked.error))
                else:
                    yield server_event("html", render(asked))

    return event_stream(session, events())
