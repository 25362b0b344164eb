"""Faults that the engine only logs: from then on it processes nothing and sends heartbeats.

Clients look for them.
"""

from typing import Final

import cproton
from cproton_ffi import lib

from amqp_streams.proton.engine import Engine
from amqp_streams.proton.pointers import Pointer

_FAULT: Final = "process error"


def watch_faults(engine: Engine) -> list[str]:
    """A list that gets the text of each fault of this connection, the first being why it stopped."""
    faults: list[str] = []

    def note(
        _transport: Pointer, words: str
    ) -> None:  # has no reference to the engine, whose memory keeps this function
        if _FAULT in words and not faults:
            faults.append(words)

    record = lib.pn_transport_attachments(engine.transport)
    cproton.pn_record_def_py(record)
    cproton.pn_record_set_py(record, {})
    cproton.pn_transport_set_pytracer(engine.transport, note)
    return faults
