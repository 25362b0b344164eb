"""Runs a test with the loops of one kind: those in Python, or the compiled ones."""

from typing import Final

import pytest

from amqp_streams.client.connection import protocol
from amqp_streams.proton import compiled, engine, events, incoming, receiving, sending
from amqp_streams.server import connection

KINDS: Final = ("in_python", "compiled")


def use_loops(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Make node and client call the loops of this kind. Skips the test if they are not installed."""
    if kind == "compiled" and compiled.loops is None:
        pytest.skip(f"the compiled loops are not built here, or {compiled.PURE_VARIABLE} is set")
    for module, names in (
        (engine, ("take_output",)),
        (events, ("pass_deliveries", "settle_accepted")),
        (receiving, ("receive",)),
        (sending, ("send_records",)),
    ):
        for name in names:
            monkeypatch.setattr(module, name, getattr(module, f"{name}_{kind}"))
    monkeypatch.setattr(sending, "join_sections", sending.join_sections if kind == "compiled" else None)
    monkeypatch.setattr(receiving, "split_sections", receiving.split_sections if kind == "compiled" else None)
    for user in (connection, protocol):
        monkeypatch.setattr(user, "plainness", incoming.plainness if kind == "compiled" else None)
