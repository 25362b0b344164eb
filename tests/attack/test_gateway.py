"""The attacks on a gateway in their short form: see tests/attack/test_node.py."""

from pathlib import Path

import pytest

from attack.report import Place
from tests.attack.short import broken_rows

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]


def test_an_attack_on_the_gateway_costs_the_neighbour_nothing(tmp_path: Path) -> None:
    assert not broken_rows(Place.GATEWAY, tmp_path)
