"""A node that keeps a connection open and does not answer: the client leaves it, if it has other endpoints.

Heartbeats do not show this: another part of the node sends them. Only what may be asked again is limited: an
attach, and a question that changes nothing.
"""

import asyncio
from collections.abc import Awaitable
from typing import Final, Protocol, TypeVar

from amqp_streams.client.endpoints.address import Address
from amqp_streams.client.errors import ConnectionLostError
from amqp_streams.errors import AmqpStreamsError

SILENT_S_MAX: Final = 20.0
"""How long an attach or a question may take. A node whose Kafka does not answer needs 15 s to refuse one."""

_T = TypeVar("_T")


class Connection(Protocol):
    """What is needed of a connection. `silent_s`: the time limit; None: the client has no other endpoint."""

    @property
    def address(self) -> Address:
        """Where it leads."""

    @property
    def silent_s(self) -> float | None:
        """See the class."""

    def abandon(self, error: AmqpStreamsError) -> None:
        """End the connection at once."""


def leave(connection: Connection, what: str) -> ConnectionLostError:
    """End the connection. Its links are attached at another endpoint. Returns the error to raise."""
    why = f"{connection.address}: the node did not answer {what} within {connection.silent_s:g} s"
    error = ConnectionLostError("connection lost", why)
    connection.abandon(error)
    return error


async def answered(connection: Connection, answer: Awaitable[_T]) -> _T:
    """The answer to a question that changes nothing.

    Raises:
        ConnectionLostError: it did not come in time, and the connection was ended.
    """
    try:
        async with asyncio.timeout(connection.silent_s) as limit:
            return await answer
    except TimeoutError:
        if not limit.expired():
            raise
        raise leave(connection, "a question") from None
