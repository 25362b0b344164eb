"""Every test of this folder runs with the loops in Python and with the compiled ones."""

import pytest

from tests.amqp_streams.loops import KINDS, use_loops


@pytest.fixture(autouse=True, params=KINDS)
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    use_loops(monkeypatch, request.param)
