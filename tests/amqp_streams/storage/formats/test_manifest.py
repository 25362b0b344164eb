"""A manifest is read as it was written, and one of another version is refused."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amqp_streams.log_settings import LOG_NAME
from amqp_streams.storage.formats.manifest import (
    NAME,
    CopiedLog,
    CopiedPartition,
    Manifest,
    Piece,
    Small,
    Tail,
    number_of,
)
from amqp_streams.storage.ports import Reached
from tests.properties import examples

numbers = st.integers(0, 1 << 53)
pieces = st.builds(
    Piece, numbers, numbers, numbers, numbers, numbers, numbers, numbers, st.tuples(numbers, numbers, numbers)
)
tables = st.dictionaries(st.text(min_size=1, max_size=9), st.builds(Reached, numbers, numbers), max_size=4)
partitions = st.builds(
    CopiedPartition,
    numbers,
    numbers,
    numbers,
    st.lists(pieces, max_size=3).map(tuple),
    st.builds(Tail, numbers, numbers),
    tables,
)
logs = st.builds(
    CopiedLog,
    st.fixed_dictionaries(
        {
            "name": st.from_regex(LOG_NAME, fullmatch=True),
            "uid": st.integers(0, (1 << 64) - 1).map("{:016x}".format),
            "incarnation": st.text(),
        }
    ),
    st.lists(partitions, max_size=2).map(tuple),
)
smalls = st.builds(Small, numbers, numbers)
manifests = st.builds(
    Manifest,
    st.from_regex(NAME, fullmatch=True),
    st.booleans(),
    numbers,
    st.sampled_from([1, 2, 3]),
    st.text(),
    numbers,
    numbers,
    st.lists(logs, max_size=2).map(tuple),
    smalls,
    smalls,
    st.lists(st.text(), max_size=2).map(tuple),
)


@settings(max_examples=examples(20))
@given(manifests)
def test_a_manifest_is_read_as_it_was_written(manifest: Manifest) -> None:
    read = Manifest.from_json(json.loads(json.dumps(manifest.as_json(), sort_keys=True)))
    assert read == manifest
    for ours, theirs in zip(read.logs, manifest.logs, strict=True):
        for one, other in zip(ours.partitions, theirs.partitions, strict=True):
            # The producer with the latest record is last.
            assert list(one.producers) == list(other.producers)


@settings(max_examples=examples(20))
@given(manifests)
def test_a_manifest_of_another_version_is_refused(manifest: Manifest) -> None:
    with pytest.raises(ValueError, match="version 2"):
        Manifest.from_json(manifest.as_json() | {"backup": 2})


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-a", "a.tmp", "x" * 65, "a\n"])
def test_a_name_is_never_a_path(name: str) -> None:
    assert not NAME.fullmatch(name)


@pytest.mark.parametrize(
    "text", ["", "7", "-000000000000007", "0x00000000000007", "../../../../etc/x", "7" * 17]
)
def test_the_number_of_a_folder_has_sixteen_digits(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number of 16 hexadecimal digits"):
        number_of(text)
    assert number_of("00000000000000ff") == 255
