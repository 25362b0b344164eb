"""Idempotent producers and homes of groups: what a tenant of nodes on Kafka can use up, beside a neighbour.

What a program at the listener between the nodes can do is shown by tests: `attack/elsewhere.py` names them.
"""

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, Final

import proton

from amqp_streams import names
from amqp_streams.homes.buckets import bucket_of
from amqp_streams.kafka.numbered.records import BUCKETS, ProducerKey
from amqp_streams.streams.groups.claims import Claim
from amqp_streams.streams.numbering import stored_id
from attack.kafka_room import KafkaRoom
from attack.numbered import LOG, again_and_again, outcome, post, producer
from attack.peer import Peer, received, refusal, words_of
from attack.report import Attack, Place, Table, expect
from attack.room import Room, wait_for
from attack.settings import MALLORY, NINA
from attack.tables.links import LIMITED, refused

LAST: Final = 2**64 - 1
"""The largest number of an event."""
MIB: Final = 1 << 20
NAMES_MAX: Final = 10_000
NAMES_S_MAX: Final = 420.0
"""A slow machine gets fewer names."""
_OPEN: Final = "amqp_streams_kafka_numbered_producers"


def _on_kafka(run: Callable[[KafkaRoom], Iterator[str]]) -> Callable[[Room], Iterator[str]]:
    def in_room(room: Room) -> Iterator[str]:
        assert isinstance(room, KafkaRoom)
        yield from run(room)

    return in_room


def _let_go(room: KafkaRoom) -> None:
    """Only the neighbour's producers are open any more."""
    wait_for(lambda: room.metric(_OPEN) <= 6, "the producers of the attacker end")


def _places(room: KafkaRoom) -> Iterator[str]:
    """A user takes every place of a node, and more. Another user still gets one, and loses none."""
    with ExitStack() as stack:
        peers: list[Peer] = []
        links: list[Any] = []
        condition, per_peer = None, 16
        while condition is None and len(links) < room.numbered + per_peer:
            if len(links) % per_peer == 0:
                peers.append(stack.enter_context(room.peer(container=f"taker-{len(peers)}")))
            links.append(producer(peers[-1], f"place-{len(links)}"))
            peers[-1].credited(links[-1])
            condition = refusal(links[-1])
        expect(condition == LIMITED, f"{len(links)} producers, then {condition}")
        words = words_of(links[-1])
        expect("kafka.numbered" in words, words)
        nina = stack.enter_context(room.peer(NINA))
        late = [producer(nina, f"late-{number}", log="n-opened") for number in range(2)]
        for link in late:
            nina.credited(link)
            expect(refusal(link) is None, f"another user gets no place: {words_of(link)}")
            expect(outcome(nina, link, 1) == proton.Delivery.ACCEPTED, "its event is not accepted")
        for peer in peers:
            peer.pump(0.1)
        lost = [refusal(link) for link in links[:-1] if refusal(link) is not None]
        expect(set(lost) == {names.LINK_DETACH_FORCED}, f"the attacker lost {lost}")
        yield f"{len(links) - 1} producers, then {condition}; {len(lost)} gave way to another user"
        for peer in peers:
            peer.pump(0.0)
        expect(all(refusal(link) is None for link in late), "a link of the other user is closed")
    _let_go(room)


def _leaving(room: KafkaRoom) -> Iterator[str]:
    """Attaches of new producers whose clients leave at once: Kafka is asked for nothing, again and again."""
    names_ = itertools.count()
    told = Counter[str]()

    def come_and_go() -> None:
        with room.peer() as peer:
            links = [producer(peer, f"gone-{next(names_)}") for _ in range(room.numbered)]
            peer.pump(0.02)
            told.update(str(refusal(link)) for link in links)

    with again_and_again(*[come_and_go] * 4) as counts:
        yield "clients that attach all places of a node and leave at once"
    expect(sum(counts.values()) > 0, "the attacker did nothing")
    # Its own clients may take each other's places before the links are attached.
    expect(set(told) <= {"None", LIMITED, names.INTERNAL_ERROR}, f"answers {told}")
    wait_for(lambda: _opens(room), "a producer can be opened again")
    _let_go(room)


def _opens(room: KafkaRoom, user: str = MALLORY) -> bool:
    log = LOG if user == MALLORY else "n-opened"
    with room.peer(user) as peer:
        link = producer(peer, "again", log=log)
        peer.credited(link)
        return refusal(link) is None


def _fencing(room: KafkaRoom) -> Iterator[str]:
    """The same producers at both nodes, which take them from each other as fast as they can."""
    count = 2 if room.is_small else 8
    won = Counter[int]()

    def take(node: int) -> None:
        with room.peer_at(node, container=f"side-{node}") as peer:
            links = [producer(peer, f"fought-{number}") for number in range(count)]
            for link in links:
                peer.credited(link)
                if refusal(link) is None and outcome(peer, link, time.time_ns()):
                    won[node] += 1

    with again_and_again(partial(take, 0), partial(take, 1)):
        wait_for(lambda: len(won) == 2, "each side has a producer for a moment")
        yield f"{count} producers that two nodes take from each other"
    wait_for(lambda: _opens(room), "a producer can be opened again")
    _let_go(room)


def _unread(room: KafkaRoom) -> Iterator[str]:
    """Producers that send all that they have credit for, finish no last event, and read no outcome."""
    with ExitStack() as stack:
        peers, sent = [], 0
        for number in range(room.numbered // 2):
            peer = stack.enter_context(room.peer(container=f"deaf-{number}"))
            link = producer(peer, f"deaf-{number}")
            peer.credited(link)
            peers.append(peer)
            count = min(link.credit, 200)
            for event in range(count - 1):
                post(link, event, b"x" * 4000)
            sent += count - 1
            post(link, count, b"x" * 4000, whole=False)
            peer.flush()
        yield f"{len(peers)} producers sent {sent} events and a half each, and read nothing"
    _let_go(room)


def _numbers(room: KafkaRoom) -> Iterator[str]:
    """Numbers at the ends of what is possible, gaps, repetitions, and what is no number."""
    accepted, rejected = proton.Delivery.ACCEPTED, proton.Delivery.REJECTED
    # A log that was attacked before knows the producer.
    name = f"far-{time.time_ns()}" + "x" * 200
    good: tuple[Any, ...] = (0, 1, 1, 0, 5, 2**31, 2**32, 2**63 - 1, proton.ulong(2**63), 7)
    bad: tuple[Any, ...] = (proton.int32(-1), "7", 1.5, None, True)
    with room.peer() as peer:
        link = producer(peer, name)
        peer.credited(link)
        for number in good:
            expect(outcome(peer, link, number) == accepted, f"number {number!r} is not accepted")
        for number in bad:
            expect(outcome(peer, link, number) == rejected, f"number {number!r} is not rejected")
            if refusal(link) is not None:
                break
        for _ in range(3):
            link = producer(peer, name)
            peer.credited(link)
            expect(outcome(peer, link, proton.ulong(LAST)) == accepted, "the last number is not accepted")
        for size in (0, 257):
            odd = producer(peer, "x" * size)
            expect(refused(peer, odd, names.INVALID_FIELD) != "", "an id with a bad size")
        yield f"{len(good)} numbers up to 2^64 - 1 accepted, {len(bad)} that are none rejected"
        last = producer(peer, name)
        peer.credited(last)
        reached = last.remote_properties[proton.symbol(names.PRODUCER_SEQUENCE)]
        expect(reached == LAST, f"the highest number is {reached}")
    with room.peer_at(1) as peer:
        link = producer(peer, name)
        peer.credited(link)
        reached = link.remote_properties[proton.symbol(names.PRODUCER_SEQUENCE)]
        expect(reached == LAST, f"at the other node the highest number is {reached}")
    _let_go(room)


def _names(room: KafkaRoom) -> Iterator[str]:
    """New names of producers, one after another, each with a few events, while the neighbour works."""
    names_ = itertools.count()
    run = f"{time.time_ns()}"

    def one() -> None:
        with room.peer() as peer:
            _few_events(peer, f"{run}-{next(names_)}")

    with again_and_again(*[one] * 4):
        wait_for(lambda: next(names_) > 8, "the first ones are stored")
        yield "new names of producers from 4 clients"
    _let_go(room)


def _few_events(peer: Peer, name: str) -> None:
    link = producer(peer, name)
    peer.credited(link)
    if refusal(link) is None:
        for number in range(2):
            outcome(peer, link, number)


def _many_names(room: KafkaRoom) -> Iterator[str]:
    """Names with two events each: what the node and the topic need for them, and a later attach."""
    before, began = room.memory(), time.monotonic()
    names_, done = itertools.count(), Counter[str]()

    def one() -> None:
        if (number := next(names_)) >= NAMES_MAX:
            time.sleep(0.1)
            return
        with room.peer() as peer:
            link = producer(peer, f"many-{number}")
            peer.credited(link)
            is_taken = refusal(link) is None and all(outcome(peer, link, each) for each in range(2))
            done["taken" if is_taken else f"closed with {refusal(link)}"] += 1

    with again_and_again(*[one] * 16):
        while done.total() < NAMES_MAX and time.monotonic() - began < NAMES_S_MAX:
            time.sleep(0.5)
        took = time.monotonic() - began
    grown, topic = room.memory() - before, _topic_bytes(room)
    opened = sorted(_opening_s(room, number) for number in range(0, 100, 5))
    yield (
        f"{done.total()} names in {took:.0f} s: {dict(done)}; the node grew by {grown / MIB:.0f} MiB, the"
        f" topic has {topic / MIB:.1f} MiB on a broker; to open one again takes"
        f" {opened[len(opened) // 2] * 1000:.0f} ms"
    )
    _let_go(room)


def _topic_bytes(room: KafkaRoom) -> int:
    """Bytes of the topic of numbers on the disk of the first broker."""
    folder = room.cluster.folder / "1"
    return sum(file.stat().st_size for file in folder.glob("*.numbers-*/*.log"))


def _opening_s(room: KafkaRoom, number: int) -> float:
    with room.peer() as peer:
        began = time.monotonic()
        link = producer(peer, f"many-{number}")
        peer.credited(link)
        return time.monotonic() - began


def _same_bucket(room: KafkaRoom) -> Iterator[str]:
    """Names that all need the same bucket, in which a neighbour's producer is: it is not forgotten."""
    nina_log, mallory_log = _incarnation(room, "n-opened", NINA), _incarnation(room, LOG, MALLORY)
    bucket = ProducerKey(nina_log, stored_id(NINA, "kept")).bucket
    candidates = (f"same-{number}" for number in itertools.count())
    chosen = [
        next(
            each for each in candidates if ProducerKey(mallory_log, stored_id(MALLORY, each)).bucket == bucket
        )
        for _ in range(room.limits.producers + 3 if room.is_small else 200)
    ]
    with room.peer(NINA) as nina:
        link = producer(nina, "kept", log="n-opened")
        nina.credited(link)
        expect(outcome(nina, link, 7) == proton.Delivery.ACCEPTED, "the event of the neighbour")
    with room.peer() as peer:
        for name in chosen:
            while True:
                link = producer(peer, name)
                peer.credited(link)
                if refusal(link) is None:
                    break
                # Others are still ending.
                expect(refusal(link) == LIMITED, words_of(link))
                peer.pump(0.05)
            outcome(peer, link, 0)
            link.close()
            peer.pump(0.0)
    with room.peer(NINA) as nina:
        link = producer(nina, "kept", log="n-opened")
        nina.credited(link)
        reached = (link.remote_properties or {}).get(proton.symbol(names.PRODUCER_SEQUENCE))
        expect(reached == 7, f"the neighbour's producer was forgotten: {reached}")
    yield f"{len(chosen)} producers in 1 of {BUCKETS} buckets; the neighbour's one is known"
    _let_go(room)


def bucket_of_name(incarnation: str, name: str) -> int:
    """The bucket of a producer of the attacker."""
    return ProducerKey(incarnation, stored_id(MALLORY, name)).bucket


def _incarnation(room: KafkaRoom, log: str, user: str) -> str:
    with room.peer(user) as peer:
        _, found = peer.request(peer.management(), names.EXTENTS, names.LOG_TYPE, logs=[log])
        return str(found["logs"][0]["incarnation"])


def _elsewhere(room: KafkaRoom, count: int) -> list[str]:
    """Names of groups of the attacker whose home is not at the node of the neighbour."""
    incarnation = _incarnation(room, LOG, MALLORY)
    wait_for(lambda: bool(room.homes_at_other()), "the other node is a home")
    homes = room.homes_at_other()
    found = (
        name
        for name in (f"far-{number}" for number in itertools.count())
        if bucket_of(incarnation, Claim(name, None, None, ""), "", "") in homes
    )
    return list(itertools.islice(found, count))


def _is_answered(link: Any) -> bool:
    return not link.state & proton.Endpoint.REMOTE_UNINIT


def _claims(room: KafkaRoom) -> Iterator[str]:
    """Claims that come and go as fast as they can, at a node that is not the home of their groups."""
    groups = _elsewhere(room, 8)
    told = Counter[str]()

    def claim(number: int) -> None:
        with room.peer(container=f"claimer-{number}") as peer:
            for _ in range(2):
                links = [peer.receiver(LOG, group=group, partition=number) for group in groups]
                for link in links:
                    peer.until(partial(_is_answered, link), "no answer to a claim")
                    told[str(refusal(link))] += 1
                    link.close()
                peer.pump(0.0)

    with again_and_again(*[partial(claim, number) for number in range(2 if room.is_small else 4)]):
        wait_for(lambda: sum(told.values()) >= len(groups), "the first claims are answered")
        yield f"claims in {len(groups)} groups with another home, answered {sorted(told)}"
    expect(set(told) <= {"None", LIMITED}, f"answers {told}")


def _resets(room: KafkaRoom) -> Iterator[str]:
    """Resets of groups, many at once, at a node that is not their home."""
    groups = _elsewhere(room, 8)
    told = Counter[int]()
    with room.peer(container="maker") as peer:
        for group in groups:
            link = peer.receiver(LOG, group=group, partition=0, durable=True, name=f"kept-{group}")
            peer.until(partial(_is_answered, link), "no answer")

    def reset(number: int) -> None:
        with room.peer(container=f"resetter-{number}") as peer:
            answers, requests = peer.management()
            answers.flow(200)
            peer.until(lambda: requests.credit > 0, "no credit for a request")
            sent = 0
            for group in groups * 4:
                if requests.credit < 1:
                    break
                properties = {"operation": "UPDATE", "type": names.GROUP_TYPE, "name": group}
                body = {"log": LOG, "position": "@earliest"}
                message = proton.Message(body=body, id=sent, reply_to="answers", properties=properties)
                requests.delivery(str(sent))
                requests.stream(message.encode())
                requests.advance()
                sent += 1
            for _ in range(sent):
                peer.until(lambda: answers.current is not None and not answers.current.partial, "no answer")
                found: Any = received(answers).properties
                told[int(found["status-code"])] += 1

    with again_and_again(*[partial(reset, number) for number in range(2 if room.is_small else 8)]):
        wait_for(lambda: sum(told.values()) >= len(groups), "the first resets are answered")
        yield f"resets of {len(groups)} groups with another home, answered {sorted(told)}"
    # 503: too many wait. 504: the home did not answer in time.
    expect(set(told) <= {200, 409, 503, 504}, f"statuses {told}")
    with room.peer() as peer, suppress(TimeoutError):
        links = peer.management()
        for group in groups:
            peer.request(links, "DELETE", names.GROUP_TYPE, group, log=LOG)


def _attack(
    name: str,
    limit: str,
    run: Callable[[KafkaRoom], Iterator[str]],
    *covers: str,
    is_long: bool = False,
    is_judged: bool = True,
) -> Attack:
    return Attack(
        f"on Kafka: {name}",
        Table.RESOURCES,
        Place.KAFKA,
        frozenset(covers),
        limit,
        _on_kafka(run),
        is_judged=is_judged,
        is_long=is_long,
    )


ATTACKS: Final = (
    _attack("a tenant takes all places of producers", "kafka.numbered", _places, "node kafka: numbered"),
    _attack("attaches of producers whose clients leave at once", "kafka.numbered, SPARE", _leaving),
    _attack("two nodes take producers from each other", "one fence at a time for a producer", _fencing),
    _attack("producers that read no outcome", "limits.unsettled, limits.pending_bytes", _unread),
    _attack("numbers at 2^63 and beyond, gaps, repetitions", "numbers are ulong", _numbers),
    _attack("new names of producers, one after another", "limits.producers", _names),
    _attack("10,000 names of producers", "limits.producers", _many_names, is_long=True, is_judged=False),
    _attack("names of producers for one bucket", "limits.producers, the user that has most", _same_bucket),
    _attack("claims come and go far from their home", "a report and an answer at a time", _claims),
    _attack("resets of groups far from their home", "OPEN_A_HOME_MAX", _resets),
)
