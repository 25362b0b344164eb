"""The base distribution, installed into a new environment. `make installs` does this with every extra."""

from pathlib import Path

import pytest

from tools.installs import build, install

WANTED = (
    "amqp-event-streams cffi click markdown-it-py mdurl pycparser pygments python-qpid-proton rich uvloop"
    " websockets"
)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_base_installs_the_client_and_its_libraries_only(tmp_path: Path) -> None:
    found = install(build(tmp_path), "", tmp_path / "environment")
    assert {name.lower() for name in found.distributions} == set(WANTED.split())
    assert found.size < 50_000_000
