"""Core objects in protobuf. The messages here are written by hand; those of kubectl are in test_kubectl."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.api.protobuf import MAGIC, ProtobufError, read_protobuf


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def field(number: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def entry(number: int, key: str, value: str | bytes) -> bytes:
    return field(number, field(1, key) + field(2, value))


def envelope(api_version: str, kind: str, content: bytes) -> bytes:
    return (
        MAGIC
        + field(1, field(1, api_version) + field(2, kind))
        + field(2, content)
        + field(3, "")
        + field(4, "")
    )


METADATA = (
    field(1, "n")
    + field(2, "")
    + field(3, "default")
    + field(7, 0)
    + field(8, b"")
    + entry(11, "a", "b")
    + entry(11, "c", "")
)


def test_a_config_map_is_read_with_all_it_has() -> None:
    content = (
        field(1, METADATA)
        + entry(2, "k", "v")
        + entry(2, "empty", "")
        + entry(3, "raw", b"\x00\xff")
        + field(4, 1)
    )
    assert read_protobuf(envelope("v1", "ConfigMap", content)) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "n", "namespace": "default", "generation": 0, "labels": {"a": "b", "c": ""}},
        "data": {"k": "v", "empty": ""},
        "binaryData": {"raw": "AP8="},
        "immutable": True,
    }


def test_a_service_is_read_with_its_ports() -> None:
    port = (
        field(1, "http")
        + field(2, "TCP")
        + field(3, 80)
        + field(4, field(1, 0) + field(2, 8080) + field(3, ""))
        + field(5, 0)
    )
    named = field(3, 81) + field(4, field(1, 1) + field(2, 0) + field(3, "web"))
    spec = (
        field(1, port)
        + field(1, named)
        + entry(2, "app", "x")
        + field(4, "ExternalName")
        + field(10, "example.com")
        + field(99, "later")
    )
    read = read_protobuf(envelope("v1", "Service", field(1, METADATA) + field(2, spec)))
    assert read["spec"] == {
        "ports": [
            {"name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080, "nodePort": 0},
            {"port": 81, "targetPort": "web"},
        ],
        "selector": {"app": "x"},
        "type": "ExternalName",
        "externalName": "example.com",
    }


def test_delete_options_are_read() -> None:
    content = field(1, -1) + field(2, field(1, "u")) + field(4, "Background") + field(5, "All")
    read = read_protobuf(envelope("meta.k8s.io/v1", "DeleteOptions", content))
    assert (read["gracePeriodSeconds"], read["preconditions"], read["dryRun"]) == (-1, {"uid": "u"}, ["All"])


def test_a_time_is_read_as_kubernetes_writes_it() -> None:
    content = field(1, field(1, "n") + field(8, field(1, 1_700_000_000)))
    assert read_protobuf(envelope("v1", "Namespace", content))["metadata"] == {
        "name": "n",
        "creationTimestamp": "2023-11-14T22:13:20Z",
    }


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{}",
        MAGIC,
        envelope("v1", "Pod", b""),
        envelope("v1", "ConfigMap", b"\x0a"),
        envelope("v1", "ConfigMap", b"\x0a\x7f"),
        envelope("v1", "ConfigMap", b"\x0b"),
        envelope("v1", "ConfigMap", b"\xff" * 12),
        envelope("v1", "ConfigMap", field(1, 7)),
        envelope("v1", "ConfigMap", field(4, b"x")),
        envelope("v1", "ConfigMap", field(1, field(1, b"\xff"))),
    ],
)
def test_messages_of_another_form_are_refused(raw: bytes) -> None:
    with pytest.raises(ProtobufError):
        read_protobuf(raw)


@given(st.sampled_from(["ConfigMap", "Service", "Namespace", "DeleteOptions"]), st.binary(max_size=80))
def test_garbage_is_refused_or_read_and_nothing_else(kind: str, content: bytes) -> None:
    with suppress(ProtobufError):
        assert read_protobuf(envelope("v1", kind, content))["kind"] == kind


@pytest.mark.parametrize(
    ("api_version", "kind", "content", "spec"),
    [
        (b"authentication.k8s.io/v1", b"SelfSubjectReview", b"\x0a\x00", None),
        (
            b"authorization.k8s.io/v1",
            b"SelfSubjectRulesReview",
            b"\x0a\x00\x12\x03\x0a\x01n",
            {"namespace": "n"},
        ),
    ],
)
def test_kubectl_s_question_about_its_user_is_read(
    api_version: bytes, kind: bytes, content: bytes, spec: object
) -> None:
    type_ = b"\x0a" + bytes([len(api_version)]) + api_version + b"\x12" + bytes([len(kind)]) + kind
    read = read_protobuf(
        MAGIC + b"\x0a" + bytes([len(type_)]) + type_ + b"\x12" + bytes([len(content)]) + content
    )
    assert (read["apiVersion"], read["kind"], read.get("spec")) == (api_version.decode(), kind.decode(), spec)
