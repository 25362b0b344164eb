import pytest

from knative_gateway.resources.jsonpath import find

DOCUMENT = {
    "status": {
        "conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}],
        "url": "u",
    },
    "metadata": {"annotations": {"a.b/c.d": "v"}},
    "ports": [{"port": 1}, {"port": 2}],
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".status.url", ["u"]),
        ("{.status.url}", ["u"]),
        ("$.status.url", ["u"]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type=='None')].status", []),
        (r".metadata.annotations.a\.b/c\.d", ["v"]),
        (".metadata.annotations['a.b/c.d']", ["v"]),
        (".ports[*].port", [1, 2]),
        (".ports[0].port", [1]),
        (".ports[-1].port", [2]),
        (".ports[7].port", []),
        (".none.none", []),
        (".ports.port", []),
        (".ports[", []),
        ("nothing like a path", []),
    ],
)
def test_a_path_finds_what_it_says(path: str, found: list[object]) -> None:
    assert find(DOCUMENT, path) == found
