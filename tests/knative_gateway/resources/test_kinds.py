from knative_gateway.resources.kinds import BUILT_IN, OURS, declared_by, definition
from knative_gateway.resources.objects import child, entries
from knative_gateway.resources.schema.checking import check
from tests.knative_gateway.resources.made import NOW, kind

SERVING = {
    "metadata": {"name": "services.serving.knative.dev", "labels": {"duck.knative.dev/addressable": "true"}},
    "spec": {
        "group": "serving.knative.dev",
        "scope": "Namespaced",
        "names": {"kind": "Service", "plural": "services", "shortNames": ["ksvc"], "categories": ["all"]},
        "versions": [
            {"name": "v1beta1", "served": True, "storage": False},
            {"name": "v0", "served": False, "storage": False},
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    {"name": "URL", "type": "string", "jsonPath": ".status.url", "priority": 1}
                ],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": ["kind", "spec"],
                        "properties": {"spec": {"type": "object"}, "kind": {}},
                    }
                },
            },
        ],
    },
}


def test_knative_s_kinds_are_listed_as_kubectl_shows_them() -> None:
    listed = {each.kind: (each.full_name, each.short_names, each.categories) for each in OURS}
    assert listed == {
        "Broker": ("brokers.eventing.knative.dev", (), ("all", "knative", "eventing")),
        "Trigger": ("triggers.eventing.knative.dev", (), ("all", "knative", "eventing")),
        "Channel": ("channels.messaging.knative.dev", ("ch",), ("all", "knative", "messaging", "channel")),
        "InMemoryChannel": (
            "inmemorychannels.messaging.knative.dev",
            ("imc",),
            ("all", "knative", "messaging", "channel"),
        ),
        "Subscription": ("subscriptions.messaging.knative.dev", ("sub",), ("all", "knative", "messaging")),
    }


def test_a_kind_is_found_by_its_path_and_by_its_name() -> None:
    assert BUILT_IN.find("eventing.knative.dev", "v1", "triggers") is kind("Trigger")
    assert BUILT_IN.of("eventing.knative.dev/v1", "Trigger") is kind("Trigger")
    assert BUILT_IN.of("v1", "ConfigMap") is kind("ConfigMap")
    assert BUILT_IN.of("eventing.knative.dev/v2", "Trigger") is None
    assert BUILT_IN.find("", "v1", "pods") is None


def test_groups_and_versions_are_listed_for_discovery() -> None:
    assert BUILT_IN.versions() == {
        "eventing.knative.dev": ["v1"],
        "messaging.knative.dev": ["v1"],
        "apiextensions.k8s.io": ["v1"],
    }
    assert [each.kind for each in BUILT_IN.of_version("eventing.knative.dev", "v1")] == ["Broker", "Trigger"]


def test_a_stored_definition_declares_a_kind_in_each_served_version() -> None:
    registry = BUILT_IN.with_definitions([SERVING])
    stored, other = (
        registry.of("serving.knative.dev/v1", "Service"),
        registry.of("serving.knative.dev/v1beta1", "Service"),
    )
    assert stored is not None
    assert other is not None
    assert (stored.short_names, stored.list_kind, stored.singular, stored.status, stored.storage) == (
        ("ksvc",),
        "ServiceList",
        "service",
        True,
        True,
    )
    assert [column.name for column in stored.columns] == ["URL"]
    assert [column.name for column in other.columns] == ["Age"]
    assert not other.storage
    assert registry.of("serving.knative.dev/v0", "Service") is None
    assert registry.versions()["serving.knative.dev"] == ["v1", "v1beta1"]
    assert [each.version for each in registry.stored() if each.group == "serving.knative.dev"] == ["v1"]


def test_fields_that_every_object_has_are_not_part_of_a_declared_schema() -> None:
    (declared, _) = declared_by(SERVING)
    assert declared.schema["required"] == ["spec"]
    assert list(child(declared.schema, "properties")) == ["spec"]


def test_a_version_without_a_schema_takes_everything() -> None:
    (_, other) = declared_by(SERVING)
    assert check(other.schema, {"spec": {"x": 1}}).unknown == []


def test_a_definition_does_not_replace_what_is_built_in() -> None:
    mine = definition(kind("Broker"), NOW)
    names = {**child(mine, "spec", "names"), "kind": "Impostor"}
    impostor = {**mine, "spec": {**child(mine, "spec"), "names": names}}
    assert BUILT_IN.with_definitions([impostor]).kinds == BUILT_IN.kinds


def test_our_kinds_are_shown_as_the_definitions_that_clients_look_for() -> None:
    channel = definition(kind("Channel"), NOW)
    assert child(channel, "metadata", "labels") == {
        "duck.knative.dev/addressable": "true",
        "messaging.knative.dev/subscribable": "true",
    }
    assert not check(kind("CustomResourceDefinition").schema, {"spec": channel["spec"]}).causes
    assert {
        child(each)["type"]: child(each)["status"] for each in entries(channel, "status", "conditions")
    } == {
        "NamesAccepted": "True",
        "Established": "True",
    }
    (declared,) = declared_by(channel)
    assert (declared.plural, declared.columns) == ("channels", tuple(each for each in declared.columns))
