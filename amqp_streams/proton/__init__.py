"""Qpid Proton, used below its public Python binding.

This is the only package that calls Proton's C functions, for the node and for the client.

`Engine` is one connection: bytes in, events and bytes out. The other modules are functions on the pointers
that an engine returns: `events`, `sessions`, `links`, `termini`, `receiving`, `sending`, `outcomes`. `values`
and `conditions` read and write the data in them.

Laws: Proton owns every pointer. The pointer of a link becomes invalid when the link is freed, and all
pointers of a connection with `Engine.free`. Messages are never decoded or encoded here.
docs/decisions/0002-engine-pointers.md explains why the public binding is not used.
"""
