"""`config show`: flags, variables, file and defaults, each with its source."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from amqp_streams.cli import main as node_main
from knative_gateway.cli import main as gateway_main


def test_each_source_is_named(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('listen = "127.0.0.1:1"\n[limits]\nidle_timeout = "90s"\n[logs.temps]\npartitions = 4\n')
    words = ["config", "show", "--config", str(file), "--data-dir", "d"]
    runner = CliRunner(env={"AMQP_STREAMS_SYNC": "never", "AMQP_STREAMS_CONFIG": None})
    found = json.loads(runner.invoke(node_main, [*words, "--json"]).stdout)["settings"]
    assert found["data_dir"] == {"value": "d", "source": "--data-dir"}
    assert found["sync"] == {"value": "never", "source": "AMQP_STREAMS_SYNC"}
    assert found["limits.idle_timeout"] == {"value": "90s", "source": str(file)}
    assert found["logs.temps.partitions"] == {"value": 4, "source": str(file)}
    assert found["container_id"] == {"value": "amqp-streams", "source": "default"}
    shown = runner.invoke(node_main, [*words, "--given"]).stdout.splitlines()
    assert [line.split()[0] for line in shown] == [
        "SETTING", "data_dir", "listen", "sync", "limits.idle_timeout", "logs.temps.partitions",
    ]  # fmt: skip
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("words", [[], ["--store", "directory"]])
def test_the_settings_of_a_node_are_shown_before_its_directory_is_chosen(words: list[str]) -> None:
    runner = CliRunner(env={"AMQP_STREAMS_DATA_DIR": None, "AMQP_STREAMS_CONFIG": None})
    done = runner.invoke(node_main, ["config", "show", "--json", *words])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["settings"]
    assert found["data_dir"] == {"value": None, "source": "default"}
    assert found["listen"]["value"] == ["127.0.0.1:5672"]


@pytest.mark.parametrize(
    ("main", "words", "sentence"),
    [
        (node_main, ["--data-dir", "d", "--listen", "nowhere"], "'nowhere' is not a valid address"),
        (node_main, ["--sync", "sometimes"], "sync (--sync)"),
        (node_main, ["--store", "kafka"], "--kafka-servers"),
        (gateway_main, ["--listen", "nowhere"], "'nowhere' is not a valid address"),
    ],
)
def test_a_value_that_is_not_valid_is_a_usage_error(main: object, words: list[str], sentence: str) -> None:
    done = CliRunner().invoke(main, ["config", "show", *words])  # type: ignore[arg-type]  # a command
    assert (done.exit_code, done.stdout) == (2, "")
    assert sentence in done.stderr


def test_the_gateway_does_not_show_passwords_of_its_urls() -> None:
    words = ["config", "show", "--amqp", "amqp://ann:s3cret@h", "--store", "postgresql://a:s3cret@h/d"]
    done = CliRunner().invoke(gateway_main, [*words, "--given"])
    assert done.exit_code == 0, done.output
    assert "amqp://ann:***@h" in done.stdout
    assert "s3cret" not in done.output
