from knative_gateway.controller.garbage import Belongings
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


def known() -> Belongings:
    belongings = Belongings()
    for each, object_ in OBJECTS.items():
        belongings.note(each, object_)
    return belongings


def test_an_object_without_owners_is_deleted_with_the_last_one() -> None:
    assert known().left_behind(key("gone"), owned("gone")) == [key("a"), key("d")]


def test_objects_with_owners_that_never_existed_stay() -> None:
    assert known().left_behind(key("x"), owned("x")) == []


def test_a_namespace_takes_everything_in_it_along() -> None:
    gone = {"metadata": {"name": "other", "uid": "u"}}
    assert known().left_behind(Key("", "Namespace", "", "other"), gone) == [key("f", "other")]


def test_objects_that_are_gone_or_have_another_owner_are_not_deleted_again() -> None:
    belongings = known()
    belongings.note(key("a"), None)
    belongings.note(key("d"), owned("d", "c"))
    assert belongings.left_behind(key("gone"), owned("gone")) == []
    belongings.note(key("c"), None)
    assert belongings.left_behind(key("c"), owned("c")) == [key("b"), key("d")]
