import pytest
from hypothesis import given

from knative_gateway.resources.objects import Object, at, put
from knative_gateway.resources.patches.applying import (
    APPLY,
    MANAGERS_MAX,
    UPDATE,
    Manager,
    apply,
    owners,
    updated,
    with_owners,
)
from knative_gateway.resources.refusals import StatusError
from knative_gateway.resources.schema.fields import fields_v1, leaves
from tests.knative_gateway.resources.schema.test_fields import SCHEMA
from tests.knative_gateway.resources.test_objects import OBJECTS

ONE, OTHER = Manager("one", APPLY), Manager("other", APPLY)
EDITOR = Manager("editor", UPDATE)


def config(**spec: object) -> dict[str, object]:
    return {"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "x"}, "spec": spec}


def applied(
    live: Object, spec: Object, manager: Manager = ONE, *, force: bool = False, now: str = "t"
) -> dict[str, object]:
    return apply(live, config(**spec), manager, now, force=force)


def test_applied_fields_are_present_and_owned() -> None:
    live = applied({}, {"a": {"b": 1}, "c": [1, 2]})
    assert live["spec"] == {"a": {"b": 1}, "c": [1, 2]}
    assert at(live, "metadata", "managedFields") == [
        {
            "manager": "one",
            "operation": "Apply",
            "apiVersion": "g/v1",
            "time": "t",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:a": {"f:b": {}}, "f:c": {}}},
        }
    ]


def test_objects_that_are_no_longer_applied_are_removed_when_they_become_empty() -> None:
    live = applied(applied({}, {"a": {"b": 1}, "c": 2}), {"c": 2})
    assert live["spec"] == {"c": 2}


def test_fields_that_another_manager_also_owns_stay() -> None:
    live = applied(applied(applied({}, {"a": 1}), {"a": 1}, OTHER), {"b": 2})
    assert live["spec"] == {"a": 1, "b": 2}
    assert owners(live)[OTHER].fields == {("spec", "a")}


def test_changing_a_field_of_another_manager_is_refused_unless_forced() -> None:
    live = applied({}, {"a": 1, "b": 1})
    with pytest.raises(StatusError, match=r'conflict with "one": \.spec\.a') as refused:
        applied(live, {"a": 2}, OTHER)
    assert refused.value.code == 409
    forced = applied(live, {"a": 2}, OTHER, force=True)
    assert forced["spec"] == {"a": 2, "b": 1}
    assert owners(forced)[ONE].fields == {("spec", "b")}
    assert owners(forced)[OTHER].fields == {("spec", "a")}


def test_a_plain_write_takes_over_what_it_changes_and_no_more() -> None:
    live = applied({}, {"a": 1, "b": 1, "c": 1})
    edited = updated(live, put(put(live, ("spec", "a"), 2), ("spec", "new"), 3), EDITOR, "t2")
    assert owners(edited)[EDITOR].fields == {("spec", "a"), ("spec", "new")}
    assert owners(edited)[ONE].fields == {("spec", "b"), ("spec", "c")}
    with pytest.raises(StatusError, match='conflict with "editor" using Update'):
        applied(edited, {"a": 1, "b": 1, "c": 1})


def test_a_removed_field_has_no_owner() -> None:
    live = applied({}, {"a": 1, "b": 1})
    removed = updated(live, {**live, "spec": {"b": 1}}, EDITOR, "t2")
    assert owners(removed)[ONE].fields == {("spec", "b")}
    assert EDITOR not in owners(removed)


def test_applying_the_same_again_changes_nothing() -> None:
    live = applied({}, {"a": {"b": 1}, "c": {}}, now="t1")
    assert applied(live, {"a": {"b": 1}, "c": {}}, now="t2") == live


def test_an_empty_object_does_not_take_away_what_is_in_it() -> None:
    live = applied({}, {"filter": {"attributes": {"type": "a"}}})
    assert at(applied(live, {"filter": {}}, OTHER), "spec", "filter") == {"attributes": {"type": "a"}}


def test_status_and_the_other_fields_are_owned_apart() -> None:
    old = {**config(a=1), "status": {"x": 1}}
    written = updated(
        old, {**old, "status": {"x": 2}, "spec": {"a": 2}}, Manager("server", UPDATE, "status"), "t"
    )
    ((manager, managed),) = owners(written).items()
    assert (manager.subresource, managed.fields) == ("status", frozenset({("status", "x")}))
    assert leaves(old) == {("spec", "a"): 1}


def test_an_author_may_reset_the_managers() -> None:
    """kubectl does this when it moves an object from client-side to server-side apply."""
    live = applied({}, {"a": 1})
    metadata = updated(live, put(live, ("metadata", "managedFields"), []), EDITOR, "t")["metadata"]
    assert isinstance(metadata, dict)
    assert "managedFields" not in metadata


def test_unreadable_managed_fields_are_ignored() -> None:
    odd = put(
        config(),
        ("metadata", "managedFields"),
        [1, {"manager": "m"}, {"manager": "m", "operation": "Apply", "fieldsV1": {"f:a": 1}}],
    )
    assert list(owners(odd)) == [Manager("m", APPLY)]


def test_managers_are_bounded() -> None:
    live: dict[str, object] = config()
    for number in range(MANAGERS_MAX + 20):
        live = updated(
            live, put(live, ("spec", f"f{number}"), 1), Manager(f"m{number}", UPDATE), f"t{number:03}"
        )
    kept = owners(live)
    assert len(kept) == MANAGERS_MAX
    assert Manager("m0", UPDATE) not in kept


def test_plain_writes_lose_their_fields_before_any_apply_does() -> None:
    """An apply removes fields that it no longer names, so it must remember which it had."""
    live = applied({}, {"mine": 1}, now="2026-01-01T00:00:00Z")
    for number in range(MANAGERS_MAX + 20):
        changed = put(live, ("spec", f"field{number}"), number)
        live = updated(
            live, changed, Manager(f"m{number}", UPDATE), f"2026-01-02T00:{number // 60:02}:{number % 60:02}Z"
        )
    assert len(owners(live)) == MANAGERS_MAX
    assert ONE in owners(live)
    assert Manager("m0", UPDATE) not in owners(live)
    assert at(applied(live, {}, now="2026-01-03T00:00:00Z"), "spec", "mine") is None


@given(OBJECTS)
def test_fields_are_read_back_as_they_were_written(spec: dict[str, object]) -> None:
    fields = frozenset(leaves(config(**spec)))
    live = applied({}, spec)
    assert owners(live)[ONE].fields == fields
    assert owners(with_owners(live, owners(live))) == owners(live)
    assert fields_v1([]) == {}


@given(OBJECTS, OBJECTS)
def test_after_a_forced_apply_everything_applied_is_there(
    first: dict[str, object], second: dict[str, object]
) -> None:
    live = applied(applied({}, first), second, OTHER, force=True)
    for path, value in leaves(config(**second)).items():
        if value != {}:
            assert at(live, *map(str, path)) == value


@given(OBJECTS, OBJECTS)
def test_one_manager_alone_gets_just_what_it_applied_last(
    first: dict[str, object], second: dict[str, object]
) -> None:
    assert leaves(applied(applied({}, first), second)).keys() >= {
        path for path, value in leaves(config(**second)).items() if value != {}
    }
    assert {
        path for path, value in leaves(applied(applied({}, first), second)).items() if value != {}
    } <= leaves(config(**second)).keys()


def keyed(live: Object, spec: Object, manager: Manager = ONE, *, force: bool = False) -> dict[str, object]:
    return apply(live, config(**spec), manager, "t", SCHEMA, force=force)


def test_two_managers_share_a_list_of_items_with_keys() -> None:
    live = keyed(
        keyed({}, {"ports": [{"port": 80, "name": "http"}]}),
        {"ports": [{"port": 443, "name": "https"}]},
        OTHER,
    )
    assert at(live, "spec", "ports") == [{"port": 80, "name": "http"}, {"port": 443, "name": "https"}]
    live = keyed(live, {"ports": [{"port": 81, "name": "http"}]})
    assert at(live, "spec", "ports") == [{"port": 443, "name": "https"}, {"port": 81, "name": "http"}]
    assert at(keyed(live, {}), "spec", "ports") == [{"port": 443, "name": "https"}]


def test_fields_of_one_item_have_owners_of_their_own() -> None:
    live = keyed(
        keyed({}, {"ports": [{"port": 80, "name": "a"}]}), {"ports": [{"port": 80, "other": "b"}]}, OTHER
    )
    assert at(live, "spec", "ports") == [{"port": 80, "name": "a", "other": "b"}]
    with pytest.raises(StatusError, match=r'conflict with "one": .spec.ports\[port=80,protocol="TCP"\].name'):
        keyed(live, {"ports": [{"port": 80, "name": "z"}]}, OTHER)
    assert at(keyed(live, {"ports": []}), "spec", "ports") == [{"port": 80, "other": "b"}]


def test_the_values_of_a_set_come_and_go_one_by_one() -> None:
    live = keyed(keyed({}, {"tags": ["a", "b"]}), {"tags": ["b", "c"]}, OTHER)
    assert at(live, "spec", "tags") == ["a", "b", "c"]
    assert at(keyed(live, {"tags": ["x"]}), "spec", "tags") == ["b", "c", "x"]


def test_an_object_that_others_filled_stays_when_its_maker_lets_it_go() -> None:
    live = applied(applied({}, {"filter": {}, "a": 1}), {"filter": {"x": 1}}, OTHER)
    assert applied(live, {"a": 1})["spec"] == {"filter": {"x": 1}, "a": 1}


@pytest.mark.timeout(20)
def test_very_many_fields_are_applied_soon() -> None:
    """All at once: one after another would delay all other requests."""
    fields: dict[str, object] = {f"k{number}": "v" for number in range(30_000)}
    live = applied(applied({}, fields), {"left": 1})
    assert live["spec"] == {"left": 1}
