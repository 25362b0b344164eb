"""How to read an event with other programs. Pure."""

import shlex


def as_command(url: str, log: str, partition: str, offset: int) -> str:
    """Return the command that prints an event."""
    return shlex.join(
        [
            "amqp-streams",
            "receive",
            log,
            "--url",
            url,
            "--partition",
            partition,
            "--from",
            str(offset),
            "--max",
            "1",
        ]
    )


def as_python(url: str, log: str, partition: str, offset: int) -> str:
    """Return a program that reads an event."""
    return (
        "from amqp_streams.client.blocking import connect\n\n"
        f"with connect({url!r}) as client:\n"
        f"    for run in client.read_range({log!r}, {partition!r}, {offset}, {offset + 1}):\n"
        "        for message in run.messages:\n"
        "            print(message)\n"
    )
