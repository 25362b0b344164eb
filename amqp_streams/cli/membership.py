"""A member of a consumer group for `receive --group`: reports its partitions and the end."""

from collections.abc import Iterable, Mapping
from typing import Final

from amqp_streams.cli.terminal.console import say
from amqp_streams.cli.terminal.wording import is_missing
from amqp_streams.client import (
    Client,
    CursorPosition,
    EndpointError,
    GroupConsumer,
    ManagementError,
    ReceivedEvent,
    TimedOutError,
)

_ASK_S: Final = 0.25
"""How long no event may arrive before the node is asked for the group's position."""


class Member:
    """A `copying.Source` over a `GroupConsumer`.

    `ends`: one past the latest offset of each partition at the start.
    """

    def __init__(self, client: Client, log: str, group: str, ends: Mapping[str, int]) -> None:
        self.consumer: GroupConsumer | None = None
        self.leaving = False
        self._client: Final = client
        self._log: Final = log
        self._group: Final = group
        self._ends: Final = ends
        self._said: EndpointError | None = None

    async def receive(self, max_events: int = 500, timeout: float | None = None) -> list[ReceivedEvent]:  # noqa: ASYNC109  # the client's
        """The next events of the member's partitions; none after `timeout` seconds."""
        events = await self._joined.receive(max_events, timeout)
        refusal = None if self._joined.partitions else self._joined.refusal
        if refusal is not None and refusal is not self._said:
            self._said = refusal
            say(f"no partition yet: {refusal.description or refusal}")
        return events

    async def receive_retained(
        self,
        max_events: int = 500,
        timeout: float | None = None,  # noqa: ASYNC109 noqa: ASYNC109  # the client's
    ) -> list[ReceivedEvent]:
        """The next events; none when all members together have settled every event that existed at the start.

        Raises:
            TimedOutError: neither; call again.
            LinkRefusedError: the node cannot let the member join.
        """
        events = await self._joined.receive(max_events, min(_ASK_S, timeout or _ASK_S))
        if events:
            return events
        # Asked only when no event arrives: each question costs the node a request.
        try:
            found = await self._client.management.describe_group(self._log, self._group)
        except ManagementError as error:
            # Until a member has a partition, the node may not know the group.
            if not is_missing(error) or self._joined.partitions:
                raise
            found = None
        if found is not None and through(found.positions, self._ends):
            return []
        refusal = None if self._joined.partitions else self._joined.refusal
        if refusal is not None and (found is None or not found.members_known):
            raise refusal
        message = f"the group {self._group} has not read all events"
        raise TimedOutError(message)

    def settle(self, events: Iterable[ReceivedEvent]) -> None:
        """Settle these events, if their partitions still belong to the member."""
        self._joined.settle(events)

    @property
    def _joined(self) -> GroupConsumer:
        assert self.consumer is not None, "the member has joined"
        return self.consumer

    def assigned(self, partition: str) -> None:
        """Report that a partition was assigned."""
        say(f"partition {partition} was assigned to this member")

    def revoked(self, partition: str) -> None:
        """Report that a partition was revoked."""
        # At the end of the command all partitions are revoked, as the user expects.
        if not self.leaving:
            say(f"partition {partition} was revoked")


def through(positions: Iterable[CursorPosition], ends: Mapping[str, int]) -> bool:
    """Whether every partition was read up to its end at the start."""
    reached = {
        position.partition
        for position in positions
        if position.lag == 0 or (position.next_number or 0) >= ends.get(position.partition, 0)
    }
    # A partition that was empty at the start has nothing to read.
    return all(end == 0 or partition in reached for partition, end in ends.items())
