"""One POST, and every way in which it can end."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from event_formats.event import CloudEvent
from event_formats.http_binding import to_binary, to_structured
from knative_gateway.dispatcher.posting.sending import Sender, SendSettings, tls_context
from knative_gateway.security.destinations import Destinations
from tests.knative_gateway.dispatcher.certificates import authority
from tests.knative_gateway.dispatcher.subscriber import Got, SubscriberServer

EVENT = CloudEvent(
    {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "datacontenttype": "text/plain"}, b"warm"
)


@pytest.fixture
async def server() -> AsyncIterator[SubscriberServer]:
    async with SubscriberServer() as running:
        yield running


@pytest.fixture
async def sender() -> AsyncIterator[Sender]:
    async with Sender() as made:
        yield made


async def test_an_event_arrives_as_it_was_sent(server: SubscriberServer, sender: Sender) -> None:
    """Spec: knative-data-plane-contract, HTTP Verbs:

    MUST initiate delivery using POST, CloudEvents HTTP binding.
    """
    headers, body = to_binary(EVENT)
    answer = await sender.post(server.url("/a?b=c"), headers, body)
    assert (answer.status, answer.reason) == (202, "")
    [got] = server.got
    assert got.event == EVENT
    assert got.path == "/a?b=c"
    assert "cookie" not in got.headers
    assert got.headers["accept-encoding"] == "identity"


async def test_an_event_without_a_type_of_data_gets_none(server: SubscriberServer, sender: Sender) -> None:
    bare = CloudEvent({"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}, None)
    await sender.post(server.url(), *to_binary(bare))
    assert server.got[0].event == bare
    assert "content-type" not in server.got[0].headers


@pytest.mark.filterwarnings("error::ResourceWarning")
async def test_large_events_arrive(server: SubscriberServer, sender: Sender) -> None:
    body = bytes(range(256)) * 8192
    await sender.post(server.url(), to_binary(EVENT).headers, body)
    assert server.got[0].body == body


async def test_a_redirect_is_an_answer_and_nothing_more(server: SubscriberServer, sender: Sender) -> None:
    """Spec: knative-eventing-test-spec, Event Acknowledgement: 3xx is an error.

    A redirect could lead past the rules of destinations.
    """
    server.answers = [web.Response(status=307, headers={"location": server.url("/elsewhere")})]
    assert (await sender.post(server.url(), *to_binary(EVENT))).status == 307
    assert len(server.got) == 1


async def test_the_beginning_of_an_answer_is_kept(server: SubscriberServer, sender: Sender) -> None:
    server.answers = [web.Response(status=500, body=b"x" * 100_000, headers={"retry-after": "7"})]
    answer = await sender.post(server.url(), *to_binary(EVENT))
    assert answer.status == 500
    assert 1024 < len(answer.body) < 10_000
    assert answer.header(b"retry-after") == "7"
    assert answer.event is None


@pytest.mark.parametrize("mode", [to_binary, to_structured])
async def test_a_reply_is_read_in_both_modes(server: SubscriberServer, sender: Sender, mode: type) -> None:
    """Spec: knative-data-plane-contract, Derived (Reply) Events: encoded using the binary or structured
    formats.
    """
    headers, body = mode(EVENT)
    server.answers = [
        web.Response(body=body, headers=dict(headers)),
        web.Response(body=body, headers=dict(headers)),
    ]
    assert (await sender.post(server.url(), *to_binary(EVENT), reply_wanted=True)).event == EVENT
    assert (await sender.post(server.url(), *to_binary(EVENT))).event is None


async def test_an_answer_that_is_not_an_event_is_not_a_reply(
    server: SubscriberServer, sender: Sender
) -> None:
    server.answers = [web.Response(text="fine"), web.Response(text="fine", headers={"ce-specversion": "1.0"})]
    for expected in ("", "not a valid event"):
        answer = await sender.post(server.url(), *to_binary(EVENT), reply_wanted=True)
        assert (answer.status, answer.event) == (200, None)
        assert expected in answer.reason


async def test_a_reply_beyond_the_limit_fails_the_delivery(server: SubscriberServer) -> None:
    reply = to_binary(EVENT)
    server.answers = [web.Response(body=b"x" * 200, headers=dict(reply.headers))]
    async with Sender(SendSettings(reply_bytes_max=100)) as sender:
        answer = await sender.post(server.url(), *to_binary(EVENT), reply_wanted=True)
    assert answer.status is None
    assert "larger" in answer.reason


async def test_an_answer_that_comes_too_late_does_not_count(sender: Sender) -> None:
    async def never(_: Got) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    async with SubscriberServer() as server:
        await sender.post(server.url(), *to_binary(EVENT))  # opens the connection
        server.behaviour = never
        answer = await sender.post(server.url(), *to_binary(EVENT), timeout_ms=50)
        assert answer.status is None
        assert answer.reason == "no answer within 50 ms"


async def test_a_refused_connection_is_not_an_answer(sender: Sender) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        answer = await sender.post(f"http://127.0.0.1:{unused.getsockname()[1]}/", *to_binary(EVENT))
    assert answer.status is None
    assert answer.reason == "connection refused"


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/", "http://2852039166/", "ftp://example.com/", "nonsense"]
)
async def test_a_denied_destination_is_not_connected_to(sender: Sender, url: str) -> None:
    answer = await sender.post(url, *to_binary(EVENT))
    assert answer.status is None
    assert answer.final, "trying again does not make it allowed"
    assert "denied" in answer.reason


class Lying:
    """A name server of an attacker: it returns another address each time."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)

    async def __call__(self, host: str, port: int) -> list[str]:
        return [self.addresses.pop(0)]


@pytest.mark.parametrize("address", ["169.254.169.254", "::ffff:169.254.169.254"])
async def test_a_name_is_judged_by_the_address_it_has_just_now(
    server: SubscriberServer, address: str
) -> None:
    """Rebinding: allowed when it was looked at first, metadata when it counts."""
    port = server.url().rpartition(":")[2].strip("/")
    async with Sender(resolve=Lying("127.0.0.1", address)) as sender:
        assert (await sender.post(f"http://innocent.example:{port}/", *to_binary(EVENT))).status == 202
        answer = await sender.post(f"http://other.example:{port}/", *to_binary(EVENT))
    assert answer.status is None
    assert answer.final, "trying again does not make it allowed"
    assert "denied" in answer.reason


async def test_allowed_destinations_are_the_only_ones(server: SubscriberServer) -> None:
    async with Sender(destinations=Destinations.parse(allow=["*.example.com"])) as sender:
        answer = await sender.post(server.url(), *to_binary(EVENT))
    assert "not allowed" in answer.reason


async def test_connections_are_used_again(server: SubscriberServer, sender: Sender) -> None:
    for _ in range(5):
        await sender.post(server.url(), *to_binary(EVENT))
    [[connection]] = sender.connections._idle.values()
    assert connection.served == 5


async def test_a_new_connection_that_is_closed_is_a_failure() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server, Sender() as sender:
        answer = await sender.post(
            f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", *to_binary(EVENT)
        )
    assert answer.status is None


async def test_an_event_that_cannot_be_sent_is_a_failure_of_that_event(
    server: SubscriberServer, sender: Sender
) -> None:
    answer = await sender.post(server.url(), [("ce-x", "a\r\nb: c")], b"")
    assert answer.status is None
    assert not server.got


async def test_https_is_spoken_to_those_that_an_authority_vouches_for(tmp_path: Path) -> None:
    """Spec: knative-data-plane-contract, Minimum supported protocol: senders MUST support both http and
    https.
    """
    files = authority(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)
    async with SubscriberServer(tls=context) as server:
        async with Sender(SendSettings(ca_file=files.authority)) as sender:
            assert (await sender.post(server.url(), *to_binary(EVENT))).status == 202
        async with Sender() as sender:
            answer = await sender.post(server.url(), *to_binary(EVENT))
            assert answer.status is None
            assert "CERTIFICATE_VERIFY_FAILED" in answer.reason.upper()
        async with Sender(SendSettings(verify=False)) as sender:
            assert (await sender.post(server.url(), *to_binary(EVENT))).status == 202


async def test_a_common_name_does_not_vouch_for_a_host(tmp_path: Path) -> None:
    """Spec: RFC 9525, 6.3: only subject alternative names count."""
    files = authority(tmp_path, "x.test")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    async with (
        SubscriberServer(tls=context) as server,
        Sender(SendSettings(ca_file=files.authority), resolve=resolve) as sender,
    ):
        answer = await sender.post(server.url().replace("127.0.0.1", "x.test"), *to_binary(EVENT))
    assert answer.status is None
    assert "hostname mismatch" in answer.reason.lower()


async def test_certificates_that_are_read_again_hold_for_the_next_connection(tmp_path: Path) -> None:
    files = authority(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)
    async with (
        SubscriberServer(tls=context) as server,
        Sender(SendSettings(ca_file=files.authority)) as sender,
    ):
        assert (await sender.post(server.url(), *to_binary(EVENT))).status == 202
        sender.use(tls_context(SendSettings()))
        assert (await sender.post(server.url(), *to_binary(EVENT))).status is None
        sender.use(tls_context(SendSettings(ca_file=files.authority)))
        assert (await sender.post(server.url(), *to_binary(EVENT))).status == 202


class Closing:
    """A server that answers one request over each connection, and closes it when `close` is set, or after
    another request.
    """

    def __init__(self) -> None:
        self.requests = 0
        self.close, self.closed = asyncio.Event(), asyncio.Event()
        self.ended: list[asyncio.Future[None]] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended.append(ended)
        await reader.readuntil(b"\r\n\r\n")
        self.requests += 1
        writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
        again, close = (
            asyncio.create_task(reader.readuntil(b"\r\n\r\n")),
            asyncio.create_task(self.close.wait()),
        )
        await asyncio.wait({again, close}, return_when=asyncio.FIRST_COMPLETED)
        self.requests += again.done()
        for task in (again, close):
            task.cancel()
        await asyncio.gather(again, close, return_exceptions=True)
        writer.close()
        self.closed.set()
        ended.set_result(None)


async def test_a_request_that_met_the_end_of_a_kept_connection_is_sent_once_more(sender: Sender) -> None:
    closing = Closing()
    async with await asyncio.start_server(closing, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"

        async def post() -> int | None:
            return (await sender.post(url, to_binary(EVENT).headers, b"")).status

        assert await post() == 202
        [[connection]] = sender.connections._idle.values()
        connection._transport.pause_reading()  # it does not see the end before the next request
        closing.close.set()
        await closing.closed.wait()
        asyncio.get_running_loop().call_later(0.01, connection._transport.resume_reading)
        assert (await post(), closing.requests, sender.resent) == (202, 2, 1)
        await asyncio.gather(*closing.ended)


async def test_an_event_that_was_read_is_not_sent_again_when_the_connection_closes(sender: Sender) -> None:
    """An event that makes its subscriber fail is not sent several times, for any number of idle connections:
    the request was an attempt.
    """
    closing = Closing()
    async with await asyncio.start_server(closing, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"

        async def post() -> int | None:
            return (await sender.post(url, to_binary(EVENT).headers, b"")).status

        assert await asyncio.gather(*(post() for _ in range(5))) == [202] * 5
        assert (await post(), closing.requests, sender.resent) == (None, 6, 0)
        closing.close.set()
        await asyncio.gather(*closing.ended)
