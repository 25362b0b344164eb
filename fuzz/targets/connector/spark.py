"""What a Spark query is given: options, offsets and checkpoints, and messages that anyone may have stored.
Only `ConnectorError` is an answer; an offset in a checkpoint is read as it was written; every message is a
row, and one that cannot be read says why.
"""

import json
import pickle
from array import array
from functools import cache
from typing import Final

import pyarrow as pa

from fuzz.draw import Draw
from fuzz.target import Target, WrongError
from fuzz.targets.engine.records import messages
from fuzz.targets.gateway.documents import value
from fuzz.values import printed_number
from spark_connector.errors import ConnectorError
from spark_connector.options.settings import first_look, read_options, write_options
from spark_connector.options.table import TABLE
from spark_connector.planning.offsets import Edge, Offsets, StreamOffsets, parse_positions, parse_times
from spark_connector.rows.columns import choose
from spark_connector.rows.record_batches import RowMaker
from spark_connector.rows.runs import Run
from spark_connector.rows.schema import arrow_schema, struct

_NAMES: Final = tuple(name for option in TABLE for name in (option.name, *option.aliases))
_TEXTS: Final = (
    "", "a", "a,b", "*", "earliest", "latest", "true", "FALSE", "5", "-1", "10s", "1MiB", "1e3", "9" * 30,
    "amqp://h:1", "amqps://[::1]", "http://x", "amqp://", "amqp://h:99999", "amqp://u:p@h/",
    "2026-01-31T12:00:00Z", "2026-01-31T12:00:00", "0001-01-01T00:00:00+23:59", '{"a": {"0": 5}}',
    '{"a": {"0": "latest", "1": -2}}', '{"a": {"01": 5}}', '{"version": 1, "streams": {}}', "[]", "{",
    "a = 'b'", "\u00e9", "\x00",
)  # fmt: skip
_COLUMNS: Final = (
    "body",
    "all",
    "events",
    "key",
    "properties",
    "annotations",
    "id",
    "data",
    "error",
    "body_type",
    "time",
    "extensions",
    "x",
    "",
)
_INDEXES: Final = ("0", "1", "1023", "01", "-1", "\u0661", "9" * 12, "a")


def run(data: bytes) -> str:
    """The first byte chooses: options, offsets, or rows."""
    draw = Draw(data)
    return (_options, _options, _offsets, _offsets, _rows)[draw.byte() % 5](draw)


_EXAMPLE: Final = "2026-01-31T12:00:00Z"
"""A text of messages about times. A secret that is the same is not one of the message."""


def _options(draw: Draw) -> str:
    given = {draw.pick(_NAMES): _text(draw) for _ in range(draw.below(6))}
    if draw.chance(2):
        given |= {"endpoint": "amqp://127.0.0.1:1", "stream": "a"}
    if draw.chance(8):
        given[draw.text(9)] = _text(draw)
    streaming = draw.chance(2)
    shown = []
    for read in (
        first_look,
        lambda each: read_options(each, streaming=streaming),
        lambda each: write_options(each, streaming=streaming),
    ):
        try:
            found = read(given)
        except ConnectorError as error:
            _is_told(error, given)
            shown.append("".join("#" if character.isdigit() else character for character in error.what)[:20])
            continue
        if found is not None and pickle.loads(pickle.dumps(found)) != found:
            message = f"{found!r} is another after it was sent to a worker"
            raise WrongError(message)
        shown.append(type(found).__name__)
    return " ".join(shown)


def _is_told(error: ConnectorError, given: dict[str, str]) -> None:
    again = pickle.loads(pickle.dumps(error))
    if str(again) != str(error) or not error.what:
        message = f"{error!r} is told as {again!r}"
        raise WrongError(message)
    for name in ("password", "token"):
        secret = given.get(name, "")
        others = "".join(value for key, value in given.items() if key != name)
        if len(secret) > 12 and secret not in others + _EXAMPLE and secret in str(error):
            message = f"the secret option {name} is in {error}"
            raise WrongError(message)


def _text(draw: Draw) -> str:
    if draw.chance(4):
        return json.dumps(_positions(draw))
    return draw.pick(_TEXTS) if not draw.chance(8) else draw.text(30)


def _positions(draw: Draw) -> object:
    if draw.chance(6):
        return value(draw)
    numbers = (
        0,
        5,
        -1,
        -2,
        -3,
        1 << 62,
        (1 << 64) - 1,
        1 << 64,
        "latest",
        " Earliest ",
        "x",
        None,
        True,
        1.0,
    )
    entry = {
        draw.pick(_INDEXES[:3] if not draw.chance(6) else _INDEXES): draw.pick(numbers)
        for _ in range(draw.below(4))
    }
    if draw.chance(2):
        return {draw.pick(("a", "b")): entry}
    stream = {"incarnation": draw.pick(("i", None, 5)), "next": entry}
    offset: dict[str, object] = {
        "version": draw.pick((1, 1, 1, True, 2, "1", None, 1.0)),
        "streams": {"a": stream},
    }
    if draw.chance(3):
        offset |= {"initial": draw.pick((True, False, 1)), "from": {"a": entry}}
    return (
        {"sources": [{"endOffset": offset if draw.chance(2) else json.dumps(offset)}, value(draw)]}
        if draw.chance(4)
        else offset
    )


def _offsets(draw: Draw) -> str:
    if draw.chance(3):
        made = Offsets(
            {
                draw.text(4): StreamOffsets(
                    draw.pick(("i", None)), {draw.below(1024): draw.number(6) for _ in range(draw.below(4))}
                )
                for _ in range(draw.below(3))
            },
            initial=draw.chance(2),
            begun={draw.text(3): {draw.below(9): draw.number(4)}} if draw.chance(2) else {},
        )
        again = Offsets.of(json.loads(made.text()))
        if again != made:
            message = f"{made!r} is read from its checkpoint as {again!r}"
            raise WrongError(message)
        found = parse_positions(made.text(), Edge.EARLIEST)
        if {name: dict(each.next) for name, each in made.streams.items()} != found.named:
            message = f"{made!r} is read as startingOffsets as {found!r}"
            raise WrongError(message)
        return f"round {len(made.streams)}"
    written = draw.rest().decode("utf-8", "replace") if draw.chance(4) else json.dumps(_positions(draw))
    if draw.chance(4):
        written = written[: draw.below(len(written) + 1)] + printed_number(draw)
    shown = []
    for read in (
        lambda: Offsets.of(_json(written)).text(),
        lambda: parse_positions(written, Edge.LATEST),
        lambda: parse_times(written, 5),
    ):
        try:
            read()
            shown.append("y")
        except ConnectorError as error:
            _is_told(error, {})
            shown.append(error.what[-12:])
    return " ".join(shown)


def _json(written: str) -> object:
    try:
        return json.loads(written)
    except (ValueError, RecursionError):
        return None


@cache
def _maker(words: tuple[str, ...], mode: str) -> RowMaker:
    columns = choose(words)
    return RowMaker(columns, arrow_schema(struct(columns)), mode=mode, rows_max=3, bytes_max=4096)


def _rows(draw: Draw) -> str:
    words = tuple(dict.fromkeys(draw.pick(_COLUMNS) for _ in range(1 + draw.below(5))))
    mode = draw.pick(("PERMISSIVE", "DROPMALFORMED", "FAILFAST"))
    try:
        maker = _maker(words, mode)
    except ConnectorError as error:
        return error.what[:20]
    made = [draw.rest()] if draw.chance(4) else messages(draw)
    numbers = range(5, 5 + len(made))
    times = array("q", [1_769_860_800_000 + number for number in numbers])
    run_ = Run(array("Q", numbers), times, pa.array(made, pa.binary()))
    before, rows = maker.malformed, 0
    try:
        for batch in maker.batches("a", 3, [run_]):
            batch.validate(full=True)
            batch.to_pylist()
            rows += batch.num_rows
    except ConnectorError as error:
        if mode != "FAILFAST":
            raise
        return f"{error.what[:30]}"
    lost = maker.malformed - before if mode == "DROPMALFORMED" else 0
    if rows + lost != len(made):
        message = f"{rows} rows of {len(made)} messages, {lost} dropped"
        raise WrongError(message)
    return f"{rows} rows, {lost} dropped, {words}"


TARGET: Final = Target("spark", run, seconds_max=0.3, words=tuple(text.encode() for text in _TEXTS))
