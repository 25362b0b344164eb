"""Watches."""

from knative_gateway.api.watching.watches import Client, Watches, watch_of

__all__ = ["Client", "Watches", "watch_of"]
