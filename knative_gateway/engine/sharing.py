"""[io] Replicas of the gateway share the partitions of a log as members of a consumer group of the engine.

The group is used only as a lock: its links deliver no events, and each subscriber continues from its own
cursor. The node gives each member an equal share. When a member ends, the node gives its partitions to the
others.

Spec: Event Streams 4.5.1.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import structlog

from amqp_streams.client import LATEST, Client, GroupConsumer, LinkError, sql_filter
from amqp_streams.errors import AmqpStreamsError
from knative_gateway.dispatcher.ownership import AWAIT_S, Share

GROUP: Final = "knative-gateway"
_AGAIN_S: Final = 1.0
_REFUSED_AGAIN_S: Final = 30.0
"""The time between two attempts if the node does not have consumer groups."""
_NOT_FOUND: Final = "amqp:not-found"
_DELETED: Final = "amqp:resource-deleted"
_NOT_IMPLEMENTED: Final = "amqp:not-implemented"

log_ = structlog.get_logger(__name__)


class GroupShares:
    """Shares partitions by consumer groups.

    `client` needs a container-id of its own, because each replica is a member.
    """

    def __init__(self, client: Client, group: str = GROUP) -> None:
        self._client: Final = client
        self._group: Final = group
        self.refusal: str | None = None
        """Why the node gives no partitions to any process; None if it does, or was not asked yet."""

    def share(self, log: str, changed: Callable[[], None]) -> Share:
        """Join the group of the log."""
        return GroupShare(self._client, log, self._group, changed, self._refused)

    def _refused(self, reason: str | None) -> None:
        if reason == self.refusal:
            return
        self.refusal = reason
        if reason is None:
            log_.info("shares_given")
        else:
            log_.error("shares_refused", reason=reason)


class GroupShare:
    """Membership in one group until `close`.

    `refused`: is called with the reason if the node does not have consumer groups, and with None if it has.
    """

    def __init__(
        self,
        client: Client,
        log: str,
        group: str,
        changed: Callable[[], None],
        refused: Callable[[str | None], None],
    ) -> None:
        self.partitions: frozenset[int] | None = frozenset()
        self._client: Final = client
        self._log: Final = log
        self._group: Final = group
        self._changed: Final = changed
        self._refused: Final = refused
        self._member: GroupConsumer | None = None
        self._task: Final = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Leave the group. The node gives the partitions to the other members at once."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        began_s = asyncio.get_running_loop().time()
        while True:
            consumer = self._client.group_consumer(
                self._log,
                self._group,
                start=LATEST,
                settle="manual",
                credit=1,
                # A filter that matches nothing and a credit of 1: the links exist only to own partitions, and
                # cost the node no deliveries.
                filters={"nothing": sql_filter("FALSE")},
                on_assigned=self._note,
                on_revoked=self._note,
            )
            self._member, again_s = consumer, _AGAIN_S
            try:
                async with consumer:
                    while True:
                        await consumer.receive()
            except AmqpStreamsError as error:
                if isinstance(error, LinkError) and error.condition == _NOT_IMPLEMENTED:
                    self._refused(
                        "this node has no consumer groups, with which several processes share deliveries: no"
                        " event is delivered. Run one gateway process with a state directory of its own"
                    )
                    again_s = _REFUSED_AGAIN_S
                else:
                    self._report(error, asyncio.get_running_loop().time() - began_s)
            finally:
                with suppress(AmqpStreamsError):
                    await consumer.close()
                self._member = None
                # First nothing is owned, then the group is joined again: another replica may own the
                # partitions from now on, and two owners would deliver twice.
                self._become(frozenset())
            await asyncio.sleep(again_s)

    def _report(self, error: AmqpStreamsError, after_s: float) -> None:
        condition = error.condition if isinstance(error, LinkError) else ""
        if condition == _NOT_FOUND and after_s < AWAIT_S:
            log_.info("share_lost", log=self._log, reason="the log does not exist yet")
        elif condition == _DELETED:
            log_.info("share_lost", log=self._log, reason=str(error))
        else:
            log_.warning("share_lost", log=self._log, reason=str(error))

    def _note(self, _: str) -> None:
        if self._member is not None:
            self._refused(None)
            self._become(frozenset(map(int, self._member.partitions)))

    def _become(self, partitions: frozenset[int]) -> None:
        if partitions != self.partitions:
            self.partitions = partitions
            log_.info("share_changed", log=self._log, partitions=sorted(partitions))
            self._changed()
