"""[io] The Avro schemas that a session keeps for its logs, and the bodies that they decode.

Decoding is in a thread: a schema and a body of the largest sizes take some tens of milliseconds.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from amqp_streams.errors import WireError
from web_console.sessions.visitor import Visitor
from web_console.showing.avro.schema import SCHEMA_BYTES_MAX, SchemaError, schema_of
from web_console.showing.avro.values import FORMS, AvroError, decoded
from web_console.showing.decoding import data_of
from web_console.showing.tree import Node, tree_of

SCHEMAS_MAX: Final = 20
"""Schemas that a session keeps. One more replaces the one that was given first."""
_KEPT: Final = "avro"


@dataclass(frozen=True, slots=True)
class Given:
    """A schema with the form of the bodies, as a person gave them."""

    text: str
    form: str


@dataclass(frozen=True, slots=True)
class ByAvro:
    """The part of a page with the body of an event by a schema. `problem`: why there is no `tree`."""

    given: Given
    tree: Node | None = None
    form: str = ""
    is_cut: bool = False
    problem: str = ""


async def by_avro(
    session: Visitor, log: str, message: bytes, fields: Mapping[str, str] | None, *, keep: bool
) -> ByAvro:
    """Return the body of an event by the schema in `fields`; None: by the one that the session keeps.

    `keep`: keep the schema for the log if it is valid; an empty one removes the one that is kept.
    """
    kept: dict[str, Given] = session.kept.setdefault(_KEPT, {})
    given = kept.get(log, Given("", "")) if fields is None else _given(fields)
    if keep:
        kept.pop(log, None)
    if not given.text:
        return ByAvro(given)
    try:
        found = await asyncio.to_thread(_decoded, given, message)
    except SchemaError as error:
        return ByAvro(Given(given.text[:SCHEMA_BYTES_MAX], given.form), problem=str(error))
    if keep:
        kept[log] = given
        while len(kept) > SCHEMAS_MAX:
            kept.pop(next(iter(kept)))
    return found


def _given(fields: Mapping[str, str]) -> Given:
    form = fields.get("form", "")
    return Given(fields.get("schema", "").strip(), form if form in FORMS else "")


def _decoded(given: Given, message: bytes) -> ByAvro:
    schema = schema_of(given.text)
    try:
        data = data_of(message)
        if data is None:
            return ByAvro(given, problem="The body is not bytes, so it is not Avro.")
        found = decoded(schema, data, given.form)
    except (WireError, AvroError) as error:
        return ByAvro(given, problem=str(error))
    return ByAvro(given, tree_of(found.value), found.form, found.is_cut)
