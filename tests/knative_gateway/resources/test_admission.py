import pytest
from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.ports import Key
from knative_gateway.resources.admission import (
    Admitted,
    FieldValidation,
    Request,
    apply,
    check_preconditions,
    counted,
    create,
    patch,
    replace,
    unchanged,
)
from knative_gateway.resources.objects import Object, at, child, drop, key_of, put
from knative_gateway.resources.patches import json_patches
from knative_gateway.resources.refusals import StatusError
from tests.knative_gateway.resources.made import NOW, NOW_MS, SUBSCRIPTION, TRIGGER, kind, made
from tests.knative_gateway.resources.test_objects import JSON

UID = "0b3c5b1e-1111-2222-3333-444455556666"


def request(
    name: str = "Trigger",
    *,
    called: str = "x",
    subresource: str = "",
    validation: FieldValidation = FieldValidation.WARN,
) -> Request:
    return Request(
        kind(name),
        "default",
        called,
        NOW_MS,
        manager="tester",
        subresource=subresource,
        validation=validation,
    )


def stored(object_: Object = TRIGGER, name: str = "Trigger") -> dict[str, object]:
    """An object as the store has it."""
    return put(
        create(request(name, called=""), object_, uid=UID).object, ("metadata", "resourceVersion"), "7"
    )


def generation(admitted: Admitted) -> object:
    return at(admitted.object, "metadata", "generation")


def test_a_new_object_gets_what_the_server_gives() -> None:
    sent = put(TRIGGER, ("metadata", "generation"), 9)
    sent = {**put(sent, ("metadata", "creationTimestamp"), None), "status": {"subscriberUri": "forged"}}
    trigger = create(request(called=""), sent, uid=UID).object
    metadata = {
        name: at(trigger, "metadata", name)
        for name in ("name", "namespace", "uid", "creationTimestamp", "generation")
    }
    assert metadata == {
        "name": "x",
        "namespace": "default",
        "uid": UID,
        "creationTimestamp": NOW,
        "generation": 1,
    }
    assert "status" not in trigger
    assert at(trigger, "spec", "filter") == {}


def test_a_name_can_be_generated() -> None:
    sent = put(drop(TRIGGER, ("metadata", "name")), ("metadata", "generateName"), "mine-")
    assert at(create(request(called=""), sent, uid=UID).object, "metadata", "name") == "mine-0b3c5"


def test_fields_that_the_store_sets_cannot_be_given() -> None:
    with pytest.raises(StatusError, match="resourceVersion should not be set"):
        create(request(called=""), put(TRIGGER, ("metadata", "resourceVersion"), "1"), uid=UID)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("text", "must be an object"),
        ({**TRIGGER, "kind": "Broker"}, "not of the kind of the path"),
        ({**TRIGGER, "apiVersion": "eventing.knative.dev/v1beta1"}, "not of the kind of the path"),
        (put(TRIGGER, ("metadata", "namespace"), "other"), "namespace of the object"),
    ],
)
def test_a_body_that_does_not_belong_to_its_path_is_refused(body: object, words: str) -> None:
    with pytest.raises(StatusError, match=words) as refused:
        create(request(called=""), body, uid=UID)
    assert refused.value.code == 400


def test_an_unknown_field_is_refused_warned_of_or_left_out() -> None:
    """knative-eventing-test-spec, "Detailed Resources": implementations MAY refuse resources which specify
    unknown fields.
    """
    sent = put(put(TRIGGER, ("spec", "bogus"), 1), ("metadata", "odd"), 2)
    with pytest.raises(
        StatusError,
        match=r'strict decoding error: unknown field "metadata\.odd", unknown field "spec\.bogus"',
    ) as refused:
        create(request(called="", validation=FieldValidation.STRICT), sent, uid=UID)
    assert refused.value.code == 400
    warned = create(request(called=""), sent, uid=UID)
    assert warned.warnings == ('unknown field "metadata.odd"', 'unknown field "spec.bogus"')
    assert at(warned.object, "spec", "bogus") is None
    assert create(request(called="", validation=FieldValidation.IGNORE), sent, uid=UID).warnings == ()


def test_an_object_that_breaks_the_rules_is_refused_with_the_field() -> None:
    for body in (put(TRIGGER, ("spec", "broker"), 1), drop(TRIGGER, ("spec", "broker"))):
        with pytest.raises(StatusError) as refused:
            create(request(called=""), body, uid=UID)
        assert refused.value.code == 422
        assert [cause.field for cause in refused.value.causes] == ["spec.broker"]


def test_a_filter_of_an_unknown_kind_is_refused_and_not_ignored() -> None:
    """If the filter were ignored, all events would pass."""
    with pytest.raises(StatusError, match="unknown dialect"):
        create(
            request(called="", validation=FieldValidation.IGNORE),
            put(TRIGGER, ("spec", "filters"), [{"regex": {"type": "."}}]),
            uid=UID,
        )


def test_the_generation_counts_changes_of_the_spec_only() -> None:
    old = stored()
    assert generation(replace(request(), old, TRIGGER)) == 1
    assert generation(replace(request(), old, put(TRIGGER, ("metadata", "labels"), {"a": "b"}))) == 1
    assert generation(replace(request(), old, put(TRIGGER, ("spec", "delivery"), {"retry": 1}))) == 2
    assert (
        generation(replace(request(subresource="status"), old, {**TRIGGER, "status": {"subscriberUri": "u"}}))
        == 1
    )
    assert counted(kind("ConfigMap"), {}, {"data": {}}) == {"data": {}}


def test_a_replacement_keeps_what_is_the_server_s() -> None:
    old = {**stored(), "status": {"subscriberUri": "u"}}
    new = replace(request(), old, {**TRIGGER, "status": {"subscriberUri": "forged"}}).object
    assert [at(new, "metadata", name) for name in ("uid", "creationTimestamp", "resourceVersion")] == [
        UID,
        NOW,
        "7",
    ]
    assert new["status"] == {"subscriberUri": "u"}


def test_status_is_written_alone() -> None:
    old = stored()
    new = replace(
        request(subresource="status"),
        old,
        {**put(old, ("spec", "broker"), "other"), "status": {"subscriberUri": "u"}},
    ).object
    assert new["spec"] == old["spec"]
    assert new["status"] == {"subscriberUri": "u"}


def test_a_writer_that_read_another_version_is_refused() -> None:
    old = stored()
    assert replace(request(), old, put(TRIGGER, ("metadata", "resourceVersion"), "7"))
    for name, value in (("resourceVersion", "6"), ("uid", "another")):
        with pytest.raises(StatusError) as refused:
            replace(request(), old, put(TRIGGER, ("metadata", name), value))
        assert (refused.value.code, refused.value.reason) == (409, "Conflict")


def test_finalizers_are_not_kept() -> None:
    """Deletion is at once: an object from elsewhere that waits for a controller that is not here would never
    go.
    """
    assert at(stored(put(TRIGGER, ("metadata", "finalizers"), ["a/b"])), "metadata", "finalizers") is None


def test_a_subscription_s_channel_cannot_be_patched() -> None:
    old = stored(SUBSCRIPTION, "Subscription")
    with pytest.raises(StatusError, match=r"spec\.channel: Invalid value: field is immutable"):
        patch(request("Subscription"), old, json_patches.MERGE, {"spec": {"channel": {"name": "other"}}})


def test_patches_of_three_kinds_are_taken() -> None:
    old = stored()
    merged = patch(request(), old, json_patches.MERGE, {"spec": {"delivery": {"retry": 3}}})
    listed = patch(
        request(), old, json_patches.JSON, [{"op": "add", "path": "/spec/delivery", "value": {"retry": 3}}]
    )
    assert merged == listed
    assert generation(merged) == 2
    config_map = stored({**made("ConfigMap"), "data": {"a": "1"}}, "ConfigMap")
    strategic = patch(
        request("ConfigMap"), config_map, json_patches.STRATEGIC, {"data": {"a": None, "b": "2"}}
    )
    assert strategic.object["data"] == {"b": "2"}


@pytest.mark.parametrize("media_type", [json_patches.STRATEGIC, "application/json", ""])
def test_another_patch_is_of_no_supported_type(media_type: str) -> None:
    with pytest.raises(StatusError, match="accepted media types include") as refused:
        patch(request(), stored(), media_type, {})
    assert refused.value.code == 415


def test_a_patch_that_changes_nothing_is_seen_as_such() -> None:
    old = stored()
    assert unchanged(old, patch(request(), old, json_patches.MERGE, {}).object)
    assert unchanged(old, patch(request(), old, json_patches.MERGE, {"spec": {"broker": "b"}}).object)
    assert not unchanged(
        old, patch(request(), old, json_patches.MERGE, {"metadata": {"labels": {"a": "b"}}}).object
    )


def test_an_apply_makes_and_changes_an_object() -> None:
    new = apply(request(), None, TRIGGER, uid=UID).object
    assert (at(new, "metadata", "uid"), at(new, "metadata", "generation")) == (UID, 1)
    old = put(new, ("metadata", "resourceVersion"), "7")
    again = apply(request(), old, TRIGGER, uid="")
    assert unchanged(old, again.object)
    changed = apply(request(), old, put(TRIGGER, ("spec", "delivery"), {"retry": 2}), uid="")
    assert generation(changed) == 2
    assert at(apply(request(), changed.object, TRIGGER, uid="").object, "spec", "delivery") is None


def test_an_apply_makes_an_object_in_the_namespace_of_the_path() -> None:
    new = apply(request(), None, drop(TRIGGER, ("metadata", "namespace")), uid=UID).object
    assert at(new, "metadata", "namespace") == "default"


def test_an_object_has_the_names_of_its_path_however_it_comes() -> None:
    """A client that lists objects finds each under the key that it is stored by."""
    nameless = {**TRIGGER, "metadata": {}}
    applied = apply(request(), None, nameless, uid=UID).object
    created = create(request(called=""), TRIGGER, uid=UID).object
    replaced = replace(request(), created, nameless).object
    for object_ in (applied, created, replaced, apply(request(), applied, nameless, uid="").object):
        assert key_of(object_) == Key("eventing.knative.dev", "Trigger", "default", "x")
    assert (
        key_of(
            apply(
                Request(kind("Namespace"), "", "n", NOW_MS), None, made("Namespace", called="n"), uid=UID
            ).object
        ).namespace
        == ""
    )


def test_an_apply_to_a_field_of_another_manager_is_refused_unless_forced() -> None:
    old = stored()
    other = Request(kind("Trigger"), "default", "x", NOW_MS, manager="other")
    wanted = put(TRIGGER, ("spec", "subscriber", "uri"), "http://elsewhere/")
    with pytest.raises(StatusError, match='conflict with "tester"') as refused:
        apply(other, old, wanted, uid="")
    assert refused.value.code == 409
    assert (
        at(apply(other, old, wanted, uid="", force=True).object, "spec", "subscriber", "uri")
        == "http://elsewhere/"
    )


def test_an_apply_cannot_bring_managers_and_may_name_a_version() -> None:
    with pytest.raises(StatusError, match="managedFields must be nil"):
        apply(request(), None, put(TRIGGER, ("metadata", "managedFields"), []), uid=UID)
    with pytest.raises(StatusError) as refused:
        apply(request(), stored(), put(TRIGGER, ("metadata", "resourceVersion"), "6"), uid="")
    assert refused.value.reason == "Conflict"


def test_status_can_be_applied_alone() -> None:
    old = stored()
    body = {**drop(TRIGGER, ("spec",)), "status": {"subscriberUri": "u"}}
    new = apply(request(subresource="status"), old, body, uid="").object
    assert (new["spec"], new["status"]) == (old["spec"], {"subscriberUri": "u"})


def test_a_delete_may_demand_a_uid_and_a_version() -> None:
    old = stored()
    check_preconditions(request(), old, {"preconditions": {"uid": UID, "resourceVersion": "7"}})
    check_preconditions(request(), old, None)
    for name in ("uid", "resourceVersion"):
        with pytest.raises(StatusError, match="precondition"):
            check_preconditions(request(), old, {"preconditions": {name: "another"}})


def test_cluster_scoped_objects_get_no_namespace() -> None:
    admitted = create(Request(kind("Namespace"), "", "", NOW_MS), made("Namespace", namespace="n"), uid=UID)
    assert at(admitted.object, "metadata", "namespace") is None
    assert at(admitted.object, "status", "phase") == "Active"


@given(JSON, st.sampled_from(["metadata", "spec", "status"]))
def test_any_object_is_accepted_or_refused(value: object, where: str) -> None:
    for body in (value, {**TRIGGER, where: value}):
        try:
            admitted = create(request(called=""), body, uid=UID).object
        except StatusError as refused:
            assert refused.status()["code"] in {400, 422}  # noqa: PT017  both outcomes are well
        else:
            assert replace(request(), admitted, admitted).object == admitted


def test_subscribers_of_a_channel_that_are_written_by_hand_are_ignored_with_a_warning() -> None:
    kind_ = kind("Channel")
    given = {
        "apiVersion": "messaging.knative.dev/v1",
        "kind": "Channel",
        "metadata": {"name": "c"},
        "spec": {"subscribers": [{"uid": "u"}]},
    }
    admitted = create(Request(kind_, "default", "", NOW_MS), given, uid=UID)
    assert admitted.warnings == (
        "the gateway fills in spec.subscribers: the given value is ignored; create Subscriptions instead",
    )
    assert "subscribers" not in child(admitted.object, "spec")
    old = put(admitted.object, ("spec", "subscribers"), [{"uid": "u"}])
    unchanged = replace(
        Request(kind_, "default", "c", NOW_MS), old, put(given, ("spec", "subscribers"), [{"uid": "u"}])
    )
    assert unchanged.warnings == ()
