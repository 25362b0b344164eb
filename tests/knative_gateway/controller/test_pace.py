from knative_gateway.controller.pace import KEYS_MAX, WINDOW_S, WRITES_MAX, Pace
from knative_gateway.ports import Key

KEY, OTHER = Key("", "Service", "n", "a"), Key("", "Service", "n", "b")


def test_an_object_is_written_so_often_and_no_more_until_the_window_is_over() -> None:
    pace = Pace()
    assert all(pace.may_write(KEY, 100.0) for _ in range(WRITES_MAX))
    assert not pace.may_write(KEY, 100.0 + WINDOW_S / 2)
    assert pace.may_write(OTHER, 100.0)
    assert pace.may_write(KEY, 100.0 + WINDOW_S)


def test_the_number_of_counted_objects_is_bounded() -> None:
    pace = Pace()
    for _ in range(WRITES_MAX):
        pace.may_write(KEY, 100.0)
    for number in range(KEYS_MAX):
        pace.may_write(Key("", "Service", "n", str(number)), 100.0)
    assert pace.may_write(KEY, 100.0)
