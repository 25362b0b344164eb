"""What a node knows of one consumer link."""

from amqp_streams.config import LogSettings
from amqp_streams.node.attaching.attaches import Attach, here, positions_of
from amqp_streams.node.lookups import Lookup
from amqp_streams.storage.ports import ReadRequest
from amqp_streams.streams.consuming.cursors import Cursor, link_key
from amqp_streams.streams.consuming.progress import Progress
from amqp_streams.streams.consuming.start import source_filters
from amqp_streams.streams.groups.claims import Claim, GroupLink
from amqp_streams.streams.redirects import NOWHERE
from amqp_streams.testing import MemoryStore
from tests.amqp_streams.node.bench import EARLIEST, attach, elsewhere

LOG = MemoryStore().create("temps", LogSettings(partitions=3), incarnation="i")


def made(**given: object) -> Attach:
    return Attach(attach(consumer=True), LOG, LOG.partitions[1], source_filters(EARLIEST), **given)  # type: ignore[arg-type]  # as the test says


def test_a_link_is_bound_to_the_partition_that_it_asked_for_until_its_group_has_decided() -> None:
    link = made()
    assert (link.bound_to, link.group) == (1, None)
    link.group_link = GroupLink(Claim("g", None, None, "m"), 0)
    assert (link.bound_to, link.group) == (None, "g")
    link.group_link.partition = 2
    assert link.bound_to == 2


def test_the_positions_of_a_time_come_from_the_lookup_or_from_before_the_home_was_asked() -> None:
    link = made(found={0: 7})
    assert link.sought == {0: 7}
    link.lookup = Lookup(5, ReadRequest(1, lambda: None), {1: 8})
    assert link.sought == {1: 8}


def test_a_reader_begins_at_its_cursor_or_where_its_filters_say() -> None:
    partition = LOG.partitions[0]
    assert positions_of(made(), [partition], None) == [(partition, 0)]
    kept = Progress(Cursor(link_key("i", "c", "l"), None, {0: 4}))
    assert positions_of(made(), [partition], kept) == [(partition, 4)]


def test_partitions_of_other_containers_are_not_here() -> None:
    assert here(LOG, NOWHERE) == LOG.partitions
    assert here(LOG, elsewhere(1).of("temps", 3)) == (LOG.partitions[0], LOG.partitions[2])
