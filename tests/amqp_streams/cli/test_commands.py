"""The program as people run it: real processes, a real node, real files."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.amqp_streams.cli.processes import PATIENCE_S, PROGRAM, Node, environment, serving, wait_for


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """One node for all tests that do not end it."""
    with serving(tmp_path_factory.mktemp("node") / "data") as running:
        yield running


def test_a_log_lives_from_being_made_to_being_deleted(node: Node) -> None:
    made = json.loads(
        node.run("log", "create", "life", "--partitions", "3", "--retention", "7d", "--json").stdout
    )
    assert (made["log"], len(made["partitions"]), made["retention_ms"], made["sync"]) == (
        "life",
        3,
        604_800_000,
        "always",
    )
    assert ("life", 3, 0) in [
        (one["name"], one["partitions"], one["events"])
        for one in json.loads(node.run("log", "list", "--json").stdout)["logs"]
    ]
    changed = json.loads(
        node.run("log", "update", "life", "--retention", "none", "--retention-bytes", "1GiB", "--json").stdout
    )
    assert (changed["retention_ms"], changed["retention_bytes"]) == (None, 1 << 30)
    assert node.run("log", "create", "life").returncode == 1
    assert node.run("log", "delete", "life", stdin="y\n").returncode == 0
    gone = node.run("log", "describe", "life")
    assert (gone.returncode, gone.stdout) == (1, "")
    assert "life" in gone.stderr


def test_the_filter_of_the_help_finds_rows_of_the_readmes_file(node: Node) -> None:
    file = Path(__file__).parents[3] / "examples" / "temperatures" / "seattle-temps.csv"
    node.run("log", "create", "seattle", "--partitions", "4")
    assert node.run("send", "seattle", str(file), "--csv", "--property-column", "temp").returncode == 0
    found = [
        json.loads(json.loads(line)["body"])
        for line in node.lines("receive", "seattle", "--where", "temp > 75", "--json")
    ]
    rows = [line.split(",") for line in file.read_text().splitlines()[1:]]
    assert sorted(float(one["temp"]) for one in found) == sorted(
        float(temp) for _, temp in rows if float(temp) > 75
    )
    assert found
    none = node.run("receive", "seattle", "--where", "temperature > 75")
    assert (none.returncode, none.stdout, none.stderr.partition(" matched")[0]) == (
        0,
        "",
        f"0 of {len(rows):,} events",
    )


def test_events_without_a_key_of_many_short_sends_are_spread_over_the_partitions(node: Node) -> None:
    """A cron job or a shell's loop starts a link for each event."""
    node.run("log", "create", "cron", "--partitions", "4")
    for number in range(8):
        assert node.run("send", "cron", stdin=f"{number}\n").returncode == 0
    partitions = json.loads(node.run("info", "cron", "--json").stdout)["partitions"]
    assert [one["event_count"] for one in partitions] == [2, 2, 2, 2]


@pytest.mark.usefixtures("real_commands")
def test_an_interrupted_send_says_how_many_events_are_settled(node: Node) -> None:
    node.run("log", "create", "typed")
    sending = subprocess.Popen(
        [*PROGRAM, "send", "typed"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(AMQP_STREAMS_URL=node.url),
    )  # fmt: skip
    assert sending.stdin is not None
    sending.stdin.write("a\nb\n")
    sending.stdin.flush()
    wait_for(lambda: '"event_count": 2' in node.run("info", "typed", "--json").stdout)
    sending.send_signal(signal.SIGINT)
    _, err = sending.communicate(timeout=PATIENCE_S)
    assert sending.returncode == 130
    assert err.startswith("stopped: ")
    assert " of 2 events are settled" in err


def test_rows_come_back_in_the_order_of_their_keys_from_an_offset_and_from_a_time(
    node: Node, tmp_path: Path
) -> None:
    rows = [f"2010/01/{1 + hour // 24:02} {hour % 24:02}:00,{hour}" for hour in range(240)]
    (tmp_path / "temps.csv").write_text("date,temp\n" + "\n".join(rows) + "\n")
    node.run("log", "create", "temps", "--partitions", "2")
    sent = node.run(
        "send",
        "temps",
        str(tmp_path / "temps.csv"),
        "--csv",
        "--csv-body",
        "line",
        "--key-template",
        "{date:.10}",
        "--json",
    )
    assert json.loads(sent.stdout)["accepted"] == 240

    events = [json.loads(line) for line in node.lines("receive", "temps", "--format", "json")]
    assert sorted(event["body"] for event in events) == sorted(rows)
    for day in {event["key"] for event in events}:
        of_day = [event for event in events if event["key"] == day]
        assert [event["body"] for event in of_day] == [row for row in rows if row.startswith(day)]
        assert len({event["partition"] for event in of_day}) == 1

    in_one = [event for event in events if event["partition"] == "1"]
    assert [event["offset"] for event in in_one] == list(range(len(in_one)))
    assert node.lines(
        "receive", "temps", "--partition", "1", "--from", "5", "--until", "8", "--format", "body"
    ) == [event["body"] for event in in_one[5:8]]
    moment = in_one[7]["timestamp"]
    assert node.lines("receive", "temps", "--partition", "1", "--from", moment, "--format", "body") == [
        event["body"] for event in in_one if event["timestamp"] >= moment
    ]
    assert node.lines("receive", "temps", "--from", "now") == []

    info = json.loads(node.run("info", "temps", "--json").stdout)
    assert sum(partition["event_count"] for partition in info["partitions"]) == 240


def test_a_log_is_copied_with_what_receive_prints(node: Node) -> None:
    node.run("log", "create", "first")
    node.run("log", "create", "second")
    lines = (
        '{"body": "20.5", "key": "k", "subject": "s", "properties": {"n": 1, "t": true}}\n{"body_base64":'
        ' "//4="}\n'
    )
    assert node.run("send", "first", "--json-lines", stdin=lines).returncode == 0
    printed = node.run("receive", "first", "--format", "json").stdout
    assert node.run("send", "second", "--json-lines", stdin=printed).returncode == 0
    first, second = (
        [json.loads(line) for line in node.lines("receive", log, "--format", "json")]
        for log in ("first", "second")
    )
    assert len(first) == 2
    assert [one | {"timestamp": None} for one in first] == [one | {"timestamp": None} for one in second]


def test_a_sent_event_comes_at_once_to_every_follower(node: Node) -> None:
    """Both ends are pipes that stay open: nothing waits for a buffer to fill or a file to end."""
    node.run("log", "create", "live")
    ours = environment(AMQP_STREAMS_URL=node.url)
    node.run("send", "live", stdin="first\n")
    following = subprocess.Popen(
        [*PROGRAM, "receive", "live", "--follow", "--from", "earliest", "--format", "body"],
        stdout=subprocess.PIPE,
        text=True,
        env=ours,
    )
    sending = subprocess.Popen(
        [*PROGRAM, "send", "live"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=ours
    )
    assert following.stdout is not None
    assert sending.stdin is not None
    with following, sending:
        assert following.stdout.readline() == "first\n"
        for line in ("second\n", "third\n"):
            sending.stdin.write(line)
            sending.stdin.flush()
            assert following.stdout.readline() == line
        sending.stdin.close()
        assert sending.wait(PATIENCE_S) == 0
        following.send_signal(signal.SIGINT)
        assert following.wait(PATIENCE_S) == 130


@pytest.mark.usefixtures("real_commands")
def test_a_reader_that_closes_stdout_early_is_not_a_failure(node: Node) -> None:
    node.run("log", "create", "long")
    node.run("send", "long", stdin="x" * 50 + "\n" + ("y" * 50 + "\n") * 5000)
    for words in (["receive", "long"], ["receive", "long", "--follow", "--from", "earliest"]):
        reading = subprocess.Popen(
            [*PROGRAM, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(AMQP_STREAMS_URL=node.url),
        )
        assert reading.stdout is not None
        assert reading.stderr is not None
        assert "x" * 50 in reading.stdout.readline()
        reading.stdout.close()
        assert (reading.wait(PATIENCE_S), reading.stderr.read()) == (0, "")
        reading.stderr.close()


def test_a_refused_event_is_a_failure_and_the_others_are_kept(node: Node) -> None:
    node.run("log", "create", "part")
    sent = node.run(
        "send",
        "part",
        "--json-lines",
        "--json",
        stdin='{"body": "a"}\n{"body": "b", "partition": "7"}\n{"body": "c"}\n',
    )
    assert sent.returncode == 1
    assert json.loads(sent.stdout)["refused"] == 1
    assert "amqp:not-found" in sent.stderr
    assert node.lines("receive", "part", "--format", "body") == ["a", "c"]


def test_an_absent_server_is_a_failure_with_a_message(node: Node) -> None:
    for words in (
        ["info", "amqp://127.0.0.1:1/temps"],
        ["receive", "nope"],
        ["send", "nope"],
        ["info", "nope"],
    ):
        done = node.run(*words, stdin="x\n")
        assert (done.returncode, done.stdout) == (1, "")
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("kind", ["produce", "consume", "latency"])
def test_a_measurement_has_figures(node: Node, kind: str) -> None:
    if kind == "consume":
        node.run("bench", "produce", "perf", "--partitions", "2", "--events", "2000")
    partitions = [] if kind == "consume" else ["--partitions", "2"]
    done = node.run("bench", kind, "perf", *partitions, "--events", "500", "--warmup", "100", "--json")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["events"] >= 250  # the batch that ends the warm-up counts for it
    assert figures["refused"] == 0
    assert figures["events_per_second"] > 0
    assert set(figures["latency_ms"]) == (
        set() if kind == "consume" else {"p50", "p95", "p99", "p99.9", "max"}
    )


@pytest.mark.usefixtures("real_commands")
def test_a_measurement_can_be_interrupted_without_a_word(node: Node) -> None:
    node.run("log", "create", "endless")
    measuring = subprocess.Popen(
        [*PROGRAM, "bench", "produce", "endless", "--events", "1000000000", "--rate", "500"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(AMQP_STREAMS_URL=node.url),
    )  # fmt: skip
    wait_for(lambda: '"event_count": 0' not in node.run("info", "endless", "--json").stdout)
    measuring.send_signal(signal.SIGINT)
    out, err = measuring.communicate(timeout=PATIENCE_S)
    assert (measuring.returncode, out, err) == (130, "", "")


@pytest.mark.usefixtures("real_commands")
def test_events_are_there_again_after_a_stop_and_after_a_kill(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with serving(directory, "--log", "temps:2") as node:
        node.run("send", "temps", "--partition", "0", stdin="a\nb\n")
        assert node.stop() == 0
    with serving(directory) as node:
        assert node.lines("receive", "temps", "--format", "body") == ["a", "b"]
        node.run("send", "temps", "--partition", "0", stdin="c\n")
        assert node.run("verify", str(directory)).returncode == 1  # in use
        node.stop(signal.SIGKILL)
        assert json.loads(node.run("verify", str(directory), "--json").stdout)["ok"] is True
        shown = [json.loads(line) for line in node.lines("dump", str(directory), "temps", "--json")]
        assert [event["body"] for event in shown] == ["a", "b", "c"]
    with serving(directory) as node:
        assert node.lines("receive", "temps", "--format", "body") == ["a", "b", "c"]
        assert node.lines("receive", "temps", "--from", "1", "--format", "body") == ["b", "c"]


def test_a_second_node_on_a_directory_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as node:
        second = node.process_of("serve", "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
        assert second.returncode == 1
        assert str(tmp_path / "data") in second.stderr


def test_an_address_that_is_taken_is_refused(tmp_path: Path, node: Node) -> None:
    second = node.process_of(
        "serve", "--data-dir", str(tmp_path / "data"), "--listen", node.url.removeprefix("amqp://")
    )
    assert second.returncode != 0
    assert node.url.removeprefix("amqp://") in second.stderr


def test_only_users_of_the_file_are_admitted_if_anonymous_is_not(tmp_path: Path) -> None:
    users = str(tmp_path / "users.json")
    added = subprocess.run(
        [*PROGRAM, "user", "add", "alice", "--users", users, "--password-stdin"],
        input="s3cret\n", text=True, capture_output=True, timeout=PATIENCE_S, check=True,
    )  # fmt: skip
    assert added.stdout == ""
    with serving(tmp_path / "data", "--users", users, "--anonymous", "never", "--log", "temps:1") as node:
        assert node.run("info", "temps").returncode == 1
        assert (
            node.run("info", "temps", AMQP_STREAMS_USER="alice", AMQP_STREAMS_PASSWORD="wrong").returncode
            == 1
        )
        assert (
            node.run("info", "temps", AMQP_STREAMS_USER="alice", AMQP_STREAMS_PASSWORD="s3cret").returncode
            == 0
        )
        assert (
            node.run(
                "send", "temps", "--user", "alice", "--password-stdin", stdin="s3cret\n20.5\n"
            ).returncode
            == 0
        )
        with_url = node.run(
            "receive", node.url.replace("//", "//alice:s3cret@") + "/temps", "--format", "body"
        )
        assert with_url.stdout == "20.5\n"


def test_a_file_configures_a_node(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(
        'sync = "interval:20"\n[limits]\nmessage_bytes = "1KiB"\n[logs.small]\npartitions = 2\nretention ='
        ' "7d"\n'
    )
    with serving(tmp_path / "data", "--config", str(file)) as node:
        info = json.loads(node.run("info", "small", "--json").stdout)
        assert (info["sync"], info["retention_ms"], len(info["partitions"])) == (
            "interval:20",
            604_800_000,
            2,
        )
        refused = node.run("send", "small", stdin="x" * 5000)
        assert refused.returncode == 1
        assert "message-size" in refused.stderr


def test_the_ready_file_is_there_while_the_node_is(tmp_path: Path) -> None:
    file = tmp_path / "ready.json"
    with serving(tmp_path / "data", "--ready-file", str(file)) as node:
        wait_for(file.exists)
        assert f"amqp://{json.loads(file.read_text())['amqp'][0]}" == node.url
        assert node.stop() == 0
    assert not file.exists()
