"""The fields of a form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from web_console.http.forms import FormError, form_fields


@given(st.binary(max_size=200))
def test_any_bytes_are_fields_or_a_form_error(body: bytes) -> None:
    try:
        fields = form_fields(body)
    except FormError:
        return
    assert all(isinstance(value, str) for value in fields.values())


def test_fields_are_decoded_and_the_last_of_a_name_counts() -> None:
    assert form_fields(b"a=1&b=%C3%A4+x&a=2&c=") == {"a": "2", "b": "ä x", "c": ""}


@pytest.mark.parametrize("body", [b"a=1&" * 200, b"a=%ff", b"\xff=1"])
def test_too_many_fields_and_other_encodings_are_refused(body: bytes) -> None:
    with pytest.raises(FormError):
        form_fields(body)
