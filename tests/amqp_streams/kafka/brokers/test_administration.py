"""Questions to brokers that do not answer. `test_store.py` has those with answers."""

import socket
import threading
from collections.abc import Iterator

import pytest

from amqp_streams.errors import StorageError
from amqp_streams.kafka.brokers.administration import Administration


@pytest.fixture
def silent() -> Iterator[dict[str, object]]:
    """The address of a broker that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield {"bootstrap.servers": f"127.0.0.1:{server.getsockname()[1]}", "log_level": 0}


def test_a_question_that_waits_ends_when_the_node_stops(silent: dict[str, object]) -> None:
    administration, refused, asked = Administration(silent), list[StorageError](), threading.Event()

    def ask() -> None:
        asked.set()
        try:
            administration.describe(["topic"])
        except StorageError as error:
            refused.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    asked.wait()
    administration.close()
    thread.join(60)
    assert [str(error) for error in refused] == ["the node stops"]
    with pytest.raises(StorageError, match="the node stops"):
        administration.names()
