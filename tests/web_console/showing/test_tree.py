"""Values as trees."""

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.wire.codec import Described, Symbol, Timestamp
from web_console.showing.tree import DEPTH_MAX, NODES_MAX, Node, tree_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def count(node: Node) -> int:
    return 1 + sum(map(count, node.children))


@given(JSON)
def test_every_json_value_has_a_tree(value: object) -> None:
    tree = tree_of(value)
    assert count(tree) <= NODES_MAX + 1
    assert tree.kind


def test_values_have_the_names_and_types_of_amqp() -> None:
    tree = tree_of({"a": [1, True, None], "s": Symbol("x"), "t": Timestamp(0), "b": b"\x01\xff"})
    assert (tree.kind, tree.text) == ("map", "4 entries")
    items, symbol, time, binary = tree.children
    assert [(each.name, each.kind, each.text) for each in items.children] == [
        ("0", "integer", "1"),
        ("1", "boolean", "true"),
        ("2", "null", "null"),
    ]
    assert (symbol.kind, symbol.text) == ("symbol", "x")
    assert (time.kind, time.text) == ("timestamp", "1970-01-01 00:00:00.000Z")
    assert (binary.kind, binary.text) == ("binary", "01 ff")
    assert tree_of(Described(Symbol("a:b"), 7)).kind == "a:b integer"


def test_a_large_value_is_cut_and_says_how_much_is_left_out() -> None:
    tree = tree_of([[0] * 10] * 10_000)
    assert count(tree) <= NODES_MAX + 1
    assert tree.left_out == 10_000 - len(tree.children)
    assert "5,000 characters" in tree_of("x" * 5000).text
    assert "bits" in tree_of(1 << 100_000).text


def test_a_deep_value_is_cut() -> None:
    value: object = 7
    for _ in range(500):
        value = [value]
    tree, depth = tree_of(value), 0
    while tree.children:
        tree, depth = tree.children[0], depth + 1
    assert depth == DEPTH_MAX
    assert tree.left_out == 1
