"""The section `kafka` of the settings."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from amqp_streams.cli.settings import node_settings
from amqp_streams.errors import ConfigError
from amqp_streams.kafka_settings import KafkaSettings, StoreKind

FILE = Path("f")


def test_servers_are_a_text_with_commas_or_a_list() -> None:
    for given in ("a:1,[::1]:2", ["a:1", "[::1]:2"]):
        assert KafkaSettings.model_validate({"servers": given}).servers == ("a:1", "[::1]:2")


@pytest.mark.parametrize("servers", ["", "a", "a:0", "a:70000", "a:1,,b:2", "a:1, b:2", "http://a:1"])
def test_an_address_that_is_not_valid_is_named(servers: str) -> None:
    with pytest.raises(ValidationError, match="not a valid address of a broker: use HOST:PORT"):
        KafkaSettings.model_validate({"servers": servers})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"login": "SCRAM-SHA-512"}, "login, user and password_file together"),
        ({"user": "u", "password_file": FILE}, "login, user and password_file together"),
        ({"tls": True, "key": FILE}, "certificate and key together"),
        ({"ca": FILE}, "set tls"),
        ({"login": "PLAIN", "user": "u", "password_file": FILE}, "use SCRAM-SHA-512"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        KafkaSettings.model_validate({"servers": "a:1", **given})


def test_a_node_has_a_directory_or_kafka() -> None:
    settings = node_settings({("store",): "kafka", ("kafka", "servers"): "a:1,b:2"}, {}, None)
    assert (settings.store, settings.data_dir) == (StoreKind.KAFKA, None)
    contradicting: list[tuple[dict[tuple[str, ...], object], str]] = [
        ({("store",): "kafka"}, "--kafka-servers together"),
        ({("data_dir",): "d", ("kafka", "servers"): "a:1"}, "--kafka-servers together"),
        ({("store",): "kafka", ("kafka", "servers"): "a:1", ("data_dir",): "d"}, "only with it"),
        ({("store",): "directory"}, "set data_dir"),
    ]
    for flags, words in contradicting:
        with pytest.raises(ConfigError, match=words):
            node_settings(flags, {}, None)
