"""The memory of a request is free as soon as it is answered, or its client has left."""

import gc

import pytest

from tests.knative_gateway.http.wire import Echo, Wire

POST = b"POST /p HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc"


class Silent(Echo):
    def answer(self) -> None:
        pass


@pytest.mark.usefixtures("without_collections")
@pytest.mark.parametrize("handler", [Echo, Silent])
@pytest.mark.parametrize("sent", [POST, POST[:-1], POST * 3])
def test_a_request_that_is_over_leaves_nothing_for_the_garbage_collection(
    handler: type[Echo], sent: bytes
) -> None:
    """Bodies would wait for it: a gateway collects seldom, and large events would fill the memory."""
    wire = Wire(handler)
    for _ in range(10):
        wire.send(sent)
    wire.connection.connection_lost(None)
    wire.handlers.clear()
    assert gc.collect() == 0
