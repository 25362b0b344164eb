"""Qpid Proton's engine below its public binding: the only package that calls its C functions, for the node
and for the client.

`Engine` is one connection: bytes in, events, bytes out. The other modules are functions over the pointers
that the engine lends: `events`, `sessions`, `links`, `termini`, `receiving`, `sending`, `outcomes`; `values`
and `conditions` are what a peer says in them.

Laws. A pointer is borrowed: a link's dies when the link is freed, and every pointer of a connection dies with
`Engine.free`. A message is never decoded or encoded here. Why not the public wrappers:
docs/decisions/0002-engine-pointers.md.
"""
