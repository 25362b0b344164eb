"""The fixtures that tests of commands share: a runner and a node in memory."""

from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from amqp_streams.cli import main
from tests.amqp_streams.cli.fakes import FakeNode, reachable

Run = Callable[..., Result]


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    """A node that every command reaches, with the empty log `temps` of two partitions."""
    for name in ("AMQP_STREAMS_URL", "AMQP_STREAMS_USER", "AMQP_STREAMS_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    return reachable(monkeypatch, FakeNode(logs={"temps": [[], []]}))


@pytest.fixture
def run() -> Run:
    """Run a command as a user does."""

    def run(*words: str, stdin: str | None = None, environment: dict[str, str] | None = None) -> Result:
        return CliRunner().invoke(main, words, input=stdin, env=environment)

    return run
