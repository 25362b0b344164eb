"""The embedded log: record batches in segments, one journal for group commit, recovery and retention."""

from amqp_streams.storage.commits.flushing import Tuning
from amqp_streams.storage.directory_store import DirectoryStore
from amqp_streams.storage.findings import Finding, Severity

__all__ = ["DirectoryStore", "Finding", "Severity", "Tuning"]
