"""Answers as JSON: what is read is what was written, and nothing else is read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.homes.buckets import BUCKETS
from amqp_streams.homes.messages import Answer, Ends, Leaves, Owns, Stored, Verdict
from amqp_streams.homes.protocol.answers import ANSWER_BYTES_MAX, REMAINING_MS_MAX, Answers, parts
from amqp_streams.homes.protocol.frames import FrameError
from amqp_streams.homes.protocol.reports import REPORT_BYTES_MAX
from tests.amqp_streams.homes.protocol.test_reports import EPOCH, NUMBER, PARTITION, POSITIONS, TEXT

SYMBOL = st.text(st.characters(codec="ascii"), max_size=20)
ERROR = st.builds(PeerError, SYMBOL, TEXT, st.dictionaries(SYMBOL, TEXT | NUMBER, max_size=2))
VERDICT = st.one_of(
    st.builds(Owns, NUMBER, st.tuples(NUMBER, NUMBER), st.none() | PARTITION, EPOCH, POSITIONS),
    st.builds(Leaves, NUMBER, ERROR, NUMBER),
    st.builds(Ends, NUMBER, ERROR),
    st.builds(Stored, NUMBER, POSITIONS),
)
ANSWER = st.builds(
    Answer, st.integers(0, BUCKETS - 1), NUMBER, NUMBER, st.booleans(), st.integers(0, REMAINING_MS_MAX),
    st.lists(VERDICT, max_size=5).map(tuple), st.booleans(),
)  # fmt: skip


def comparable(answer: Answer) -> tuple[object, ...]:
    """Errors are equal only to themselves."""

    def of(verdict: Verdict) -> tuple[object, ...]:
        match verdict:
            case Leaves(number, error, within_ms):
                return "leaves", number, error.condition, error.description, error.info, within_ms
            case Ends(number, error):
                return "ends", number, error.condition, error.description, error.info
            case _:
                return (verdict,)

    head = answer.bucket, answer.term, answer.number, answer.processed, answer.remaining_ms, answer.withdrawn
    return (*head, *map(of, answer.verdicts))


def read(bodies: list[bytes]) -> Answer:
    answers = Answers()
    *before, last = [answers.take(body) for body in bodies]
    assert before == [None] * len(before)
    assert last is not None
    return last


@given(ANSWER)
def test_an_answer_is_read_as_it_was_written(answer: Answer) -> None:
    assert comparable(read(list(parts(answer)))) == comparable(answer)


def test_every_link_of_the_largest_report_can_end_with_an_error() -> None:
    shortest = len('{"number":12345,"wanted":{"log":"","container":"","link":""}},')
    error = PeerError(names.RESOURCE_LIMIT_EXCEEDED, "x" * 800)
    verdicts = tuple(Ends(number, error) for number in range(REPORT_BYTES_MAX // shortest))
    bodies = list(parts(Answer(0, 1, 1, True, 3000, verdicts)))
    assert ANSWER_BYTES_MAX / 2 < sum(map(len, bodies)) <= ANSWER_BYTES_MAX
    assert len(read(bodies).verdicts) == len(verdicts)


GOOD = Answer(
    1, 2, 3, True, 4,
    (Owns(1, (2, 3), 4, 5, ((4, 6),)), Ends(2, PeerError(names.RESOURCE_LOCKED, "x", {"a": "b"}))),
)  # fmt: skip


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (["bucket"], BUCKETS, "answer.bucket must be"),
        (
            ["remaining_ms"],
            REMAINING_MS_MAX + 1,
            "answer.remaining_ms must be a whole number",
        ),
        (["processed"], "true", "answer.processed must be true or false"),
        (["verdicts", 0, "kind"], "may", r"answer.verdicts\[0\].kind must be owns, leaves, ends or stored"),
        (["verdicts", 0, "kind"], None, r"answer.verdicts\[0\].kind is missing"),
        (["verdicts", 0, "serial"], None, r"answer.verdicts\[0\].serial must be the term"),
        (["verdicts", 0, "positions"], [[1]], r"answer.verdicts\[0\].positions must be"),
        (["verdicts", 1, "condition"], "ä", r"answer.verdicts\[1\].condition must be in ASCII"),
        (["verdicts", 1, "condition"], "a" * 256, r"answer.verdicts\[1\].condition must be"),
        (
            ["verdicts", 1, "info"],
            {"ä": 1},
            r"answer.verdicts\[1\].info must be an object with keys",
        ),
        (["verdicts", 1, "number"], -1, r"answer.verdicts\[1\].number must be"),
    ],
)
def test_a_field_that_is_not_valid_is_named(path: list[str | int], value: object, words: str) -> None:
    document = json.loads(next(parts(GOOD)))
    within = document
    for step in path[:-1]:
        within = within[step]
    within[path[-1]] = value
    with pytest.raises(FrameError, match=words):
        Answers().take(json.dumps(document).encode())


def test_fields_of_a_later_version_are_ignored() -> None:
    document = json.loads(next(parts(GOOD)))
    for each in (document, *document["verdicts"]):
        each["later"] = {"a": [1]}
    found = Answers().take(json.dumps(document).encode())
    assert found is not None
    assert comparable(found) == comparable(GOOD)
