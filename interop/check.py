"""`make interop`: each client sends a year of temperatures and reads it back; every line is checked.

Ends with 1 if one of them fails.
"""

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from examples.node import NodeProcess
from interop.clients import BATCHES, CLIENTS, Command, MissingError, prepare

Row = tuple[str, str, int, str]
"""Partition, offset, timestamp in ms, body."""

_CSV = Path(__file__).parent.parent / "examples" / "temperatures" / "seattle-temps.csv"
_AFTER = f"{1000:016d}"


class WrongError(Exception):
    """What a client printed is not what it should have."""


def main(names: Sequence[str]) -> int:
    """Check these clients, or all."""
    unknown = [name for name in names if name not in CLIENTS]
    if unknown:
        print(f"no client named {unknown[0]!r}; the clients are {', '.join(CLIENTS)}", file=sys.stderr)
        return 2
    failed = False
    rows = _CSV.read_text().splitlines()[1:]
    with (
        tempfile.TemporaryDirectory() as folder,
        NodeProcess(Path(folder), log=[f"{name}:4" for name in CLIENTS]) as node,
    ):
        for name in names or CLIENTS:
            began = time.monotonic()
            try:
                _check(prepare(name), node.url, name, rows)
            except MissingError as error:
                print(f"{name:10} skipped: {error}")
            except (WrongError, RuntimeError) as error:
                failed = True
                print(f"{name:10} FAILED: {error}")
            else:
                print(
                    f"{name:10} ok: sent {len(rows):,}, read from earliest, offset and time, $info"
                    f" ({time.monotonic() - began:.1f} s)"
                )
        if failed:
            print(node.words, file=sys.stderr)
    return int(failed)


def _check(client: Command, url: str, name: str, rows: Sequence[str]) -> None:
    log = name
    accepted = client.run("send", url, log, lines="".join(f"{row}\n" for row in rows)).strip()
    _same("accepted", accepted, str(len(rows)))
    everything = _read(client, url, log, "earliest", len(rows))
    _same("bodies", sorted(row[3] for row in everything), sorted(rows))
    for partition in {row[0] for row in everything}:
        ours = [row for row in everything if row[0] == partition]
        _same("offsets", [row[1] for row in ours], [f"{offset:016d}" for offset in range(len(ours))])
        _same(
            "order", [row[3] for row in ours], sorted(row[3] for row in ours)
        )  # the rows are in the order of their dates
    later = [row for row in everything if row[1] > _AFTER]
    _same(
        "from an offset", _by_place(_read(client, url, log, f"offset:{_AFTER}", len(later))), _by_place(later)
    )
    moment = sorted(row[2] for row in everything)[len(everything) // 2]
    later = [row for row in everything if row[2] > moment]
    _same("from a time", _by_place(_read(client, url, log, f"time:{moment}", len(later))), _by_place(later))
    ends = {row[0]: row[1] for row in everything}
    info = sorted(f"{partition}\t{0:016d}\t{end}" for partition, end in ends.items())
    _same("$info", client.run("info", url, log).splitlines(), info)
    if name in BATCHES:
        in_batches = [client.run("batches", url, log, partition).splitlines() for partition in ends]
        _same(
            "in batches",
            sorted(line for lines in in_batches for line in lines),
            sorted("\t".join(map(str, row)) for row in everything),
        )


def _read(client: Command, url: str, log: str, where: str, count: int) -> list[Row]:
    fields = [line.split("\t") for line in client.run("receive", url, log, where, str(count)).splitlines()]
    return [(partition, offset, int(moment), body) for partition, offset, moment, body in fields]


def _by_place(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row[0])  # stable: the order within a partition stays as it came


def _same(what: str, got: object, wanted: object) -> None:
    if got != wanted:
        message = f"{what}: {str(got)[:300]} instead of {str(wanted)[:300]}"
        raise WrongError(message)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
