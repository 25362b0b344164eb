"""Partitions take turns, and only those that have an event to begin."""

from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.delivery import Entry, Window
from knative_gateway.dispatcher.subscribers.track import Track
from knative_gateway.dispatcher.subscribers.turns import Turns
from knative_gateway.ports import Order


class Held:
    """What `Turns` needs of a track."""

    def __init__(self, order: Order = Order.UNORDERED) -> None:
        self.window = Window(order, 100)
        self.under_way: list[Entry] = []

    def take(self) -> None:
        entry = self.window.take()
        assert entry is not None
        self.under_way.append(entry)


def track(order: Order = Order.UNORDERED, events: int = 0) -> tuple[Held, Track]:
    held = Held(order)
    for number in range(events):
        held.window.add(f"{number:03}")
    return held, cast("Track", held)


def test_those_with_events_take_turns() -> None:
    turns, tracks = Turns(), [track(events=count) for count in (3, 0, 1, 2)]
    for _, each in tracks:
        turns.stir(each)
    taken = []
    while (following := turns.next()) is not None:
        taken.append([held for held, _ in tracks].index(cast("Held", following)))
        cast("Held", following).take()
        turns.taken(following)
    assert taken == [0, 2, 3, 0, 3, 0]


def test_who_leaves_has_no_turn() -> None:
    turns, (_, first), (_, second) = Turns(), track(events=1), track(events=1)
    turns.stir(first)
    turns.stir(second)
    turns.leave(first)
    assert turns.next() is second
    turns.leave(second)
    turns.leave(second)
    assert turns.next() is None


@given(st.lists(st.tuples(st.sampled_from(["add", "begin", "complete"]), st.integers(0, 2)), max_size=60), st.sampled_from(list(Order)))
def test_whatever_happens_somebody_has_a_turn_as_long_as_there_is_an_event_to_begin(steps: list[tuple[str, int]], order: Order) -> None:
    turns, tracks = Turns(), [track(order) for _ in range(3)]
    for number, (step, which) in enumerate(steps):
        held, each = tracks[which]
        if step == "add":
            held.window.add(f"{number:03}", number % 2)
            turns.stir(each)
        elif step == "complete" and held.under_way:
            held.window.complete(held.under_way.pop(0))
            turns.stir(each)
        elif step == "begin" and (following := turns.next()) is not None:
            cast("Held", following).take()
            turns.taken(following)
        following = turns.next()
        assert (following is not None) == any(held.window.startable for held, _ in tracks)
        assert following is None or following.window.startable
