"""Places for answers: their number, and the end of slow ones that others wait for."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from knative_gateway.http import places
from knative_gateway.http.places import RATE_BYTES_S, SLOW_S, Held, Place, Places


def nothing() -> None:
    """The client stays."""


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_one_user_has_at_most_half_of_the_places() -> None:
    every, taken = Places(4), list[str]()

    async def answer(user: str) -> None:
        async with every.place(user, nothing):
            taken.append(user)
            await asyncio.Event().wait()

    tasks = [asyncio.create_task(answer(user)) for user in "aaabb"]
    await settle()
    assert sorted(taken) == ["a", "a", "b", "b"]
    assert not every.is_free("c")
    tasks[0].cancel()
    await settle()
    assert (sorted(taken), every.is_free("c")) == (["a", "a", "a", "b", "b"], False)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert every.is_free("a")


@pytest.mark.parametrize("others_wait", [True, False])
async def test_a_slow_answer_ends_only_if_others_wait(
    monkeypatch: pytest.MonkeyPatch, *, others_wait: bool
) -> None:
    monkeypatch.setattr(places, "SLOW_S", -1.0)
    monkeypatch.setattr(places, "LOOK_S", 0.0)
    every, cut = Places(2), asyncio.Event()
    async with every.place("a", cut.set) as place:
        assert place is not None
        with place.sending(1):
            if not others_wait:
                every._look()
                assert not cut.is_set()
                return
            waiting = asyncio.create_task(AsyncExitStack().enter_async_context(every.place("a", nothing)))
            await asyncio.wait_for(cut.wait(), 10)
    await asyncio.wait_for(waiting, 10)


async def test_an_answer_that_is_being_computed_is_not_slow() -> None:
    place = Place(Held(), nothing)
    now = asyncio.get_running_loop().time()
    assert not place.is_slow(now + 1_000)
    with place.sending(10 * RATE_BYTES_S):
        assert not place.is_slow(now + SLOW_S / 2)
        assert place.is_slow(now + 2 * SLOW_S)
    with place.sending(1):
        assert not place.is_slow(now + SLOW_S + 9), "the client may take longer for a larger answer"
        assert place.is_slow(now + SLOW_S + 12)


async def test_who_waits_for_a_place_may_stop() -> None:
    every, stopping = Places(2), asyncio.Event()
    async with every.place("a", nothing):

        async def wait() -> bool:
            async with every.place("a", nothing, stopping=stopping) as place:
                return place is None

        waiting = asyncio.create_task(wait())
        await settle()
        assert not waiting.done()
        stopping.set()
        assert await asyncio.wait_for(waiting, 10)
    assert every.is_free("a")


async def test_answers_that_send_the_same_bytes_share_a_place() -> None:
    every, taken, ends = Places(2), list[tuple[object, Held]](), asyncio.Event()

    async def answer(sends: object) -> None:
        async with every.place("a", nothing, sends=sends) as place:
            assert place is not None
            taken.append((sends, place.held))
            await ends.wait()

    # The second and the fourth wait, and both send what the fifth has a place for.
    tasks = [asyncio.create_task(answer(sends)) for sends in (1, 2, 1, 2)]
    await settle()
    assert [each[0] for each in taken] == [1, 1]
    assert taken[0] == taken[1]
    assert every.is_free("a", 1)
    assert not every.is_free("a", 2)
    async with every.place("b", nothing, sends=2):
        await settle()
        assert len(taken) == 4
    ends.set()
    await asyncio.gather(*tasks)
    assert every.is_free("a")
    assert (every._held, every._coming) == ({}, {})


async def test_a_place_is_kept_until_its_last_answer_has_ended() -> None:
    every = Places(2)
    async with AsyncExitStack() as later:
        async with every.place("a", nothing, sends=1):
            await later.enter_async_context(every.place("a", nothing, sends=1))
        assert not every.is_free("a", 2)
    assert every.is_free("a", 2)


async def test_who_stops_waiting_gives_its_place_back() -> None:
    every = Places(2)
    async with every.place("a", nothing):
        waiting = asyncio.create_task(
            AsyncExitStack().enter_async_context(every.place("a", nothing, sends=1))
        )
        await settle()
    waiting.cancel()
    await settle()
    await asyncio.gather(waiting, return_exceptions=True)
    assert every._coming == {}
