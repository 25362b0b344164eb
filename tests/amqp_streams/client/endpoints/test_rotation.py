"""The order of endpoints, their pauses, and the endpoints that do not belong together."""

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.client.endpoints.address import Address
from amqp_streams.client.endpoints.rotation import PAUSE_S, PAUSE_S_MAX, STABLE_S, Choice, Health, Rotation

NAMES = ("a", "b", "c", "d")
ADDRESSES = [Address("amqp", name, 5672) for name in NAMES]
CHOICES = list(map(Choice, ADDRESSES))
A, B, C, D = ADDRESSES


def made(seed: int = 0, addresses: list[Address] = ADDRESSES) -> Rotation:
    return Rotation(addresses, Health(random.Random(seed).random))


def test_the_order_is_random_and_repeatable() -> None:
    firsts = {made(seed).order(CHOICES, 0.0)[0].host for seed in range(40)}
    assert firsts == set(NAMES)
    assert made(7).order(CHOICES, 0.0) == made(7).order(CHOICES, 0.0)


def test_another_connection_begins_where_this_client_has_none() -> None:
    rotation = made()
    first = rotation.order(CHOICES, 0.0)[0]
    rotation.opened(first)
    assert rotation.current == first
    second = rotation.order(CHOICES, 0.0)[0]
    assert second != first
    rotation.opened(second)
    rotation.closed(first)
    orders = [rotation.order(CHOICES, 0.0) for _ in range(20)]
    assert {order[-1] for order in orders} == {second}


def test_a_bad_endpoint_is_last_and_comes_back() -> None:
    rotation = made()
    rotation.failed(B, 10.0)
    assert all(rotation.order(CHOICES, 10.4)[-1] == B for _ in range(20))
    firsts = {rotation.order(CHOICES, 10.0 + PAUSE_S)[0] for _ in range(80)}
    assert B in firsts


def test_pauses_grow_to_a_limit_and_are_partly_random() -> None:
    rotation = Rotation([A, B], Health(lambda: 1.0))
    pauses, now_s = list[float](), 0.0
    for _ in range(8):
        rotation.failed(A, now_s)
        pauses.append(rotation._health.states[str(A)].pause_until_s - now_s)
        now_s += 100
    assert pauses == [1, 2, 4, 8, 16, PAUSE_S_MAX, PAUSE_S_MAX, PAUSE_S_MAX]
    shortest = Rotation([A], Health(lambda: 0.0))
    shortest.failed(A, 0.0)
    assert shortest._health.states[str(A)].pause_until_s == PAUSE_S / 2


def test_only_a_connection_that_lasted_forgives_the_failures_before_it() -> None:
    rotation = Rotation(ADDRESSES, Health(lambda: 1.0))
    for _ in range(3):
        rotation.failed(A, 0.0)
    rotation.opened(A)
    rotation.lost(A, STABLE_S / 2, 0.0)
    assert rotation._health.states[str(A)].pause_until_s == 8 * PAUSE_S
    rotation.opened(A)
    rotation.lost(A, STABLE_S, 0.0)
    assert rotation._health.states[str(A)].pause_until_s == PAUSE_S


def test_an_address_of_the_second_family_waits_until_the_first_has_failed() -> None:
    six, four = replace(A, ip="::1"), replace(A, ip="127.0.0.1")
    choices = [Choice(six), Choice(four, 1)]
    rotation = made()
    assert all(rotation.order(choices, 0.0) == [six, four] for _ in range(20))
    rotation.failed(six, 0.0)
    assert rotation.order(choices, 0.1) == [four, six]


def test_addresses_that_a_name_no_longer_has_are_forgotten() -> None:
    rotation = made()
    for number in range(100):
        old = replace(A, ip=f"10.0.0.{number}")
        rotation.failed(old, 0.0)
    rotation.opened(B)
    rotation.order([Choice(C)], 100.0)
    assert set(rotation._health.states) == {str(B)}


STEPS = st.lists(
    st.tuples(st.sampled_from(["failed", "opened", "lost", "closed", "wait"]), st.integers(0, 3)), max_size=60
)


@given(STEPS, st.integers(0, 5))
def test_each_endpoint_is_in_the_order_once_and_good_ones_come_first(
    steps: list[tuple[str, int]], seed: int
) -> None:
    rotation, now_s, open_ = made(seed), 0.0, [0, 0, 0, 0]
    for what, index in steps:
        address = ADDRESSES[index]
        match what:
            case "failed":
                rotation.failed(address, now_s)
            case "opened":
                rotation.opened(address)
                open_[index] += 1
            case "lost" if open_[index]:
                rotation.lost(address, index * STABLE_S, now_s)
                open_[index] -= 1
            case "closed" if open_[index]:
                rotation.closed(address)
                open_[index] -= 1
            case _:
                now_s += index * 3.0
        order = rotation.order(CHOICES, now_s)
        assert sorted(order, key=str) == ADDRESSES
        states = rotation._health.states
        until = {key: state.pause_until_s for key, state in states.items()}
        pauses = [max(0.0, until.get(str(one), 0.0) - now_s) for one in order]
        assert pauses == sorted(pauses)
        assert all(pause_s <= PAUSE_S_MAX for pause_s in pauses)
        counted = {key: state.connections for key, state in states.items()}
        assert [counted.get(str(one), 0) for one in ADDRESSES] == open_
        good = [one for one, pause_s in zip(order, pauses, strict=True) if not pause_s]
        counts = [open_[ADDRESSES.index(one)] for one in good]
        assert counts == sorted(counts)


def test_a_node_with_another_store_is_refused_with_both_stores() -> None:
    rotation = made()
    assert rotation.claim(A, "one") is None
    assert rotation.claim(B, "one") is None
    why = rotation.claim(C, "two")
    assert why is not None
    assert "(two)" in why
    assert "(one)" in why
    assert rotation.claim(C, "two") is not None, "also the next time"
    assert rotation.claim(D, None) is None, "a node that does not tell its store"


def test_a_node_that_was_replaced_brings_its_new_store() -> None:
    alone = made(addresses=[A])
    assert alone.claim(A, "one") is None
    assert alone.claim(A, "two") is None
    several = made()
    assert several.claim(A, "one") is None
    assert several.claim(B, "one") is None
    assert several.claim(B, "two") is None, "it had the store before"
    assert several.claim(A, "two") is None, "so had this one"
    assert several.claim(C, "one") is not None


def test_clients_that_share_what_they_know_avoid_the_same_endpoint() -> None:
    health = Health(random.Random(1).random)
    Rotation([replace(one, user="ann") for one in ADDRESSES], health).failed(A, 0.0)
    later = Rotation([replace(one, user="bob") for one in ADDRESSES], health)
    assert all(later.order(CHOICES, 0.1)[-1] == A for _ in range(20))
