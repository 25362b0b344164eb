"""YAML as JSON, safely: no text stops the process or keeps it busy."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.resources.documents.manifests import written_yaml
from knative_gateway.resources.documents.yaml_documents import YamlError, documents, plain
from tests.knative_gateway.resources.documents.safe_loader import Loader


def one(text: bytes) -> object:
    [read] = documents(text)
    return read


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("0", 0),
        ("-12", -12),
        ("+3", 3),
        ("0x1F", 31),
        ("0b101", 5),
        ("0o17", 15),
        ("017", 15),
        ("089", 89.0),
        ("1e3", 1000.0),
        ("1.5", 1.5),
        (".5", 0.5),
        ("12:30", "12:30"),
        ("1_000", "1_000"),
        ("1.2.3", "1.2.3"),
        ("-", "-"),
        ("", None),
        ("~", None),
        ("NULL", None),
        ("nULL", "nULL"),
        ("on", True),
        ("No", False),
        ("y", "y"),
        ("2026-01-31", "2026-01-31"),
        ("=", "="),
    ],
)
def test_a_text_without_quotes_means_what_kubernetes_takes_it_for(written: str, value: object) -> None:
    read = plain(written)
    assert (type(read), read) == (type(value), value)


def test_quotes_and_tags_decide() -> None:
    assert one(b"['1', \"on\", !!str 1, !!int 1, !!float 1, !!null '']") == ["1", "on", "1", 1, 1, None]
    with pytest.raises(YamlError, match="tag"):
        one(b"!!int x")


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text",
    [
        b"[" * 500_000,
        b"{a: " * 200_000,
        b"- " * 500_000,
        b"? " * 500_000,
        b"".join(b" " * depth + b"a:\n" for depth in range(1_000)),
        b"a: &a {"
        + b",".join(b"k%d: v" % n for n in range(1_000))
        + b"}\nb: {<<: ["
        + b"*a," * 100_000
        + b"]}\n",
        b"a0: &a0 {x: [1, 1]}\n"
        + b"".join(b"a%d: &a%d {x%d: [*a%d, *a%d]}\n" % (n, n, n, n - 1, n - 1) for n in range(1, 60)),
        b"a: &a {b: *a}",
        b"- 1\n" * 200_001,
    ],
    ids=lambda text: text[:12].decode(),
)
def test_an_excessive_document_is_refused_early(text: bytes) -> None:
    with pytest.raises(YamlError, match=r"more than|a key must be a text"):
        one(text)


def test_merges_of_merges_are_what_they_say() -> None:
    text = b"a: &a {x: 1, y: 1}\nb: &b {<<: *a, y: 2}\nc: {z: 3, <<: [*b, *a], x: 4}\nd: {'<<': 1}\n"
    assert one(text) == {
        "a": {"x": 1, "y": 1},
        "b": {"x": 1, "y": 2},
        "c": {"x": 4, "y": 2, "z": 3},
        "d": {"<<": 1},
    }
    with pytest.raises(YamlError, match="merging"):
        one(b"a: {<<: 1}")


def test_an_anchor_ends_with_its_document() -> None:
    assert list(documents(b"--- &a 1\n--- 2\n")) == [1, 2]
    with pytest.raises(YamlError, match="undefined alias"):
        list(documents(b"--- &a 1\n--- [*a]\n"))


@given(
    st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Co", "Cn")))
    | st.from_regex(r"[-+.0-9eExX_:~a-f]{1,8}", fullmatch=True)
)
def test_a_text_that_was_written_stays_one(text: str) -> None:
    assert one(written_yaml({"a": text}).encode()) == {"a": text}


_SCALARS = st.sampled_from(
    [
        *(
            "1",
            "-1",
            "+3",
            "0x1F",
            "0b1",
            "0o7",
            "017",
            "089",
            "1e3",
            "1.",
            ".5",
            ".",
            "-.",
            "12:30",
            "1_000",
            ".nan",
            "-.inf",
        ),
        *("~", "null", "nULL", "on", "Yes", "n", "true", "2026-01-31", "=", "'on'", "<<"),
        *(
            "*scalar",
            "*list",
            "*map",
            "*nowhere",
            "!!int 1",
            "!!int '1'",
            "!!int x",
            "!!float 1",
            "!!float x",
            "!!null",
            "!!bool yes",
        ),
        *(
            "!!str 1",
            "!!binary aGk=",
            "! 12",
            "!x y",
            "{[a]: 1}",
            "",
            "a b",
            "é",
            "9" * 400,
            "9" * 401,
        ),
    ]
)
_NAMES = st.sampled_from(["a", "b", "x", "1", "on", ".nan", "!!int z", "'<<'", "<<", "<<"])
_TEXTS = st.recursive(
    _SCALARS,
    lambda below: (
        st.lists(below, max_size=3).map(lambda each: "[" + " , ".join(each) + " ]")
        | st.lists(st.tuples(_NAMES, below), max_size=3, unique_by=lambda pair: pair[0]).map(
            lambda each: "{" + " , ".join(f"{name}: {value}" for name, value in each) + " }"
        )
    ),
    max_leaves=8,
)


@given(st.lists(_TEXTS, max_size=4))
def test_the_meaning_of_a_text_is_that_of_pyyaml(texts: list[str]) -> None:
    """Anchors that are defined twice are left out: YAML allows them, PyYAML's composer does not."""
    members = "".join(f"- {text}\n" for text in texts)
    written = (
        "- &scalar 5\n- &list [1, 2]\n- &map {x: 1, y: {z: [on]}}\n- &merged {<<: *map, y:"
        f" 2}}\n{members}".encode()
    )
    try:
        expected: object = list(yaml.load_all(written, Loader))
    except (yaml.YAMLError, YamlError):
        expected = YamlError
    try:
        found: object = list(documents(written))
    except YamlError:
        found = YamlError
    assert repr(found) == repr(expected)
