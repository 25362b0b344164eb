"""Sources take turns, and only those that have an event to begin."""

from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.delivery import Entry, Window
from knative_gateway.dispatcher.arrival import Arrival
from knative_gateway.dispatcher.subscribers.round_robin import RoundRobin
from knative_gateway.dispatcher.subscribers.source import HeldBytes, Source
from knative_gateway.ports import Order, Stored

ARRIVAL = Arrival(Stored(0, "0", 0, b""), "")


def source(order: Order = Order.UNORDERED, events: int = 0) -> Source:
    made = Source(Window(order, 100), HeldBytes(1 << 20))
    for number in range(events):
        made.hold(f"{number:03}", ARRIVAL)
    return made


def test_sources_with_events_take_turns() -> None:
    turns, sources = RoundRobin(), [source(events=count) for count in (3, 0, 1, 2)]
    for each in sources:
        turns.wake(each)
    taken = []
    while (following := turns.next()) is not None:
        taken.append(sources.index(following))
        following.take()
        turns.taken(following)
    assert taken == [0, 2, 3, 0, 3, 0]


def test_a_source_that_left_has_no_turn() -> None:
    turns, first, second = RoundRobin(), source(events=1), source(events=1)
    turns.wake(first)
    turns.wake(second)
    turns.leave(first)
    assert turns.next() is second
    turns.leave(second)
    turns.leave(second)
    assert turns.next() is None


STEPS = st.lists(st.tuples(st.sampled_from(["add", "begin", "complete"]), st.integers(0, 2)), max_size=60)


@given(STEPS, st.sampled_from(list(Order)))
def test_a_source_has_the_turn_as_long_as_any_has_an_event_to_begin(
    steps: list[tuple[str, int]], order: Order
) -> None:
    turns, sources = RoundRobin(), [source(order) for _ in range(3)]
    begun: dict[Source, list[Entry]] = {each: [] for each in sources}
    for number, (step, which) in enumerate(steps):
        each = sources[which]
        if step == "add":
            each.hold(f"{number:03}", ARRIVAL, number % 2)
            turns.wake(each)
        elif step == "complete" and begun[each]:
            each.complete(begun[each].pop(0))
            turns.wake(each)
        elif step == "begin" and (following := turns.next()) is not None:
            begun[following].append(following.take()[0])
            turns.taken(following)
        following = turns.next()
        assert (following is not None) == any(each.window.startable for each in sources)
        assert following is None or following.window.startable
