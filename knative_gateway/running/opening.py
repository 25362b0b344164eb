"""[io] The start of a gateway, until all Brokers and Channels accept events.

Until then, an unknown path may belong to one of them and gets 503; afterwards it gets 404. A log that cannot
be created does not delay this longer than OPEN_S_MAX.
"""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from knative_gateway.running.stopping import Parts, cancelled

OPEN_S_MAX: Final = 60.0
"""How long unknown paths get 503 instead of 404 while known Brokers or Channels cannot be served."""
_LOOK_S: Final = 0.1


class Connected(Protocol):
    """The event log."""

    @property
    def connected(self) -> bool:
        """Whether its node is connected."""


class Accepting(Protocol):
    """The ingress."""

    starting: bool


class Controlling(Protocol):
    """The controller."""

    @property
    def lacking(self) -> str | None:
        """The first Broker or Channel that accepts no events yet; None if all do."""

    async def settled(self) -> None:
        """Wait until all changes are processed."""


class Opening:
    """Ends the start when all Brokers and Channels accept events."""

    def __init__(self, parts: Parts) -> None:
        self._parts: Final = parts
        self._controller: Controlling | None = None
        self._is_open = False

    @property
    def problem(self) -> str | None:
        """Why not all Brokers and Channels accept events; None if they do."""
        if self._is_open:
            return None
        lacking = "starting" if self._controller is None else self._controller.lacking
        return f"not all Brokers and Channels accept events yet: {lacking or 'changes are being processed'}"

    async def begin(self, event_log: Connected, ingress: Accepting, controller: Controlling) -> None:
        """Answer 404 for unknown paths once all Brokers and Channels accept events."""
        self._controller = controller

        async def later() -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(OPEN_S_MAX):
                    while controller.lacking is not None:
                        await asyncio.sleep(_LOOK_S)
                        await controller.settled()
            opened()

        def opened() -> None:
            ingress.starting = False
            self._is_open = True

        if event_log.connected:
            # Without a node, this would wait until the node is available, and the start would wait, too.
            await controller.settled()
        if controller.lacking is None:
            opened()
        else:
            opening = asyncio.create_task(later())
            self._parts.on_close("opening", partial(cancelled, opening))
