"""Names that are answered, that are not, and that fail, and how each of them affects the others."""

import asyncio
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence

import pytest

from knative_gateway.dispatcher.posting import resolving
from knative_gateway.dispatcher.posting.resolving import Names, in_thread
from tests.knative_gateway.dispatcher.rig import until


class Servers:
    """Names ending in .silent never answer, names ending in .missing do not exist."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked[host] += 1
        if host.endswith(".silent"):
            await asyncio.Event().wait()
        if host.endswith(".missing"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return ["192.0.2.1"]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolving, "QUICK_S", 0.02)
    monkeypatch.setattr(resolving, "QUICK_MAX", 2)
    monkeypatch.setattr(resolving, "SLOW_MAX", 8)


async def test_all_requests_for_a_name_share_one_lookup() -> None:
    servers = Servers()
    names = Names(servers)
    found = await asyncio.gather(*(names.lookup("a.test", port).addresses() for port in range(256)))
    assert found == [["192.0.2.1"]] * 256
    assert names.known("a.test") == ["192.0.2.1"]
    assert servers.asked == {"a.test": 1}


async def test_names_that_never_answer_delay_no_other_name() -> None:
    """More of them than there are quick lookups at once."""
    names = Names(Servers())
    silent = [names.lookup(f"{number}.silent", 80) for number in range(4)]
    for number in range(4):
        assert await asyncio.wait_for(names.lookup(f"{number}.test", 80).addresses(), 60) == ["192.0.2.1"]
    assert not any(lookup.answer.done() for lookup in silent)
    names.close()


async def test_a_namespace_with_any_number_of_silent_names_delays_no_other_namespace() -> None:
    """A user who may create Triggers chooses the names."""
    names = Names(Servers())
    silent = [names.lookup(f"{number}.silent", 80, namespace="a") for number in range(100)]
    own = names.lookup("shared.test", 80, namespace="a")
    await asyncio.shield(
        silent[4].begun
    )  # they fill the slow lookups that one namespace may have, and the quick ones
    assert await asyncio.wait_for(names.lookup("shared.test", 80, namespace="b").addresses(), 60) == [
        "192.0.2.1"
    ]
    assert await asyncio.wait_for(names.lookup("x.test", 80, namespace="b").addresses(), 60) == ["192.0.2.1"]
    assert not any(lookup.answer.done() for lookup in [*silent, own])
    names.close()


async def test_a_lookup_that_waits_for_its_turn_has_not_begun() -> None:
    names = Names(Servers())
    lookups = [names.lookup(f"{number}.silent", 80) for number in range(20)]
    await until(lambda: sum(lookup.begun.done() for lookup in lookups) >= 5)
    begun = [lookup.begun.done() for lookup in lookups]
    assert begun == [True] * 5 + [False] * 15, "half of the slow lookups, and half of the quick ones"
    assert names.looking_up == 20
    names.close()


async def test_a_failure_is_remembered_for_a_while() -> None:
    servers = Servers()
    names = Names(servers)
    with pytest.raises(socket.gaierror):
        await names.lookup("x.missing", 80).addresses()
    for _ in range(100):
        with pytest.raises(socket.gaierror, match="not known"):
            names.known("x.missing")
    assert servers.asked == {"x.missing": 1}


async def test_old_addresses_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolving, "RESOLVED_S", -1.0)
    names = Names(Servers())
    await names.lookup("a.test", 80).addresses()
    names.forget()
    assert (names.known("a.test"), names._known) == (None, {})


async def test_a_request_that_stops_waiting_does_not_end_the_lookup_of_others() -> None:
    names = Names(in_thread)
    lookup = names.lookup("localhost", 80)
    first = asyncio.create_task(lookup.addresses())
    await asyncio.sleep(0)
    first.cancel()
    assert "127.0.0.1" in await lookup.addresses() or "::1" in await lookup.addresses()


async def test_the_systems_resolver_says_what_is_wrong_with_a_name() -> None:
    assert await in_thread("192.0.2.7", 80) == ["192.0.2.7"]
    for name in ("nothing.invalid", "a" * 70 + ".example"):
        with pytest.raises(OSError, match=r".+"):
            await Names(in_thread).lookup(name, 80).addresses()


def test_a_process_ends_while_a_lookup_has_no_answer() -> None:
    """The end of the process would wait for a thread of the loop's executor as long as the resolver tries."""
    program = """
import asyncio, socket, threading
socket.getaddrinfo = lambda *_, **__: threading.Event().wait()
from knative_gateway.dispatcher.posting.resolving import Names
async def main():
    names = Names()
    await names.lookup("x.silent", 80).begun
    await asyncio.sleep(0.05)
    names.close()
asyncio.run(main())
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0
