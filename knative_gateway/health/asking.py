"""[io] Describes the gateway to people who ask: it asks all processes, the system and the log node.

Laws: all who ask share one answer a second. A worker or a log node that does not answer delays the answer for
at most `NODE_S_MAX`, and the answer says so.
"""

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from amqp_streams.client import Client, NodeInfo
from amqp_streams.errors import AmqpStreamsError
from knative_gateway import __version__
from knative_gateway.config import GatewaySettings
from knative_gateway.engine.event_log import AmqpEventLog
from knative_gateway.health.documents import document
from knative_gateway.health.facts import (
    DESCRIPTORS,
    About,
    Gathered,
    Use,
    Vitals,
    packed,
    unpacked_known,
    unpacked_vitals,
)
from knative_gateway.health.warnings import Facts
from knative_gateway.reloading import AT_ONCE
from knative_gateway.running.addresses import guessed
from knative_gateway.running.figures import Observed
from knative_gateway.running.parent import Parent, ParentLink
from knative_gateway.running.sharing import Shared
from knative_gateway.security.access import Gate
from service_parts.health import machine
from service_parts.health.changes import Changes
from service_parts.networks import is_this_machine
from service_parts.settings.in_force import SettingsInForce, Shown

KEPT_S: Final = 1.0
NODE_S_MAX: Final = 3.0
_RIGHTS: Final = ("rights",)
_OF_NODE: Final = ("figures", "warnings")


class Described(Observed, Protocol):
    """The gateway in this process."""

    @property
    def settings(self) -> GatewaySettings:
        """Its settings."""

    @property
    def parent(self) -> Parent:
        """Its link to the other processes."""

    @property
    def gate(self) -> Gate:
        """Checks tokens and rules."""

    @property
    def event_log(self) -> AmqpEventLog | None:
        """The connection to the log node."""

    @property
    def shares_store(self) -> bool:
        """Whether other gateways use the same state database."""

    def uses(self) -> dict[str, Use]:
        """Return how much of each limit is in use in this process."""


class Health:
    """Answers what the gateway is and how it does. `about`: None in a worker, whose parent knows it."""

    def __init__(self, gateway: Described, about: About | None) -> None:
        self.changes: Final = Changes(_now_ms)
        """What users change through this process."""
        self.about: Final = about
        self._gateway: Final = gateway
        self._shared: Final = Shared(self._make, KEPT_S)

    async def document(self) -> Mapping[str, object]:
        """Return the whole answer, at most a second old.

        Raises:
            UnavailableError: the parent process does not answer.
        """
        return await self._shared.get()

    def reloaded(self, restart_needed: Sequence[str]) -> None:
        """The settings were read again. A worker leaves this to its parent."""
        if self.about is not None:
            self.about.reloaded(restart_needed)

    def not_reloaded(self, reason: str) -> None:
        """The settings could not be read again."""
        if self.about is not None:
            self.about.not_reloaded(reason)

    async def vitals(self) -> bytes:
        """Return what this process knows, as it is sent to another worker."""
        return packed(await self._vitals())

    async def _make(self) -> Mapping[str, object]:
        gathered, node = await asyncio.gather(self._gathered(), self._node())
        gateway = self._gateway
        settings = gateway.settings
        disk = await asyncio.to_thread(machine.disk, settings.state_dir)
        expires_at = gateway.certificate_expires_at
        elsewhere = [each for each in settings.listen if not is_this_machine(each.host)]
        facts = Facts(
            _now_ms(),
            gathered,
            not_ready=_not_ready(gateway),
            disk_free=None if disk is None else disk.free_bytes,
            disk_size=None if disk is None else disk.size_bytes,
            certificate_expires_ms=None if expires_at is None else round(expires_at * 1000),
            urls_guessed=guessed(settings, shared=gateway.shares_store),
            is_open=gateway.gate.open and bool(elsewhere),
            has_plain_tokens=not gateway.gate.open and bool(elsewhere) and settings.tls is None,
            trusts_all=not settings.subscribers.verify,
        )
        return document(facts, settings, __version__, node)

    async def _gathered(self) -> Gathered:
        parent = self._gateway.parent
        if not isinstance(parent, ParentLink):
            assert self.about is not None
            known = self.about.known(node_starts=self._gateway.embedded_starts)
            return Gathered(known, [await self._vitals()])
        told = await parent.inquire()
        vitals = sorted(map(unpacked_vitals, told.vitals), key=lambda each: each.worker)
        return Gathered(unpacked_known(told.about), vitals, told.silent)

    async def _vitals(self) -> Vitals:
        gateway = self._gateway
        parent = gateway.parent
        descriptors = await asyncio.to_thread(machine.open_files_now)
        uses = gateway.uses()
        if descriptors is not None:
            uses[DESCRIPTORS] = Use(descriptors, machine.open_files_max())
        return Vitals(
            parent.number if isinstance(parent, ParentLink) else 0,
            os.getpid(),
            gateway.leads,
            gateway.missing(),
            machine.memory_bytes(),
            uses,
            gateway.stored_s_ago,
            self.changes.latest(),
        )

    async def _node(self) -> NodeInfo | str:
        """Ask the log node about itself. Returns why it is not known if it is not."""
        event_log = self._gateway.event_log
        if event_log is None or not event_log.connected:
            return "the log node is not connected"
        try:
            async with asyncio.timeout(NODE_S_MAX):
                return await _described(event_log.client)
        except TimeoutError:
            return "the log node did not answer in time"
        except AmqpStreamsError as error:
            return str(error)


async def _described(client: Client) -> NodeInfo | str:
    # A node that is asked for more than the user may know writes it to its log as a refused access.
    rights = await client.management.describe_node(parts=_RIGHTS)
    if not rights.administers:
        return "the gateway's user of the log node has no right 'manage' on all logs"
    return await client.management.describe_node(parts=_OF_NODE)


def about(shown: Shown | None) -> About:
    """Return what the first process knows at its start. `shown` reads the settings with their sources."""
    return About(_now_ms(), SettingsInForce(shown, AT_ONCE), Changes(_now_ms))


def _not_ready(gateway: Described) -> str | None:
    parent = gateway.parent
    return gateway.missing() or (parent.problem if isinstance(parent, ParentLink) else None)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
