"""Partitions that another container serves are named, with the way there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.policy import Redirect
from amqp_streams.streams.redirects import NOWHERE, Elsewhere, Redirects, require_here

B, C = Elsewhere("b.example", 5672), Elsewhere("c.example", 5671, "node-c")


def redirect(log: str, container: Elsewhere, *partitions: int) -> Redirect:
    return Redirect(
        log=log,
        partitions=partitions or None,
        host=container.host,
        port=container.port,
        container=container.container,
    )


def test_without_redirects_everything_is_here() -> None:
    assert Redirects().of("temps", 4) is NOWHERE
    assert Redirects().whole("temps") is None
    assert Redirects([redirect("other", B)]).of("temps", 4) is NOWHERE


def test_partitions_are_where_the_first_redirect_says_that_names_them() -> None:
    redirects = Redirects([redirect("temps", B, 1), redirect("te*", C, 1, 2, 99), redirect("*", B, 0)])
    assert redirects.of("temps", 4) == {0: B, 1: B, 2: C}
    assert redirects.of("tests", 4) == {0: B, 1: C, 2: C}
    assert redirects.of("temps", 4) is redirects.of("temps", 4)


def test_a_redirect_without_partitions_is_about_the_whole_log_here_or_not() -> None:
    redirects = Redirects([redirect("temps", B, 1), redirect("temps", C)])
    assert redirects.of("temps", 3) == {0: C, 1: B, 2: C}
    assert redirects.whole("temps") == C
    assert redirects.whole("other") is None


def test_a_peer_learns_where_to_connect() -> None:
    error = C.error("temps", 2)
    assert error.condition == names.LINK_REDIRECT
    assert error.description == "partition 2 of log 'temps' is served by c.example:5671 (node-c)"
    assert error.info == {
        "hostname": "c.example",
        "network-host": "c.example",
        "port": 5671,
        "address": "temps",
        "container-id": "node-c",
        "partition": "2",
    }
    assert B.error("temps").description == "log 'temps' is served by b.example:5672"
    assert B.error("temps").info.keys() == {"hostname", "network-host", "port", "address"}
    assert Elsewhere("::1", 5672).error("temps").description.endswith("[::1]:5672")


def test_a_link_that_asks_for_a_partition_elsewhere_is_sent_there() -> None:
    elsewhere = {1: B, 2: C}
    for partition, container in elsewhere.items():
        with pytest.raises(PeerError, match=container.host) as refused:
            require_here("temps", 4, elsewhere, partition)
        assert refused.value.info["partition"] == str(partition)
    require_here("temps", 4, elsewhere, 0)
    require_here("temps", 4, elsewhere, None)


def test_a_link_without_a_partition_is_redirected_if_none_is_here() -> None:
    with pytest.raises(PeerError, match=C.host) as refused:
        require_here("temps", 2, {0: C, 1: B}, None)
    assert "partition" not in refused.value.info
    require_here("temps", 2, NOWHERE, None)


@given(
    st.lists(
        st.tuples(st.sampled_from("abc*"), st.lists(st.integers(0, 5), max_size=3), st.sampled_from([B, C])),
        max_size=5,
    )
)
def test_each_partition_is_in_one_place_and_never_out_of_range(
    rules: list[tuple[str, list[int], Elsewhere]],
) -> None:
    redirects = Redirects([redirect(log, container, *partitions) for log, partitions, container in rules])
    for log in "abcd":
        elsewhere = redirects.of(log, 4)
        for index in range(6):
            naming = [
                container
                for pattern, partitions, container in rules
                if pattern in (log, "*") and (not partitions or index in partitions)
            ]
            assert elsewhere.get(index) == (naming[0] if naming and index < 4 else None)
