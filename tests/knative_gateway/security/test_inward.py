"""Which URLs lead to this gateway's own Brokers and Channels, and which users may send to them."""

import pytest

from knative_gateway.security.inward import Inward, looks_inward, user_of

BASE = "http://127.0.0.1:8080"


@pytest.mark.parametrize(
    ("url", "path"),
    [
        (f"{BASE}/broker/a/b", "/broker/a/b"),
        (f"{BASE}/channel/a/c/", "/channel/a/c"),
        (f"{BASE}/broker/a/b?x=1", None),
        (f"{BASE}/broker/a", None),
        (f"{BASE}/broker/a/b/c", None),
        (f"{BASE}/apis", None),
        ("http://127.0.0.1:80801/broker/a/b", None),
        ("http://localhost:8080/broker/a/b", None),
        ("http://127.0.0.1:8080@evil/broker/a/b", None),
        ("/broker/a/b", None),
    ],
)
def test_only_addresses_of_its_own_lead_in(url: str, path: str | None) -> None:
    assert Inward(BASE).path_of(url) == path


def test_a_namespace_may_send_to_itself_and_to_others_that_allow_it() -> None:
    inward = Inward(BASE, lambda source, target: (source, target) == ("a", "shared"))
    assert inward.refusal(f"{BASE}/broker/a/b", "a") is None
    assert inward.refusal(f"{BASE}/broker/shared/b", "a") is None
    assert inward.refusal("http://elsewhere/broker/b/b", "a") is None
    refused = inward.refusal(f"{BASE}/broker/b/b", "a")
    assert refused is not None
    assert user_of("a") in refused


@pytest.mark.parametrize(
    "url",
    [f"{BASE}/broker/a/b", "https://events.example.com/channel/a/b/", "http://localhost:1/broker/a/b?x=1"],
)
def test_any_url_with_the_path_of_a_broker_or_channel_may_lead_back(url: str) -> None:
    assert looks_inward(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://x/",
        "http://x/broker/a",
        "http://x/brokers/a/b",
        "http://x/y/broker/a/b",
        "http://[/broker/a/b",
    ],
)
def test_other_urls_do_not(url: str) -> None:
    assert not looks_inward(url)
