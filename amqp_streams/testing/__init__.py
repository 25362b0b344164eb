"""What tests of this package, and of programs that use it, put in place of the world.

Storage in memory, failing files, a manual clock.
"""

from amqp_streams.testing.clock import ManualClock, ManualLoop
from amqp_streams.testing.faulty_files import FaultyFiles
from amqp_streams.testing.lateness import Lateness
from amqp_streams.testing.memory_partition import MemoryCommitQueue, MemoryPartition, Uneven
from amqp_streams.testing.memory_states import MemoryStates
from amqp_streams.testing.memory_store import MemoryStore

__all__ = [
    "FaultyFiles",
    "Lateness",
    "ManualClock",
    "ManualLoop",
    "MemoryCommitQueue",
    "MemoryPartition",
    "MemoryStates",
    "MemoryStore",
    "Uneven",
]
