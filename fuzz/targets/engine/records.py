"""Messages for filters to look at: a few fixed ones, and one made of choices."""

from collections.abc import Sequence
from typing import Final

from amqp_streams.errors import PeerError
from amqp_streams.filters import Compiled
from amqp_streams.wire.encoder import encode
from amqp_streams.wire.types import Array, Byte, Described, Symbol, Timestamp, UByte, UInt, ULong, Value
from fuzz.draw import Draw
from fuzz.target import WrongError
from fuzz.values import mapping, value

_APPLICATION: Final[dict[Value, Value]] = {
    "a": 1,
    "b": "blue",
    "n": ULong((1 << 64) - 1),
    "kind": Symbol("alarm"),
    "x": {"y": [1, "z", {"deep": True}], "a": None},
    "list": [1, 2.5, "three", [4]],
    "array": Array(int, (1, 2, 3)),
    "when": Timestamp(1_700_000_000_000),
    "text": "2026-01-31T12:00:00Z",
    "long": "ab" * 3000,
    "nan": float("nan"),
    "byte": Byte(-1),
    "blob": b"\x00\xff",
    "described": Described(Symbol("d"), "inside"),
}
_PROPERTIES: Final[list[Value]] = [
    "id-1",
    b"user",
    "to",
    "subject",
    "back",
    ULong(9),
    Symbol("text/plain"),
    None,
    Timestamp(5),
    Timestamp(6),
]


def _message(*sections: tuple[int, Value]) -> bytes:
    return b"".join(bytes((0, 0x53, code)) + encode(content) for code, content in sections)


MESSAGES: Final = (
    _message(
        (0x70, [True, UByte(7), UInt(60_000), None, UInt(2)]),
        (0x73, _PROPERTIES),
        (0x74, _APPLICATION),
        (0x77, "body"),
    ),
    _message((0x75, b"body")),
    _message(
        (0x72, {Symbol("x-opt-key"): "k", ULong(7): 1}), (0x74, {}), (0x76, [1]), (0x78, {Symbol("sum"): 12})
    ),
)
LATEST: Final = 5
NOW_MS: Final = 1_700_000_000_000


def messages(draw: Draw) -> list[bytes]:
    """The fixed ones, one of choices, and now and then one that is none."""
    sections: list[tuple[int, Value]] = []
    if draw.chance(2):
        sections.append((0x70, [value(draw) for _ in range(draw.below(6))]))
    if draw.chance(2):
        sections.append((0x73, [value(draw) for _ in range(draw.below(14))]))
    sections.append((0x74, mapping(draw)))
    made = [*MESSAGES, _message(*sections)]
    if draw.chance(3):
        made.append(made[draw.below(len(made))][: draw.below(200)])
    if draw.chance(6):
        made.append(draw.raw(64))
    return made


def judge(compiled: Compiled, of: Sequence[bytes]) -> str:
    """Let the filters choose; what they chose. Each on its own and all at once must say the same.

    Raises:
        WrongError: they do not.
    """
    times = [1000 + place for place in range(len(of))]
    chosen = compiled.select(of, 3, times, partition="0", latest=LATEST, now_ms=NOW_MS)
    single = [
        place
        for place, message in enumerate(of)
        if compiled.matches(
            message, number=3 + place, timestamp_ms=times[place], partition="0", latest=LATEST, now_ms=NOW_MS
        )
    ]
    if chosen != single:
        message = f"all at once {chosen}, one by one {single}"
        raise WrongError(message)
    return f"chose {len(chosen)} of {len(of)}"


def check_refusal(error: PeerError, condition: str, characters: int | None = None) -> str:
    """That an attach refused for its filters says which and where; the reason without what was quoted.

    Raises:
        WrongError: it does not.
    """
    position = error.info.get("position")
    if error.condition != condition or error.info.get("field") != "filter" or "filter" not in error.info:
        message = f"refused with {error.condition} {error.info}"
        raise WrongError(message)
    if position is not None and (
        not str(position).isdecimal()
        or int(position) < 1
        or (characters is not None and int(position) > characters + 1)
    ):
        message = f"position {position} of a text of {characters} characters"
        raise WrongError(message)
    return "".join(
        "#" if character.isdigit() else character
        for character in error.description.split(":", 1)[-1].split("'")[0][:60]
    )
