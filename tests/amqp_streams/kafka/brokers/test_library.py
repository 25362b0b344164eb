"""Clients that the library makes: settings, errors of brokers, statistics, lines of the log."""

import logging
import os
import subprocess
import sys
from time import monotonic, sleep

import pytest
from confluent_kafka import KafkaError, KafkaException

from amqp_streams.kafka.brokers import compiled
from amqp_streams.kafka.brokers.compiled import CompiledTaker
from amqp_streams.kafka.brokers.library import PRODUCER, PURE_VARIABLE, Client

pytestmark = pytest.mark.skipif(
    compiled.loaded is None, reason=f"the loop is not built here, or {PURE_VARIABLE} is set"
)


def test_errors_statistics_and_lines_of_the_log_are_passed_on(caplog: pytest.LogCaptureFixture) -> None:
    assert compiled.loaded is not None
    errors: list[KafkaError] = []
    told: list[str] = []
    client = Client(
        PRODUCER,
        {
            "bootstrap.servers": "127.0.0.1:1",
            "statistics.interval.ms": 20,
            "error_cb": errors.append,
            "stats_cb": told.append,
        },
        compiled.loaded.library,
    )
    until = monotonic() + 60
    with caplog.at_level(logging.DEBUG, "amqp_streams.kafka"):
        while monotonic() < until and not (errors and told and "Connection refused" in caplog.text):
            client.take_events()
            sleep(0.01)
        client.close()
    assert {error.code() for error in errors} <= {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}
    assert errors
    assert '"type":"producer"' in told[0].replace(" ", "")
    assert "127.0.0.1:1" in caplog.text
    assert client.fatal is None


def test_an_error_code_becomes_an_exception_with_the_words_of_the_library() -> None:
    assert compiled.loaded is not None
    client = Client(PRODUCER, {}, compiled.loaded.library)
    client.check(0)
    with pytest.raises(KafkaException, match="Message size too large"):
        client.check(KafkaError.MSG_SIZE_TOO_LARGE)
    client.close()


def test_a_setting_that_the_library_refuses_is_an_error() -> None:
    assert compiled.loaded is not None
    with pytest.raises(KafkaException, match="No such configuration property"):
        CompiledTaker({"group.id": "g", "no.such.setting": 1}, compiled.loaded)
    with pytest.raises(KafkaException, match=r"ssl\.ca\.location failed"):
        CompiledTaker(
            {"group.id": "g", "security.protocol": "SSL", "ssl.ca.location": "/nowhere"}, compiled.loaded
        )


@pytest.mark.parametrize(("pure", "kind"), [("", "compiled"), ("1", "python")])
def test_an_environment_variable_disables_the_compiled_loop(pure: str, kind: str) -> None:
    program = "from amqp_streams.kafka.brokers import compiled; print(compiled.KIND)"
    environment = {**os.environ, PURE_VARIABLE: pure}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == kind
