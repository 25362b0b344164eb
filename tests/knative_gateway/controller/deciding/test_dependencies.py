from knative_gateway.controller.deciding.dependencies import Dependencies
from knative_gateway.ports import Key

A, B, C = (Key("", "Service", "n", name) for name in "abc")


def test_a_node_depends_on_what_it_looked_up_last_found_or_not() -> None:
    dependencies = Dependencies()
    lookup = dependencies.recorded(("member", A), {B: {"there": True}}.get)
    assert (lookup(B), lookup(C)) == ({"there": True}, None)
    assert list(dependencies.of(B)) == list(dependencies.of(C)) == [("member", A)]
    dependencies.recorded(("member", A), lambda _: None)(C)
    assert (list(dependencies.of(B)), list(dependencies.of(C))) == ([], [("member", A)])


def test_nothing_is_left_of_a_node_that_was_forgotten() -> None:
    dependencies = Dependencies()
    for node in (("member", A), ("source", B)):
        dependencies.recorded(node, lambda _: None)(C)
    assert len(dependencies) == 2
    dependencies.forget(("member", A))
    assert list(dependencies.of(C)) == [("source", B)]
    dependencies.forget(("source", B))
    dependencies.forget(("source", B))
    assert len(dependencies) == 0
