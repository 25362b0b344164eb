"""apply, get, delete and their neighbours, against an API on a real socket."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from structlog.testing import capture_logs

from knative_gateway.cli import main
from knative_gateway.cli.commands import subscribers
from knative_gateway.cli.commands.kubeconfig import kubeconfig
from knative_gateway.resources.documents.manifests import read_yaml, written_yaml
from knative_gateway.security.access import Gate, Identity
from tests.knative_gateway.api.client import config_map, definition, trigger
from tests.knative_gateway.api.served import served

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    # The API runs in this process, and its log lines must not be among what the commands print.
    with capture_logs(), served(tmp_path_factory.mktemp("state")) as made:
        yield made


@pytest.fixture
def run(url: str, tmp_path: Path) -> Run:
    def asked(
        *words: str,
        given: list[object] | None = None,
        status: int = 0,
        token: str | None = None,
        server: str = url,
    ) -> Result:
        text = "\n---\n".join(written_yaml(each) for each in given or [])
        environment = {"KNATIVE_GATEWAY_URL": server, "KNATIVE_GATEWAY_TOKEN": token}
        result = CliRunner(env=environment).invoke(main, [*words], input=text)
        assert result.exit_code == status, result.output
        return result

    return asked


def test_apply_reports_the_result_for_each_object(run: Run) -> None:
    both = [trigger("applied"), config_map("applied", a="b")]
    names = ["trigger.eventing.knative.dev/applied", "configmap/applied"]
    assert run("apply", "-f", "-", given=both, status=0).stdout.splitlines() == [
        f"{name} created" for name in names
    ]
    assert run("apply", "-f", "-", given=both).stdout.splitlines() == [f"{name} unchanged" for name in names]
    changed = [trigger("applied", delivery={"retry": 1})]
    assert run("apply", "-f", "-", "--dry-run", given=changed).stdout == f"{names[0]} configured (dry run)\n"
    assert run("apply", "-f", "-", given=changed).stdout == f"{names[0]} configured\n"
    assert (
        "delivery"
        not in json.loads(run("apply", "-f", "-", "--json", given=[trigger("applied")]).stdout)["spec"]
    )
    assert run("delete", "-f", "-", given=both).stdout.splitlines() == [f"{name} deleted" for name in names]
    assert run("delete", "-f", "-", given=both, status=1).stderr.count("not found") == 2
    assert run("delete", "-f", "-", "--ignore-not-found", given=both).output == ""


def test_one_that_is_refused_does_not_keep_the_others_back(run: Run) -> None:
    result = run("apply", "-f", "-", given=[trigger("wrong", brokr="x"), config_map("right")], status=1)
    assert result.stdout == "configmap/right created\n"
    assert 'Trigger wrong: Trigger in version "v1"' in result.stderr
    assert 'unknown field "spec.brokr"' in result.stderr


def test_a_kind_that_was_declared_a_line_before_is_known(run: Run) -> None:
    sink = {"apiVersion": "example.com/v1", "kind": "Sink", "metadata": {"name": "s"}}
    result = run("apply", "-f", "-", given=[definition("example.com", "Sink", "sinks"), sink])
    assert result.stdout.splitlines()[1] == "sink.example.com/s created"


def test_get_shows_tables(run: Run) -> None:
    labelled = {"metadata": {"name": "shown", "namespace": "elsewhere", "labels": {"l": "x"}}}
    run("apply", "-f", "-", given=[trigger("shown") | labelled])
    result = run("get", "triggers", "-n", "elsewhere")
    assert [line.split()[:2] for line in result.stdout.splitlines()] == [
        ["NAME", "BROKER"],
        ["shown", "default"],
    ]
    result = run("get", "trigger", "--all-namespaces", "--selector", "l=x")
    assert [line.split()[:2] for line in result.stdout.splitlines()] == [
        ["NAMESPACE", "NAME"],
        ["elsewhere", "shown"],
    ]
    assert run("get", "trigger/shown", "-n", "elsewhere").stdout.count("\n") == 2
    assert "trigger.eventing.knative.dev/shown" in run("get", "all", "-n", "elsewhere").stdout
    nothing = run("get", "ch,imc")
    assert (nothing.stdout, nothing.stderr) == ("", "no ch,imc in the namespace default\n")
    assert "CLASS" in run("get", "broker", "--wide", "-A").output or run("get", "broker", "-A").stdout == ""


def test_get_gives_whole_objects_as_json(run: Run) -> None:
    run("apply", "-f", "-", given=[config_map("json-1"), config_map("json-2")])
    listed = [json.loads(line)["metadata"]["name"] for line in run("get", "cm", "--json").stdout.splitlines()]
    assert {"json-1", "json-2"} <= set(listed)
    assert json.loads(run("get", "configmaps", "json-1", "--json").stdout)["kind"] == "ConfigMap"
    assert run("get", "cm", "nothing", status=1).stderr == 'knative-gateway: configmaps "nothing" not found\n'


def test_files_and_directories_are_read(run: Run, tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(written_yaml(config_map("from-b")))
    (tmp_path / "a.json").write_text(json.dumps(config_map("from-a")))
    (tmp_path / "c.txt").write_text("no")
    assert run("apply", "-f", str(tmp_path)).stdout == "configmap/from-a created\nconfigmap/from-b created\n"
    (tmp_path / "d.yaml").write_text("a: [")
    assert "d.yaml: it is not YAML" in run("apply", "-f", str(tmp_path), status=2).stderr
    assert "No such file" in run("apply", "-f", str(tmp_path / "nowhere.yaml"), status=2).stderr


def test_delete_takes_kinds_and_names(run: Run) -> None:
    run("apply", "-f", "-", given=[config_map("one"), config_map("two"), config_map("three")])
    assert run("delete", "cm", "one", "two").stdout == "configmap/one deleted\nconfigmap/two deleted\n"
    assert run("delete", "cm/three").stdout == "configmap/three deleted\n"
    for words in (["delete"], ["delete", "cm"], ["delete", "all", "x"], ["delete", "cm", "x", "-f", "-"]):
        run(*words, status=2)


def test_its_history_says_what_became_of_an_event(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [
        {
            "at_ms": 1_769_860_811_000,
            "event_source": "/s",
            "event_id": "1",
            "attempt": 2,
            "code": 503,
            "reason": "status 503",
            "end": "dropped",
        },
        {
            "at_ms": 1_769_860_810_000,
            "event_source": "/s",
            "event_id": "1",
            "attempt": 1,
            "code": None,
            "reason": "refused",
            "end": "",
        },
    ]
    failures.insert(1, {**failures[0], "end": ""})
    monkeypatch.setattr(subscribers, "_asked", lambda *_: {"failures": failures})
    assert run("history", "trigger/asked").stdout.splitlines() == [
        "2026-01-31T12:00:11Z  /s 1  attempt 2  503  status 503  → dropped",
        "2026-01-31T12:00:10Z  /s 1  attempt 1  -  refused",
    ]


def test_a_subscriber_is_paused_resumed_and_shows_its_history(run: Run) -> None:
    run("apply", "-f", "-", given=[trigger("asked")])
    assert run("pause", "trigger/asked").stdout == "trigger/asked paused\n"
    assert (
        json.loads(run("get", "trigger/asked", "--json").stdout)["metadata"]["annotations"][
            "knative-gateway/paused"
        ]
        == "true"
    )
    assert run("resume", "trigger/asked").stdout == "trigger/asked resumed\n"
    assert run("history", "trigger/asked").stderr == "no failures\n"
    assert json.loads(run("history", "trigger/asked", "--json").stdout)["failures"] == []
    assert "not available on this gateway" in run("redrive", "trigger/asked", status=1).stderr
    selected = run("redrive", "trigger/asked", "--event", "0:42", "--event", "1:0", status=1)
    assert "not available on this gateway" in selected.stderr
    for wrong in ("42", "a:1", "1:", "-1:2"):
        assert "is not PARTITION:OFFSET" in run("redrive", "trigger/asked", "--event", wrong, status=2).stderr
    assert (
        "not available on this gateway"
        in run("replay", "trigger/asked", "--start", "earliest", status=1).stderr
    )
    assert (
        "'yesterday' is not a valid start. Use earliest"
        in run("replay", "asked", "--start", "yesterday", status=2).stderr
    )
    run("pause", "broker/asked", status=2)
    run("pause", "trigger/", status=2)
    run("pause", "trigger", status=1)


def test_a_name_alone_means_the_trigger_or_subscription_that_has_it(run: Run) -> None:
    run("apply", "-f", "-", given=[trigger("alone")])
    assert run("history", "alone").stderr == "no failures\n"
    assert (
        "no Trigger or Subscription named 'alon' in the namespace default; did you mean 'alone'?"
        in run("pause", "alon", status=1).stderr
    )
    assert "in the namespace other" in run("pause", "alone", "-n", "other", status=1).stderr


def test_replay_takes_the_forms_of_receive(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(subscribers, "_asked", lambda *given: asked.append(given[4:]))
    run("replay", "measured", "--start", "0:42")
    run("replay", "measured", "--start", "2026-01-31T12:00")
    assert asked == [({"start": "offset=0=42"},), ({"start": "time=2026-01-31T12:00:00.000Z"},)]


def test_unreachable_and_unknown_servers_are_reported(run: Run, tmp_path: Path) -> None:
    assert "cannot be reached" in run("get", "triggers", server="http://127.0.0.1:1", status=1).stderr
    assert "is not an http:// or https:// URL" in run("get", "triggers", server="ftp://x", status=2).stderr
    assert (
        "the connection was refused. Is a gateway running"
        in run("get", "triggers", server="http://127.0.0.1:1", status=1).stderr
    )
    assert "has no kind 'trigers'; did you mean 'triggers'?" in run("get", "trigers", status=1).stderr
    assert "has no kind 'nothings'; it has namespaces" in run("get", "nothings", status=1).stderr
    assert (
        "--ca"
        in run(
            "get", "triggers", "--ca", str(tmp_path / "nowhere"), server="https://127.0.0.1:1", status=2
        ).stderr
    )
    assert (
        "the kind Nothing of v9"
        in run("apply", "-f", "-", given=[{"apiVersion": "v9", "kind": "Nothing"}], status=1).stderr
    )


def test_several_resources_of_several_kinds_are_named_at_once(run: Run) -> None:
    both = [trigger("one"), config_map("two", a="b")]
    run("apply", "-f", "-", given=both)
    shown = run("get", "trigger/one", "configmap/two").stdout
    assert "trigger.eventing.knative.dev/one" in shown
    assert "configmap/two" in shown
    described = run("describe", "configmap/two", "trigger/one").stdout
    assert described.index("two") < described.index("one")
    assert "'trigger/' has no name" in run("get", "configmap/two", "trigger/", status=2).stderr
    names = ["trigger.eventing.knative.dev/one", "configmap/two"]
    assert run("delete", "trigger/one", "configmap/two").stdout.splitlines() == [
        f"{name} deleted" for name in names
    ]
    run("wait", "trigger/one", "configmap/two", "--for", "delete")


@pytest.mark.parametrize("command", ["get", "describe", "delete", "wait"])
def test_a_misspelt_name_gets_the_nearest_one(run: Run, command: str) -> None:
    run("apply", "-f", "-", given=[trigger("measured")])
    assert "did you mean 'measured'?" in run(command, "trigger/measurd", status=1).stderr
    assert "did you mean" not in run(command, "trigger/zzz", status=1).stderr
    assert "did you mean" not in run(command, "configmap/measured", status=1).stderr


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "the server closed the connection without an answer. Is --server right?"),
        (b"SSH-2.0-OpenSSH\r\n", "is not a gateway: its answer is not valid"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", "is not a gateway: its answer is not valid"),
        (
            b"HTTP/1.1 404 Not Found\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n\r\nno\r\n\n",
            "the server there is not a gateway",
        ),
    ],
    ids=["closed", "ssh", "other", "404"],
)
def test_a_server_that_is_not_a_gateway_is_reported_in_words(run: Run, answer: bytes, words: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer_one() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=answer_one)
        thread.start()
        port = server.getsockname()[1]
        stderr = run("get", "triggers", server=f"http://127.0.0.1:{port}", status=1).stderr
        thread.join()
    assert words in stderr
    assert "Errno" not in stderr
    assert "Remote end" not in stderr


class Known:
    def identity(self, token: str) -> Identity | None:
        return Identity("anna") if token == "secret" else None


def test_a_token_is_sent_where_one_is_wanted(run: Run, tmp_path: Path) -> None:
    with served(tmp_path, Gate([Known()])) as server:
        assert "needs a valid bearer token" in run("get", "triggers", server=server, status=1).stderr
        assert "no triggers" in run("get", "triggers", server=server, token="secret").stderr


def test_a_kubeconfig_names_the_gateway(run: Run, tmp_path: Path) -> None:
    [written] = read_yaml(
        run("kubeconfig", "--namespace", "y", server="https://gateway:8443", token="secret").stdout.encode()
    )
    assert written == read_yaml(kubeconfig("https://gateway:8443", namespace="y", token="secret").encode())[0]
    assert written["users"][0]["user"] == {"token": "secret"}  # type: ignore[index]  # a mapping
    (tmp_path / "ca.pem").write_text("certificate")
    assert "only over https" in run("kubeconfig", server="http://gateway", token="secret").stderr
    path = tmp_path / "config"
    run("kubeconfig", "--ca", str(tmp_path / "ca.pem"), "--output", str(path))
    assert (path.stat().st_mode & 0o777, "Y2VydGlmaWNhdGU=" in path.read_text()) == (0o600, True)
    assert "No such file" in run("kubeconfig", "--ca", str(tmp_path / "nowhere"), status=2).stderr


def test_a_name_that_is_not_of_a_subscriber_is_explained(run: Run) -> None:
    broker = {
        "apiVersion": "eventing.knative.dev/v1",
        "kind": "Broker",
        "metadata": {"name": "weather", "namespace": "default"},
    }
    run("apply", "-f", "-", given=[broker, trigger("measured")])
    assert "it is the name of a Broker" in run("history", "weather", status=1).stderr
    for command in (["history"], ["pause"], ["replay", "--start", "earliest"], ["redrive"]):
        for name in ("measurd", "trigger/measurd"):
            assert "did you mean 'measured'?" in run(*command, name, status=1).stderr


def test_files_without_resources_are_an_error(run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    refused = run("apply", "-f", str(tmp_path), status=2)
    assert "no resources. Files of a directory end in .yaml" in refused.stderr
    assert "stdin: no resources" in run("apply", "-f", "-", status=2).stderr
