"""Work in steps."""

from amqp_streams.streams.steps import Steps, finish


def work(done: list[int]) -> Steps[str]:
    for number in range(3):
        done.append(number)
        yield
    return "result"


def test_a_caller_stops_between_steps_and_can_do_the_rest_at_once() -> None:
    done: list[int] = []
    steps = work(done)
    next(steps)
    assert done == [0]
    assert finish(steps) == "result"
    assert done == [0, 1, 2]
