"""The state of the gateway in SQLite or PostgreSQL: objects, the watch feed, cursors, and histories."""

from knative_gateway.store.opening import Store, open_store, sqlite_url

__all__ = ["Store", "open_store", "sqlite_url"]
