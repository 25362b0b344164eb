"""Requests to the `$management` of a node in memory, as a user sends them."""

from typing import Any

from amqp_streams.policy import AccessRule
from amqp_streams.streams.management import Answer, Request
from amqp_streams.testing_amqp import InMemoryNode
from amqp_streams.wire.codec import decode, encode


def ask(
    node: InMemoryNode,
    type_: str,
    operation: str,
    name: str = "",
    *,
    user: str | None = None,
    connection: int | None = None,
    offset: int = 0,
    count: int | None = None,
    log: str = "",
    **body: Any,
) -> Answer:
    """The answer to a request of a user. `connection`: the one that the request comes over."""
    values: Any = body
    request = Request(
        operation,
        type_,
        name,
        values,
        None,
        None,
        offset=offset,
        count=count,
        connection=connection,
        log=log,
    )
    return node.service.node.manage(request, user)


def body_of(answer: Answer) -> Any:
    """The body of an answer as a client reads it."""
    assert answer.status < 300, answer
    return decode(encode(answer.body))[0]


def rule(users: str, logs: str, allow: str) -> AccessRule:
    """A rule from texts with spaces."""
    return AccessRule.model_validate({"users": users.split(), "logs": logs.split(), "allow": allow.split()})
