"""`make scale`: run the cases, print a table, and say which bounds did not hold.

    python -m bench.scale [--case NAME ...] [--share 0.1] [--json]

Exit status 0 when every case reached its end and held its bounds; 1 otherwise.
"""

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.scale import gateway_cases, node_cases
from bench.scale.report import Found, table

WIDE_EVENTS: Final = 2000
LINK_EVENTS: Final = 16
GROUP_EVENTS: Final = 16
PROBE_MS_MAX: Final = 1000.0
REST_PERCENT_MAX: Final = 5.0
BESIDE_S_MAX: Final = 1.0


@dataclass(frozen=True, slots=True)
class Case:
    """One case at its full size; `run` takes an empty folder and the size."""

    size: int
    run: Callable[[Path, int], Awaitable[Found]]


CASES: Final = {
    "brokers": Case(200, gateway_cases.many_brokers),
    "partitions": Case(1024, lambda folder, size: gateway_cases.wide_broker(folder, size, WIDE_EVENTS)),
    "triggers": Case(1000, gateway_cases.many_triggers),
    "burst": Case(300, gateway_cases.burst),
    "links": Case(
        1000, lambda folder, size: node_cases.many_links(folder, size, min(1024, size + 24), LINK_EVENTS)
    ),
    "groups": Case(1000, lambda folder, size: node_cases.many_groups(folder, size, GROUP_EVENTS)),
    "connections": Case(5000, node_cases.many_connections),
}


def complaints(row: Found) -> list[str]:
    """The bounds that a case did not hold, in words."""
    said = []
    if row.probe_failed:
        said.append(f"{row.case}: {row.probe_failed} probes failed")
    if row.probe_p99_ms > PROBE_MS_MAX:
        said.append(
            f"{row.case}: the 99th percentile of the probes is {row.probe_p99_ms} ms, more than"
            f" {PROBE_MS_MAX:g}"
        )
    said += [
        f"{row.case}: {name} uses {cost.rest_percent} % of a core at rest, more than {REST_PERCENT_MAX:g}"
        for name, cost in row.costs.items()
        if cost.rest_percent > REST_PERCENT_MAX
    ]
    beside = row.notes.get(gateway_cases.BESIDE, 0.0)
    if beside > BESIDE_S_MAX:
        said.append(
            f"{row.case}: an unrelated object took {beside} s to be Ready, more than {BESIDE_S_MAX:g}"
        )
    return said


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen cases one after the other."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.scale",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--case", action="append", choices=list(CASES), help="only this one; may be given several times"
    )
    parser.add_argument("--share", type=float, default=1.0, help="of the full size of each case")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args(arguments)
    rows: list[Found] = []
    failures: list[str] = []
    for name in options.case or CASES:
        case = CASES[name]
        print(f"{name} ...", file=sys.stderr, flush=True)
        folder = Path(tempfile.mkdtemp(prefix=f"scale-{name}-"))
        try:
            rows.append(asyncio.run(_run(case, folder, max(1, round(case.size * options.share)))))
        except Exception as error:  # noqa: BLE001  a case that fails is reported, and the next one runs
            traceback.print_exc()
            failures.append(f"{name}: {type(error).__name__}: {error}")
        else:
            print(table(rows[-1:]), file=sys.stderr, flush=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    failures += [words for row in rows for words in complaints(row)]
    print(json.dumps([row.as_json() for row in rows], indent=1) if options.json else table(rows))
    for words in failures:
        print(f"FAILED {words}", file=sys.stderr)
    return 1 if failures else 0


async def _run(case: Case, folder: Path, size: int) -> Found:
    return await case.run(folder, size)


if __name__ == "__main__":
    sys.exit(main())
