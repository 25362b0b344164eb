"""The limits of a user apply to all of its connections together."""

import pytest

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.policy import Quota
from amqp_streams.server.limits import quotas
from amqp_streams.server.limits.quotas import OTHERS, Quotas
from amqp_streams.server.observing.status import QuotaStatus
from tests.amqp_streams.server.limits.test_bucket import Clock, Consumer


def made(clock: Clock | None = None, **of: Quota) -> Quotas:
    clock = clock or Clock()
    return Quotas({name.replace("anyone", "*"): quota for name, quota in of.items()}, clock.read, clock.later)


def test_connections_beyond_the_quota_are_refused_by_name() -> None:
    alice = made(alice=Quota(connections=2)).of("alice")
    alice.enter()
    alice.enter()
    with pytest.raises(
        PeerError, match="quota 'connections' of 'alice' is used up: it allows at most 2"
    ) as refused:
        alice.enter()
    assert refused.value.condition == names.RESOURCE_LIMIT_EXCEEDED
    assert alice.connections == 2
    alice.leave()
    alice.enter()
    assert alice.status() == QuotaStatus("alice", connections_refused=1)


def test_links_beyond_the_quota_are_refused_by_name() -> None:
    alice = made(alice=Quota(links=1)).of("alice")
    alice.require_link()
    alice.links += 1
    with pytest.raises(PeerError, match="quota 'links' of 'alice'"):
        alice.require_link()
    assert alice.status().links_refused == 1


def test_a_user_without_a_quota_has_no_bound_and_no_throttle() -> None:
    bob = made(alice=Quota(connections=0, links=0, bytes_in=1000, bytes_out=1000)).of("bob")
    bob.enter()
    bob.require_link()
    assert bob.bytes_in is None
    assert bob.bytes_out is None


def test_the_default_is_for_every_user_without_a_quota_of_its_own() -> None:
    all_quotas = made(anyone=Quota(connections=1, links=1), alice=Quota(connections=0))
    all_quotas.of("bob").enter()
    with pytest.raises(PeerError):
        all_quotas.of("alice").enter()
    all_quotas.of("alice").require_link()  # a quota of one's own stands for the whole default
    for _ in range(3):
        all_quotas.of(None).enter()


@pytest.mark.parametrize("user", ["anonymous", "*"])
def test_a_user_named_like_a_word_of_the_quotas_has_the_default(user: str) -> None:
    all_quotas = made(anyone=Quota(connections=1), anonymous=Quota(connections=0))
    all_quotas.of(user).enter()
    with pytest.raises(PeerError):
        all_quotas.of(user).enter()
    with pytest.raises(PeerError):
        all_quotas.of(None).enter()


def test_all_anonymous_connections_share_one_account() -> None:
    all_quotas = made(anonymous=Quota(connections=1))
    all_quotas.of(None).enter()
    assert all_quotas.of(None).connections == 1


def test_a_reload_reaches_the_accounts_that_are_there() -> None:
    clock = Clock()
    all_quotas = made(clock, alice=Quota(bytes_out=1000))
    alice, bob = all_quotas.of("alice"), all_quotas.of("bob")
    alice.enter()
    throttle = alice.bytes_out
    assert throttle is not None
    link = Consumer(throttle, 5000)
    link.go_on()
    assert alice.status().waits_out == 1
    all_quotas.change({"alice": Quota(bytes_out=2000), "bob": Quota(bytes_in=1000, connections=0)})
    assert alice.bytes_out is throttle
    assert bob.bytes_in is not None
    with pytest.raises(PeerError):
        bob.enter()
    told: list[object] = []
    link.go_on = lambda: told.append(link)  # type: ignore[method-assign]  # its throttle is about to end
    all_quotas.change({})
    assert alice.bytes_out is None
    assert told == [link]
    assert alice.status().waits_out == 1
    alice.forget(link)


def test_ended_links_are_forgotten_in_both_directions() -> None:
    alice = made(alice=Quota(bytes_in=1000, bytes_out=1000)).of("alice")
    assert alice.bytes_in is not None
    assert alice.bytes_out is not None
    link = Consumer(alice.bytes_out, 10)
    link.go_on()
    alice.bytes_in.credit(link, 0, 10)
    alice.forget(link)
    assert alice.bytes_in.idle


def test_a_client_that_returns_still_owes_its_debt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a new connection would get a new second's allowance."""
    monkeypatch.setattr(quotas, "ACCOUNTS_MAX", 3)
    clock = Clock()
    all_quotas = made(clock, anyone=Quota(bytes_out=1000))
    alice = all_quotas.of("alice")
    assert alice.bytes_out is not None
    link = Consumer(alice.bytes_out, 5000)
    link.go_on()
    alice.forget(link)
    for number in range(10):
        all_quotas.of(f"user{number}")
    assert all_quotas.of("alice") is alice
    clock.run_until(60_000)
    for number in range(10, 20):
        all_quotas.of(f"user{number}")
    assert all_quotas.of("alice") is not alice
    assert [status for status in all_quotas.status() if status.user == OTHERS] == [
        QuotaStatus(OTHERS, waits_out=1, waited_out_ms=0),
    ]


def test_figures_are_of_users_who_waited_or_were_refused_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "SHOWN_MAX", 2)
    all_quotas = made(anyone=Quota(links=0), bob=Quota())
    all_quotas.of("bob").require_link()
    for user in ("a", "b", "c", "d"):
        with pytest.raises(PeerError):
            all_quotas.of(user).require_link()
    assert list(all_quotas.status()) == [
        QuotaStatus("a", links_refused=1),
        QuotaStatus("b", links_refused=1),
        QuotaStatus(OTHERS, links_refused=2),
    ]
