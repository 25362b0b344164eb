from knative_gateway.ports import Key
from knative_gateway.store.decoded import Decoded

A, B, C = (Key("", "Service", "n", name) for name in "abc")


def test_an_object_is_shared_by_all_readers_of_its_version() -> None:
    decoded, object_ = Decoded(), {"a": 1}
    decoded.keep(A, 7, object_, 10)
    assert decoded.get(A, 7) is object_
    assert decoded.get(A, 8) is None
    assert decoded.get(B, 7) is None


def test_an_older_version_does_not_replace_a_later_one() -> None:
    decoded = Decoded()
    decoded.keep(A, 8, {"new": 1}, 10)
    decoded.keep(A, 7, {"old": 1}, 10)
    assert decoded.get(A, 8) == {"new": 1}


def test_the_least_recently_used_objects_are_removed_first() -> None:
    decoded = Decoded(25)
    for key in (A, B):
        decoded.keep(key, 1, {}, 10)
    assert decoded.get(A, 1) is not None
    decoded.keep(C, 1, {}, 10)
    assert [decoded.get(key, 1) is None for key in (A, B, C)] == [False, True, False]
    decoded.keep(A, 2, {}, 30)
    assert len(decoded) == 0
