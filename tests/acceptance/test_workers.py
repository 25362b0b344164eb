"""A gateway with several worker processes: one command, kill -9 of workers and of the parent, one set of
metrics.
"""

import contextlib
import http.client
import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from examples.gateway import GatewayProcess, Sender
from examples.subscriber import SubscriberServer
from knative_gateway.workers.gathering import KEPT_S
from tests.acceptance.shared import BROKER, RESOURCES
from tests.preloaded.launching import real_commands

pytestmark = pytest.mark.heavy

WORKERS = 3
OLD, NEW = "the-old-token-of-alice", "the-new-token-of-alice"
SERVED = {202, 503, None}
"""A worker that starts answers 503; a connection to a worker that is killed has no answer."""


class Came:
    """What the subscriber received, with how often."""

    def __init__(self) -> None:
        self.times: Counter[str] = Counter()

    def decide(self, attributes: Mapping[str, str]) -> int:
        self.times[attributes["id"]] += 1
        return 202


@pytest.fixture(scope="module")
def server() -> Iterator[SubscriberServer]:
    with SubscriberServer() as started:
        yield started


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, server: SubscriberServer) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("workers")
    (folder / "resources").mkdir()
    (folder / "resources" / "all.yaml").write_text(RESOURCES.format(url=server.url))
    options = ("--workers", str(WORKERS), "--resources", str(folder / "resources"))
    with GatewayProcess(folder / "gateway", *options) as gateway:
        gateway.wait_ready()
        yield gateway
        assert gateway.stop() == 0, gateway.words
        assert "Traceback" not in gateway.words, gateway.words


@pytest.fixture
def gateway(running: GatewayProcess) -> GatewayProcess:
    """All workers are ready, and each delivers some of the partitions."""
    _until(lambda: _get(running, "/readyz") == (200, "ready\n") and _shares(running))
    return running


@pytest.fixture
def came(server: SubscriberServer) -> Came:
    made = Came()
    server.decide = made.decide
    return made


def test_events_that_any_worker_accepted_are_delivered_while_workers_are_killed(
    gateway: GatewayProcess, came: Came
) -> None:
    accepted: set[str] = set()
    statuses: set[int | None] = set()
    killed = number = 0
    while killed < WORKERS or len(accepted) < 300:
        # A connection for each event: the kernel chooses the worker of each connection.
        sender = Sender(gateway.http, BROKER)
        status = sender.send({"id": str(number), "source": "/s", "type": "t"}, b"{}")
        sender.close()
        statuses.add(status)
        if status == 202:
            accepted.add(str(number))
        number += 1
        if len(accepted) >= 50 * (killed + 1) and killed < WORKERS:
            # The first worker leads; later ones become leaders.
            _kill_one(gateway)
            killed += 1
    assert statuses <= SERVED
    _until(lambda: accepted <= came.times.keys())


def test_metrics_are_one_set_and_counters_do_not_fall_when_a_worker_is_killed(
    gateway: GatewayProcess, came: Came
) -> None:
    before = {
        name: _settled(gateway, name) for name in ("ingress_events_total{", "subscriber_delivered_total{")
    }
    came.times.clear()
    for number in range(60):
        sender = Sender(gateway.http, BROKER)
        assert sender.send({"id": f"m{number}", "source": "/s", "type": "t"}, b"{}") == 202
        sender.close()
    _until_metric(gateway, "ingress_events_total{", lambda: before["ingress_events_total{"] + 60)
    _until(lambda: came.times.keys() >= {f"m{number}" for number in range(60)})
    # Events in flight while a partition moves to a worker that has just started come again, and count again.
    _until_metric(
        gateway,
        "subscriber_delivered_total{",
        lambda: before["subscriber_delivered_total{"] + came.times.total(),
    )
    # The workers share the partitions again after each start of one.
    _until_metric(gateway, "partitions{", lambda: 4)
    _until_metric(gateway, "workers ", lambda: WORKERS)
    _until_metric(gateway, "leaders ", lambda: 1)  # exactly one controller
    assert _metric(gateway, "connections_max ") == pytest.approx(10_000, abs=WORKERS)
    restarts = _metric(gateway, "worker_restarts_total{")
    os.kill(_workers(gateway)[0], signal.SIGKILL)
    _until(lambda: _metric(gateway, "worker_restarts_total{") == restarts + 1)
    for name, earlier in before.items():
        assert _metric(gateway, name) >= earlier + 60
    _until(lambda: _metric(gateway, "leaders ") == 1)


def test_any_worker_says_how_all_are(gateway: GatewayProcess) -> None:
    restarts = _metric(gateway, "worker_restarts_total{")
    os.kill(_workers(gateway)[0], signal.SIGKILL)
    _until(lambda: _metric(gateway, "worker_restarts_total{") == restarts + 1)
    _until(lambda: _get(gateway, "/readyz")[0] == 200)
    for _ in range(2 * WORKERS):  # the kernel chooses the worker of each connection
        found = json.loads(_get(gateway, "/apis/gateway.knative.dev/v1/gateway")[1])
        assert {each["pid"] for each in found["workers"]} == set(_workers(gateway))
        assert sum(each["leads"] for each in found["workers"]) == 1
        assert found["figures"]["uses"]["connections"]["limit"] == pytest.approx(10_000, abs=WORKERS)
        assert "worker-restarts" in {each["code"] for each in found["warnings"]}
        assert {each["name"] for each in found["settings"]} >= {"workers", "limits.connections"}


def test_the_next_leader_creates_and_deletes_logs_and_every_worker_serves_them(
    gateway: GatewayProcess,
) -> None:
    broker = _broker("late")
    _kill_one(gateway)
    for _ in range(2):  # a successor begins with an empty log
        gateway.apply(broker)
        _until(lambda: _statuses(gateway, "/broker/default/late") == {202})
        gateway.delete(broker)
        _until(lambda: _statuses(gateway, "/broker/default/late") == {404})
    _until(lambda: gateway.words.count("log_deleted") == 2)  # the answer 404 comes before the deletion


def test_a_worker_that_is_killed_makes_the_gateway_not_ready_until_it_is_back(
    gateway: GatewayProcess,
) -> None:
    answers: list[tuple[int, str]] = []

    def not_ready() -> bool:
        # The next worker may be ready before a request comes through: kill it as well.
        os.kill(_workers(gateway)[-1], signal.SIGKILL)
        answers.extend(_get(gateway, "/readyz") for _ in range(5))
        return any(status == 503 for status, _ in answers)

    victim = _workers(gateway)[-1]
    _until(not_ready)
    assert all(words.startswith(("not ready: worker", "ready")) for _, words in answers)
    _until(lambda: _get(gateway, "/readyz") == (200, "ready\n"))
    assert victim not in _workers(gateway)
    assert _get(gateway, "/healthz") == (200, "alive\n")
    assert f"pid={_workers(gateway)[-1]}" in gateway.words


def test_a_worker_that_hangs_makes_the_gateway_not_ready_and_delays_no_metrics(
    gateway: GatewayProcess,
) -> None:
    hangs = _workers(gateway)[-1]
    os.kill(hangs, signal.SIGSTOP)
    try:
        # A connection to the worker that hangs gets no answer: the next may go to another one.
        _until(lambda: "it has not answered for" in _get(gateway, "/readyz", timeout=2.0)[1])
        assert _get(gateway, "/healthz", timeout=2.0) == (200, "alive\n")
        assert "knative_gateway_workers_wanted 3.0" in _get(gateway, "/metrics", timeout=2.0)[1]
    finally:
        # On a slow machine, the parent has replaced it already.
        with contextlib.suppress(ProcessLookupError):
            os.kill(hangs, signal.SIGCONT)
    _until(lambda: _get(gateway, "/readyz", timeout=2.0) == (200, "ready\n"))


def test_the_parent_s_death_leaves_no_orphans_and_the_next_start_finds_everything_free(
    tmp_path: Path, server: SubscriberServer, came: Came
) -> None:
    with ExitStack() as stack:
        with real_commands():  # the node and the workers, too, start as users' do
            gateway = stack.enter_context(GatewayProcess(tmp_path, "--workers", "2"))
        gateway.apply(RESOURCES.format(url=server.url))
        sender = Sender(gateway.http, BROKER)
        assert sender.send({"id": "first", "source": "/s", "type": "t"}, b"{}") == 202
        children = [*_workers(gateway), gateway.node_pid]
        gateway.kill()
        gateway.start()  # at once, with the same port and state
        # The kernel signals the children, and the node ends in order.
        _until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))
        sender.close()
        _until(lambda: sender.send({"id": "second", "source": "/s", "type": "t"}, b"{}") == 202)
        sender.close()
        _until(lambda: {"first", "second"} <= came.times.keys())
        children = [*_workers(gateway), gateway.node_pid]
        assert gateway.stop() == 0, gateway.words
        assert not any(Path(f"/proc/{pid}").exists() for pid in children)
        assert "worker=0" in gateway.words
        assert "worker=1" in gateway.words


def test_sighup_gives_all_workers_the_new_tokens(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text(f"{OLD},alice,1\n")
    tokens.chmod(0o600)
    with GatewayProcess(tmp_path / "gateway", "--workers", "2", "--tokens", str(tokens)) as gateway:
        assert _who(gateway, OLD) == {200}
        tokens.write_text(f"{NEW},alice,1\n")
        os.kill(gateway.pid, signal.SIGHUP)
        _until(lambda: (_who(gateway, NEW), _who(gateway, OLD)) == ({200}, {401}))
        _kill_one(gateway)
        assert _who(gateway, NEW) == {200}, "a worker that is started later, too"
        tokens.write_text("not a table")
        os.kill(gateway.pid, signal.SIGHUP)
        _until(lambda: "gateway_not_reloaded" in gateway.words)
        assert _who(gateway, NEW) == {200}
        assert gateway.stop() == 0, gateway.words


def test_a_worker_that_is_killed_starts_again_without_the_files_of_the_settings(tmp_path: Path) -> None:
    """What was in force stays in force, also for a worker that starts later."""
    tokens = tmp_path / "tokens.csv"
    tokens.write_text(f"{OLD},alice,1\n")
    tokens.chmod(0o600)
    with GatewayProcess(tmp_path / "gateway", "--workers", "2", "--tokens", str(tokens)) as gateway:
        tokens.unlink()
        _kill_one(gateway)
        assert _who(gateway, OLD) == {200}
        tokens.write_text(f"{NEW},alice,1\n")
        tokens.chmod(0o604)
        os.kill(gateway.pid, signal.SIGHUP)
        _until(lambda: f"other users can access {tokens}" in gateway.words)
        _kill_one(gateway)
        assert _who(gateway, OLD) == {200}
        tokens.chmod(0o600)
        os.kill(gateway.pid, signal.SIGHUP)
        _until(lambda: (_who(gateway, NEW), _who(gateway, OLD)) == ({200}, {401}))
        assert gateway.stop() == 0, gateway.words


def test_changes_are_refused_when_the_state_file_is_removed(tmp_path: Path) -> None:
    """Also after the restart of a worker, which would otherwise begin with an empty file."""
    with GatewayProcess(tmp_path, "--workers", "2") as gateway:
        gateway.wait_ready()
        gateway.apply(_broker("kept"))
        folder = next(tmp_path.rglob("gateway.db")).parent
        (folder / "gateway.db").rename(tmp_path / "aside")
        _until(lambda: "gateway.db does not exist any more" in _get(gateway, "/readyz")[1])
        with pytest.raises(RuntimeError, match="does not exist any more"):
            gateway.apply(_broker("refused"))
        os.kill(_workers(gateway)[0], signal.SIGKILL)
        _until(lambda: "worker_not_started" in gateway.words)
        assert _get(gateway, "/readyz")[0] == 503
        assert not (folder / "gateway.db").exists()
        (tmp_path / "aside").rename(folder / "gateway.db")
        _until(lambda: _get(gateway, "/readyz")[0] == 200)
        gateway.apply(_broker("taken"))
        assert gateway.stop() == 0, gateway.words


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--workers", "0"), "workers (--workers): must be"),
        (("--workers", "65"), "workers (--workers): must be"),
        (("--workers", "two"), "workers (--workers): must be"),
        (
            ("--workers", "2", "--tls-certificate", "none.pem", "--tls-key", "none.pem"),
            "tls.certificate: cannot read none.pem: No such file or directory",
        ),
    ],
)
def test_what_no_worker_can_start_with_ends_the_gateway_with_an_error(
    tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    gateway = GatewayProcess(tmp_path, *options)
    gateway.launch()
    assert gateway.process is not None
    assert gateway.process.wait(60) == 2
    assert words in gateway.words
    assert "Traceback" not in gateway.words


def test_an_address_of_another_gateway_with_workers_is_refused(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    other = GatewayProcess(tmp_path, "--workers", "2", listen=gateway.http)
    other.launch()
    assert other.process is not None
    assert other.process.wait(60) == 2
    assert f"cannot listen on {gateway.http}" in other.words


def _broker(name: str) -> str:
    return (
        "{apiVersion: eventing.knative.dev/v1, kind: Broker, "
        f"metadata: {{name: {name}, namespace: default}}}}"
    )


def _until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _kill_one(gateway: GatewayProcess) -> None:
    """Kill the oldest worker, and wait until another one is ready in its place."""
    before = _workers(gateway)
    os.kill(before[0], signal.SIGKILL)
    _until(lambda: len(set(_workers(gateway)) - {before[0]}) == len(before))
    _until(lambda: _get(gateway, "/readyz")[0] == 200)


def _get(
    gateway: GatewayProcess, path: str, token: str | None = None, *, timeout: float = 30.0
) -> tuple[int, str]:
    """Each request has a connection of its own: the kernel chooses the worker."""
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    while True:
        connection = http.client.HTTPConnection(gateway.http, timeout=timeout)
        try:
            connection.request("GET", path, headers=headers)
            with connection.getresponse() as answer:
                return answer.status, answer.read().decode()
        except (OSError, http.client.HTTPException):
            continue  # its worker was killed, or hangs
        finally:
            connection.close()


def _statuses(gateway: GatewayProcess, path: str) -> set[int | None]:
    found = set()
    for number in range(12):
        sender = Sender(gateway.http, path)
        found.add(sender.send({"id": f"{path}{number}", "source": "/s", "type": "t"}, b"{}"))
        sender.close()
    return found


def _who(gateway: GatewayProcess, token: str) -> set[int]:
    return {_get(gateway, "/apis/eventing.knative.dev/v1/brokers", token)[0] for _ in range(12)}


def _metric(gateway: GatewayProcess, name: str) -> int:
    _, text = _get(gateway, "/metrics")
    lines = (line for line in text.splitlines() if line.startswith(f"knative_gateway_{name}"))
    return int(sum(float(line.rsplit(" ", 1)[1]) for line in lines))


def _settled(gateway: GatewayProcess, name: str) -> int:
    """A counter that no longer changes: deliveries of earlier tests may end late, and metrics are kept."""
    last, value = -1, _metric(gateway, name)
    while value != last:
        time.sleep(1.5 * KEPT_S)
        last, value = value, _metric(gateway, name)
    return value


def _until_metric(gateway: GatewayProcess, name: str, wanted: Callable[[], int]) -> None:
    deadline = time.monotonic() + 60
    while (value := _metric(gateway, name)) != wanted():
        assert time.monotonic() < deadline, f"{name} is {value}, not {wanted()}"
        time.sleep(0.02)


def _shares(gateway: GatewayProcess) -> bool:
    return _metric(gateway, "partitions{") == 4


def _workers(gateway: GatewayProcess) -> list[int]:
    """The pids of the running workers, the oldest first."""
    children = Path(f"/proc/{gateway.pid}/task/{gateway.pid}/children").read_text().split()
    started = re.findall(r"worker_started .*?pid=(\d+)", gateway.words)
    return [int(pid) for pid in started if pid in children and _runs(pid)]


def _runs(pid: str) -> bool:
    """Whether a child has not ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except OSError:
        return False
