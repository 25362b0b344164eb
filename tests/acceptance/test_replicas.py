"""Two gateways over one PostgreSQL database and one log node: they share the deliveries, and one does it all
when the other is killed.
"""

import http.client
import itertools
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from examples.gateway import GatewayProcess, Sender
from examples.node import NodeProcess
from examples.subscriber import SubscriberServer
from tests.acceptance.shared import BROKER, RESOURCES
from tests.forks import shared_folder
from tests.knative_gateway import postgresql

pytestmark = pytest.mark.heavy

TAKEN_OVER_S_MAX = 30.0
"""The node notices a killed process at once, and not after the minute of its idle timeout. The remaining time
is for the wait for a new owner, and for a busy machine.
"""
PACE_S = 0.005


@dataclass
class Load:
    """Events that are sent through the gateways in turn until `stop`, as by a client that knows both
    addresses.
    """

    addresses: list[str]
    accepted: dict[str, float] = field(default_factory=dict)
    statuses: set[int | None] = field(default_factory=set)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        self._threads = [threading.Thread(target=self._send, args=(name,), daemon=True) for name in "ab"]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def _send(self, name: str) -> None:
        senders = [Sender(address, BROKER) for address in self.addresses]
        for number in itertools.count():
            if self._stop.wait(PACE_S):
                break
            id_ = f"{name}.{number}"
            status = senders[number % len(senders)].send(
                {"id": id_, "source": "/replicas", "type": "t"}, id_.encode()
            )
            self.statuses.add(status)
            if status == 202:
                self.accepted[id_] = time.monotonic()
        for sender in senders:
            sender.close()


@dataclass
class Came:
    """What the subscriber received: when each event arrived for the first time, and how many events arrived
    again.
    """

    first: dict[str, float] = field(default_factory=dict)
    again: Counter[str] = field(default_factory=Counter)

    def decide(self, attributes: Mapping[str, str]) -> int:
        id_ = attributes["id"]
        self.again[id_] += id_ in self.first
        self.first.setdefault(id_, time.monotonic())
        return 202


@dataclass
class Pair:
    """Two gateways, and the subscriber of their only Trigger."""

    gateways: list[GatewayProcess]
    server: SubscriberServer


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("replicas")
    with ExitStack() as stack:
        socket_dir = stack.enter_context(postgresql.server(shared_folder(tmp_path_factory)))
        node = stack.enter_context(NodeProcess(folder / "node"))
        server = stack.enter_context(SubscriberServer())
        shared = (
            "--store",
            f"postgresql://tester@/postgres?host={socket_dir}",
            "--amqp",
            node.url,
            "--public-url",
            "http://events.test",
        )
        started = [GatewayProcess(folder / name, *shared) for name in ("one", "other")]
        for gateway in started:
            stack.push(gateway.__exit__)
            gateway.launch()
        for gateway in started:
            gateway.await_ready()
        started[0].apply(RESOURCES.format(url=server.url))
        yield Pair(started, server)
        for gateway in started:
            assert gateway.stop() == 0, gateway.words
            assert "Traceback" not in gateway.words, gateway.words
        assert "Traceback" not in node.words, node.words


@pytest.fixture
def came(pair: Pair) -> Came:
    made = Came()
    pair.server.decide = made.decide
    return made


@pytest.fixture
def gateways(pair: Pair) -> Iterator[list[GatewayProcess]]:
    """Both run and have their shares, before and after."""
    _until(lambda: all(_answers(gateway) and _share(gateway) == 2 for gateway in pair.gateways))
    yield pair.gateways
    for gateway in pair.gateways:
        if gateway.process is None or gateway.process.poll() is not None:
            gateway.start()


def test_one_is_killed_and_the_other_delivers_what_both_accepted(
    gateways: list[GatewayProcess], came: Came
) -> None:
    survivor, mortal = gateways
    load = Load([survivor.http, mortal.http])
    load.start()
    try:
        _until(lambda: len(came.first) > 200 and min(_delivered(gateway) for gateway in gateways) > 50)
        killed = time.monotonic()
        os.kill(mortal.pid, signal.SIGKILL)
        _until(lambda: _share(survivor) == 4)
        taken_over = time.monotonic()
        _until(lambda: sum(at > taken_over for at in list(load.accepted.values())) > 50)
    finally:
        load.stop()
    _until(lambda: load.accepted.keys() <= came.first.keys())
    late = {id_: came.first[id_] - at for id_, at in load.accepted.items() if at > killed - 1}
    hand_over_s = max(came.first[id_] - max(at, killed) for id_, at in load.accepted.items())
    print(
        f"\ntaken over after {taken_over - killed:.2f} s; what waited came after {hand_over_s:.2f} s;"
        f" {came.again.total()} again"
    )
    assert max(late.values()) < TAKEN_OVER_S_MAX
    assert hand_over_s < TAKEN_OVER_S_MAX
    assert load.statuses <= {202, None}, "the survivor took everything all the time"


def test_one_that_is_stopped_hands_over_and_one_that_comes_back_gets_its_share(
    gateways: list[GatewayProcess], came: Came
) -> None:
    stayer, leaver = gateways
    load = Load([stayer.http])
    load.start()
    try:
        _until(lambda: len(came.first) > 50)
        assert leaver.stop() == 0, leaver.words
        _until(lambda: _share(stayer) == 4)
        _until(lambda: set(list(load.accepted)[:-50]) <= came.first.keys())
        assert came.again.total() == 0, "who leaves waits for its answers, and keeps its positions"
        leaver.start()
        _until(lambda: _share(stayer) == _share(leaver) == 2)
        before = len(load.accepted)
        _until(lambda: len(load.accepted) > before + 50)
    finally:
        load.stop()
    _until(lambda: load.accepted.keys() <= came.first.keys())
    assert load.statuses == {202}
    # Who loses partitions to a newcomer learns it when they are lost: what it had on its way may come again.
    assert came.again.total() < len(load.accepted)


def test_a_replay_that_one_is_asked_for_reaches_the_other(gateways: list[GatewayProcess], came: Came) -> None:
    """Both replicas carry out a replay that one of them was asked for, each in its own partitions."""
    _, other = gateways
    senders = [Sender(gateway.http, BROKER) for gateway in gateways]
    ours = [f"replayed.{number}" for number in range(20)]
    for number, id_ in enumerate(ours):
        assert senders[number % 2].send({"id": id_, "source": "/s", "type": "t"}, b"{}") == 202
    # Events of earlier tests may come again at any time.
    _until(lambda: came.first.keys() >= set(ours))
    other.cli("replay", "trigger/all", "--start", "earliest")
    _until(lambda: all(came.again[id_] for id_ in ours))
    assert {came.again[id_] for id_ in ours} == {1}
    for sender in senders:
        sender.close()


def test_a_broker_that_one_replica_knows_is_unknown_to_none(gateways: list[GatewayProcess]) -> None:
    """A client that knows that a gateway is ready may send to any gateway that the load balancer chooses. At
    worst it must retry.
    """
    one, other = gateways
    for number in range(5):
        broker = {
            "apiVersion": "eventing.knative.dev/v1",
            "kind": "Broker",
            "metadata": {"name": f"new{number}", "namespace": "default"},
        }
        one.apply(json.dumps(broker))
        statuses = set()
        sender = Sender(other.http, f"/broker/default/new{number}")
        while 202 not in statuses:
            statuses.add(sender.send({"id": "1", "source": "/s", "type": "t"}, b"{}"))
        assert statuses <= {202, 503}
        sender.close()


def _until(condition: Callable[[], bool], seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _answers(gateway: GatewayProcess) -> bool:
    connection = http.client.HTTPConnection(gateway.http, timeout=60)
    connection.request("OPTIONS", BROKER)
    status = connection.getresponse().status
    connection.close()
    return status == 200


def _metric(gateway: GatewayProcess, name: str) -> int:
    connection = http.client.HTTPConnection(gateway.http, timeout=60)
    connection.request("GET", "/metrics")
    words = connection.getresponse().read().decode()
    connection.close()
    return int(sum(float(line.rsplit(" ", 1)[1]) for line in words.splitlines() if line.startswith(name)))


def _share(gateway: GatewayProcess) -> int:
    """Partitions of the Broker that it delivers."""
    return _metric(gateway, "knative_gateway_partitions{")


def _delivered(gateway: GatewayProcess) -> int:
    return _metric(gateway, "knative_gateway_subscriber_delivered_total{")
