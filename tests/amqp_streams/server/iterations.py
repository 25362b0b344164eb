"""How long the loop iterations of a node are in a test."""

from time import perf_counter

import pytest

from amqp_streams.server import connection
from amqp_streams.server.links.turns import Iteration


def let_connections_take(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each connection use so many seconds of an iteration; -1.0: for one event."""
    monkeypatch.setattr(connection, "TURN_S", seconds)
    monkeypatch.setattr(Iteration, "share_ends_s", lambda _iteration: perf_counter() + seconds)
