"""The source and target of a link (AMQP 3.5): what the peer sent, and what this side sends."""

from collections.abc import Mapping, Sequence
from typing import Final

from cproton_ffi import lib

from amqp_streams.proton.pointers import Pointer
from amqp_streams.proton.values import text, write_map, write_symbols

_KEPT: Final = (lib.PN_CONFIGURATION, lib.PN_DELIVERIES)


class Terminus:
    """The source or target of a link, as this side or the peer describes it.

    Valid as long as the link's pointer.
    """

    __slots__ = ("_pointer",)

    def __init__(self, pointer: Pointer) -> None:
        self._pointer: Final = pointer

    # -- what it says

    @property
    def absent(self) -> bool:
        """Whether the terminus is null.

        The attach was refused (AMQP 2.6.3), or the terminus no longer exists.
        """
        return bool(lib.pn_terminus_get_type(self._pointer) == lib.PN_UNSPECIFIED)

    @property
    def is_coordinator(self) -> bool:
        """Whether it is a transaction coordinator."""
        return bool(lib.pn_terminus_get_type(self._pointer) == lib.PN_COORDINATOR)

    @property
    def address(self) -> str | None:
        """The address, cut at a NUL character. None if the terminus has none."""
        return text(lib.pn_terminus_get_address(self._pointer)) or None

    @property
    def dynamic(self) -> bool:
        """Whether the peer must create a node and its address."""
        return bool(lib.pn_terminus_is_dynamic(self._pointer))

    @property
    def outlives_link(self) -> bool:
        """Whether it is kept after the link ends and never expires (AMQP 3.5.5, 3.5.6)."""
        kept = lib.pn_terminus_get_durability(self._pointer) in _KEPT
        return bool(kept and lib.pn_terminus_get_expiry_policy(self._pointer) == lib.PN_EXPIRE_NEVER)

    @property
    def filters(self) -> Pointer:
        """The filter set of a source, for `values`."""
        return lib.pn_terminus_filter(self._pointer)

    @property
    def capabilities(self) -> Pointer:
        """The capabilities, for `values`."""
        return lib.pn_terminus_capabilities(self._pointer)

    # -- what this side says of its own

    def set_address(self, address: str) -> None:
        """Set the address."""
        lib.pn_terminus_set_address(self._pointer, address.encode())

    def be_source(self) -> None:
        """Mark it as a source, which is necessary without an address."""
        lib.pn_terminus_set_type(self._pointer, lib.PN_SOURCE)

    def be_target(self) -> None:
        """Mark it as a target, which is necessary without an address."""
        lib.pn_terminus_set_type(self._pointer, lib.PN_TARGET)

    def copy(self, other: "Terminus") -> None:
        """Copy all fields of the other terminus."""
        lib.pn_terminus_copy(self._pointer, other._pointer)

    def make_dynamic(self) -> None:
        """Mark the address as created for this link."""
        lib.pn_terminus_set_dynamic(self._pointer, True)

    def keep_deliveries(self) -> None:
        """Request that the peer keeps this source and the state of its deliveries after the link ends."""
        lib.pn_terminus_set_durability(self._pointer, lib.PN_DELIVERIES)
        lib.pn_terminus_set_expiry_policy(self._pointer, lib.PN_EXPIRE_NEVER)

    def keep_configuration(self) -> None:
        """Keep existence and configuration after the link ends, but not the state of each delivery."""
        lib.pn_terminus_set_durability(self._pointer, lib.PN_CONFIGURATION)
        lib.pn_terminus_set_expiry_policy(self._pointer, lib.PN_EXPIRE_NEVER)

    def end_with_link(self) -> None:
        """Keep nothing after the link ends."""
        lib.pn_terminus_set_durability(self._pointer, lib.PN_NONDURABLE)
        lib.pn_terminus_set_expiry_policy(self._pointer, lib.PN_EXPIRE_WITH_LINK)

    def keep_nothing(self) -> None:
        """Mark it as not durable. The expiry policy stays."""
        lib.pn_terminus_set_durability(self._pointer, lib.PN_NONDURABLE)

    def expire_at_once(self) -> None:
        """Set the expiry timeout to 0."""
        lib.pn_terminus_set_timeout(self._pointer, 0)

    def hand_out_copies(self) -> None:
        """Set the distribution mode `copy`: each link gets every message (AMQP 3.5.7)."""
        lib.pn_terminus_set_distribution_mode(self._pointer, lib.PN_DIST_MODE_COPY)

    def set_outcomes(self, outcomes: Sequence[str]) -> None:
        """Set the outcomes that a receiver may use."""
        write_symbols(lib.pn_terminus_outcomes(self._pointer), outcomes)

    def set_filters(self, filters: Mapping[str, object]) -> None:
        """Set the filter set.

        Raises:
            WireError: a value has no AMQP type.
        """
        write_map(self.filters, filters)

    def set_capabilities(self, capabilities: Sequence[str]) -> None:
        """Set the capabilities."""
        write_symbols(self.capabilities, capabilities)


def source(link: Pointer) -> Terminus:
    """Return the source that this side sends."""
    return Terminus(lib.pn_link_source(link))


def target(link: Pointer) -> Terminus:
    """Return the target that this side sends."""
    return Terminus(lib.pn_link_target(link))


def peer_source(link: Pointer) -> Terminus:
    """Return the source that the peer sent."""
    return Terminus(lib.pn_link_remote_source(link))


def peer_target(link: Pointer) -> Terminus:
    """Return the target that the peer sent."""
    return Terminus(lib.pn_link_remote_target(link))
