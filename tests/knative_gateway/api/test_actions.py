"""The requests for a Trigger that Kubernetes does not have."""

from collections.abc import Mapping

from knative_gateway.api import Api
from knative_gateway.ports import Failure
from knative_gateway.resources.refusals import StatusError
from knative_gateway.store import Store
from tests.knative_gateway.api.client import BROKERS, TRIGGERS, call, trigger


class Recorder:
    """Replays that record the requests."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, object]] = []

    async def replay(self, subscriber: Mapping[str, object], start: str) -> Mapping[str, object]:
        self.asked.append(("replay", start))
        return {"from": {"0": "1"}}

    async def redrive(
        self, subscriber: Mapping[str, object], options: Mapping[str, object]
    ) -> Mapping[str, object]:
        if options:
            raise StatusError(409, "Conflict", "it is under way")
        self.asked.append(("redrive", subscriber["kind"]))
        return {"events": 3}

    def redrives(self, subscriber: Mapping[str, object]) -> Mapping[str, object]:
        return {"events": 3, "left": 1, "cancelled": 0, "process": "p"}

    async def lags(self, subscriber: Mapping[str, object], stored: Mapping[int, str]) -> Mapping[int, int]:
        return {0: 4}

    async def match(
        self, trigger: Mapping[str, object], options: Mapping[str, object]
    ) -> Mapping[str, object]:
        self.asked.append(("match", options))
        return {"events": []}

    async def events(
        self, source: Mapping[str, object], options: Mapping[str, object]
    ) -> Mapping[str, object]:
        self.asked.append(("events", source["kind"]))
        return {"events": []}

    async def trace(
        self, source: Mapping[str, object], options: Mapping[str, object]
    ) -> Mapping[str, object]:
        self.asked.append(("trace", options))
        return {"subscribers": []}


async def test_the_history_shows_failures_and_positions(api: Api, store: Store) -> None:
    uid = (await call(api, "POST", TRIGGERS, trigger())).json["metadata"]["uid"]
    assert (await call(api, "GET", f"{TRIGGERS}/t/deliveries")).json["failures"] == []
    await store.cursors.save({(uid, 1): "0A", (uid, 0): "07"})
    await store.cursors.record(
        {uid: [Failure(1, "id", "/s", 0, "07", 2, 503, "Service Unavailable", "try later")]}
    )
    told = (await call(api, "GET", f"{TRIGGERS}/t/deliveries")).json
    assert told["positions"] == [
        {"partition": 0, "offset": 7, "lag": None},
        {"partition": 1, "offset": "0A", "lag": None},
    ]
    assert told["failures"][0]["offset"] == 7
    assert (told["failures"][0]["code"], told["failures"][0]["body"], told["metadata"]["uid"]) == (
        503,
        "try later",
        uid,
    )
    assert (await call(api, "GET", f"{TRIGGERS}/other/deliveries")).code == 404
    assert (await call(api, "GET", f"{BROKERS}/b/deliveries")).code == 404


async def test_a_trigger_is_paused_and_resumed(api: Api) -> None:
    await call(api, "POST", TRIGGERS, trigger())
    paused = await call(api, "POST", f"{TRIGGERS}/t/pause")
    assert paused.json["metadata"]["annotations"]["knative-gateway/paused"] == "true"
    resumed = await call(api, "POST", f"{TRIGGERS}/t/resume", {})
    assert "knative-gateway/paused" not in resumed.json["metadata"].get("annotations", {})
    assert (await call(api, "POST", f"{TRIGGERS}/other/pause")).code == 404


async def test_replay_and_redrive_are_the_data_plane_s(store: Store) -> None:
    recorder = Recorder()
    api = Api(store.resources, store.cursors, replays=recorder)
    await api.start()
    await call(api, "POST", TRIGGERS, trigger())
    assert (await call(api, "POST", f"{TRIGGERS}/t/replay", {"start": "time=2026-01-01T00:00:00Z"})).json == {
        "from": {"0": "1"}
    }
    assert (await call(api, "POST", f"{TRIGGERS}/t/redrive")).json == {"events": 3}
    assert recorder.asked == [("replay", "time=2026-01-01T00:00:00Z"), ("redrive", "Trigger")]
    assert (await call(api, "POST", f"{TRIGGERS}/t/redrive", {"again": True})).code == 409
    for body in ({}, {"start": "yesterday"}, {"start": 1}, [1]):
        assert (await call(api, "POST", f"{TRIGGERS}/t/replay", body)).code == 400
    assert (await call(api, "POST", f"{TRIGGERS}/other/replay", {"start": "earliest"})).code == 404
    await api.close()


async def test_filters_of_a_trigger_are_tried_and_a_subscription_has_none(store: Store) -> None:
    recorder = Recorder()
    api = Api(store.resources, store.cursors, replays=recorder)
    await api.start()
    await call(api, "POST", TRIGGERS, trigger())
    assert (await call(api, "POST", f"{TRIGGERS}/t/match", {"events": 5})).json == {"events": []}
    assert recorder.asked == [("match", {"events": 5})]
    assert (await call(api, "POST", f"{TRIGGERS}/t/match", [1])).code == 400
    assert (await call(api, "GET", f"{TRIGGERS}/t/match")).code == 405
    assert (await call(api, "POST", f"{TRIGGERS}/other/match", {})).code == 404
    subscriptions = TRIGGERS.replace("eventing.knative.dev", "messaging.knative.dev")
    path = subscriptions.replace("triggers", "subscriptions")
    assert (await call(api, "POST", f"{path}/s/match", {})).code == 404
    await api.close()


async def test_the_positions_have_the_lag_of_the_data_plane(store: Store) -> None:
    api = Api(store.resources, store.cursors, replays=Recorder())
    await api.start()
    uid = (await call(api, "POST", TRIGGERS, trigger())).json["metadata"]["uid"]
    await store.cursors.save({(uid, 0): "07"})
    [position] = (await call(api, "GET", f"{TRIGGERS}/t/deliveries")).json["positions"]
    assert position == {"partition": 0, "offset": 7, "lag": 4}
    await api.close()


async def test_an_operation_without_an_implementation_is_not_implemented(api: Api) -> None:
    await call(api, "POST", TRIGGERS, trigger())
    assert (await call(api, "POST", f"{TRIGGERS}/t/replay", {"start": "earliest"})).code == 501


async def test_events_and_paths_are_those_of_brokers_and_channels(store: Store) -> None:
    recorder = Recorder()
    api = Api(store.resources, store.cursors, replays=recorder)
    await api.start()
    broker = {"apiVersion": "eventing.knative.dev/v1", "kind": "Broker", "metadata": {"name": "b"}}
    await call(api, "POST", BROKERS, broker)
    await call(api, "POST", TRIGGERS, trigger())
    assert (await call(api, "POST", f"{BROKERS}/b/events", {})).json == {"events": []}
    assert (await call(api, "POST", f"{BROKERS}/b/trace", {"offset": 1})).json == {"subscribers": []}
    assert recorder.asked == [("events", "Broker"), ("trace", {"offset": 1})]
    assert (await call(api, "GET", f"{BROKERS}/b/trace")).code == 405
    assert (await call(api, "POST", f"{BROKERS}/b/trace", [1])).code == 400
    for path in (
        f"{BROKERS}/none/events",
        f"{BROKERS}/b/redrive",
        f"{TRIGGERS}/t/trace",
        f"{TRIGGERS}/t/events",
    ):
        assert (await call(api, "POST", path, {})).code == 404
    await api.close()
