"""How fast a node on Kafka is, beside what people could use instead: `python -m bench.kafka_store`.

In one run, in turns: the node on three Kafka brokers; confluent-kafka used directly from Python with the same
brokers; the node with a data directory; RabbitMQ's quorum queues, if `make peers` installed RabbitMQ. All
processes share the cores of this machine. Prints a table with ratios, and with `--json FILE` writes the
figures. The exit status is 0 if everything that is installed was measured.

    --parts batched,one,paced,far,numbered    what is measured: in batches, one by one, latency, far readers,
                                              idempotent producers beside plain ones
    --against FOLDER                 another source tree: its nodes are measured as well
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException

from bench import load
from bench.compare.figures import short
from bench.kafka_store import cells, numbered
from bench.kafka_store.cells import IN_BATCHES, ONE_BY_ONE, Cell
from bench.kafka_store.products import COUNTS, DIRECT, KAFKA, PRODUCTS, RABBIT, RATE, Bench, Found, Plan, tell
from bench.products import kafka_cluster
from bench.run import machine

PARTS: Final = ("batched", "one", "paced", "far", "numbered")
GOALS: Final = {(IN_BATCHES, DIRECT): 0.7, (ONE_BY_ONE, RABBIT): 1.5}
"""The least ratio of the node on Kafka to another."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the table."""
    options = _options(arguments)
    if why := kafka_cluster.why_not():
        print(f"Kafka: {why}", file=sys.stderr)
        return 1
    load.build()
    wanted = {how for how, part in ((IN_BATCHES, "batched"), (ONE_BY_ONE, "one")) if part in options.parts}
    plan = Plan(
        cells=[Cell(how, way, size) for how, size in COUNTS if how in wanted for way in ("in", "out")],
        rounds=options.rounds,
        share=options.share,
        against=options.against,
        paced="paced" in options.parts,
        readers=options.readers if "far" in options.parts else (),
        backlog=options.backlog,
        numbered="numbered" in options.parts,
    )
    with tempfile.TemporaryDirectory(prefix="kafka-store-") as name:
        bench = Bench(plan, Path(name))
        alone = [bench.with_directory, bench.with_rabbit] if plan.cells or plan.paced else []
        for step in (bench.with_kafka, *alone):
            try:
                step()
            # What was measured before is worth a table.
            except (RuntimeError, OSError, KafkaException) as error:
                bench.found.failures.append(f"{step.__name__}: {error}")
    print(table(bench.found, plan.cells))
    if options.json:
        options.json.write_text(json.dumps(_plain(bench.found), indent=1) + "\n")
    for failure in bench.found.failures:
        tell(failure)
    return 1 if bench.found.failures else 0


def table(found: Found, chosen: Sequence[Cell]) -> str:
    """The figures as tables in Markdown."""
    lines = [
        f"{machine()}.",
        "",
        "| cell | product | events/s | ratio | goal | reached | CPU us: node or RabbitMQ | Kafka | client |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for cell in chosen:
        ours = found.median(KAFKA, cell)
        for product in PRODUCTS:
            figure = found.median(product, cell)
            if figure is None:
                continue
            ratio = None if ours is None or product == KAFKA else ours.rate / figure.rate
            goal = GOALS.get((cell.how, product))
            lines.append(
                f"| {cell.name} | {product} | {short(figure.rate)} |"
                f" {'' if ratio is None else f'{ratio:.2f}'} | {'' if goal is None else f'>= {goal}'} |"
                f" {'' if goal is None or ratio is None else 'yes' if ratio >= goal else 'no'} |"
                f" {figure.serving_us:.2f} | {figure.brokers_us:.2f} | {figure.client_us:.2f} |"
            )
    for product, milliseconds in found.latencies.items():
        words = ", ".join(f"{name} {value} ms" for name, value in milliseconds.items() if name != "n")
        lines += ["", f"{product}, {RATE} events a second: {words}"]
    if found.producers:
        lines += numbered.table(found.producers)
    return "\n".join([*lines, "", *(shares.words() for shares in found.shares)])


def _plain(found: Found) -> dict[str, object]:
    return {
        "machine": machine(),
        "figures": [
            {"product": product, "cell": cell.name, **asdict(cells.median(several))}
            for (product, cell), several in found.figures.items()
        ],
        "latencies_ms": found.latencies,
        "far": [asdict(shares) for shares in found.shares],
        "numbered": {kind: asdict(sent) for kind, sent in found.producers.items()},
        "failures": found.failures,
    }


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.kafka_store",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--parts", type=lambda text: text.split(","), default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--share", type=float, default=1.0, help="of the events of each cell")
    parser.add_argument("--against", help="another source tree")
    parser.add_argument(
        "--readers", type=lambda text: [int(one) for one in text.split(",")], default=[1, 8, 200]
    )
    parser.add_argument(
        "--backlog", type=int, default=200_000, help="events that far readers have before them"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
