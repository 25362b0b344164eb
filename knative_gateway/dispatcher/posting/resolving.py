"""[io] Lookup of host names. Requests of one namespace for a name share one lookup; all requests share the
result.

A name whose servers do not answer does not delay lookups of other names, up to half of `SLOW_MAX` such names
of one namespace at once. More such names delay only lookups of the same namespace. A failure is remembered,
so that a name that cannot be resolved is not looked up for each request. A lookup does not delay the exit.

The system's resolver is used, in threads, because it follows `/etc/hosts`, the search domains and the other
settings of the machine.
"""

import asyncio
import copy
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from knative_gateway.dispatcher.posting.slots import Slots

RESOLVED_S: Final = 10.0
"""How long addresses are remembered."""
FAILED_MIN_S: Final = 1.0
"""The minimum time that a failure is remembered. A slow failure is remembered as long as its lookup took, but
not longer than RESOLVED_S.
"""
QUICK_S: Final = 1.0
"""A lookup that takes longer moves from the quick slots to the slow slots. The next lookup of the name begins
in the slow slots.
"""
QUICK_MAX: Final = 64
"""Concurrent lookups of names that are answered soon. One namespace has at most half of them; see `Slots`."""
SLOW_MAX: Final = 256
"""Concurrent lookups of names that are not answered soon, shared in the same way. Each uses a thread until
the system's resolver gives up, which takes 10 to 30 seconds.
"""
SILENT_S: Final = 600.0
"""How long the gateway remembers that a name was not answered soon."""

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host. Raises OSError."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """A lookup that has not ended. `begun` is done when the lookup has a thread: waiting for it does not
    count as time of the request.
    """

    begun: "asyncio.Future[None]"
    answer: "asyncio.Task[Sequence[str]]"

    async def addresses(self) -> Sequence[str]:
        """Wait for the addresses. A cancellation does not stop the lookup, because other requests may wait
        for it.

        Raises:
            OSError: the lookup failed.
        """
        return await asyncio.shield(self.answer)


class Names:
    """Looks up names, and remembers the results. All methods must be called in one event loop."""

    def __init__(self, resolve: Resolve | None = None) -> None:
        self._resolve: Final = resolve or in_thread
        self._loop: Final = asyncio.get_running_loop()
        self._known: Final[dict[str, tuple[float, Sequence[str] | OSError]]] = {}
        self._silent: Final[dict[str, float]] = {}
        self._lookups: Final[dict[tuple[str, str], Lookup]] = {}
        self._quick: Final = Slots(QUICK_MAX)
        self._slow: Final = Slots(SLOW_MAX)

    @property
    def looking_up(self) -> int:
        """How many lookups have not ended."""
        return len(self._lookups)

    def known(self, host: str) -> Sequence[str] | None:
        """Return the remembered addresses; None if the name must be looked up.

        Raises:
            OSError: the last lookup failed, and the failure is still remembered.
        """
        until_s, found = self._known.get(host, (0.0, ()))
        if until_s < self._loop.time():
            return None
        if isinstance(found, OSError):
            # A copy, because raising an exception adds to its traceback: the remembered one would grow
            # without end.
            raise copy.copy(found)
        return found

    def lookup(self, host: str, port: int, *, namespace: str = "") -> Lookup:
        """Return the current lookup of a name for a namespace, or begin one.

        Namespaces do not share lookups, so that a namespace does not wait for the slots of another one.
        """
        lookup = self._lookups.get((namespace, host))
        if lookup is None:
            begun: asyncio.Future[None] = self._loop.create_future()
            task = self._loop.create_task(self._look_up(host, port, begun, namespace))
            lookup = self._lookups[namespace, host] = Lookup(begun, task)
            lookup.answer.add_done_callback(_retrieved)
        return lookup

    def forget(self) -> None:
        """Remove expired results. Call this regularly."""
        now_s = self._loop.time()
        for host in [host for host, (until_s, _) in self._known.items() if until_s < now_s]:
            del self._known[host]
        for host in [host for host, until_s in self._silent.items() if until_s < now_s]:
            del self._silent[host]

    def close(self) -> None:
        """Cancel all lookups. Their threads are not stopped: they end by themselves or with the process."""
        for lookup in self._lookups.values():
            lookup.answer.cancel()
            lookup.begun.cancel()

    async def _look_up(
        self,
        host: str,
        port: int,
        begun: "asyncio.Future[None]",
        namespace: str,
    ) -> Sequence[str]:
        slots = self._slow if host in self._silent else self._quick
        try:
            await slots.acquire(namespace)
        except BaseException:
            del self._lookups[namespace, host]
            raise
        began_s = self._loop.time()
        begun.set_result(None)
        asked = asyncio.ensure_future(self._resolve(host, port))
        try:
            if slots is self._quick and not await _done(asked, QUICK_S) and self._slow.has_room(namespace):
                self._slow.take(namespace)
                self._quick.release(namespace)
                slots = self._slow
            addresses = await asked
        except Exception as error:  # for example UnicodeError: the name cannot be encoded
            failure = (
                error if isinstance(error, OSError) else OSError(f"{host!r} cannot be resolved: {error}")
            )
            self._remember(host, began_s, failure)
            raise failure from error
        finally:
            slots.release(namespace)
            asked.cancel()
            del self._lookups[namespace, host]
        self._remember(host, began_s, addresses)
        return addresses

    def _remember(self, host: str, began_s: float, found: Sequence[str] | OSError) -> None:
        now_s = self._loop.time()
        took_s = now_s - began_s
        keep_s = RESOLVED_S if not isinstance(found, OSError) else min(max(took_s, FAILED_MIN_S), RESOLVED_S)
        self._known[host] = (now_s + keep_s, found)
        if took_s > QUICK_S:
            self._silent[host] = now_s + SILENT_S
        else:
            self._silent.pop(host, None)


async def in_thread(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host, from the system's resolver in a new thread.

    The thread is a daemon, so that it does not delay the exit. Threads of the event loop's executor would.

    Raises:
        OSError: the name cannot be resolved, or this machine has no descriptor or thread left.
    """
    if _is_address(host):
        return [host]
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Sequence[str]] = loop.create_future()

    def give(found: Sequence[str] | Exception) -> None:
        if answer.done():
            return
        if isinstance(found, Exception):
            answer.set_exception(found)
        else:
            answer.set_result(found)

    def look_up() -> None:
        found: Sequence[str] | Exception
        try:
            infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            # The order of the resolver stays (RFC 6724), without duplicates for several socket types.
            found = list(dict.fromkeys(str(address[0]) for *_, address in infos))
        except Exception as error:  # noqa: BLE001  the waiting requests get it
            found = _out_of_descriptors() or error
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(give, found)

    try:
        # Not c-ares: it would not use all sources of the system, so a subscriber that `curl` reaches might
        # not be found (docs/decisions/0011-http-client.md).
        threading.Thread(target=look_up, name=f"lookup {host}", daemon=True).start()
    except RuntimeError as error:
        raise BlockingIOError(*_NO_THREAD) from error
    return await answer


_NO_THREAD: Final = (11, "no thread for a lookup")


def _out_of_descriptors() -> OSError | None:
    """Return the error if no file descriptor is left. The resolver reports this as an unknown name."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error
    return None


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


async def _done(asked: "asyncio.Future[Sequence[str]]", within_s: float) -> bool:
    done, _ = await asyncio.wait({asked}, timeout=within_s)
    return bool(done)


def _retrieved(task: "asyncio.Task[Sequence[str]]") -> None:
    """Retrieve the exception of a lookup; otherwise asyncio logs it if no request waits any more."""
    if not task.cancelled():
        task.exception()
