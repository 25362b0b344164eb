"""Which events may start, and up to which event all are completed."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.delivery.window import LOOK_AHEAD_MAX, Entry, Window
from knative_gateway.ports import Order


def started(window: Window) -> list[Entry]:
    found = []
    while (entry := window.take()) is not None:
        found.append(entry)
    return found


def offsets(entries: list[Entry]) -> list[str]:
    return [entry.offset for entry in entries]


def filled(order: Order, *keys: str | None, look_ahead: int = 100) -> Window:
    window = Window(order, look_ahead)
    for number, key in enumerate(keys):
        window.add(f"{number}", key)
    return window


def test_unordered_events_start_all_at_once() -> None:
    assert offsets(started(filled(Order.UNORDERED, "a", "a", None))) == ["0", "1", "2"]


def test_ordered_events_start_each_after_the_one_before_it() -> None:
    window = filled(Order.ORDERED, "a", "b", None)
    (first,) = started(window)
    assert started(window) == []
    window.complete(first)
    (second,) = started(window)
    window.add("3")
    window.complete(second)
    assert offsets(started(window)) == ["2"]


def test_events_of_a_key_start_one_after_the_other_and_keys_do_not_wait_for_each_other() -> None:
    window = filled(Order.BY_KEY, "a", "b", "a", None, None, "b", "a")
    first = started(window)
    assert offsets(first) == ["0", "1", "3", "4"]
    window.complete(first[0])
    (second,) = started(window)
    assert second.offset == "2"
    window.complete(first[1])
    window.complete(second)
    assert offsets(started(window)) == ["5", "6"]


def test_the_lowest_that_is_not_completed_holds_the_checkpoint() -> None:
    window = filled(Order.UNORDERED, None, None, None)
    first, second, third = started(window)
    assert not window.complete(second)
    assert window.position is None
    assert window.complete(first)
    assert window.position == "1"
    assert window.complete(third)
    assert window.position == "2"


def test_skipped_events_move_the_position_when_those_before_are_completed() -> None:
    window = Window(Order.UNORDERED, 10)
    window.skip_to("4")
    assert window.position == "4"
    window.add("5")
    window.skip_to("8")
    assert window.position == "4"
    window.complete(started(window)[0])
    assert window.position == "8"


def test_no_more_events_are_held_than_the_look_ahead() -> None:
    window = filled(Order.UNORDERED, None, None, look_ahead=2)
    first, second = started(window)
    assert window.full
    with pytest.raises(AssertionError):
        window.add("2")
    window.complete(second)
    assert not window.full
    window.complete(first)
    assert window.open == 0


def test_one_event_that_is_not_completed_holds_up_no_other() -> None:
    """Completed events after it use no memory, for any number of them."""
    window = filled(Order.UNORDERED, None, look_ahead=3)
    (first,) = started(window)
    for number in range(1, 10_001):
        window.add(f"{number}")
        assert not window.full
        (entry,) = started(window)
        assert not window.complete(entry)
    assert (window.position, window.open, window.ranges, entries(window)) == (None, 1, [("0", "10000")], 2)
    window.complete(first)
    assert (window.position, window.ranges, entries(window)) == ("10000", [], 0)


def test_skipped_events_take_no_room() -> None:
    window = filled(Order.UNORDERED, None, look_ahead=2)
    (first,) = started(window)
    for number in range(1, 100_000):
        window.skip_to(f"{number}")
    assert not window.full
    assert entries(window) == 2
    window.complete(first)
    assert window.position == "99999"


def test_a_resumed_window_begins_where_it_was() -> None:
    window = Window(Order.ORDERED, 1, position="7")
    window.add("8")
    assert window.position == "7"


@pytest.mark.parametrize("look_ahead", [0, LOOK_AHEAD_MAX + 1])
def test_the_look_ahead_is_bounded(look_ahead: int) -> None:
    with pytest.raises(AssertionError):
        Window(Order.UNORDERED, look_ahead)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("add", "pass", "take", "complete")),
        st.integers(0, 9),
        st.sampled_from(("a", "b", None)),
    ),
    max_size=80,
)


@given(st.sampled_from(Order), st.integers(1, 8), STEPS)
def test_no_open_event_is_passed_and_order_is_kept(
    order: Order, look_ahead: int, steps: list[tuple[str, int, str | None]]
) -> None:
    """The model: a list of all events, each waiting, running or completed."""
    window, state, running = Window(order, look_ahead), dict[int, str](), list[Entry]()
    keys: dict[int, str | None] = {}
    number = 0
    for step, choice, key in steps:
        if step == "add" and not window.full:
            window.add(f"{number}", key)
            state[number], keys[number] = "waiting", key
            number += 1
        elif step == "pass":
            window.skip_to(f"{number}")
            state[number] = "completed"
            number += 1
        elif step == "take" and (entry := window.take()):
            taken = int(entry.offset)
            assert state[taken] == "waiting"
            state[taken] = "running"
            running.append(entry)
            assert not [
                other
                for other in range(taken)
                if before(order, keys, other, taken) and state[other] != "completed"
            ]
        elif step == "complete" and running:
            entry = running.pop(choice % len(running))
            state[int(entry.offset)] = "completed"
            window.complete(entry)
        agree(window, state, number, look_ahead)
    drain(window, running, state)
    assert window.position == (f"{number - 1}" if number else None)
    assert window.open == 0
    assert not window.full


def before(order: Order, keys: dict[int, str | None], one: int, other: int) -> bool:
    """Return whether one event must be completed before the other one starts."""
    if one not in keys:
        return False
    return order is Order.ORDERED or (
        order is Order.BY_KEY and keys[one] is not None and keys[one] == keys[other]
    )


def agree(window: Window, state: dict[int, str], number: int, look_ahead: int) -> None:
    lowest = min((each for each, is_ in state.items() if is_ != "completed"), default=number)
    assert window.position == (f"{lowest - 1}" if lowest else None)
    assert window.open == sum(is_ != "completed" for is_ in state.values()) <= look_ahead
    assert entries(window) <= 2 * window.open + 1
    above = {each for after, last in window.ranges for each in range(int(after) + 1, int(last) + 1)}
    assert above == {each for each, is_ in state.items() if is_ == "completed" and each > lowest}


def drain(window: Window, running: list[Entry], state: dict[int, str]) -> None:
    """Everything that waits gets its turn."""
    take: Callable[[], Entry | None] = window.take
    while entry := running.pop() if running else take():
        window.complete(entry)
    assert not window._behind


def entries(window: Window) -> int:
    """Return how many entries the window holds."""
    count, entry = 0, window._first
    while entry is not None:
        count, entry = count + 1, entry._after
    return count
