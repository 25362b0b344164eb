"""What each kind of filter costs for a record: `python -m bench.filters [--records N]`.

One core, messages of 235 bytes with five application properties, of which one in a hundred passes. What
passes is made ready for delivery (annotations written, bytes joined); `no filter` is that for every record,
and the ratio is to it: below 1, a filter saves more than it costs. Sockets and disks are not in it.
"""

import argparse
import time
from array import array
from collections.abc import Mapping
from typing import Final

from amqp_streams.filters import compile_filters
from amqp_streams.wire.annotations import AnnotationWriter, assemble
from amqp_streams.wire.encoder import encode
from amqp_streams.wire.types import Described, Symbol, Timestamp, Value

_BATCH: Final = 256
_NO_HEADERS: Final = bytes(_BATCH)
_PASSING: Final = 100


def message(index: int) -> bytes:
    """A message like many: a header, three properties, five application properties, a body of a hundred
    bytes.
    """
    kind = "alarm" if index % _PASSING == 0 else f"kind-{index % _PASSING}"
    header = b"\x00\x53\x70\x45"
    properties = b"\x00\x53\x73" + encode(
        [f"id-{index:012d}", None, "events", "reading", None, None, Symbol("application/json")]
    )
    application = b"\x00\x53\x74" + encode(
        {"device": f"d-{index % 997}", "kind": kind, "level": index % 100, "value": index / 7, "ok": True}
    )
    return header + properties + application + b"\x00\x53\x75\xa0\x64" + bytes(100)


def sql(text: str) -> dict[str, Value]:
    """A source's filter set with one SQL filter."""
    return {"filter": Described(Symbol("amqp:sql-filter"), text)}


FILTERS: Final[dict[str, Mapping[str, Value]]] = {
    "SQL a.kind = 'alarm'": sql("a.kind = 'alarm'"),
    "SQL kind = 'alarm' AND level < 50": sql("kind = 'alarm' AND level < 50"),
    "application-properties {kind: alarm}": {
        "f": Described(Symbol("amqp:application-properties-filter"), {"kind": "alarm"})
    },
    "selector kind = 'alarm'": {
        "f": Described(Symbol("apache.org:selector-filter:string"), "kind = 'alarm'")
    },
    "SQL kind LIKE 'ala%'": sql("kind LIKE 'ala%'"),
    "SQL kind IN ('alarm', 'none')": sql("kind IN ('alarm', 'none')"),
    "SQL level = 0": sql("level = 0"),
    "SQL level * 2 + 1 < 3": sql("level * 2 + 1 < 3"),
    "SQL UPPER(kind) = 'ALARM'": sql("UPPER(kind) = 'ALARM'"),
    "SQL kind = 'alarm' OR level > 99": sql("kind = 'alarm' OR level > 99"),
    "SQL p.subject = 'none'": sql("p.subject = 'none'"),
    "SQL p.subject <> 'reading'": sql("p.subject <> 'reading'"),
    "SQL EXISTS(none)": sql("EXISTS(none)"),
    "SQL h.priority > 4": sql("h.priority > 4"),
    "properties {subject: none}": {"f": Described(Symbol("amqp:properties-filter"), {"subject": "none"})},
    "header {priority: 5}": {"f": Described(Symbol("amqp:header-filter"), {"priority": 5})},
    "any [kind = alarm, level = 200]": {
        "f": Described(
            Symbol("amqp:any-filter"),
            [
                Described(Symbol("amqp:application-properties-filter"), {"kind": "alarm"}),
                Described(Symbol("amqp:application-properties-filter"), {"level": 200}),
            ],
        )
    },
    "event-streams offset and timestamp": {
        "f": Described(
            Symbol("amqp:event-streams-delivery-annotations-filter"),
            {
                Symbol("event-streams-offset"): Symbol("0" * 16),
                Symbol("event-streams-timestamp"): Timestamp(1),
            },
        )
    },
    "false": {"f": Described(Symbol("amqp:false-filter"), True)},
}


def seconds(
    filters: Mapping[str, Value], messages: list[bytes], timestamps: "array[int]"
) -> tuple[float, int]:
    """The best of three passes over the messages, what passes made ready for delivery, and how many that
    were.
    """
    compiled = compile_filters(filters)
    writer = AnnotationWriter("0")
    best, passed = float("inf"), 0
    for _ in range(3):
        began = time.perf_counter()
        passed = 0
        for start in range(0, len(messages), _BATCH):
            end = min(start + _BATCH, len(messages))
            if compiled.content or filters:
                chosen = compiled.select(
                    messages, 0, timestamps, partition="0", latest=len(messages), start=start, end=end
                )
            else:
                chosen = list(range(start, end))
            written = writer.runs(start, [timestamps[index] for index in chosen])
            passed += len(
                assemble(written, [messages[index] for index in chosen], _NO_HEADERS[: len(chosen)])
            )
        best = min(best, time.perf_counter() - began)
    return best, passed


def main() -> None:
    """Measure each kind and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=50_000, metavar="N")
    count: int = parser.parse_args().records
    messages = [message(index) for index in range(count)]
    timestamps = array("q", range(1, count + 1))
    none, _ = seconds({}, messages, timestamps)
    print(f"{count} messages of {sum(map(len, messages)) // count} bytes, five application properties")
    print(f"{'filter':42} {'passed':>7} {'records/s':>12} {'us/record':>10} {'ratio':>6}")
    for name, filters in {"no filter": {}, **FILTERS}.items():
        taken, passed = seconds(filters, messages, timestamps)
        print(f"{name:42} {passed:7} {count / taken:12,.0f} {taken / count * 1e6:10.3f} {taken / none:6.2f}")


if __name__ == "__main__":
    main()
