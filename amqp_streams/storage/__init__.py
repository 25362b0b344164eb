"""The embedded log: record batches in segments, one journal for group commit, recovery and retention."""

from amqp_streams.storage.directory_store import DirectoryStore
from amqp_streams.storage.findings import Finding, Severity
from amqp_streams.storage.flushing import Tuning

__all__ = ["DirectoryStore", "Finding", "Severity", "Tuning"]
