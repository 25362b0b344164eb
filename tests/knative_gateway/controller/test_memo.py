from knative_gateway.addressing import Lookup
from knative_gateway.controller.memo import Memo, nothing
from knative_gateway.ports import Key
from knative_gateway.resources.objects import Object

KEY, OTHER = Key("", "Service", "n", "a"), Key("", "Service", "n", "b")


class Counted:
    """Something to work out, and how often it was."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, lookup: Lookup) -> int:
        self.times += 1
        lookup(OTHER)
        return self.times


def test_nothing_is_worked_out_again_while_its_inputs_are_the_same() -> None:
    memo, make, object_ = Memo(), Counted(), {"a": 1}
    results = [memo.of("x", KEY, (object_, "text"), nothing, make) for _ in range(3)]
    assert results == [1, 1, 1]
    memo.forget_unused()
    assert memo.of("x", KEY, (object_, "".join(["te", "xt"])), nothing, make) == 1


def test_another_input_or_another_thing_looked_up_is_worked_out_anew() -> None:
    memo, make, object_ = Memo(), Counted(), {"a": 1}
    found: dict[Key, Object] = {}

    def get(inputs: tuple[object, ...]) -> int:
        result = memo.of("x", KEY, inputs, found.get, make)
        memo.forget_unused()
        return result

    assert [get((object_,)), get((dict(object_),)), get((object_, None))] == [1, 2, 3]
    found[OTHER] = {}
    assert [get((object_, None)), get((object_, None))] == [4, 4]


def test_what_is_not_asked_for_is_forgotten() -> None:
    memo, make = Memo(), Counted()
    memo.of("x", KEY, (), nothing, make)
    memo.of("y", KEY, (), nothing, make)
    memo.forget_unused()
    assert len(memo) == 2
    memo.of("x", KEY, (), nothing, make)
    memo.forget_unused()
    assert len(memo) == 1
