"""A node on Kafka as a process of its own, for tests, measurements and `make cluster`."""

from examples.node import NodeProcess


class KafkaNode(NodeProcess):
    """A node that keeps nothing in its folder but its words. The options name the store."""

    def command(self) -> list[str]:
        """See `NodeProcess.command`."""
        command = super().command()
        at = command.index("--data-dir")
        return [*command[:at], *command[at + 2 :]]
