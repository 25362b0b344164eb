"""Several things are tried: one that fails lets the next begin at once, a silent one after its share."""

import asyncio

import pytest

from amqp_streams.client.endpoints import racing
from amqp_streams.client.endpoints.racing import STAGGER_S_MAX, STAGGER_S_MIN, Race, race, stagger_s

LIMIT_S = 60.0
"""Longer than any test takes, also on a busy machine."""
SOON_S = 0.1


class Trying:
    """Choices by name: `fails…` raises, `silent…` never answers, anything else returns its name."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.cancelled: list[str] = []
        self.discarded: list[str] = []
        self.go = asyncio.Event()
        self.started = asyncio.Event()

    async def begin(self, name: str) -> str:
        self.begun.append(name)
        self.started.set()
        if name.startswith("fails"):
            raise ValueError(name)
        if name.startswith(("silent", "together")):
            try:
                await (self.go.wait() if name.startswith("together") else asyncio.Event().wait())
            except asyncio.CancelledError:
                self.cancelled.append(name)
                raise
        if name.startswith("sets"):
            self.go.set()
        return name

    async def race(self, *names: str, limit_s: float = LIMIT_S) -> Race[str, str]:
        return await race(names, self.begin, limit_s=limit_s, discard=self.discarded.append)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one begins soon, however much time there is for all."""
    monkeypatch.setattr(racing, "STAGGER_S_MAX", SOON_S)


async def test_the_first_that_answers_wins_and_no_other_begins() -> None:
    trying = Trying()
    result = await trying.race("good", "better")
    assert (result.winner, trying.begun, result.unbegun) == ("good", ["good"], ["better"])
    assert (result.failures, result.silent) == ({}, {})


async def test_one_that_fails_lets_the_next_begin_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(racing, "STAGGER_S_MAX", 3600.0)
    trying = Trying()
    async with asyncio.timeout(60):
        result = await trying.race("fails 1", "fails 2", "good", limit_s=36_000.0)
    assert result.winner == "good"
    assert list(result.failures) == ["fails 1", "fails 2"]


@pytest.mark.usefixtures("soon")
async def test_one_that_is_silent_does_not_hide_the_next_and_is_ended() -> None:
    trying = Trying()
    result = await trying.race("silent", "good")
    assert result.winner == "good"
    assert list(result.silent) == trying.cancelled == ["silent"]
    assert result.silent["silent"] >= SOON_S


@pytest.mark.usefixtures("soon")
async def test_a_slow_one_may_still_win_after_the_next_has_begun() -> None:
    trying = Trying()
    result = await trying.race("together", "silent", "sets")
    assert result.winner in {"together", "sets"}
    assert trying.begun == ["together", "silent", "sets"]
    assert set(result.silent) <= {"silent", "together"}


@pytest.mark.usefixtures("soon")
async def test_two_results_at_once_are_one_winner_and_one_discarded() -> None:
    trying = Trying()

    async def begin(name: str) -> str:
        return name

    loop = asyncio.get_running_loop()
    done = [loop.create_task(begin(name)) for name in ("x", "y")]
    await asyncio.wait(done)
    wanted = {"x": done[0], "y": done[1]}

    async def slow(name: str) -> str:
        if name == "y":
            trying.go.set()
        await trying.go.wait()
        return await wanted[name]

    result = await race(["x", "y"], slow, limit_s=LIMIT_S, discard=trying.discarded.append)
    assert {result.winner, *trying.discarded} == {"x", "y"}


@pytest.mark.usefixtures("soon")
async def test_when_all_fail_or_are_silent_each_is_named_and_none_is_left() -> None:
    trying = Trying()
    result = await trying.race("fails", "silent 1", "silent 2", limit_s=10 * SOON_S)
    assert result.winner is None
    assert list(result.failures) == ["fails"]
    assert sorted(result.silent) == sorted(trying.cancelled) == ["silent 1", "silent 2"]


async def test_more_than_there_is_time_for_are_said_to_be_untried() -> None:
    trying = Trying()
    names = [f"silent {number}" for number in range(50)]
    result = await trying.race(*names, limit_s=2 * STAGGER_S_MIN)
    assert result.winner is None
    assert len(result.unbegun) + len(result.silent) == 50
    assert result.unbegun


async def test_a_race_that_is_cancelled_leaves_nothing_behind() -> None:
    trying = Trying()
    racing = asyncio.create_task(trying.race("silent"))
    await trying.started.wait()
    racing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await racing
    assert trying.cancelled == ["silent"]


@pytest.mark.parametrize("count", [1, 2, 3, 10, 1000])
@pytest.mark.parametrize("limit_s", [0.3, 4.0, 10.0])
def test_the_share_of_each_leaves_twice_as_much_to_the_last(count: int, limit_s: float) -> None:
    share_s = stagger_s(count, limit_s)
    assert STAGGER_S_MIN <= share_s <= STAGGER_S_MAX
    if share_s > STAGGER_S_MIN:
        assert limit_s - (count - 1) * share_s >= 2 * share_s * 0.999
