"""The attacks on a node in their short form: small limits, a real node beside a neighbour.

Each ends within its limit with the right refusal, and the neighbour gets its answers. `make attack` runs them
with the default limits and judges how long the neighbour's answers take.
"""

from pathlib import Path

import pytest

from attack.report import Place
from tests.attack.short import broken_rows

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]


def test_an_attack_on_the_node_costs_the_neighbour_nothing(tmp_path: Path) -> None:
    assert not broken_rows(Place.NODE, tmp_path)
