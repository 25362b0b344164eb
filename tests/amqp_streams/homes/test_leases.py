"""A wait outlasts a lease that another clock counts."""

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.homes.leases import Times, outlasting

RATES = st.floats(0.991, 1.009)


@given(length=st.integers(200, 100_000), lease_rate=RATES, wait_rate=RATES, offset=st.floats(0, 1e6))
def test_a_lease_is_over_when_the_wait_is_over_whatever_the_clocks_say(
    length: int, lease_rate: float, wait_rate: float, offset: float
) -> None:
    # Whole milliseconds of each clock: the lease begins at true time 0.
    lease_begins, wait_begins = int(offset), int(offset)
    wait_ends = next(
        true
        for true in range(int(length * 0.9), int(length * 1.2) + 20)
        if int(offset + wait_rate * true) >= wait_begins + outlasting(length)
    )
    assert int(offset + lease_rate * wait_ends) >= lease_begins + length


def test_the_wait_is_two_percent_longer_than_the_lease() -> None:
    assert Times(lease_ms=3000).outlasting_ms == 3062
