"""Networks of clients, and the crowds of them, compared with a naive count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service_parts.networks import Crowds, format_address, is_loopback, is_this_machine, network_of


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


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("::", False),
        ("fe80::1%lo", False),
        ("localhost", False),
        ("", False),
        ("?", False),
        ("::ffff:127.0.0.1", True),
        ("::ffff:192.0.2.1", False),
        ("127.0.0.1.example", False),
    ],
)
def test_only_loopback_addresses_are_this_machine(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_a_listener_on_loopback_is_for_this_machine(host: str) -> None:
    assert is_this_machine(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "gateway.example", "localhost.example"])
def test_a_listener_on_another_address_is_not(host: str) -> None:
    assert not is_this_machine(host)


@pytest.mark.parametrize(
    ("host", "port", "text"),
    [
        ("127.0.0.1", 5672, "127.0.0.1:5672"),
        ("::1", 5671, "[::1]:5671"),
        ("node.example", 0, "node.example:0"),
    ],
)
def test_addresses_are_written_as_in_urls(host: str, port: int, text: str) -> None:
    assert format_address(host, port) == text


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
