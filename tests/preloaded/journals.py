"""Makes the journals of nodes in tests small.

A node writes its journal in full before it is ready for the first time: 128 MiB. The tests start hundreds of
nodes, which wrote most of what a run wrote. A small journal also changes from file to file more often.
Nodes that start as users start them (`real_commands`) have one of the usual size.
"""

from dataclasses import fields
from typing import Final

from amqp_streams.storage.commits.flushing import Tuning

# Larger than all that a commit puts into a journal at once in tests: half a file is the limit.
_JOURNAL_BYTES: Final = 4 << 20


def make_small() -> None:
    """Change the default size of a journal file in this process and its forks."""
    names = [field.name for field in fields(Tuning)]
    defaults = list(Tuning.__init__.__defaults__ or ())
    defaults[names.index("journal_bytes")] = _JOURNAL_BYTES
    Tuning.__init__.__defaults__ = tuple(defaults)
