"""The attacks of one place in their short form. A test file for each place: they run on different workers."""

from pathlib import Path

from attack.__main__ import run
from attack.report import Place, table
from attack.tables import all_attacks


def broken_rows(place: Place, folder: Path) -> str:
    """The rows with complaints, as a table; empty: every attack has held."""
    chosen = [each for each in all_attacks() if each.place is place and not each.is_long]
    rows = run(chosen, folder, is_small=True, report=lambda _: None)
    assert len(rows) == len(chosen) > 50
    broken = [row for row in rows if row.complaints]
    return "\n" + table(broken) if broken else ""
