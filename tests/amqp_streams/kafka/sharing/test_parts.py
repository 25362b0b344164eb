"""Changes in parts: all of them, once, in order, within the bounds."""

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.kafka.sharing.parts import parts

CHANGES = st.dictionaries(st.text(min_size=1, max_size=5), st.none() | st.binary(max_size=20), max_size=30)


@given(CHANGES, st.integers(1, 7), st.integers(1, 60))
def test_the_parts_have_all_changes_in_their_order(
    changes: dict[str, bytes | None], records_max: int, bytes_max: int
) -> None:
    found = list(parts(changes, records_max=records_max, bytes_max=bytes_max))
    assert [item for part in found for item in part.items()] == list(changes.items())
    for part in found:
        size = sum(len(key.encode()) + len(value or b"") for key, value in part.items())
        assert 1 <= len(part) <= records_max
        assert size <= bytes_max or len(part) == 1


def test_what_fits_is_one_part() -> None:
    changes: dict[str, bytes | None] = {f"{number}": b"v" for number in range(10_000)}
    assert len(list(parts(changes))) == 1
    assert len(list(parts({**changes, "home": b"last"}))) == 2
    assert list(parts({**changes, "home": b"last"}))[-1] == {"home": b"last"}
