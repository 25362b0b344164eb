"""`make attack`: run the attacks, print the table, and say what did not hold.

    python -m attack [--table NAME ...] [--attack TEXT ...] [--short] [--json] [--out FILE]

Exit status 0 when every attack ended within its limit and the neighbour kept working; 1 when not; 3 when
nothing is broken, but the p99 of a neighbour could not be judged, because other programs used the CPUs or the
disk paused. The p99 is judged unless --short is given: use a machine that does nothing else. On a disk that
pauses by itself, use a folder in memory for the data: TMPDIR=/dev/shm.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from attack import disk
from attack.kafka_room import kafka_room, why_not
from attack.load import Load, give_way
from attack.neighbour import Measured
from attack.report import Attack, Found, Place, Table, is_quiet, judged, table
from attack.room import Room, gateway_room, gateway_tls_room, node_room
from attack.tables import all_attacks
from bench import connections

BEFORE_S: Final = 4.0
DURING_S: Final = 5.0
DURING_SMALL_S: Final = 0.1
"""The neighbour then has a round trip or two."""

ROOMS_AT_ONCE: Final = 2
"""Of each place, in the short form, beside the room of the attacks that wait."""

NOT_JUDGED: Final = 3
"""Exit status."""

FILES: Final = 8192
"""Each connection of an attacker is one."""

Rooms = Callable[..., AbstractContextManager[Room]]
ROOMS: Final[dict[Place, Rooms]] = {
    Place.NODE: node_room,
    Place.GATEWAY: gateway_room,
    Place.GATEWAY_TLS: gateway_tls_room,
    Place.KAFKA: kafka_room,
}


def run(
    attacks: Sequence[Attack], folder: Path, *, is_small: bool, report: Callable[[Found], None]
) -> list[Found]:
    """Run the attacks, those of one place in one room.

    The short form mostly waits and judges no time: it uses several rooms of a place at the same time, if they
    need no brokers.
    """
    rows: list[Found] = []
    for place in Place:
        chosen = [each for each in attacks if each.place is place]
        if not chosen:
            continue
        if is_small and place is not Place.KAFKA:
            rows += _short(chosen, folder / place, report)
            continue
        with ROOMS[place](folder / place, is_small=is_small) as room:
            for attack in chosen:
                rows.append(one(attack, room))
                report(rows[-1])
    return rows


def _short(attacks: Sequence[Attack], folder: Path, report: Callable[[Found], None]) -> list[Found]:
    """The attacks of one place: those that wait in a room of their own, the others in ROOMS_AT_ONCE rooms."""
    patient = [each for each in attacks if each.is_patient]
    others = [each for each in attacks if not each.is_patient]
    parts = [patient, *(others[start::ROOMS_AT_ONCE] for start in range(ROOMS_AT_ONCE))]

    def in_room(number: int) -> list[Found]:
        part, rows = parts[number], []
        if part:
            with ROOMS[part[0].place](folder / str(number), is_small=True) as room:
                for row in at_once(part, room) if part is patient else (one(each, room) for each in part):
                    rows.append(row)
                    report(row)
        return rows

    with ThreadPoolExecutor(len(parts)) as workers:
        return [row for rows in workers.map(in_room, range(len(parts))) for row in rows]


def one(attack: Attack, room: Room) -> Found:
    """One attack beside the neighbour."""
    is_timed = attack.is_judged and not room.is_small
    busy_s, is_calm = room.settle() if is_timed else (0.0, True)
    quiet = _Window(room)
    time.sleep(0.0 if room.is_small else BEFORE_S)
    quiet.end()
    before = room.measured_without(quiet.measured) if is_timed else {}
    got, complaints, cpu_s = "", [], room.cpu_s()
    attacked = _Window(room)
    try:
        with _attacking(attack, room, gives_way=is_timed) as got:
            time.sleep(DURING_SMALL_S if room.is_small else DURING_S)
            attacked.end()
    except Exception as error:  # noqa: BLE001  an attack that fails is reported, and the next one runs
        traceback.print_exc()
        complaints.append(f"{type(error).__name__}: {error}")
    during, foreign = attacked.measured, max(quiet.foreign, attacked.foreign)
    has_paused = is_timed and disk.has_paused(before, during, writes=attacked.writes_more_than(quiet))
    is_fair = is_timed and is_calm and is_quiet(foreign) and not has_paused
    complaints += judged(before, during, is_timed=is_fair)
    complaints += [f"after it: {words}" for words in judged({}, room.neighbour.take(), is_timed=False)]
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
        round(foreign, 3) if is_timed else None,
        has_paused,
        round(busy_s, 1),
        is_calm,
    )


class _Window:
    """What is measured from now until `end`. `foreign`: the share of all CPUs that other programs used."""

    def __init__(self, room: Room) -> None:
        self.measured: dict[str, Measured] = {}
        self.foreign = 0.0
        self._room: Final = room
        self._load: Final = Load(room.all_cpu_s)
        self._began: Final = time.monotonic()
        self._written: Final = room.written_bytes()
        self._seconds, self._bytes = 1.0, 0
        room.neighbour.take()

    def end(self) -> None:
        self.measured, self.foreign = self._room.neighbour.take(), self._load.share()
        self._seconds = time.monotonic() - self._began
        self._bytes = self._room.written_bytes() - self._written

    def writes_more_than(self, other: "_Window") -> bool:
        """Whether the product made the disk write more."""
        return disk.writes_more(other._bytes, other._seconds, self._bytes, self._seconds)


def at_once(attacks: Sequence[Attack], room: Room) -> list[Found]:
    """Run attacks of the short form that wait, all at the same time.

    What the neighbour and the process suffer is a complaint of each: nothing tells which one is to blame.
    """
    if not attacks:
        return []
    room.neighbour.take()
    cpu_s = room.cpu_s()
    with ThreadPoolExecutor(len(attacks)) as workers:
        ended = list(workers.map(partial(_waited, room=room), attacks))
    shared = [
        f"with {len(attacks)} attacks at once: {words}"
        for words in (*judged({}, room.neighbour.take(), is_timed=False), *room.is_well())
    ]
    used_s = (room.cpu_s() - cpu_s) / len(attacks)
    return [
        Found(
            attack.name,
            attack.table,
            attack.limit,
            got,
            {},
            {},
            (*complaints, *shared),
            tuple(sorted(attack.covers)),
            round(used_s, 2),
        )
        for attack, (got, complaints) in zip(attacks, ended, strict=True)
    ]


def _waited(attack: Attack, room: Room) -> tuple[str, list[str]]:
    """What the attacker got, and the complaints."""
    got = ""
    try:
        with _attacking(attack, room) as got:
            pass
    except Exception as error:  # noqa: BLE001  an attack that fails is reported
        traceback.print_exc()
        return got, [f"{type(error).__name__}: {error}"]
    return got, []


@contextmanager
def _attacking(attack: Attack, room: Room, *, gives_way: bool = False) -> Iterator[str]:
    """The attack, in a thread of its own. `gives_way`: with the lowest priority for the CPUs."""
    with ThreadPoolExecutor(1, initializer=give_way if gives_way else None) as attacker:
        steps = attack.run(room)
        yield attacker.submit(next, steps).result()
        if attacker.submit(next, steps, None).result() is not None:
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
    parser.add_argument(
        "--out", type=Path, help="write the table to this file as well, from the first attack on"
    )
    options = parser.parse_args(arguments)
    chosen = [
        each
        for each in all_attacks()
        if (not options.table or each.table in options.table)
        and not (options.short and each.is_long)
        and (not options.attack or any(text in each.name for text in options.attack))
    ]
    if not chosen:
        parser.error("no attack has this text in its name")
    if any(each.place is Place.KAFKA for each in chosen) and (why := why_not()):
        chosen = [each for each in chosen if each.place is not Place.KAFKA]
        print(f"attacks on nodes on Kafka are skipped: {why}", file=sys.stderr)
    connections.allow_files(FILES)
    folder, began = Path(tempfile.mkdtemp(prefix="attack-")), time.monotonic()
    ended: list[Found] = []

    def report(row: Found) -> None:
        ended.append(row)
        print(table([row]).split("\n", 1)[1], file=sys.stderr, flush=True)
        if options.out:
            _write(options.out, ended, f"{len(ended)} of {len(chosen)} attacks, not finished")

    try:
        rows = run(chosen, folder, is_small=options.short, report=report)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    verdicts = Counter(row.verdict for row in rows)
    summary = (
        f"{len(rows)} attacks in {(time.monotonic() - began) / 60:.0f} minutes,"
        f" {verdicts['BROKEN']} broken, {verdicts['not judged']} not judged"
    )
    print(json.dumps([row.as_json() for row in rows], indent=1) if options.json else table(rows))
    print(summary, file=sys.stderr)
    if options.out:
        _write(options.out, rows, summary)
    return 1 if verdicts["BROKEN"] else NOT_JUDGED if verdicts["not judged"] else 0


def _write(path: Path, rows: Sequence[Found], summary: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{table(rows)}\n\n{summary}\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
