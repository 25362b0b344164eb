"""create, send, describe, wait and get --watch, against a running gateway with its log node."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from examples.gateway import GatewayProcess, program
from examples.subscriber import SubscriberServer
from knative_gateway import __version__
from knative_gateway.cli import main
from knative_gateway.resources.documents.manifests import read_yaml

Run = Callable[..., Result]
NOWHERE = "http://127.0.0.1:1/"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("gateway")) as started:
        yield started


@pytest.fixture
def run(gateway: GatewayProcess) -> Run:
    def asked(*words: str, status: int = 0, given: str = "") -> Result:
        environment = {"KNATIVE_GATEWAY_URL": gateway.base_url, "KNATIVE_GATEWAY_TOKEN": None}
        result = CliRunner(env=environment).invoke(main, [*words], input=given)
        assert result.exit_code == status, result.output
        return result

    return asked


def test_an_event_goes_from_send_to_the_subscriber_of_a_created_trigger(run: Run) -> None:
    with SubscriberServer() as subscriber:
        made = run("create", "broker", "first", "--wait").stdout
        assert made == "broker.eventing.knative.dev/first created and ready\n"
        words = ["--broker", "first", "--filter", "type=measured", "--subscriber", subscriber.url]
        run("create", "trigger", "first", *words, "--wait")
        run("send", "broker/first", "--type", "skipped", "--data", "x")
        sent = ["--id", "ä 1", "--data", '{"celsius": 20.5}', "--extension", "site=roof"]
        answer = run("send", "broker/first", "--type", "measured", *sent, "--json")
        assert json.loads(answer.stdout) == {"accepted": "ä 1", "target": "broker/first"}
        assert subscriber.wait(lambda server: bool(server.requests))
    [came] = subscriber.requests
    assert (came.id, came.attributes["site"], came.data) == ("ä 1", "roof", b'{"celsius": 20.5}')
    assert came.headers["content-type"] == "application/json"


def test_the_data_of_an_event_comes_from_stdin_or_a_file(run: Run) -> None:
    run("create", "broker", "files", "--wait")
    assert "accepted" in run("send", "broker/files", "--type", "t", "--data-file", "-", given="x").stdout
    missing = run("send", "broker/files", "--type", "t", "--data-file", "no-such-file", status=2).stderr
    assert missing == "knative-gateway: --data-file: no-such-file cannot be read: No such file or directory\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["send", "weather", "--type", "t"], "'weather' is not broker/NAME or channel/NAME"),
        (["send", "broker/w", "--type", "t", "--extension", "Site=x"], "with a name of lower-case letters"),
        (["send", "broker/w", "--type", "t", "--data", "x", "--data-file", "-"], "are alternatives"),
        (["create", "trigger", "t", "--subscriber", "weather"], "'weather' is not a URL, broker/NAME"),
        (["create", "trigger", "t", "--subscriber", NOWHERE, "--filter", "x"], "'x' is not NAME=VALUE"),
        (["wait", "broker"], "name a broker"),
        (["wait", "all", "x"], "all means several kinds"),
        (["wait", "broker/x", "--for", "Ready"], "'Ready' is not condition=TYPE"),
        (["get", "broker,trigger", "--watch"], "--watch shows one kind"),
    ],
)
def test_wrong_words_are_usage_errors(run: Run, words: list[str], sentence: str) -> None:
    answer = run(*words, status=2)
    assert sentence in answer.stderr
    assert answer.stdout == ""


def test_an_event_for_a_broker_that_does_not_exist_is_refused(run: Run) -> None:
    refused = json.loads(run("send", "broker/none", "--type", "t", "--json", status=1).stderr)
    assert refused["condition"] == 404
    assert refused["error"]


def test_a_dry_run_prints_what_apply_takes_and_creates_nothing(run: Run) -> None:
    words = ["--broker", "b", "--sql", "celsius > 25", "--retry", "3", "--dead-letter-sink", "channel/dead"]
    printed = run("create", "trigger", "dry", "--subscriber", "broker/warm", *words, "--dry-run").stdout
    [trigger] = read_yaml(printed.encode())
    assert trigger["spec"] == {  # type: ignore[index]  # a mapping
        "broker": "b",
        "filters": [{"cesql": "celsius > 25"}],
        "subscriber": {"ref": {"apiVersion": "eventing.knative.dev/v1", "kind": "Broker", "name": "warm"}},
        "delivery": {
            "retry": 3,
            "deadLetterSink": {
                "ref": {"apiVersion": "messaging.knative.dev/v1", "kind": "Channel", "name": "dead"}
            },
        },
    }
    run("get", "trigger", "dry", status=1)


def test_a_name_that_exists_is_refused(run: Run) -> None:
    run("create", "broker", "twice")
    assert "already exists" in run("create", "broker", "twice", status=1).stderr


def test_describe_shows_conditions_events_and_failed_deliveries(run: Run) -> None:
    run("create", "broker", "told", "--wait")
    run("create", "trigger", "told", "--broker", "told", "--subscriber", NOWHERE, "--retry", "0", "--wait")
    run("send", "broker/told", "--type", "t", "--id", "lost")
    while not json.loads(run("history", "trigger/told", "--json").stdout)["failures"]:
        time.sleep(0.02)
    shown = run("describe", "trigger", "told").stdout
    for line in ("Name:         told", "Kind:         Trigger (eventing.knative.dev/v1)", "  broker: told"):
        assert f"{line}\n" in shown
    conditions = shown.partition("Conditions:\n")[2].partition("Failed deliveries: ")
    assert "Ready" in conditions[0]
    assert "lost  attempt 1" in conditions[2]
    described = json.loads(run("describe", "trigger/told", "--json").stdout)
    assert described["object"]["metadata"]["name"] == "told"
    assert described["deliveries"]["failures"][0]["event_id"] == "lost"
    assert all(each["involvedObject"]["name"] == "told" for each in described["events"])
    assert run("describe", "channels").stderr == "no channels in the namespace default\n"


def test_wait_reports_the_last_state_when_the_time_is_over(run: Run) -> None:
    run("create", "trigger", "orphan", "--broker", "none", "--subscriber", NOWHERE)
    late = run("wait", "trigger/orphan", "--timeout", "1", status=1).stderr
    assert late.startswith("knative-gateway: trigger.eventing.knative.dev orphan: the time is over, and cond")
    assert "condition Ready is " in late
    assert "it has no condition Redy; its conditions are " in run(
        "wait", "trigger/orphan", "--for", "condition=Redy", "--timeout", "1", status=1
    ).stderr  # fmt: skip
    assert run("wait", "trigger/orphan", "--for", "condition=Ready=False", "--timeout", "30").stdout
    assert "it still exists" in run(
        "wait", "trigger/orphan", "--for", "delete", "--timeout", "1", status=1
    ).stderr  # fmt: skip
    run("delete", "trigger", "orphan")
    gone = run("wait", "trigger", "orphan", "--for", "delete", "--json").stdout
    assert json.loads(gone) == {"resource": "trigger.eventing.knative.dev/orphan", "met": "delete"}
    assert "not found" in run("wait", "trigger/orphan", status=1).stderr


def test_get_watch_shows_each_change(gateway: GatewayProcess, run: Run) -> None:
    run("create", "broker", "seen", "--wait")
    with subprocess.Popen(
        [program(), "get", "broker", "seen", "--watch", "--json", "--server", gateway.base_url],
        stdout=subprocess.PIPE,
        text=True,
    ) as watching:
        assert watching.stdout is not None
        first = json.loads(watching.stdout.readline())
        assert (first["type"], first["object"]["metadata"]["name"]) == ("ADDED", "seen")
        run("create", "broker", "unseen")
        run("delete", "broker", "seen")
        types = [first["type"]]
        while types[-1] != "DELETED":
            change = json.loads(watching.stdout.readline())
            assert change["object"]["metadata"]["name"] == "seen"
            types.append(change["type"])
        watching.terminate()
    assert "not found" in run("get", "broker", "seen", "--watch", status=1).stderr


def test_get_watch_shows_rows_of_a_table(gateway: GatewayProcess, run: Run) -> None:
    run("create", "broker", "rows", "--wait")
    with subprocess.Popen(
        [program(), "get", "broker", "rows", "-w", "--server", gateway.base_url],
        stdout=subprocess.PIPE,
        text=True,
    ) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline().split()[0] == "NAME"
        assert watching.stdout.readline().split()[0] == "rows"
        run("delete", "broker", "rows")
        while not (line := watching.stdout.readline()).endswith("(deleted)\n"):
            assert line.split()[0] == "rows"
        watching.terminate()


def test_status_counts_what_is_not_ready_or_paused(run: Run) -> None:
    run("create", "broker", "counted", "--wait")
    run("create", "trigger", "counted", "--broker", "counted", "--subscriber", NOWHERE, "--wait")
    run("pause", "trigger/counted")
    found = json.loads(run("status", "--json").stdout)
    assert (found["up"], found["ready"], found["version"]) == (True, True, __version__)
    assert found["resources"]["triggers"]["paused"] == 1
    assert found["resources"]["brokers"]["count"] >= 1
    shown = run("status").stdout
    assert "ready:         yes\n" in shown
    assert "1 paused" in shown
    assert "PAUSE" in {each["what"] for each in found["health"]["changes"]}
    down = run("status", "--server", "http://127.0.0.1:1", "--json", status=1).stdout
    assert json.loads(down)["up"] is False
    assert "up:            no: http://127.0.0.1:1 cannot be reached" in (
        run("status", "--server", "http://127.0.0.1:1", status=1).stdout
    )
