"""The command line: knative-gateway."""

from knative_gateway.cli.program import main

__all__ = ["main"]
