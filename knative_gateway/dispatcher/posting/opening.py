"""[io] A new connection to a subscriber: look up the name, check the addresses, connect to one of them.

A connection is opened only to an address that the rules allow: the name is looked up once, and the checked
address is the one that is used. If this machine lacks a resource, the request waits and the attempt does not
fail, because the subscriber is not the cause.
"""

import asyncio
import errno
import ssl
from collections.abc import Sequence
from typing import Final

import structlog

from knative_gateway.dispatcher.posting.connection import Connection, connect
from knative_gateway.dispatcher.posting.resolving import Names
from knative_gateway.dispatcher.posting.target import Target
from knative_gateway.security.destinations import Destinations

_LOCAL: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EAGAIN})
_LOCAL_WAIT_S: Final = 0.25
_REPORT_S: Final = 10.0

log = structlog.get_logger(__name__)


class DeniedError(OSError):
    """The rules deny all addresses of the destination."""


class LocalError(OSError):
    """This machine has no free port."""


class Opener:
    """Opens connections.

    `local_errors`: how often this machine lacked descriptors, ports, memory or threads.
    """

    def __init__(
        self,
        rules: Destinations,
        tls: ssl.SSLContext,
        connect_timeout_s: float,
        names: Names,
    ) -> None:
        self.tls = tls
        self.local_errors = 0
        self._rules: Final = rules
        self._connect_timeout_s: Final = connect_timeout_s
        self._names: Final = names
        self._loop: Final = asyncio.get_running_loop()
        self._report_at_s = 0.0

    async def open(
        self,
        target: Target,
        deadline_s: float,
        *,
        namespace: str = "",
    ) -> tuple[Connection, float]:
        """Return a new connection, and the deadline extended by the time that the request waited for this
        machine.

        `namespace`: the namespace of the subscriber; each has a share of the lookups.

        Raises:
            DeniedError: the rules deny all addresses of the host.
            TimeoutError: no connection was opened in time.
            OSError: no connection could be opened.
        """
        while True:
            began_s = self._loop.time()
            try:
                addresses = self._names.known(target.host)
                lookup = (
                    None
                    if addresses is not None
                    else self._names.lookup(target.host, target.port, namespace=namespace)
                )
                if lookup is not None:
                    # The wait for a thread does not count: other names cause it and not this subscriber.
                    await asyncio.shield(lookup.begun)
                later_s = deadline_s + self._loop.time() - began_s
                wait_s = min(later_s - self._loop.time(), self._connect_timeout_s)
                try:
                    async with asyncio.timeout(wait_s):
                        if lookup is not None:
                            addresses = await lookup.addresses()
                        return await self._connect(
                            target,
                            # The checked address is connected to, and not the name: a second lookup could
                            # give an address that the rules deny (DNS rebinding).
                            self._allowed(target, addresses or ()),
                            self._loop.time() + wait_s,
                        ), later_s
                except TimeoutError:
                    message = f"no connection within {wait_s * 1000:.0f} ms"
                    raise TimeoutError(message) from None
            except OSError as error:
                if not _is_local(error):
                    raise
                self._report(error)
            await asyncio.sleep(_LOCAL_WAIT_S)
            deadline_s += self._loop.time() - began_s

    def _allowed(self, target: Target, addresses: Sequence[str]) -> Sequence[str]:
        """Return the addresses of a host that the rules allow."""
        refusals = [self._rules.refusal(target.host, address) for address in addresses]
        allowed = [address for address, refusal in zip(addresses, refusals, strict=True) if refusal is None]
        if refusals and not allowed:
            raise DeniedError(f"destination denied: {refusals[0]}")
        return allowed

    async def _connect(self, target: Target, addresses: Sequence[str], deadline_s: float) -> Connection:
        """Connect to the first address that answers.

        Each address gets an equal share of the remaining time, so that a silent address does not use up the
        time.
        """
        failure = OSError(f"{target.host} has no address")
        for count, address in enumerate(addresses):
            share_s = (deadline_s - self._loop.time()) / (len(addresses) - count)
            try:
                async with asyncio.timeout(share_s):
                    return await connect(
                        address,
                        target.port,
                        self.tls if target.is_tls else None,
                        target.host,
                    )
            except OSError as error:
                failure = error
                if error.errno == errno.EADDRNOTAVAIL and ":" not in address:
                    # All ports are in use. With IPv6, the error can also mean that this machine has no IPv6
                    # address.
                    raise LocalError(error.errno, error.strerror) from error
                if _is_local(error):
                    raise
        raise failure

    def _report(self, error: OSError) -> None:
        self.local_errors += 1
        now_s = self._loop.time()
        if now_s >= self._report_at_s:
            self._report_at_s = now_s + _REPORT_S
            log.error(
                "connecting_delayed",
                reason=str(error),
                count=self.local_errors,
                action="raise the limit of open files, or lower subscribers.connections",
            )


def _is_local(error: OSError) -> bool:
    return isinstance(error, LocalError) or error.errno in _LOCAL
