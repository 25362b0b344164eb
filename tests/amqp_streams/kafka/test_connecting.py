"""The settings of librdkafka."""

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from amqp_streams.errors import ConfigError
from amqp_streams.kafka.connecting import connection_settings
from amqp_streams.kafka_settings import KafkaSettings


def test_a_login_has_its_password_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("s3cret=\n")
    given = {"servers": "a:1,b:2", "login": "SCRAM-SHA-512", "user": "u", "password_file": file}
    found = connection_settings(KafkaSettings.model_validate(given))
    assert (found["sasl.password"], found["sasl.username"]) == ("s3cret=", "u")
    assert found["security.protocol"] == "SASL_PLAINTEXT"
    # librdkafka knows each name and each value.
    AdminClient(found)  # type: ignore[arg-type]  # the values are of the types that it takes


@pytest.mark.parametrize("text", [b"", b"\n", b"a\nb\n", b"\xff", b"x" * 5000])
def test_a_file_that_is_not_one_password_is_refused_without_its_content(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "password"
    file.write_bytes(text)
    given = {"servers": "a:1", "login": "SCRAM-SHA-256", "user": "u", "password_file": file}
    with pytest.raises(ConfigError, match="must have one line: the password") as refused:
        connection_settings(KafkaSettings.model_validate(given))
    assert "xxx" not in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    given = {"servers": "a:1", "tls": True, "ca": tmp_path / "ca.pem"}
    with pytest.raises(ConfigError, match=r"kafka\.ca: .*ca\.pem cannot be read: No such file"):
        connection_settings(KafkaSettings.model_validate(given))


@pytest.mark.parametrize(("tls", "protocol"), [(False, "PLAINTEXT"), (True, "SSL")])
def test_without_a_login(protocol: str, *, tls: bool) -> None:
    found = connection_settings(KafkaSettings.model_validate({"servers": "a:1", "tls": tls}))
    assert found["security.protocol"] == protocol
