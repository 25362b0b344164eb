"""The two ends of a link, its source and its target: what the peer asks for, and what this side says (AMQP
3.5).
"""

from collections.abc import Mapping, Sequence
from typing import Final

from cproton_ffi import lib

from amqp_streams.proton.pointers import Pointer
from amqp_streams.proton.values import text, write_map, write_symbols

_KEPT: Final = (lib.PN_CONFIGURATION, lib.PN_DELIVERIES)


class Terminus:
    """One end of a link, as this side or the peer describes it. As good as the link's pointer."""

    __slots__ = ("_pointer",)

    def __init__(self, pointer: Pointer) -> None:
        self._pointer: Final = pointer

    # -- what it says

    @property
    def absent(self) -> bool:
        """There is no terminus: an attach that is refused (AMQP 2.6.3), or a link whose terminus is gone."""
        return bool(lib.pn_terminus_get_type(self._pointer) == lib.PN_UNSPECIFIED)

    @property
    def is_coordinator(self) -> bool:
        """It is a transaction coordinator."""
        return bool(lib.pn_terminus_get_type(self._pointer) == lib.PN_COORDINATOR)

    @property
    def address(self) -> str | None:
        """Up to a NUL; None where there is none."""
        return text(lib.pn_terminus_get_address(self._pointer)) or None

    @property
    def dynamic(self) -> bool:
        """The peer is to make up the address."""
        return bool(lib.pn_terminus_is_dynamic(self._pointer))

    @property
    def outlives_link(self) -> bool:
        """It is kept when the link is gone, for good (AMQP 3.5.5, 3.5.6)."""
        kept = lib.pn_terminus_get_durability(self._pointer) in _KEPT
        return bool(kept and lib.pn_terminus_get_expiry_policy(self._pointer) == lib.PN_EXPIRE_NEVER)

    @property
    def filters(self) -> Pointer:
        """The filter set of a source, for `values`."""
        return lib.pn_terminus_filter(self._pointer)

    @property
    def capabilities(self) -> Pointer:
        """For `values`."""
        return lib.pn_terminus_capabilities(self._pointer)

    # -- what this side says of its own

    def set_address(self, address: str) -> None:
        """Which node it is."""
        lib.pn_terminus_set_address(self._pointer, address.encode())

    def be_source(self) -> None:
        """It is a source, if it has no address either."""
        lib.pn_terminus_set_type(self._pointer, lib.PN_SOURCE)

    def be_target(self) -> None:
        """It is a target, if it has no address either."""
        lib.pn_terminus_set_type(self._pointer, lib.PN_TARGET)

    def copy(self, other: "Terminus") -> None:
        """Say what the peer says."""
        lib.pn_terminus_copy(self._pointer, other._pointer)

    def make_dynamic(self) -> None:
        """The address was made up for this link."""
        lib.pn_terminus_set_dynamic(self._pointer, True)

    def keep_deliveries(self) -> None:
        """Wish that the peer keeps this source with the state of its deliveries when the link is gone."""
        lib.pn_terminus_set_durability(self._pointer, lib.PN_DELIVERIES)
        lib.pn_terminus_set_expiry_policy(self._pointer, lib.PN_EXPIRE_NEVER)

    def keep_configuration(self) -> None:
        """Its existence and its configuration outlive the link, not the state of each delivery."""
        lib.pn_terminus_set_durability(self._pointer, lib.PN_CONFIGURATION)
        lib.pn_terminus_set_expiry_policy(self._pointer, lib.PN_EXPIRE_NEVER)

    def end_with_link(self) -> None:
        """Nothing of it outlives the link."""
        lib.pn_terminus_set_durability(self._pointer, lib.PN_NONDURABLE)
        lib.pn_terminus_set_expiry_policy(self._pointer, lib.PN_EXPIRE_WITH_LINK)

    def keep_nothing(self) -> None:
        """It is not durable; when it expires is as it was said before."""
        lib.pn_terminus_set_durability(self._pointer, lib.PN_NONDURABLE)

    def expire_at_once(self) -> None:
        """No time passes between its expiry and its end."""
        lib.pn_terminus_set_timeout(self._pointer, 0)

    def hand_out_copies(self) -> None:
        """What one link gets is there for the others (AMQP 3.5.7)."""
        lib.pn_terminus_set_distribution_mode(self._pointer, lib.PN_DIST_MODE_COPY)

    def set_outcomes(self, outcomes: Sequence[str]) -> None:
        """Those that a receiver may give."""
        write_symbols(lib.pn_terminus_outcomes(self._pointer), outcomes)

    def set_filters(self, filters: Mapping[str, object]) -> None:
        """The filter set. Raises WireError for a value that has no AMQP type."""
        write_map(self.filters, filters)

    def set_capabilities(self, capabilities: Sequence[str]) -> None:
        """What it is capable of, or wanted to be capable of."""
        write_symbols(self.capabilities, capabilities)


def source(link: Pointer) -> Terminus:
    """The source that this side says."""
    return Terminus(lib.pn_link_source(link))


def target(link: Pointer) -> Terminus:
    """The target that this side says."""
    return Terminus(lib.pn_link_target(link))


def peer_source(link: Pointer) -> Terminus:
    """The source that the peer says."""
    return Terminus(lib.pn_link_remote_source(link))


def peer_target(link: Pointer) -> Terminus:
    """The target that the peer says."""
    return Terminus(lib.pn_link_remote_target(link))
