"""The settings that are in force, and where each comes from, as a service answers them.

Law: a value is shown as `config show` shows it: passwords are masked before the rows come here. After a
reload, only settings that take effect at once change.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from service_parts.settings.showing import InForce

VALUE_CHARACTERS_MAX: Final = 2000
"""A longer value is cut: a file may have a thousand access rules."""
Shown = Callable[[], Sequence[InForce]]


class SettingsInForce:
    """The rows. `read`: reads flags, environment and file again; None: the program gave settings as values.

    `at_once`: the settings and tables that a reload changes, by their names in a file.
    """

    def __init__(self, read: Shown | None, at_once: Iterable[str]) -> None:
        self._read: Final = read
        self._at_once: Final = frozenset(at_once)
        self.rows: Sequence[InForce] = () if read is None else tuple(map(_short, read()))

    def reload(self) -> None:
        """Take over the values of the settings that take effect at once."""
        if self._read is None:
            return
        kept = [row for row in self.rows if not self._changes(row)]
        new = [row for row in map(_short, self._read()) if self._changes(row)]
        order = {row.name: number for number, row in enumerate(self.rows)}
        self.rows = sorted((*kept, *new), key=lambda row: order.get(row.name, len(order)))

    def _changes(self, row: InForce) -> bool:
        return row.name in self._at_once or row.name.split(".")[0] in self._at_once


def _short(row: InForce) -> InForce:
    """A row whose value is a number, a bool, None, or a text."""
    value = row.value
    if value is None or isinstance(value, bool | int | float):
        return row
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    if len(text) > VALUE_CHARACTERS_MAX:
        text = text[:VALUE_CHARACTERS_MAX] + " …"
    return InForce(row.name, text, row.source)
