"""Sockets for an address."""

import pytest

from service_parts.binding import BACKLOG, bind, close_all
from service_parts.errors import SettingError
from service_parts.networks import is_loopback
from service_parts.settings.listeners import Listener


async def test_a_name_is_bound_at_its_addresses() -> None:
    bound = await bind(Listener(host="localhost", port=0))
    try:
        assert bound
        assert all(is_loopback(sock.getsockname()[0]) for sock in bound)
    finally:
        close_all(bound)


async def test_an_address_in_use_names_the_error_of_the_system() -> None:
    (sock,) = await bind(Listener(host="127.0.0.1", port=0))
    with (
        sock,
        pytest.raises(
            SettingError, match=r"^cannot listen on 127\.0\.0\.1:\d+: Address already in use$"
        ) as got,
    ):
        await bind(Listener(host="127.0.0.1", port=sock.getsockname()[1]))
    assert isinstance(got.value.__cause__, OSError)


async def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(SettingError, match=r"^cannot listen on name\.invalid:0: "):
        await bind(Listener(host="name.invalid", port=0))


def test_the_backlog_is_a_thousand() -> None:
    assert BACKLOG == 1024
