"""A web page of another site does not reach a gateway of this machine."""

import pytest

from knative_gateway.http.rebinding import is_out_of_reach


@pytest.mark.parametrize(
    "host",
    [
        "",
        "localhost",
        "LOCALHOST:8080",
        "localhost.:8080",
        "a.localhost",
        "127.0.0.1",
        "127.0.0.1:8080",
        "10.1.2.3:1",
        "[::1]:8080",
        "[::1]",
        "[fe80::1%25eth0]:80",
        "laptop:8080",
        "broker-ingress.knative-eventing.svc",
        "broker-ingress.knative-eventing.svc.cluster.local:80",
    ],
)
def test_no_site_has_these_names(host: str) -> None:
    assert is_out_of_reach(host.encode())


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "svc.example",
        "a.b.",
        "1.2.3",
    ],
)
def test_a_site_may_have_these_names(host: str) -> None:
    assert not is_out_of_reach(host.encode())
