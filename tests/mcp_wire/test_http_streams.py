"""mcp: the streams of a server behind a URL, without the rest of this server around them."""

import base64
import json
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import httpx2
import pytest

from app_server.mcp_wire.http import remote, transport
from app_server.mcp_wire.http.exchange import BodyBroken, HttpRequest, Unreachable
from app_server.mcp_wire.http.remote import RemoteSender
from app_server.mcp_wire.http.transport import (
    MAX_WAITING,
    HttpMessageSink,
    Inbox,
    Session,
    open_http,
)
from app_server.mcp_wire.messages import (
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    SessionMessage,
)
from tests.support.harness import WAIT_S
from tests.support.mcp_peers.web_peer import EVENTS, JSON, Answer, WebPeer


@pytest.fixture(autouse=True, params=["loopback", "remote"])
def sender(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send all requests over the one or the other; behaviour is the same."""
    if request.param == "remote":
        monkeypatch.setattr(transport, "is_loopback", lambda url: False)


@dataclass
class Ends:
    """Both streams to a server."""

    inbox: Inbox
    outgoing: HttpMessageSink

    async def begin(self, method: str, number: int = 1, **params: Any) -> None:
        request = JSONRPCRequest(jsonrpc="2.0", id=number, method=method, params=params)
        await self.outgoing.send(SessionMessage(request))

    async def notify(self, method: str, **params: Any) -> None:
        note = JSONRPCNotification(jsonrpc="2.0", method=method, params=params)
        await self.outgoing.send(SessionMessage(note))

    async def receive(self) -> Any:
        """Return the next message as JSON."""
        with anyio.fail_after(WAIT_S):
            message = (await anext(self.inbox)).message
        return json.loads(message.model_dump_json(exclude_unset=True))

    async def ask(self, method: str, number: int = 1, **params: Any) -> Any:
        await self.begin(method, number, **params)
        return await self.receive()


@asynccontextmanager
async def opened(
    peer: WebPeer, *, introduced: bool = True, max_calls: int = transport.MAX_CALLS
) -> AsyncIterator[Ends]:
    """Serve a peer and open streams to it, in a session."""
    async with peer.serve(), open_http(peer.url, {}, max_calls=max_calls) as (inbox, outgoing):
        ends = Ends(inbox, outgoing)
        if introduced:
            await ends.ask("initialize")
            await ends.notify("notifications/initialized")
        yield ends


def answered(number: int, text: str) -> Any:
    result = {"content": [{"type": "text", "text": text}]}
    return {"jsonrpc": "2.0", "id": number, "result": result}


def failed(code: int, message: str, number: int = 1, **more: Any) -> Any:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message, **more}}


RESULT = b'{"jsonrpc": "2.0", "id": "other", "result": {}}'
NOTE = b'{"jsonrpc": "2.0", "method": "notifications/progress"}'


@pytest.mark.parametrize(
    ("answer", "heard"),
    [
        (Answer(200, RESULT, JSON), {"jsonrpc": "2.0", "id": 1, "result": {}}),
        (
            Answer(200, b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}', JSON),
            failed(1, "m"),
        ),
        (Answer(200, NOTE, JSON), failed(-32700, "Failed to parse JSON response: it is no answer")),
        (
            Answer(200, b"[]", JSON),
            failed(-32700, "Failed to parse JSON response: Input should be an object"),
        ),
        (Answer(202), failed(-32600, "the server answered a request with 202 Accepted")),
        (
            Answer(200, b"<html>", {"content-type": "text/html; charset=utf-8"}),
            failed(-32600, "Unexpected content type: text/html"),
        ),
        (
            Answer(200, b"data: " + RESULT + b"\n\n", EVENTS),
            {"jsonrpc": "2.0", "id": 1, "result": {}},
        ),
        (
            Answer(200, b"event: other\ndata: 1\n\n:\n\ndata: {\n\n", EVENTS),
            failed(
                -32700,
                "Failed to parse SSE message: Invalid JSON: "
                "EOF while parsing an object at line 1 column 1",
            ),
        ),
        (Answer(200, b"", EVENTS), failed(-32000, "SSE stream ended without a response")),
        (
            Answer(200, b"data: " + b"x" * 2000, EVENTS, stays_open=True),
            failed(-32000, "SSE stream failed: an event is larger than 1000 bytes"),
        ),
        (
            Answer(200, b"x" * 2000, JSON),
            failed(-32700, "Failed to parse JSON response: the response is larger than 1000 bytes"),
        ),
        (
            Answer(400, RESULT + b" " * 1000, JSON),
            failed(-32000, "HTTP status 400 from {url}", data={"status": 400}),
        ),
    ],
    ids=[
        *["other-id", "no-id", "note", "batch", "accepted", "html", "event", "broken-event"],
        *["no-event", "large-event", "large-body", "large-refusal"],
    ],
)
async def test_every_response_becomes_an_answer(
    monkeypatch: pytest.MonkeyPatch, answer: Answer, heard: Any
) -> None:
    monkeypatch.setattr(transport, "MAX_MESSAGE_BYTES", 1000)
    peer = WebPeer(answers={"tools/call": [answer]})
    async with opened(peer) as ends:
        expected = json.loads(json.dumps(heard).replace("{url}", peer.url))
        assert await ends.ask("tools/call") == expected
        assert await ends.ask("tools/call", 2) == answered(2, "call 1")


async def test_messages_ahead_of_the_answer_are_read_in_order() -> None:
    events = b"".join(b"data: " + message + b"\n\n" for message in (NOTE, NOTE, RESULT))
    peer = WebPeer(answers={"tools/call": [Answer(200, events, EVENTS)]})
    async with opened(peer) as ends:
        note = json.loads(NOTE)
        assert await ends.ask("tools/call") == note
        assert [await ends.receive(), await ends.receive()] == [
            note,
            {"jsonrpc": "2.0", "id": 1, "result": {}},
        ]


async def test_what_comes_in_a_response_is_marked_with_its_request() -> None:
    asks = b'{"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {}}'
    events = b"".join(b"data: " + message + b"\n\n" for message in (asks, RESULT))
    alone = b"data: " + asks + b"\n\n"
    peer = WebPeer(answers={"tools/call": [Answer(200, events, EVENTS)]})
    async with opened(peer) as ends:
        await ends.begin("tools/call", 5)
        with anyio.fail_after(WAIT_S):
            assert (await anext(ends.inbox)).in_response_to == 5
    peer = WebPeer(answers={"GET": [Answer(200, alone, EVENTS)]})
    async with opened(peer) as ends:
        with anyio.fail_after(WAIT_S):
            assert (await anext(ends.inbox)).in_response_to is None


async def test_a_stream_that_cannot_be_taken_up_again_fails_its_call() -> None:
    begun = Answer(200, b"id: one\nretry: 0\n\n", EVENTS)
    long = Answer(200, b"id: " + b"1" * 2000 + b"\n\n", EVENTS)
    peer = WebPeer(
        answers={
            "tools/call": [begun, begun, long],
            "GET after one": [Answer(500), Answer(500), Answer(405)],
        }
    )
    async with opened(peer) as ends:
        reason = "SSE stream ended and reconnection attempts were exhausted"
        assert await ends.ask("tools/call") == failed(-32000, reason)
        reason = "SSE stream ended, and the server does not go on with it"
        assert await ends.ask("tools/call") == failed(-32000, reason)
        reason = "SSE stream ended without a response"
        assert await ends.ask("tools/call") == failed(-32000, reason)
    assert peer.methods().count("GET after one") == 3


async def test_the_stream_of_a_session_is_taken_up_where_it_ended() -> None:
    ping = b'id: 8\ndata: {"jsonrpc": "2.0", "id": 9, "method": "ping"}\n\n'
    peer = WebPeer(
        answers={
            "GET": [Answer(200, b"id: 7\nretry: 10\n\n", EVENTS)],
            "GET after 7": [Answer(500), Answer(200, ping, EVENTS)],
        }
    )
    async with opened(peer) as ends:
        assert await ends.receive() == {"jsonrpc": "2.0", "id": 9, "method": "ping"}
    assert [seen for seen in peer.seen if seen[0].startswith("GET")][:3] == [
        ("GET", "session-1"),
        ("GET after 7", "session-1"),
        ("GET after 7", "session-1"),
    ]


async def test_a_server_without_a_stream_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "RETRY_S", 0)
    peer = WebPeer(answers={"GET": [Answer(405)]})
    async with opened(peer) as ends:
        for number in range(1, 6):
            assert await ends.ask("tools/call", number) == answered(number, f"call {number}")
    assert peer.methods().count("GET") == 1


async def test_a_new_session_leaves_the_stream_of_the_old_one() -> None:
    peer = WebPeer()
    async with opened(peer) as ends:
        with anyio.fail_after(WAIT_S):
            await peer.listening.wait()
        await ends.ask("initialize", 2)
        await ends.notify("notifications/initialized")
        with anyio.fail_after(WAIT_S):
            await peer.unheard.wait()
        assert await ends.ask("tools/call", 3) == answered(3, "call 1")
    sessions = {method: session for method, session in peer.seen if method != "GET"}
    assert sessions == {
        "initialize": None,
        "notifications/initialized": "session-2",
        "tools/call": "session-2",
        "DELETE": "session-2",
    }


# Redirects.


async def test_a_redirect_within_the_origin_is_followed() -> None:
    peer = WebPeer(
        answers={
            "initialize": [Answer(307, b"moved", {"location": "/elsewhere"})],
            "GET": [Answer(302, b"", {"location": "/events"})],
            "DELETE": [Answer(308, b"", {"location": "/bye?x=1"})],
        }
    )
    async with opened(peer) as ends:
        with anyio.fail_after(WAIT_S):
            await peer.listening.wait()
        assert await ends.ask("tools/call") == answered(1, "call 1")
    assert list(zip(peer.methods(), peer.paths, strict=True)) == [
        ("initialize", "/mcp"),
        ("initialize", "/elsewhere"),
        ("notifications/initialized", "/mcp"),
        ("GET", "/mcp"),
        ("GET", "/events"),
        ("tools/call", "/mcp"),
        ("DELETE", "/mcp"),
        ("DELETE", "/bye?x=1"),
    ]


@pytest.mark.parametrize(
    ("status", "location", "shown"),
    [
        (307, "http://localhost:1/mcp", "http://localhost:1/mcp"),
        (308, "https://127.0.0.1/mcp?key=secret", "https://127.0.0.1/mcp"),
        (307, "//u:secret@{here}/mcp", "http://{here}/mcp"),
        (302, "/mcp", "http://{here}/mcp"),
        (303, "/mcp", "http://{here}/mcp"),
    ],
)
async def test_a_redirect_elsewhere_or_by_another_method_is_not_followed(
    status: int, location: str, shown: str
) -> None:
    peer = WebPeer()
    async with opened(peer) as ends:
        here = peer.url.removeprefix("http://").removesuffix("/mcp")
        target = {"location": location.replace("{here}", here)}
        peer.answers["tools/call"] = [Answer(status, b"", target)]
        text = f"Redirect to {shown} not followed; use that URL if it is the intended server"
        assert await ends.ask("tools/call") == failed(-32600, text.replace("{here}", here))
        assert await ends.ask("tools/call", 2) == answered(2, "call 1")


async def test_redirects_have_an_end() -> None:
    peer = WebPeer()
    async with opened(peer) as ends:
        peer.answers["tools/call"] = [Answer(307, b"", {"location": "/mcp"})] * 10
        text = f"Redirect to {peer.url} not followed; use that URL if it is the intended server"
        assert await ends.ask("tools/call") == failed(-32600, text)
    assert peer.methods().count("tools/call") == 6


# Bounds.


async def test_calls_above_the_bound_wait_and_notifications_still_arrive() -> None:
    peer = WebPeer(answers={"tools/call": [None]})
    async with opened(peer, max_calls=1) as ends:
        await ends.begin("tools/call", 1)
        await peer.changes.until(lambda: "tools/call" in peer.methods())
        await ends.begin("tools/call", 2)
        await ends.notify("notifications/cancelled", requestId=1)
        assert await ends.receive() == answered(2, "call 1")
        with anyio.fail_after(WAIT_S):
            await peer.hung_up.wait()
    cancelled = peer.methods().index("notifications/cancelled")
    assert peer.methods()[:cancelled].count("tools/call") == 1


async def test_a_call_that_was_given_up_before_its_turn_is_not_made() -> None:
    peer = WebPeer(answers={"tools/call": [None]})
    async with opened(peer, max_calls=1) as ends:
        await ends.begin("tools/call", 1)
        await peer.changes.until(lambda: "tools/call" in peer.methods())
        await ends.begin("tools/call", 2)
        await ends.begin("ping", 3)
        await ends.notify("notifications/cancelled", requestId=2)
        await ends.notify("notifications/cancelled", requestId=1)
        assert await ends.receive() == failed(-32601, "no ping", 3)
    # The server never heard of the second call: neither is it told that this was given up.
    assert [method for method in peer.methods() if method != "GET"] == [
        "initialize",
        "notifications/initialized",
        "tools/call",
        "notifications/cancelled",
        "ping",
        "DELETE",
    ]


async def test_messages_that_a_server_does_not_take_have_a_bound() -> None:
    assert transport.MAX_ONE_WAY_WAITING == 1000
    peer = WebPeer(answers={"tools/call": [None], "answer": [None] * 3})
    async with opened(peer) as ends:
        ends.outgoing.max_one_way_waiting = 2
        await ends.begin("tools/call", 1)
        await peer.changes.until(lambda: "tools/call" in peer.methods())
        answer = JSONRPCResponse(jsonrpc="2.0", id=9, result={})
        for _ in range(2):
            await ends.outgoing.send(SessionMessage(answer))
        with pytest.raises(anyio.BrokenResourceError):
            await ends.notify("notifications/cancelled", requestId=1)
        assert await ends.ask("tools/call", 2) == answered(2, "call 1")


async def test_messages_that_nobody_takes_let_their_bringer_wait() -> None:
    inbox = Inbox()
    note = JSONRPCNotification(jsonrpc="2.0", method="notifications/progress")
    for _ in range(MAX_WAITING):
        await inbox.put(note)
    with anyio.move_on_after(0) as limit:
        await inbox.put(note)
    assert limit.cancelled_caught
    assert await anext(inbox) == SessionMessage(note)
    with anyio.fail_after(WAIT_S):
        await inbox.put(note)


async def test_the_end_of_a_session_that_is_not_answered_has_a_bound() -> None:
    peer = WebPeer(answers={"DELETE": [None]})
    with anyio.fail_after(WAIT_S):
        async with opened(peer) as ends:
            ends.outgoing.end_session_s = 0.05
            await ends.begin("tools/call")
        with pytest.raises(anyio.ClosedResourceError):
            await ends.notify("notifications/cancelled", requestId=1)
    assert peer.methods()[-1] == "DELETE"


async def test_a_session_is_ended_also_when_its_owner_is_cancelled() -> None:
    peer = WebPeer()
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks, peer.serve():
            with anyio.CancelScope() as scope:
                async with open_http(peer.url, {}) as (inbox, outgoing):
                    await Ends(inbox, outgoing).ask("initialize")
                    tasks.start_soon(_cancel, scope)
                    await anyio.sleep_forever()
    assert peer.seen == [("initialize", None), ("DELETE", "session-1")]


async def _cancel(scope: anyio.CancelScope) -> None:
    scope.cancel()


# Headers.


async def test_credentials_of_a_url_are_sent_and_not_shown() -> None:
    peer = WebPeer(answers={"initialize": [Answer(500)]})
    async with peer.serve():
        url = peer.url.replace("http://", "http://user:pass@") + "?key=secret#part"
        async with open_http(url, {"X-Other": "1"}) as (inbox, outgoing):
            heard = await Ends(inbox, outgoing).ask("initialize")
    text = f"HTTP status 500 from {peer.url}"
    assert heard == failed(-32000, text, data={"status": 500})
    assert peer.paths == ["/mcp?key=secret"]
    sent = peer.headers[0]
    assert sent["authorization"] == "Basic " + base64.b64encode(b"user:pass").decode()
    assert (sent["x-other"], sent["accept-encoding"]) == ("1", "identity")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("X-A", "secret\r\nx: y", "the header 'X-A' has characters that HTTP does not know"),
        ("X-A", "s\u00e9cret", "the header 'X-A' has characters that HTTP does not know"),
        ("Content-Length", "5", "the header 'Content-Length' is not for the configuration to set"),
    ],
)
def test_a_header_that_makes_no_sense_is_refused_without_its_value(
    name: str, value: str, text: str
) -> None:
    with pytest.raises(ValueError, match=f"^{text}$"):
        Session("http://127.0.0.1/", {name: value})


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/", "http://", "/mcp"])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"^its url is not an http URL$"):
        Session(url, {})


# Servers elsewhere.


async def test_what_goes_wrong_elsewhere_has_a_reason_without_secrets() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/broken":
            raise httpx2.ReadError("")
        return httpx2.Response(200, stream=_Breaks())

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as client:
        sender = RemoteSender(client)
        broken = HttpRequest("GET", httpx2.URL("http://x/broken"), {})
        with pytest.raises(Unreachable, match=r"^ReadError$"):
            await sender.send(broken)
        response = await sender.send(HttpRequest("GET", httpx2.URL("http://x/"), {}))
        assert await response.receive() == b"begun"
        with pytest.raises(BodyBroken, match=r"^it broke$"):
            await response.receive()
    async with remote.open_remote(httpx2.URL("http://127.0.0.1:1/")) as real:
        for value in ("secret\n", "s\u00e9cret"):
            headers = {"authorization": value}
            with pytest.raises(Unreachable) as caught:
                await real.send(HttpRequest("GET", httpx2.URL("http://127.0.0.1:1/"), headers))
            assert "cret" not in str(caught.value)


class _Breaks(httpx2.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b""
        yield b"begun"
        raise httpx2.RemoteProtocolError("it broke")


async def test_certificates_are_read_once_and_not_on_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read_by: list[threading.Thread] = []

    def create() -> ssl.SSLContext:
        read_by.append(threading.current_thread())
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    monkeypatch.setattr("httpx2.create_ssl_context", create)
    remote._trusted.cache_clear()
    try:
        assert await remote.trusted_certificates() is await remote.trusted_certificates()
    finally:
        remote._trusted.cache_clear()
    (thread,) = read_by
    assert thread is not threading.current_thread()
