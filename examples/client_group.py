"""Several consumers share the partitions of a log. Start it as often as you like; kill any: the others go on
with its partitions.

python examples/client_group.py amqp://127.0.0.1:5672 temps
python examples/client_group.py amqp://127.0.0.1:5672 temps --until-idle 2
"""

import argparse
import asyncio

from amqp_streams.client import ReceivedEvent, connect


async def work(event: ReceivedEvent) -> object:
    """What an application does with an event.

    What one was doing when it was killed is done again by the next: make that harmless.
    """
    await asyncio.sleep(0)
    return event.body


async def main(url: str, log: str, group: str, idle_s: float | None) -> None:
    async with (
        connect(url) as client,
        client.group_consumer(
            log,
            group,
            settle="manual",
            on_assigned=lambda partition: print(f"partition {partition} is ours", flush=True),
            on_revoked=lambda partition: print(f"partition {partition} went", flush=True),
        ) as consumer,
    ):
        done = 0
        while events := await consumer.receive(timeout=idle_s):
            for event in events:
                if event.revoked:
                    continue  # its partition moved while it waited here: it is the next owner's now
                await work(event)
                consumer.settle(event)  # from here on the group does not see it again
                done += 1
        print(f"{done} events done; the others get partitions {', '.join(consumer.partitions) or 'none'}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("log")
    parser.add_argument("--group", default="example")
    parser.add_argument(
        "--until-idle", type=float, metavar="SECONDS", help="stop when nothing came for so long"
    )
    options = parser.parse_args()
    asyncio.run(main(options.url, options.log, options.group, options.until_idle))
