"""The I/O shell of the event log node: listeners, connections, the bridge to Proton's engine."""

from amqp_streams.server.run import run, serve

__all__ = ["run", "serve"]
