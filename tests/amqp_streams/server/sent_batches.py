"""A producer that sends batches frame by frame, and the outcomes that it gets."""

from typing import Any

from amqp_streams import names
from amqp_streams.server.identity.guard import Login
from amqp_streams.storage.ports import Chunk
from amqp_streams.testing_amqp import InMemoryNode, ScriptedPeer
from amqp_streams.testing_amqp.script import terminus
from amqp_streams.wire.frames import Performative
from amqp_streams.wire.layout import DATA_BINARY8
from amqp_streams.wire.types import Array, Symbol, UInt, ULong

BATCH = UInt(names.BATCH_MESSAGE_FORMAT)
EVENT = b"\x00\x53\x75\xa0\x05event"
ACCEPTED, REJECTED, RELEASED, MODIFIED = (ULong(code) for code in (0x24, 0x25, 0x26, 0x27))


def body(text: str) -> bytes:
    return b"\x00\x53\x77\xa1" + bytes((len(text),)) + text.encode()


def azure(*messages: bytes) -> bytes:
    return b"".join(DATA_BINARY8 + bytes((len(each),)) + each for each in messages)


def producing(
    node: InMemoryNode,
    target: str | None = "temps",
    *,
    batched: bool = True,
    login: Login | None = None,
    **fields: Any,
) -> ScriptedPeer:
    peer = ScriptedPeer(node, login=login)
    peer.open()
    attach(peer, 0, target, batched=batched, **fields)
    return peer


def attach(
    peer: ScriptedPeer, handle: int, target: str | None = "temps", *, batched: bool = True, **fields: Any
) -> Performative:
    wanted = Array(Symbol, (Symbol(names.CAPABILITY_BATCHED_SENDS),)) if batched else None
    described = terminus(0x29, target, capabilities=wanted)
    given: dict[str, Any] = {"name": f"link-{handle}", "handle": UInt(handle), "role": False}
    given |= {"source": terminus(0x28, None), "target": described, "initial_delivery_count": UInt(0)}
    peer.send("attach", **(given | fields))
    return peer.take("attach")[0]


def send(peer: ScriptedPeer, number: int, message: bytes, **fields: Any) -> None:
    peer.transfer(0, number, message, **({"message_format": BATCH} | fields))


def stored(node: InMemoryNode, index: int = 0) -> list[bytes]:
    found: list[bytes] = []
    while (chunk := read(node, len(found), index)) is not None:
        found += chunk.messages
    return found


def read(node: InMemoryNode, at: int, index: int = 0) -> Chunk | None:
    return node.store.logs["temps"].partitions[index].read(at, 1 << 20)


def states(peer: ScriptedPeer) -> dict[int, Any]:
    """The outcome of each delivery, by its delivery-id: its code, or condition, description and index."""
    found: dict[int, Any] = {}
    for said in peer.take("disposition"):
        first = int(str(said.fields["first"]))
        for number in range(first, int(str(said.fields["last"] or first)) + 1):
            assert number not in found, "a delivery has one outcome"
            state: Any = said.fields["state"]
            found[number] = state.descriptor
            if state.descriptor == REJECTED:
                error = state.value[0].value
                info = error[2] if len(error) > 2 else {}
                found[number] = (str(error[0]), str(error[1]), (info or {}).get(names.EVENT_INDEX))
    return found
