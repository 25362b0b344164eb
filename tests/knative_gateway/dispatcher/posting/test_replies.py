"""Which requests may receive an answer, and when."""

from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.dispatcher.posting.replies import Entry, Replies


def entry(owner: str, size: int, let_in: list[str] | None = None) -> Entry:
    return Entry(owner, size, lambda: None if let_in is None else let_in.append(owner))


def test_one_subscriber_leaves_half_of_the_room_to_the_others() -> None:
    replies, let_in = Replies(100), list[str]()
    assert [replies.enter(entry("hog", 10, let_in)) for _ in range(6)] == [True] * 5 + [False]
    assert replies.enter(entry("other", 25))
    assert (replies.used, replies.waiting, let_in) == (75, 1, [])


def test_an_answer_larger_than_all_the_room_is_admitted_alone() -> None:
    replies, let_in = Replies(10), list[str]()
    large, next_ = entry("a", 50), entry("b", 5, let_in)
    assert replies.enter(large)
    assert not replies.enter(next_)
    replies.leave(large)
    assert let_in == ["b"]
    replies.leave(next_)
    assert (replies.used, replies.waiting) == (0, 0)


def test_one_that_ends_while_it_waits_waits_no_more() -> None:
    replies, let_in = Replies(10), list[str]()
    first, gone, last = entry("a", 10), entry("b", 10, let_in), entry("c", 10, let_in)
    assert [replies.enter(each) for each in (first, gone, last)] == [True, False, False]
    replies.leave(gone)
    replies.leave(first)
    assert let_in == ["c"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 120), st.integers(0, 9)), max_size=40))
def test_the_bound_holds_and_every_answer_is_finally_admitted(arrivals: list[tuple[str, int, int]]) -> None:
    replies, present = Replies(100), list[Entry]()
    for owner, size, leaver in arrivals:
        present.append(entry(owner, size))
        replies.enter(present[-1])
        if leaver < len(present):
            replies.leave(present.pop(leaver))
        inside = [each for each in present if each.is_in]
        assert replies.used == sum(each.size for each in inside)
        assert replies.used <= replies.max or len(inside) == 1
    while present:
        let_in = next(each for each in present if each.is_in)
        present.remove(let_in)
        replies.leave(let_in)
    assert (replies.used, replies.waiting) == (0, 0)
