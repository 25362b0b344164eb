"""How far a subscriber is, by its own reader or by the shared one."""

from knative_gateway.delivery import Window
from knative_gateway.dispatcher.cursor import RANGES_MAX, Cursor, ReadPosition
from knative_gateway.ports import Order, Range


def cursor(start: str = "", completed: list[Range] | None = None) -> Cursor:
    return Cursor(("u", 0), Window(Order.UNORDERED, 10, start), start, completed or [])


def test_events_that_the_shared_reader_skips_are_completed_for_its_members() -> None:
    one, shared = cursor("03"), ReadPosition("05")
    one.join(shared)
    shared.offset = "09"
    assert (one.is_shared, one.reached, one.position()) == (True, "09", "09")
    one.leave()
    shared.offset = "12"
    assert (one.is_shared, one.position(), one.own.offset) == (False, "09", "09")


def test_an_open_event_holds_the_position_back() -> None:
    one = cursor("03")
    one.advance("05")
    entry = one.window.add("06")
    one.own.offset = one.last = "06"
    assert (one.reached, one.position()) == ("05", "05")
    one.window.take()
    one.window.complete(entry)
    assert (one.reached, one.position()) == ("06", "06")


def test_a_member_that_falls_back_continues_before_the_event_that_it_had_no_room_for() -> None:
    one, shared = cursor("03"), ReadPosition("03")
    one.join(shared)
    shared.offset = "08"
    one.leave("07")
    assert (one.own.offset, one.position()) == ("07", "07")


def test_events_that_were_completed_before_are_skipped_and_stay_known() -> None:
    one = cursor("02", [("03", "05"), ("07", "08")])
    assert [
        offset for offset in ("01", "02", "03", "04", "05", "06", "07", "08", "09") if one.has_had(offset)
    ] == [
        "01",
        "02",
        "04",
        "05",
        "08",
    ]
    assert cursor("02", [("03", "05"), ("07", "08")]).done == [("03", "05"), ("07", "08")]


def test_the_lowest_ranges_are_kept() -> None:
    ranges = [(f"{2 * number:05}", f"{2 * number + 1:05}") for number in range(1, RANGES_MAX + 10)]
    assert cursor("00000", ranges).done == ranges[:RANGES_MAX]
