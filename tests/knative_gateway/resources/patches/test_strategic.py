import pytest

from knative_gateway.resources.objects import Object
from knative_gateway.resources.patches.strategic import strategic_patch
from knative_gateway.resources.refusals import StatusError

PORTS = {"ports": [{"port": 80, "name": "a"}, {"port": 443, "name": "b"}]}


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"data": {"a": "1", "b": "2"}}, {"data": {"a": "3", "b": None}}, {"data": {"a": "3"}}),
        (
            PORTS,
            {"ports": [{"port": 80, "name": "c"}]},
            {"ports": [{"port": 80, "name": "c"}, {"port": 443, "name": "b"}]},
        ),
        (PORTS, {"ports": [{"port": 8080}]}, {"ports": [*PORTS["ports"], {"port": 8080}]}),
        (PORTS, {"ports": [{"port": 80, "$patch": "delete"}]}, {"ports": [{"port": 443, "name": "b"}]}),
        (PORTS, {"ports": [{"$patch": "replace"}, {"port": 1}]}, {"ports": [{"port": 1}]}),
        (PORTS, {"$setElementOrder/ports": [{"port": 443}, {"port": 80}]}, {"ports": PORTS["ports"][::-1]}),
        ({"finalizers": ["a"]}, {"finalizers": ["b", "a"]}, {"finalizers": ["a", "b"]}),
        ({"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]}, {"finalizers": ["b"]}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"$patch": "replace", "d": 3}}, {"a": {"d": 3}}),
        ({"a": {"b": 1}}, {"a": {"$patch": "delete"}}, {"a": {}}),
        ({"a": 1, "b": 2}, {"$retainKeys": ["a"], "a": 3}, {"a": 3}),
        ({"list": [1, 2]}, {"list": [3]}, {"list": [3]}),
    ],
)
def test_a_strategic_patch_merges_lists_by_their_keys(target: Object, patch: Object, result: Object) -> None:
    before = repr(target)
    assert strategic_patch(target, patch) == result
    assert repr(target) == before


@pytest.mark.parametrize("patch", [{"$patch": "explode"}, {"ports": [1]}])
def test_an_unknown_directive_is_refused(patch: Object) -> None:
    with pytest.raises(StatusError):
        strategic_patch(PORTS, patch)
