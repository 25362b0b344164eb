"""Destinations to URLs. Sections are those of knative-eventing-test-spec."""

import pytest

from knative_gateway.addressing import Addressing, ServiceMap, Unresolved, is_absolute, without_credentials
from knative_gateway.errors import ConfigError
from knative_gateway.ports import Key
from knative_gateway.resources.objects import Object
from knative_gateway.security.destinations import Destinations
from knative_gateway.security.inward import Inward

OBJECTS: dict[Key, Object] = {
    Key("", "Service", "n", "s"): {"spec": {}},
    Key("", "Service", "other", "s"): {"spec": {}},
    Key("", "Service", "n", "outside"): {
        "spec": {"type": "ExternalName", "externalName": "host.example", "ports": [{"port": 8081}]}
    },
    Key("", "Service", "n", "two-ports"): {
        "spec": {"type": "ExternalName", "externalName": "host.example", "ports": [{"port": 1}, {"port": 2}]}
    },
    Key("", "Service", "n", "odd"): {"spec": {"type": "ExternalName", "externalName": "u:p@evil/x?"}},
    Key("serving.knative.dev", "Service", "n", "k"): {
        "status": {"address": {"url": "http://k.n.example/base/"}}
    },
    Key("any.group", "Thing", "n", "there"): {"status": {"address": {"url": "https://there"}}},
    Key("any.group", "Thing", "n", "empty"): {"status": {"address": {"url": ""}}},
    Key("any.group", "Thing", "n", "bare"): {},
    Key("any.group", "Thing", "n", "odd"): {"status": {"address": {"url": "there"}}},
}
ADDRESSING = Addressing(OBJECTS.get)


def ref(kind: str, name: str, api_version: str = "any.group/v1", **more: str) -> dict[str, object]:
    return {"apiVersion": api_version, "kind": kind, "name": name, **more}


def test_an_addressable_is_resolved_to_its_status() -> None:
    """Section "Destination Resolution": objects of any kind that contain a status.address.url MUST be
    supported.
    """
    assert ADDRESSING.resolve({"ref": ref("Thing", "there")}, "n") == "https://there"
    assert (
        ADDRESSING.resolve({"ref": ref("Service", "k", "serving.knative.dev/v1beta1")}, "n")
        == "http://k.n.example/base/"
    )


def test_a_service_of_the_core_is_resolved_to_its_cluster_name() -> None:
    """Section "Destination Resolution": v1/Service objects MUST be resolved to http://NAME.NAMESPACE.svc/."""
    assert ADDRESSING.resolve({"ref": ref("Service", "s", "v1")}, "n") == "http://s.n.svc/"


def test_a_reference_s_own_namespace_goes_first() -> None:
    """Section "KReference": if unspecified, defaults to the same namespace."""
    assert (
        ADDRESSING.resolve({"ref": ref("Service", "s", "v1", namespace="other")}, "n")
        == "http://s.other.svc/"
    )
    assert isinstance(ADDRESSING.resolve({"ref": ref("Thing", "there")}, "other"), Unresolved)


@pytest.mark.parametrize(
    ("reference", "uri", "url"),
    [
        (ref("Service", "s", "v1"), "/p/q?r=1", "http://s.n.svc/p/q?r=1"),
        (ref("Service", "s", "v1"), "p", "http://s.n.svc/p"),
        (ref("Service", "k", "serving.knative.dev/v1"), "p", "http://k.n.example/base/p"),
        (ref("Service", "k", "serving.knative.dev/v1"), "/p", "http://k.n.example/p"),
        (ref("Service", "k", "serving.knative.dev/v1"), "../p", "http://k.n.example/p"),
        (ref("Thing", "there"), "p", "https://there/p"),
        (ref("Thing", "there"), "?q", "https://there?q"),
        (ref("Thing", "there"), "//elsewhere/p", "https://elsewhere/p"),
        (ref("Thing", "there"), "http://elsewhere/p", "http://elsewhere/p"),
    ],
)
def test_a_uri_next_to_a_reference_is_relative_to_it(reference: Object, uri: str, url: str) -> None:
    """Section "Destination Resolution": the address MUST be the uri interpreted relative to the resolved URI
    of the ref.
    """
    assert ADDRESSING.resolve({"ref": reference, "uri": uri}, "n") == url


def test_a_uri_alone_is_taken_as_it_is() -> None:
    assert ADDRESSING.resolve({"uri": "http://x:8080/p?q"}, "n") == "http://x:8080/p?q"


@pytest.mark.parametrize(
    ("destination", "reason"),
    [
        ({"ref": ref("Service", "none", "v1")}, "NotFound"),
        ({"ref": ref("Thing", "none"), "uri": "http://whole/"}, "NotFound"),
        ({"ref": ref("Thing", "empty")}, "NotAddressable"),
        ({"ref": ref("Thing", "bare")}, "NotAddressable"),
        ({"ref": ref("Thing", "odd")}, "NotAddressable"),
        ({"ref": ref("Thing", "there"), "uri": "ftp://x/"}, "InvalidURI"),
        ({"ref": ref("Thing", "there"), "uri": "http://[x"}, "InvalidURI"),
        ({"uri": "/p"}, "InvalidURI"),
        ({}, "InvalidURI"),
    ],
)
def test_a_destination_without_an_address_has_a_reason(destination: Object, reason: str) -> None:
    """Section "Destination Resolution": a reference to an object which does not resolve to an
    absolute URL.
    """
    found = ADDRESSING.resolve(destination, "n")
    assert isinstance(found, Unresolved)
    assert found.reason == reason
    assert found.message


MAP = ServiceMap.parse({"s.n": "http://127.0.0.1:9000/base/", "mapped.n": "https://host"})


@pytest.mark.parametrize(
    ("url", "reached"),
    [
        ("http://s.n.svc/", "http://127.0.0.1:9000/base/"),
        ("http://s.n.svc.cluster.local/p?q=1", "http://127.0.0.1:9000/base/p?q=1"),
        ("http://s.n.svc", "http://127.0.0.1:9000/base"),
        ("http://s.n.svc:8080?q", "http://127.0.0.1:9000/base/?q"),
        ("http://s.n/", "http://s.n/"),
        ("http://outside.n:99/p", "http://outside.n:99/p"),
        ("http://odd.n.svc/", "http://odd.n.svc/"),
        ("http://mapped.n.svc/p", "https://host/p"),
        ("http://outside.n.svc/p", "http://host.example:8081/p"),
        ("http://outside.n.svc:99/p", "http://host.example:99/p"),
        ("http://two-ports.n.svc/", "http://host.example/"),
        ("http://s.other.svc/", "http://s.other.svc/"),
        ("http://example.com/", "http://example.com/"),
        ("http://a.b.c.d/", "http://a.b.c.d/"),
    ],
)
def test_a_service_s_name_is_reached_where_the_operator_or_the_service_says(url: str, reached: str) -> None:
    assert MAP.reached(url, OBJECTS.get) == reached


def test_a_service_of_the_map_needs_no_object() -> None:
    addressing = Addressing(OBJECTS.get, MAP)
    assert addressing.resolve({"ref": ref("Service", "mapped", "v1")}, "n") == "http://mapped.n.svc/"
    assert addressing.reached("http://mapped.n.svc/") == "https://host/"


def test_a_destination_that_is_denied_says_so() -> None:
    addressing = Addressing(
        OBJECTS.get, ServiceMap.parse({"s.n": "http://169.254.169.254"}), Destinations.parse()
    )
    for destination in ({"uri": "http://169.254.169.254/latest"}, {"ref": ref("Service", "s", "v1")}):
        found = addressing.resolve(destination, "n")
        assert isinstance(found, Unresolved)
        assert found.reason == "DestinationDenied"
    assert addressing.resolve({"uri": "http://10.0.0.1/"}, "n") == "http://10.0.0.1/"


def test_another_namespace_s_broker_needs_a_rule() -> None:
    """The Trigger is not Ready, and the message names the missing rule. Rules for destinations do not apply
    to our own addresses, because no connection is opened.
    """
    inward = Inward("http://169.254.169.254", lambda source, target: (source, target) == ("n", "friend"))
    addressing = Addressing(OBJECTS.get, allowed=Destinations.parse(), inward=inward)
    for url in ("http://169.254.169.254/broker/n/b", "http://169.254.169.254/channel/friend/c"):
        assert addressing.resolve({"uri": url}, "n") == url
    found = addressing.resolve({"uri": "http://169.254.169.254/broker/stranger/b"}, "n")
    assert isinstance(found, Unresolved)
    assert (found.reason, 'the user "system:namespace:n"' in found.message) == ("NamespaceForbidden", True)
    elsewhere = addressing.resolve({"uri": "http://169.254.169.254/other"}, "n")
    assert isinstance(elsewhere, Unresolved)
    assert elsewhere.reason == "DestinationDenied"


@pytest.mark.parametrize(
    "entries", [{"s": "http://h"}, {"s.n": "h:80"}, {"s.n.svc": "http://h"}, {"S.n": "http://h"}]
)
def test_a_map_that_cannot_be_is_refused(entries: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        ServiceMap.parse(entries)


def test_only_whole_http_urls_are_absolute() -> None:
    assert is_absolute("https://h/p")
    assert not any(
        is_absolute(url)
        for url in ("", "h", "/p", "ftp://h", "http:///p", "http://h:x", "http://[", "mailto:a@b")
    )
    assert not any(is_absolute(url) for url in ("http://a b/", "http://a%41/", "http://[::1%a b]/")), (
        "such a host cannot be looked up"
    )


def test_where_a_service_leads_to_is_shown_in_its_own_namespace() -> None:
    """Otherwise the status would show the target of a Service to users who may not read the Service."""
    addressing = Addressing(OBJECTS.get, ServiceMap.parse({"s.n": "http://user:pass@127.0.0.1:9000"}))
    assert addressing.shown("http://outside.n.svc/p", "n") == "http://host.example:8081/p"
    assert addressing.shown("http://outside.n.svc/p", "other") == ""
    assert addressing.shown("http://s.n.svc/", "n") == "http://127.0.0.1:9000/"
    assert addressing.shown("http://s.other.svc/", "other") == addressing.shown("http://host/", "n") == ""


def test_a_url_is_shown_without_user_and_password() -> None:
    for url, shown in (
        ("http://u:p@h:1/p?q=a@b", "http://h:1/p?q=a@b"),
        ("http://h/a@b", "http://h/a@b"),
        ("http://[x", ""),
    ):
        assert without_credentials(url) == shown
