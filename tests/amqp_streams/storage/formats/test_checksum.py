import zlib

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.storage.formats.checksum import crc32


@given(st.binary(max_size=20_000), st.integers(0, 2**32 - 1))
def test_is_the_crc_of_zlib(data, seed):
    assert crc32(data, seed) == zlib.crc32(data, seed)
    assert crc32(memoryview(data)[1:], seed) == zlib.crc32(data[1:], seed)


def test_is_computed_by_isal_where_it_has_a_build():
    # The node is installed with it: a slower checksum must not go unnoticed.
    assert crc32.__module__ == "isal.isal_zlib"
