"""Faults that Proton only logs.

After such a fault it processes nothing more, but continues to send heartbeats, so the connection appears
alive. Clients check for them.
"""

from typing import Final

import cproton
from cproton_ffi import lib

from amqp_streams.proton.engine import Engine
from amqp_streams.proton.pointers import Pointer

_FAULT: Final = "process error"


def watch_faults(engine: Engine) -> list[str]:
    """Return a list that receives the text of the first fault of this connection."""
    faults: list[str] = []

    # Must not reference the engine: the engine's memory keeps this function alive.
    def note(_transport: Pointer, words: str) -> None:
        if _FAULT in words and not faults:
            faults.append(words)

    # The binding's tracer needs a record on the transport, which its own classes usually create.
    record = lib.pn_transport_attachments(engine.transport)
    cproton.pn_record_def_py(record)
    cproton.pn_record_set_py(record, {})
    cproton.pn_transport_set_pytracer(engine.transport, note)
    return faults
