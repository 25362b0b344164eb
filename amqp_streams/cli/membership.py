"""A group's member as `receive --group` has it: tells which partitions came and went, and when the group is through."""

from collections.abc import Iterable, Mapping
from typing import Final

from amqp_streams.cli.terminal.console import say
from amqp_streams.client import Client, GroupConsumer, Place, ReceivedEvent, TimedOutError

_ASK_S: Final = 0.25
"""How long nothing has come before the node is asked how far the group is."""


class Member:
    """A `copying.Source` over a `GroupConsumer`. `ends`: one past the latest offset of each partition when reading began."""

    def __init__(self, client: Client, log: str, group: str, ends: Mapping[str, int]) -> None:
        self.consumer: GroupConsumer | None = None
        self.leaving = False
        self._client: Final = client
        self._log: Final = log
        self._group: Final = group
        self._ends: Final = ends

    async def receive(self, max_events: int = 500, timeout: float | None = None) -> list[ReceivedEvent]:  # noqa: ASYNC109  # the client's
        """The next events of our partitions; none when `timeout` seconds passed."""
        assert self.consumer is not None, "it has joined"
        return await self.consumer.receive(max_events, timeout)

    async def receive_retained(self, max_events: int = 500, timeout: float | None = None) -> list[ReceivedEvent]:  # noqa: ASYNC109  # the client's
        """The next events; none when the group, all its members together, has dealt with everything that there was when reading began.

        Raises:
            TimedOutError: neither; look again.
        """
        events = await self.receive(max_events, min(_ASK_S, timeout or _ASK_S))
        if events:
            return events
        if through((await self._client.management.describe_group(self._log, self._group)).places, self._ends):
            return []
        message = f"the group {self._group} is not through"
        raise TimedOutError(message)

    def settle(self, events: Iterable[ReceivedEvent]) -> None:
        """These are dealt with, if their partitions are still ours."""
        assert self.consumer is not None, "it has joined"
        self.consumer.settle(events)

    def assigned(self, partition: str) -> None:
        """A partition came."""
        say(f"partition {partition} is ours")

    def revoked(self, partition: str) -> None:
        """A partition went."""
        if not self.leaving:
            say(f"partition {partition} is another's")


def through(places: Iterable[Place], ends: Mapping[str, int]) -> bool:
    """Every partition has been read up to where it ended."""
    reached = {place.partition for place in places if place.lag == 0 or (place.next_number or 0) >= ends.get(place.partition, 0)}
    return all(end == 0 or partition in reached for partition, end in ends.items())
