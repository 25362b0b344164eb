"""[io] The addresses of host names. Requests of one namespace for a name share one lookup; all share its
result.

Laws: a name whose servers do not answer does not delay lookups of other names, up to half of `SLOW_MAX` such
names of one namespace at once; beyond that it delays lookups of its own namespace only. A failure is
remembered, so that a name that cannot be resolved is not looked up all the time. No lookup delays the exit.

The system's own resolver is used, in threads: it follows `/etc/hosts`, search domains and the machine's other
settings.
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
"""The minimum time that a failure is remembered. Else: as long as the lookup took, at most as long as
addresses.
"""
QUICK_S: Final = 1.0
"""A lookup that takes longer moves from the quick slots to the slow ones; the next lookup of that name begins
there.
"""
QUICK_MAX: Final = 64
"""Concurrent lookups of names that answer soon. One namespace has at most half of them, as `Slots` shares
them.
"""
SLOW_MAX: Final = 256
"""Concurrent lookups of names that do not answer soon, shared in the same way. Each takes a thread for as
long as the system's resolver tries, 10 to 30 seconds.
"""
SILENT_S: Final = 600.0
"""How long it is remembered that a name did not answer soon."""

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host. Raises OSError."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """A lookup that has not ended. `begun` is done when it has a thread: the time before that
    is not counted.
    """

    begun: "asyncio.Future[None]"
    answer: "asyncio.Task[Sequence[str]]"

    async def addresses(self) -> Sequence[str]:
        """Wait for the addresses. Raises OSError. If this is cancelled, the lookup continues: others wait for
        it.
        """
        return await asyncio.shield(self.answer)


class Names:
    """Looks up names, and remembers the results. Belongs to one event loop."""

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
        """The addresses that are remembered; None: the name must be looked up.

        Raises:
            OSError: the last lookup failed, and that is remembered still.
        """
        until_s, found = self._known.get(host, (0.0, ()))
        if until_s < self._loop.time():
            return None
        if isinstance(found, OSError):
            raise copy.copy(found)
        return found

    def lookup(self, host: str, port: int, *, namespace: str = "") -> Lookup:
        """The lookup of a name for a namespace: the current one, or a new one.

        Each namespace has its own lookups, so that it does not wait for the slots of another namespace.
        """
        lookup = self._lookups.get((namespace, host))
        if lookup is None:
            begun: asyncio.Future[None] = self._loop.create_future()
            task = self._loop.create_task(self._look_up(host, port, begun, namespace))
            lookup = self._lookups[namespace, host] = Lookup(begun, task)
            lookup.answer.add_done_callback(_retrieved)
        return lookup

    def forget(self) -> None:
        """Forget what is too old. Call this regularly."""
        now_s = self._loop.time()
        for host in [host for host, (until_s, _) in self._known.items() if until_s < now_s]:
            del self._known[host]
        for host in [host for host, until_s in self._silent.items() if until_s < now_s]:
            del self._silent[host]

    def close(self) -> None:
        """End all lookups. Threads that wait for a server are not stopped: they end by themselves or with the
        process.
        """
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
        except Exception as error:  # UnicodeError among them: a name that cannot be encoded
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
    """The addresses of a host, from the system's resolver in a thread of its own.

    The thread is a daemon: unlike threads of the loop's executor, it does not delay the exit.

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
            found = list(dict.fromkeys(str(address[0]) for *_, address in infos))
        except Exception as error:  # noqa: BLE001  it is passed on to the waiting requests
            found = _out_of_descriptors() or error
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(give, found)

    try:
        threading.Thread(target=look_up, name=f"lookup {host}", daemon=True).start()
    except RuntimeError as error:
        raise BlockingIOError(*_NO_THREAD) from error
    return await answer


_NO_THREAD: Final = (11, "no thread for a lookup")


def _out_of_descriptors() -> OSError | None:
    """The error if no descriptor is left: the resolver reports that as a failure of the name."""
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
    """Retrieve the exception of a lookup, so that asyncio does not log it if no request waits for it any
    more.
    """
    if not task.cancelled():
        task.exception()
