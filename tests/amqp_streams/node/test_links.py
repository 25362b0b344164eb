"""Links by their logs and their names. Spec: AMQP 2.6.1."""

from amqp_streams.config import LogSettings
from amqp_streams.node.links import Links
from amqp_streams.storage.ports import StoredLog
from amqp_streams.streams.attach import Kept, Managing, Pending, Producing, Replying
from tests.amqp_streams.node.bench import Bench, attach

LOG = StoredLog("temps", LogSettings(), "i", ())


def test_a_link_is_found_by_its_log_and_by_its_name_until_it_goes() -> None:
    links, request = Links(), attach(link="l", container="c")
    link = Producing(LOG, None)
    links.add(request, link)
    assert links.of("temps") == (link,)
    assert links.rival(request) is link
    assert links.remove(link)
    assert not links.remove(link)
    assert links.of("temps") == ()
    assert links.rival(request) is None


def test_the_later_of_two_has_the_name() -> None:
    links, request = Links(), attach(link="l", container="c", consumer=True)
    waiting, kept = Pending(request), Kept(request, "temps")
    links.add(request, waiting)
    links.add(request, kept)
    assert links.remove(waiting)
    assert links.rival(request) is kept


def test_management_and_reply_links_have_no_name_in_the_node() -> None:
    links, request = Links(), attach("$management", link="l", container="c")
    for link in (Managing(), Replying(frozenset({"me"}))):
        links.add(request, link)
        assert links.rival(request) is None
        assert not links.remove(link)


def test_consumers_of_a_log_are_counted_once_from_their_attach_to_their_end() -> None:
    bench = Bench()
    consumers = [bench.consume(), bench.consume()]
    links, other = Links(), Producing(LOG, None)
    for link in (consumers[0], consumers[0], consumers[1]):
        links.add(link.request, link)
    links.add(attach(), other)
    assert (links.consumers_of("temps"), links.consumers_of("other")) == (2, 0)
    assert links.remove(consumers[0])
    assert not links.remove(consumers[0])
    assert links.consumers_of("temps") == 1
    links.remove(consumers[1])
    links.remove(other)
    assert links.consumers_of("temps") == 0
