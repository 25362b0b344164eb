"""The attacks in their short form: small limits, a real node and a real gateway beside a neighbour.

Each ends within its limit with the right refusal, and the neighbour gets its answers. `make attack` runs them
with the default limits and judges how long the neighbour's answers take.
"""

from pathlib import Path

import pytest

from attack.__main__ import run
from attack.report import Place, table
from attack.tables import all_attacks

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("place", [Place.NODE, Place.GATEWAY])
def test_an_attack_costs_the_neighbour_nothing(place: Place, tmp_path: Path) -> None:
    chosen = [each for each in all_attacks() if each.place is place and not each.is_long]
    rows = run(chosen, tmp_path, is_small=True, told=lambda _: None)
    broken = [row for row in rows if row.complaints]
    assert not broken, "\n" + table(broken)
    assert len(rows) > 50
