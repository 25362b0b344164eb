"""The addresses that workers share."""

import socket

import pytest

from knative_gateway.errors import ConfigError, InUseError
from knative_gateway.workers.reserving import reserved
from service_parts.settings.listeners import Listener


def listening(address: Listener, *, shares: bool) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(shares))
    made.bind((address.host, address.port))
    made.listen()
    return made


def test_a_free_port_is_the_same_for_all_workers_and_gets_no_connections_itself() -> None:
    with reserved([Listener(host="127.0.0.1", port=0)]) as [address]:
        assert address.port > 0
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address.host, address.port))
        with listening(address, shares=True), listening(address, shares=True):
            socket.create_connection((address.host, address.port)).close()
    with listening(address, shares=False):
        pass


@pytest.mark.parametrize("shares", [True, False])
def test_a_port_that_another_process_listens_on_is_refused(shares: bool) -> None:
    with reserved([Listener(host="127.0.0.1", port=0)]) as [address]:
        pass
    with (
        listening(address, shares=shares),
        pytest.raises(InUseError, match=rf"cannot listen on {address}: "),
        reserved([address]),
    ):
        pass


def test_a_name_is_each_of_its_addresses() -> None:
    with reserved([Listener(host="localhost", port=0)]) as addresses:
        assert {address.host for address in addresses} <= {"127.0.0.1", "::1"}


def test_an_address_of_another_machine_is_refused() -> None:
    with (
        pytest.raises(ConfigError, match=r"cannot listen on 192\.0\.2\.1:80"),
        reserved([Listener(host="192.0.2.1", port=80)]),
    ):
        pass
