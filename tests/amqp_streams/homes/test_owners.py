"""The record of the last owner: one key for each group and partition, one value for each link."""

from dataclasses import replace

from amqp_streams.homes.owners import encoded, owner_key
from tests.amqp_streams.homes.stage import own_cursor, wanted


def test_each_group_and_partition_has_a_key_and_so_has_each_durable_link() -> None:
    assert owner_key(wanted("m"), 1) == "owner/i/1/g"
    assert owner_key(wanted("other"), 1) == owner_key(wanted("m", 1, 7), 1)
    one, two = own_cursor("c"), replace(own_cursor("c"), link="second")
    assert owner_key(one, None).startswith("owner/i/-/")
    assert owner_key(one, None) != owner_key(two, None)


def test_only_the_same_link_has_the_same_value() -> None:
    assert encoded("a.1", 7) == encoded("a.1", 7)
    assert len({encoded("a.1", 7), encoded("a.1", 8), encoded("a.2", 7)}) == 3
