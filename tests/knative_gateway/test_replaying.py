"""The dispatcher gets the requests of the API."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import pytest

from knative_gateway import replaying
from knative_gateway.dispatcher.subscribers.redriving import Progress
from knative_gateway.dispatcher.worker import RouteWorker
from knative_gateway.ports import Route
from knative_gateway.replaying import DispatcherReplays
from knative_gateway.resources.refusals import StatusError
from tests.knative_gateway.dispatcher.rig import MemoryCursorStore
from tests.knative_gateway.memory_log import MemoryEventLog

TRIGGER = {"metadata": {"uid": "u-1"}}


@dataclass
class Dispatcher:
    """Records its calls. It knows u-1."""

    told: list[tuple[str, object]] = field(default_factory=list)

    def _know(self, uid: str) -> None:
        if uid != "u-1":
            raise KeyError(uid)

    async def replay_from_time(self, uid: str, at_ms: int) -> None:
        self._know(uid)
        self.told.append(("time", at_ms))

    async def replay_from_offsets(self, uid: str, offsets: str) -> None:
        self._know(uid)
        self.told.append(("offsets", offsets))

    async def redrive(self, uid: str, only: Collection[tuple[int, str]] | None = None) -> int:
        self._know(uid)
        self.told.append(("redrive", only))
        return 3 if only is None else len(only)

    async def lags(self, uid: str, stored: Mapping[int, str]) -> Mapping[int, int]:
        self._know(uid)
        return dict.fromkeys(stored, 5)

    def redrives(self, uid: str) -> Progress:
        self._know(uid)
        return Progress(5, 2, 1)

    def cancel_redrive(self, uid: str) -> int:
        self._know(uid)
        return 2

    def log_of(self, uid: str) -> str:
        self._know(uid)
        return "broker.log"

    @property
    def routes(self) -> Mapping[str, Route]:
        return {}

    def worker_at(self, path: str) -> RouteWorker | None:
        self.told.append(("path", path))
        return None


@pytest.mark.parametrize(
    ("start", "told"),
    [
        ("earliest", ("time", 0)),
        ("new", ("time", 1 << 45)),
        ("time=1970-01-01T00:00:01Z", ("time", 1000)),
        ("offset=0=0000000000000005,1=@earliest", ("offsets", "0=0000000000000005,1=@earliest")),
    ],
)
async def test_every_start_is_understood(start: str, told: tuple[str, object]) -> None:
    dispatcher = Dispatcher()
    assert await DispatcherReplays(dispatcher, MemoryEventLog(), MemoryCursorStore()).replay(
        TRIGGER, start
    ) == {
        "kind": "Replay",
        "uid": "u-1",
        "start": start,
    }
    assert dispatcher.told == [told]


async def test_a_redrive_returns_the_number_of_events() -> None:
    replays = DispatcherReplays(Dispatcher(), MemoryEventLog(), MemoryCursorStore())
    process = replays.redrives(TRIGGER)["process"]
    answer = await replays.redrive(TRIGGER, {})
    assert answer == {"kind": "Redrive", "uid": "u-1", "events": 3, "process": process}
    assert replays.redrives(TRIGGER) == {"events": 5, "left": 2, "cancelled": 1, "process": process}
    assert replays.redrives({"metadata": {"uid": "other"}}) == {}
    assert (await replays.redrive(TRIGGER, {"cancel": True}))["cancelled"] == 2
    for options in ({"cancel": 1}, {"cancel": True, "events": []}):
        with pytest.raises(StatusError, match="cancel must be true, without other options"):
            await replays.redrive(TRIGGER, options)
    with pytest.raises(StatusError, match="not have an option 'x'"):
        await DispatcherReplays(Dispatcher(), MemoryEventLog(), MemoryCursorStore()).redrive(
            TRIGGER, {"x": 1}
        )


async def test_a_subscriber_that_is_not_served_is_reported_as_such() -> None:
    replays = DispatcherReplays(Dispatcher(), MemoryEventLog(), MemoryCursorStore())
    with pytest.raises(StatusError, match="not served now"):
        await replays.replay({"metadata": {"uid": "other"}}, "earliest")
    with pytest.raises(StatusError, match="not served now"):
        await replays.redrive({"metadata": {"uid": "other"}}, {})
    with pytest.raises(StatusError, match="not served now"):
        await replays.match({"metadata": {"uid": "other"}}, {})


async def test_a_redrive_of_selected_events_names_them() -> None:
    dispatcher = Dispatcher()
    events = [{"partition": 0, "offset": 42}, {"partition": 3, "offset": 0}]
    answer = await DispatcherReplays(dispatcher, MemoryEventLog(), MemoryCursorStore()).redrive(
        TRIGGER, {"events": events}
    )
    assert answer["events"] == 2
    assert dispatcher.told == [("redrive", {(0, f"{42:016d}"), (3, f"{0:016d}")})]


@pytest.mark.parametrize(
    "events",
    [
        [],
        "all",
        {"partition": 0, "offset": 1},
        [{"partition": 0}],
        [{"partition": 0, "offset": True}],
        [{"partition": 0, "offset": -1}],
        [{"partition": 0, "offset": 10**16}],
        [{"partition": "0", "offset": 1}],
        [{"partition": 0, "offset": 1, "more": 1}],
        [{"partition": 0, "offset": 1}] * 101,
        None,
    ],
)
async def test_a_selection_that_is_not_valid_delivers_nothing(events: object) -> None:
    dispatcher = Dispatcher()
    with pytest.raises(StatusError, match="events must be a list of 1 to 100 events"):
        await DispatcherReplays(dispatcher, MemoryEventLog(), MemoryCursorStore()).redrive(
            TRIGGER, {"events": events}
        )
    assert dispatcher.told == []


async def test_the_lag_is_unknown_while_the_subscriber_is_not_served_or_the_log_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Silent(Dispatcher):
        async def lags(self, uid: str, stored: Mapping[int, str]) -> Mapping[int, int]:
            await asyncio.Event().wait()
            return {}

    monkeypatch.setattr(replaying, "LAGS_S_MAX", 0.05)
    replays = DispatcherReplays(Dispatcher(), MemoryEventLog(), MemoryCursorStore())
    assert await replays.lags(TRIGGER, {0: "1"}) == {0: 5}
    assert await replays.lags({"metadata": {"uid": "other"}}, {0: "1"}) == {}
    assert (
        await DispatcherReplays(Silent(), MemoryEventLog(), MemoryCursorStore()).lags(TRIGGER, {0: "1"}) == {}
    )


async def test_filters_are_tried_with_the_events_of_the_log() -> None:
    events = MemoryEventLog()
    await events.ensure("broker.log", partitions=1, retention_ms=None)
    assert await DispatcherReplays(Dispatcher(), events, MemoryCursorStore()).match(TRIGGER, {}) == {
        "kind": "Match",
        "events": [],
    }


async def test_a_partition_that_the_log_does_not_have_is_refused() -> None:
    class Refusing(Dispatcher):
        async def replay_from_offsets(self, uid: str, offsets: str) -> None:
            raise ValueError("offset: the log has no partition 99; it has 4, from 0 on")

    with pytest.raises(StatusError, match="no partition 99") as refused:
        await DispatcherReplays(Refusing(), MemoryEventLog(), MemoryCursorStore()).replay(
            TRIGGER, "offset=99=0"
        )
    assert refused.value.code == 400


@pytest.mark.parametrize("options", [{}, {"partition": 0, "offset": 1}])
async def test_events_of_a_broker_that_is_not_served_are_not_read(options: Mapping[str, object]) -> None:
    dispatcher = Dispatcher()
    replays = DispatcherReplays(dispatcher, MemoryEventLog(), MemoryCursorStore())
    broker = {
        "kind": "Broker",
        "apiVersion": "eventing.knative.dev/v1",
        "metadata": {"name": "b", "uid": "u"},
    }
    look = replays.trace if options else replays.events
    with pytest.raises(StatusError, match="not served now") as refused:
        await look(broker, options)
    assert refused.value.code == 503
    assert dispatcher.told == [("path", "/broker//b")]
