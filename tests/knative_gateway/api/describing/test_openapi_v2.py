"""OpenAPI 2 as kubectl before 1.27 reads it: parts that version 2 cannot express are omitted, and both
documents agree.
"""

from collections.abc import Iterator
from typing import Any

from knative_gateway.api.describing import openapi_v2
from knative_gateway.resources import kinds
from knative_gateway.resources.kinds import Kind, Registry

MADE = openapi_v2.document(kinds.BUILT_IN)
TRIGGER = "dev.knative.eventing.v1.Trigger"


def fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a protobuf message that has only texts and messages."""
    position = 0

    def varint() -> int:
        nonlocal position
        number = shift = 0
        while True:
            byte = message[position]
            position, number, shift = position + 1, number | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                return number

    while position < len(message):
        tag = varint()
        assert tag & 7 == 2
        length = varint()
        yield tag >> 3, message[position : position + length]
        assert position + length <= len(message)
        position += length


def of(message: bytes, number: int) -> list[bytes]:
    return [content for each, content in fields(message) if each == number]


def named(message: bytes, number: int) -> dict[str, bytes]:
    return {of(each, 1)[0].decode(): b"".join(of(each, 2)) for each in of(message, number)}


def same(schema: dict[str, Any], message: bytes) -> bool:
    """Field numbers as in gnostic's OpenAPIv2.proto."""
    mine: dict[str, Any] = schema.get("properties", {})
    theirs = named(b"".join(of(message, 25)), 1)
    assert list(mine) == list(theirs)
    assert [schema.get("$ref", "")] == [b"".join(of(message, 1)).decode()]
    assert schema.get("type", "") == b"".join(of(b"".join(of(message, 22)), 1)).decode()
    assert schema.get("required", []) == [name.decode() for name in of(message, 19)]
    if "items" in schema:
        assert same(schema["items"], b"".join(of(b"".join(of(message, 23)), 1)))
    if "additionalProperties" in schema:
        assert same(schema["additionalProperties"], b"".join(of(b"".join(of(message, 21)), 1)))
    return all(same(each, theirs[name]) for name, each in mine.items())


def test_the_message_says_what_the_document_says() -> None:
    message = openapi_v2.encoded(MADE)
    assert of(message, 1) == [b"2.0"]
    definitions = named(b"".join(of(message, 9)), 1)
    assert list(definitions) == list(MADE["definitions"])
    assert all(same(each, definitions[name]) for name, each in MADE["definitions"].items())
    (kind,) = of(definitions[TRIGGER], 31)
    assert of(kind, 1) == [b"x-kubernetes-group-version-kind"]
    assert of(of(kind, 2)[0], 2) == [
        b'[{"group": "eventing.knative.dev", "version": "v1", "kind": "Trigger"}]'
    ]


def test_each_kind_knows_dry_runs() -> None:
    """kubectl 1.20 reads the parameter at the PATCH of the kind before it sends a dry run."""
    items = named(b"".join(of(openapi_v2.encoded(MADE), 8)), 2)
    assert "/apis/eventing.knative.dev/v1/namespaces/{namespace}/triggers/{name}" in items
    for item in items.values():
        (patch,) = of(item, 8)
        queries = [of(of(of(each, 1)[0], 2)[0], 3)[0] for each in of(patch, 8)]
        assert b"dryRun" in [of(query, 4)[0] for query in queries]
        assert of(of(patch, 13)[0], 1) == [b"x-kubernetes-group-version-kind"]


def test_a_field_of_any_type_has_no_type() -> None:
    """With a type, the client would refuse values that the server accepts."""
    for schema in (
        {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"a": {"type": "string"}},
        },
        {"x-kubernetes-int-or-string": True},
        {"type": "string", "nullable": True},
    ):
        kind = Kind("example.com", "v1", "Open", "opens", {"type": "object", "properties": {"spec": schema}})
        assert (
            openapi_v2.document(Registry([kind]))["definitions"]["com.example.v1.Open"]["properties"]["spec"]
            == {}
        )


def test_a_kind_that_keeps_all_fields_differs_from_an_object_with_three_fields() -> None:
    kind = Kind(
        "example.com", "v1", "Open", "opens", {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    )
    assert "properties" not in openapi_v2.document(Registry([kind]))["definitions"]["com.example.v1.Open"]


def test_a_core_kind_with_more_fields_than_are_known_is_left_to_its_clients() -> None:
    """Clients know the merge keys of the lists of core kinds. With a schema without merge keys they would
    send whole lists, and remove nothing.
    """
    assert "io.k8s.api.core.v1.Service" not in MADE["definitions"]
    assert "io.k8s.api.core.v1.ConfigMap" in MADE["definitions"]
    finalizers = MADE["definitions"]["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]["properties"][
        "finalizers"
    ]
    assert finalizers == {
        "type": "array",
        "items": {"type": "string"},
        "x-kubernetes-patch-strategy": "merge",
    }


def test_references_lead_somewhere() -> None:
    for each in MADE["definitions"].values():
        metadata = each.get("properties", {}).get("metadata", {})
        assert metadata.get("$ref", "#/definitions/").removeprefix("#/definitions/") in {
            "",
            *MADE["definitions"],
        }
