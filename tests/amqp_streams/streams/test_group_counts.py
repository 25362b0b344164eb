"""Groups are counted once, however they are known."""

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.streams.group_counts import GroupCounts, KnownBy

STEPS = st.lists(
    st.tuples(
        st.booleans(),
        st.sampled_from(["i", "j"]),
        st.sampled_from(["", "g", "h"]),
        st.sampled_from([KnownBy.CURSOR, KnownBy.CLAIM]),
    ),
    max_size=40,
)


@given(STEPS)
def test_the_number_is_that_of_the_names_known_by_anything(
    steps: list[tuple[bool, str, str, KnownBy]],
) -> None:
    counts, known = GroupCounts(), set[tuple[str, str, KnownBy]]()
    for begins, incarnation, group, by in steps:
        if begins:
            counts.add(incarnation, group, by)
            known.add((incarnation, group, by))
        else:
            counts.remove(incarnation, group, by)
            known.discard((incarnation, group, by))
        for each in ("i", "j"):
            walked = {name for where, name, _ in known if where == each and name}
            assert counts.of(each) == len(walked)


def test_a_deleted_log_has_no_groups() -> None:
    counts = GroupCounts()
    counts.add("i", "g", KnownBy.CURSOR)
    counts.add("j", "g", KnownBy.CLAIM)
    counts.forget("i")
    counts.remove("i", "g", KnownBy.CURSOR)
    assert (counts.of("i"), counts.of("j"), counts.of("k")) == (0, 1, 0)


def test_the_logs_that_have_groups_are_known() -> None:
    counts = GroupCounts()
    counts.add("i", "g", KnownBy.CURSOR)
    counts.add("j", "g", KnownBy.CLAIM)
    counts.remove("i", "g", KnownBy.CURSOR)
    assert list(counts.incarnations()) == ["j"]
