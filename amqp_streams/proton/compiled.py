"""The compiled loops of `_loops.c`, where this installation has them. See docs/compiled-loops.md.

The module is built with the wheel when a C compiler is there. Without it, or with AMQP_STREAMS_PURE=1 in the
environment, the loops in Python do the same more slowly: `receiving`, `sending`, `outcomes` and `events`
choose once, when they are imported.
"""

import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, overload

from cproton_ffi import ffi, lib

from amqp_streams.proton.pointers import Pointer

PURE_VARIABLE: Final = "AMQP_STREAMS_PURE"
"""The environment variable that disables the compiled loops, with any value but an empty one."""

FUNCTIONS: Final = (
    "pn_link_current",
    "pn_delivery_pending",
    "pn_delivery_partial",
    "pn_delivery_aborted",
    "pn_link_recv",
    "pn_link_advance",
    "pn_delivery",
    "pn_link_send",
    "pn_delivery_update",
    "pn_delivery_settle",
    "pn_delivery_remote_state",
    "pn_collector_peek",
    "pn_collector_pop",
    "pn_event_type",
    "pn_event_delivery",
    "pn_transport_peek",
    "pn_transport_pop",
)
"""The engine's functions that `_loops.c` calls, in the order of its structure `engine`."""

_DELIVERY: Final = ffi.typeof("pn_delivery_t *")
_ADDRESS: Final = ffi.typeof("uintptr_t")


def _load() -> Any:
    """Return the compiled module, connected to the engine; None if it is missing or disabled."""
    if os.environ.get(PURE_VARIABLE):
        return None
    try:
        module = import_module("amqp_streams.proton._loops")
    except ImportError:
        # The module is optional: the same functions exist in Python.
        return None
    addresses = ffi.new("void *[]", [ffi.addressof(lib, name) for name in FUNCTIONS])
    module.bind(bytes(ffi.buffer(addresses)), lib.PN_DELIVERY, lib.PN_ACCEPTED)
    return module


loops: Final = _load()
KIND: Final = "python" if loops is None else "compiled"
"""Which loops this process uses, for the log."""


def address(pointer: Pointer) -> int:
    """Return the address of an object of the engine, as the compiled loops take it."""
    return int(ffi.cast(_ADDRESS, pointer))


class Deliveries(Sequence[Pointer]):
    """Deliveries as the compiled loops return them.

    They occupy 8 bytes each, and become pointers only where Python looks at one. `addresses`: what the
    compiled loops take.
    """

    __slots__ = ("addresses",)

    def __init__(self) -> None:
        self.addresses: Final = loops.Deliveries()

    def __len__(self) -> int:
        return len(self.addresses)

    @overload
    def __getitem__(self, index: int) -> Pointer: ...
    @overload
    def __getitem__(self, index: slice) -> list[Pointer]: ...
    def __getitem__(self, index: int | slice) -> Pointer | list[Pointer]:
        if isinstance(index, slice):
            return [self[number] for number in range(len(self))[index]]
        return ffi.cast(_DELIVERY, self.addresses[index])

    def append(self, delivery: Pointer) -> None:
        """Add a delivery."""
        self.addresses.append(address(delivery))
