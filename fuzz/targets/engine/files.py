"""The files of a data directory, changed at any bytes: segments, indexes, journals, states, catalogue,
checkpoint. The store opens or names the file that keeps it from that; what it serves is what was written; a
loss is reported. What each format writes, it reads.
"""

import copy
from functools import cache
from typing import Final

from amqp_streams.errors import StorageError
from amqp_streams.storage.catalog import seal, unseal
from amqp_streams.storage.formats import producers, state_record
from amqp_streams.testing import FaultyFiles
from fuzz.draw import Draw
from fuzz.target import Target, WrongError
from tests.amqp_streams.storage.conftest import open_inline
from tests.crash import test_damage as damage

_KINDS: Final = tuple(damage.FILES)
_DIRECTORY: Final = 7
_COMMIT_MAX: Final = 4
"""Events of a partition in the last commit: after a kill, damage to its record looks like a write that the
kill cut off.
"""


def run(data: bytes) -> str:
    """The first byte chooses: a whole directory, or one format."""
    draw = Draw(data)
    match draw.byte() % 4:
        case 0:
            return _states(draw)
        case 1:
            return _sealed(draw)
        case _:
            return _directory(draw)


@cache
def _built(*, clean: bool) -> tuple[FaultyFiles, damage.Written]:
    return damage.BUILT[clean]


def _directory(draw: Draw) -> str:
    clean = draw.chance(2)
    files, written = copy.deepcopy(_built(clean=clean))
    kinds = [draw.pick(_KINDS) for _ in range(1 + draw.below(3))]
    for kind in kinds:
        path = damage.FILES[kind](files)
        if draw.chance(12):
            files.unlink(path)
            files.fsync_dir(path.parent)
            break
        files.damage(path, lambda content: _change(content, draw))
    only_journal = not clean and all(kind.startswith("journal") for kind in kinds)
    if len(set(kinds)) == 1 and not only_journal:
        damage._check(files, written, kinds[0], clean=clean)
        return f"opened, {kinds[0]} {clean}"
    try:
        hand = open_inline(files)
    except StorageError as error:
        if not str(error).strip():
            raise WrongError("a StorageError without words") from error
        return f"not opened {sorted(set(kinds))}"
    refused = 0
    log = hand.store.logs.get("log")
    for partition in log.partitions if log is not None else ():
        ours = written[partition.index]
        refused += len(damage._read_what_can_be(partition, ours))
        if only_journal and len(ours) - partition.end > _COMMIT_MAX and not hand.store.findings:  # type: ignore[attr-defined]
            message = (
                f"{len(ours) - partition.end} events of partition {partition.index} are lost, and "
                f"nothing says so"
            )
            raise WrongError(message)
    return f"opened {sorted(set(kinds))} {refused > 0}"


def _change(content: bytearray, draw: Draw) -> None:
    for _ in range(1 + draw.below(4)):
        at = draw.number(4) % (len(content) + 1)
        match draw.below(5):
            case 0 if at < len(content):
                content[at] ^= 1 << draw.below(8)
            case 1:
                del content[at:]
            case 2:
                content[at:at] = draw.raw(32)
            case 3:
                source = draw.number(4) % (len(content) + 1)
                content[at : at + 64] = content[source : source + 64]
            case _:
                content[at : at + 16] = draw.raw(16)


def _states(draw: Draw) -> str:
    """A file of states: written and read; with records that have the right checksum, whatever they say."""
    values = {draw.text(6): draw.raw(20) for _ in range(draw.below(6))}
    try:
        changes = state_record.checked(values, {})
    except ValueError as error:
        return str(error)[:20]
    written = state_record.encode_file(
        {key: value for key, value in changes.items() if value is not None}, _DIRECTORY
    )
    read = state_record.read(written, _DIRECTORY)
    if dict(read.values) != values or read.holes:
        message = f"{values!r} is read as {read!r}"
        raise WrongError(message)
    cut = bytearray(written)
    _change(cut, draw)
    again = state_record.read(bytes(cut), _DIRECTORY)
    if any(values.get(key) != value for key, value in again.values.items()):
        message = f"{again.values!r} of {values!r}"
        raise WrongError(message)
    table: producers.Table = {}
    producers.apply(table, {key: len(value) for key, value in values.items()}, 5)
    if producers.decode_table(producers.encode_table(table)) != table:
        message = f"{table!r} is not the same after it was written"
        raise WrongError(message)
    return f"{len(values)} states, {len(again.holes)} holes"


def _sealed(draw: Draw) -> str:
    """The catalogue's JSON with its checksum: of anything it is what was sealed, or nothing."""
    content: dict[str, object] = {
        draw.text(4): draw.pick((1, "x", None, [1], {}, 1 << 70)) for _ in range(draw.below(5))
    }
    whole = seal(content)
    if unseal(whole) != content:
        message = f"{content!r} is read as {unseal(whole)!r}"
        raise WrongError(message)
    changed = bytearray(whole)
    _change(changed, draw)
    found = unseal(bytes(changed))
    if found not in (None, content):
        message = f"{content!r} with changed bytes is read as {found!r}"
        raise WrongError(message)
    unseal(draw.rest())
    return f"sealed {found is None}"


TARGET: Final = Target("files", run, seconds_max=2.0, bytes_max=64 << 20, share=1.5)
