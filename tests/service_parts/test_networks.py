"""Networks of clients, and the crowds of them, compared with a naive count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service_parts.networks import Crowds, network_of


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::/64"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80::/64"),
        ("?", "?"),
        ("name", "name"),
        ("", ""),
    ],
)
def test_clients_of_one_network_count_as_one(host: str, network: str) -> None:
    assert network_of(host) == network


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 11), st.sampled_from("abcd"))))
def test_the_largest_network_and_its_oldest_member_are_those_of_a_naive_count(
    steps: list[tuple[bool, int, str]],
) -> None:
    crowds: Crowds[int] = Crowds()
    naive: dict[int, str] = {}
    for is_new, member, network in steps:
        if is_new:
            crowds.add(member, network)
            naive.setdefault(member, network)
        else:
            crowds.remove(member)
            naive.pop(member, None)
        assert len(crowds) == len(naive)
        assert (member in crowds) == (member in naive)
        sizes = {each: list(naive.values()).count(each) for each in naive.values()}
        largest = crowds.largest(network)
        if not sizes:
            assert largest is None
            continue
        assert largest is not None
        assert sizes[largest] == max(sizes.values())
        if sizes.get(network) == max(sizes.values()):
            assert largest == network
        assert crowds.oldest(largest) == next(each for each in naive if naive[each] == largest)


def test_of_equal_networks_the_largest_is_the_preferred_one_or_the_one_that_grew_first() -> None:
    crowds: Crowds[str] = Crowds()
    for member in ("b1", "a1", "a2", "b2", "c1"):
        crowds.add(member, member[0])
    assert crowds.largest() == crowds.largest("c") == crowds.largest("unknown") == "a"
    assert crowds.largest("b") == "b"


class _Network(str):
    """Counts how often any network is looked at: each look-up in a table needs its hash."""

    __slots__ = ()
    looks = 0

    def __hash__(self) -> int:
        _Network.looks += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other)


@pytest.mark.parametrize("count", [10, 1000])
def test_a_new_member_at_the_limit_looks_at_as_many_networks_however_many_exist(count: int) -> None:
    crowds: Crowds[int] = Crowds()
    for number in range(count):
        crowds.add(number, _Network(number))
    before = _Network.looks
    for number in range(count, count + 10):
        crowds.add(number, _Network(number))
        largest = crowds.largest(_Network(number))
        assert largest is not None
        crowds.remove(crowds.oldest(largest))
    assert _Network.looks - before <= 10 * 12
