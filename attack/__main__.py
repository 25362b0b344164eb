"""`make attack`: run the attacks, print the table, and say what did not hold.

    python -m attack [--table NAME ...] [--attack TEXT ...] [--short] [--json]

Exit status 0 when every attack ended within its limit and the neighbour kept working; 1 otherwise. The p99 of
the neighbour is judged unless --short is given: do it on a machine that does nothing else.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from attack.report import Attack, Found, Place, Table, judged, table
from attack.room import Room, gateway_room, gateway_tls_room, node_room
from attack.tables import all_attacks
from bench import connections

BEFORE_S: Final = 4.0
DURING_S: Final = 5.0
DURING_SMALL_S: Final = 0.25
"""The neighbour then has a round trip or two."""

FILES: Final = 8192
"""Each connection of an attacker is one."""

Rooms = Callable[..., AbstractContextManager[Room]]
ROOMS: Final[dict[Place, Rooms]] = {
    Place.NODE: node_room,
    Place.GATEWAY: gateway_room,
    Place.GATEWAY_TLS: gateway_tls_room,
}


def run(
    attacks: Sequence[Attack], folder: Path, *, is_small: bool, told: Callable[[Found], None]
) -> list[Found]:
    """Run the attacks, those of one place in one room."""
    rows: list[Found] = []
    for place in Place:
        chosen = [each for each in attacks if each.place is place]
        if not chosen:
            continue
        with ROOMS[place](folder / place, is_small=is_small) as room:
            for attack in chosen:
                rows.append(one(attack, room))
                told(rows[-1])
    return rows


def one(attack: Attack, room: Room) -> Found:
    """One attack beside the neighbour."""
    is_quiet = attack.is_judged and not room.is_small
    room.neighbour.take()
    time.sleep(0.0 if room.is_small else BEFORE_S)
    before = room.neighbour.take() if is_quiet else {}
    got, complaints, cpu_s = "", [], room.cpu_s()
    during = {}
    try:
        with _attacking(attack, room) as got:
            time.sleep(DURING_SMALL_S if room.is_small else DURING_S)
            during = room.neighbour.take()
    except Exception as error:  # noqa: BLE001  an attack that fails is reported, and the next one runs
        traceback.print_exc()
        complaints.append(f"{type(error).__name__}: {error}")
    complaints += judged(before, during, is_quiet=is_quiet)
    complaints += [f"after it: {words}" for words in judged({}, room.neighbour.take(), is_quiet=False)]
    complaints += room.is_well()
    return Found(
        attack.name,
        attack.table,
        attack.limit,
        got,
        {name: round(each.p99, 1) for name, each in before.items()},
        {name: round(each.p99, 1) for name, each in during.items()},
        tuple(complaints),
        tuple(sorted(attack.covers)),
        round(room.cpu_s() - cpu_s, 2),
    )


@contextmanager
def _attacking(attack: Attack, room: Room) -> Iterator[str]:
    steps = attack.run(room)
    yield next(steps)
    for _ in steps:
        message = f"{attack.name} yields more than once"
        raise RuntimeError(message)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen attacks one after the other."""
    parser = argparse.ArgumentParser(
        prog="python -m attack", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--table", action="append", choices=[each.value for each in Table], help="only this one"
    )
    parser.add_argument("--attack", action="append", help="only attacks whose name contains this text")
    parser.add_argument("--short", action="store_true", help="small limits; the p99 is not judged")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args(arguments)
    chosen = [
        each
        for each in all_attacks()
        if (not options.table or each.table in options.table)
        and not (options.short and each.is_long)
        and (not options.attack or any(text in each.name for text in options.attack))
    ]
    connections.allow_files(FILES)
    folder = Path(tempfile.mkdtemp(prefix="attack-"))
    try:
        rows = run(
            chosen,
            folder,
            is_small=options.short,
            told=lambda row: print(table([row]).split("\n", 1)[1], file=sys.stderr, flush=True),
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps([row.as_json() for row in rows], indent=1) if options.json else table(rows))
    broken = [row for row in rows if row.complaints]
    print(f"{len(rows)} attacks, {len(broken)} broken", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
