import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.resources.refusals import StatusError
from knative_gateway.resources.selectors import everything, field_selector, label_selector, named

ANYTHING = {"x-kubernetes-preserve-unknown-fields": True}
OBJECT = {
    "metadata": {"name": "x", "labels": {"app": "web", "size": "3", "a.b/tier": "", "in": "y"}},
    "spec": {"on": True, "n": 4, "odd": "a,b=c\\"},
}


@pytest.mark.parametrize(
    ("written", "matches"),
    [
        ("app=web", True),
        ("app==web", True),
        ("app=other", False),
        ("app!=web", False),
        ("app!=other", True),
        ("none!=x", True),
        ("app in (web,other)", True),
        ("app in (other)", False),
        ("app notin (web)", False),
        ("none notin (web)", True),
        ("app", True),
        ("none", False),
        ("!app", False),
        ("!none", True),
        ("size>2", True),
        ("size>3", False),
        ("size<4", True),
        ("app>1", False),
        ("none<1", False),
        ("a.b/tier=", True),
        ("a.b/tier", True),
        ("in=y", True),
        ("app in ( web , other ), size = 3 ,!none", True),
        ("app=web,size=4", False),
        ("", True),
    ],
)
def test_a_label_selector_takes_what_it_means(written: str, matches: bool) -> None:
    assert label_selector(written)(OBJECT) is matches


def test_an_object_without_labels_has_none() -> None:
    assert not label_selector("app")({})
    assert label_selector("!app")({"metadata": {"labels": None}})


@pytest.mark.parametrize(
    ("written", "matches"),
    [
        ("metadata.name=x", True),
        ("metadata.name==x", True),
        ("metadata.name!=x", False),
        ("metadata.name=x,spec.n!=5", True),
        ("spec.on=true", True),
        ("spec.n=4", True),
        ("spec.none=", True),
        ("spec.none!=a", True),
        (r"spec.odd=a\,b\=c\\", True),
        ("", True),
    ],
)
def test_a_field_selector_takes_what_it_means(written: str, matches: bool) -> None:
    assert field_selector(written, ANYTHING)(OBJECT) is matches


@pytest.mark.parametrize(
    "written",
    ["app in web", "=x", "app=a b", "app>x", "app=web,", "app,,size", "app in (a b)", "a=b=c", "x" * 20_000],
)
def test_a_label_selector_that_cannot_be_read_is_refused(written: str) -> None:
    with pytest.raises(StatusError) as refused:
        label_selector(written)
    assert refused.value.code == 400


@pytest.mark.parametrize("written", ["metadata.name", "=x", "a=b,", "a=b=c", "a=b,,c=d"])
def test_a_field_selector_that_cannot_be_read_is_refused(written: str) -> None:
    with pytest.raises(StatusError):
        field_selector(written, ANYTHING)


@pytest.mark.parametrize("written", ["spec.brokr=x", "spec.brokr!=x", "metadata.uid=x", "spec.broker.name=x"])
def test_a_field_that_no_object_has_is_refused(written: str) -> None:
    """With `!=` it would select all objects, and a request could delete all of them."""
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"broker": {"type": "string"}}}},
    }
    assert field_selector("spec.broker=x,metadata.name!=y", schema)(
        {"spec": {"broker": "x"}, "metadata": {"name": "x"}}
    )
    with pytest.raises(StatusError, match="field label not supported"):
        field_selector(written, schema)


def test_a_selector_of_one_name_says_which() -> None:
    assert named("metadata.name=x") == "x"
    assert named("metadata.namespace=n,metadata.name==x") == "x"
    assert named("metadata.name!=x") is None
    assert label_selector(" ") is everything


@given(st.text(max_size=30))
def test_any_text_is_a_selector_or_refused(written: str) -> None:
    for read in (label_selector, lambda each: field_selector(each, ANYTHING)):
        with contextlib.suppress(StatusError):
            assert read(written)(OBJECT) in {True, False}
