from knative_gateway.controller.garbage import left_behind
from knative_gateway.ports import Key
from knative_gateway.resources.objects import Object


def owned(uid: str, *owners: str) -> dict[str, object]:
    return {"metadata": {"name": uid, "uid": uid, "ownerReferences": [{"uid": owner} for owner in owners]}}


def key(name: str, namespace: str = "n") -> Key:
    return Key("", "ConfigMap", namespace, name)


OBJECTS: dict[Key, Object] = {
    key("a"): owned("a", "gone"),
    key("b"): owned("b", "gone", "c"),
    key("c"): owned("c"),
    key("d"): owned("d", "gone", "long-gone"),
    key("e"): owned("e", "long-gone"),
    key("f", "other"): owned("f"),
}


def test_what_has_no_owner_left_goes_with_the_last_one() -> None:
    assert left_behind(OBJECTS, key("gone"), owned("gone")) == [key("a"), key("d")]


def test_what_came_with_owners_that_were_never_here_stays() -> None:
    assert left_behind(OBJECTS, key("x"), owned("x")) == []


def test_a_namespace_takes_everything_in_it_along() -> None:
    assert left_behind(OBJECTS, Key("", "Namespace", "", "other"), {"metadata": {"name": "other", "uid": "u"}}) == [key("f", "other")]
