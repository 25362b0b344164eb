"""The command line: amqp-streams."""

from amqp_streams.cli.program import main

__all__ = ["main"]
