"""mcp: streams of events, what is asked for again and when, and responses that are left."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
import httpx2
import pytest

from app_server.mcp_wire.http.exchange import HttpRequest, Unreachable
from app_server.mcp_wire.http.refusals import encoding
from app_server.mcp_wire.http.transport import (
    MAX_WAITING,
    PIECE_BYTES,
    EventStream,
    Inbox,
    Listener,
    Session,
)
from app_server.mcp_wire.messages import MAX_MESSAGE_BYTES
from app_server.runtime.http.event_stream import EventTooLarge
from app_server.runtime.loop_share import LoopShare
from tests.mcp_wire.senders import Response, Sender
from tests.support.harness import WAIT_S

URL = "http://a.example/mcp"
EVENTS = {"content-type": "text/event-stream"}
NOTE = b'data: {"jsonrpc":"2.0","method":"note"}\n\n'
ANSWER = b'data: {"jsonrpc":"2.0","id":"other","result":{}}\n\n'


@pytest.fixture(autouse=True)
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Give how long was slept, which takes no time."""
    durations: list[float] = []

    async def sleep(delay_s: float) -> None:
        durations.append(delay_s)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return durations


async def received(inbox: Inbox, count: int) -> list[Any]:
    with anyio.fail_after(WAIT_S):
        messages = [(await anext(inbox)).message for _ in range(count)]
    return [message.model_dump(exclude_unset=True) for message in messages]


def listener(*responses: Response) -> tuple[Listener, Sender, Inbox]:
    sender, inbox = Sender(list(responses)), Inbox()
    return Listener(sender, Session(URL, {}), inbox), sender, inbox


def events(*pieces: bytes) -> Response:
    return Response(200, EVENTS, list(pieces))


# One stream.


@pytest.mark.parametrize(
    ("sent", "last_id", "retry_s"),
    [
        (b"", b"", 1.0),
        (b"id: a\n\n", b"a", 1.0),
        (b"id: a\nretry: 250\n\nid: b\n\n", b"b", 0.25),
        (b"retry: 0\n\n", b"", 0.01),
        (b"retry: 9\n\n", b"", 0.01),
        (b"retry: 11\n\n", b"", 0.011),
        (b"retry: 299999\n\n", b"", 299.999),
        (b"retry: 300001\n\n", b"", 300.0),
        (b"id: " + b"x" * 1024 + b"\n\n", b"x" * 1024, 1.0),
        (b"id: a\n\nid: " + b"x" * 1025 + b"\n\n", b"", 1.0),
    ],
)
async def test_a_stream_is_taken_up_behind_its_last_event_after_the_time_it_says(
    sent: bytes, last_id: bytes, retry_s: float
) -> None:
    stream = EventStream(Inbox(), LoopShare())
    assert not await stream.relay(events(sent))
    assert (stream.last_id, stream.retry_s) == (last_id, retry_s)


async def test_messages_are_passed_on_up_to_the_answer() -> None:
    inbox = Inbox()
    response = events(NOTE, b"event: other\n" + ANSWER + b"data:\n\n" + ANSWER, NOTE)
    assert await EventStream(inbox, LoopShare(), 7).relay(response)
    assert await received(inbox, 2) == [
        {"jsonrpc": "2.0", "method": "note"},
        {"jsonrpc": "2.0", "id": 7, "result": {}},
    ]
    assert response.pieces == [NOTE]


async def test_a_stream_without_a_request_has_no_answer_and_passes_over_what_is_no_message() -> (
    None
):
    inbox = Inbox()
    assert not await EventStream(inbox, LoopShare()).relay(events(b"data: x\n\n", ANSWER, NOTE))
    assert await received(inbox, 2) == [
        {"jsonrpc": "2.0", "id": "other", "result": {}},
        {"jsonrpc": "2.0", "method": "note"},
    ]


async def test_an_event_at_the_bound_is_read_and_a_larger_one_ends_the_stream() -> None:
    line = b": " + b"x" * (MAX_MESSAGE_BYTES - 2)
    assert not await EventStream(Inbox(), LoopShare()).relay(events(line + b"\n\n"))
    with pytest.raises(EventTooLarge):
        await EventStream(Inbox(), LoopShare()).relay(events(line + b"x\n\n"))


@dataclass
class Share:
    """A share of the event loop that counts the pieces of work."""

    waits: int = 0

    async def wait(self) -> None:
        self.waits += 1


@pytest.mark.parametrize(
    ("sent", "waits"),
    [
        # As an answer in JSON.
        ([ANSWER], 0),
        # Two more events, then three pieces without any.
        ([NOTE * 3, b": " + b"x" * (2 * PIECE_BYTES)], 2 + 3),
        ([b": x\n"] * 4, 3),
        ([NOTE, NOTE], 2),
    ],
)
async def test_others_run_before_each_piece_and_each_event_but_the_first(
    sent: list[bytes], waits: int
) -> None:
    share = Share()
    await EventStream(Inbox(), cast(LoopShare, share)).relay(events(*sent))
    assert share.waits == waits


# Responses to requests.


@pytest.mark.parametrize(
    ("status", "headers", "error"),
    [
        (202, {}, (-32600, "the server answered a request with 202 Accepted")),
        (202, EVENTS, (-32600, "the server answered a request with 202 Accepted")),
        (
            200,
            {"content-type": "application/json", "content-encoding": "gzip"},
            (-32000, f"content-encoding gzip from {URL}, which was not asked for"),
        ),
        (
            307,
            {"location": "https://b.example/mcp?key=secret"},
            (
                -32600,
                "Redirect to https://b.example/mcp not followed; use that URL if it is the "
                "intended server",
            ),
        ),
        (200, {"content-type": "text/html"}, (-32600, "Unexpected content type: text/html")),
        (304, {}, (-32600, "Unexpected content type: ")),
        (404, {}, (-32601, "Not Found")),
        (400, {}, (-32000, f"HTTP status 400 from {URL}")),
        (401, {"content-type": "application/json"}, (-32000, f"HTTP status 401 from {URL}")),
    ],
)
async def test_a_response_without_an_answer_is_left_and_becomes_an_error(
    status: int, headers: Mapping[str, str], error: tuple[int, str]
) -> None:
    response = Response(status, headers, [b"some", b"text"])
    ours, sender, inbox = listener()
    await ours.read_answer(7, HttpRequest("POST", httpx2.URL(URL), {}), response)
    ((found,)) = await received(inbox, 1)
    assert (found["id"], found["error"]["code"], found["error"]["message"]) == (7, *error)
    assert response.pieces == []
    assert response.closed > 0
    assert sender.sent == []


@pytest.mark.parametrize("value", ["", "identity", " Identity "])
def test_a_body_that_is_sent_as_it_is_has_no_encoding(value: str) -> None:
    assert encoding(Response(headers={"content-encoding": value})) == ""


async def test_an_answer_as_json_is_passed_on_with_the_id_of_the_request() -> None:
    response = Response(
        200, {"content-type": "application/json"}, [b'{"jsonrpc":"2.0","id":1,"result":{}}']
    )
    ours, _, inbox = listener()
    await ours.read_answer(7, HttpRequest("POST", httpx2.URL(URL), {}), response)
    assert await received(inbox, 1) == [{"jsonrpc": "2.0", "id": 7, "result": {}}]
    assert response.closed > 0


async def test_a_stream_that_ended_early_is_asked_for_behind_its_last_event(
    slept: list[float],
) -> None:
    first = events(b"id: a\nretry: 20\n" + NOTE)
    refused, second = Response(503, pieces=[b"busy"]), events(ANSWER, b": the rest\n\n")
    ours, sender, inbox = listener(refused, second)
    await ours.read_answer(7, HttpRequest("POST", httpx2.URL(URL), {}), first)
    assert (await received(inbox, 2))[1] == {"jsonrpc": "2.0", "id": 7, "result": {}}
    assert [(sent.method, sent.headers["last-event-id"]) for sent in sender.sent] == [
        ("GET", "a"),
        ("GET", "a"),
    ]
    assert slept == [0.02, 0.02]
    # Each connection is free again: what was left of the responses is read.
    assert [response.pieces for response in (first, refused, second)] == [[], [], []]
    assert all(response.closed for response in (first, refused, second))


@pytest.mark.parametrize(
    ("sent", "again", "message"),
    [
        (b"", [], "SSE stream ended without a response"),
        (
            b"id: a\n\n",
            [Response(503), Response(200, {"content-type": "text/html"})],
            "SSE stream ended and reconnection attempts were exhausted",
        ),
        (
            b"id: a\n\n",
            [Response(405)],
            "SSE stream ended, and the server does not go on with it",
        ),
        (
            b": " + b"x" * MAX_MESSAGE_BYTES,
            [],
            f"SSE stream failed: an event is larger than {MAX_MESSAGE_BYTES} bytes",
        ),
    ],
    ids=["no id", "twice", "not offered", "large"],
)
async def test_a_request_whose_stream_does_not_go_on_fails_once(
    sent: bytes, again: list[Response], message: str
) -> None:
    first = events(sent)
    ours, sender, inbox = listener(*again)
    await ours.read_answer(7, HttpRequest("POST", httpx2.URL(URL), {}), first)
    (found,) = await received(inbox, 1)
    assert found["error"] == {"code": -32000, "message": message}
    assert len(sender.sent) == len(again)
    assert all(response.closed for response in (first, *again))


# The stream of a session.


async def test_a_session_without_a_stream_is_asked_once_and_its_refusal_left(
    slept: list[float],
) -> None:
    refusal = Response(405, pieces=[b"no"])
    ours, sender, _ = listener(refusal)
    await ours.read_session_events()
    assert (len(sender.sent), slept, refusal.pieces, refusal.closed) == (1, [], [], 1)


async def test_the_stream_of_a_session_is_asked_for_twice_again_after_each_end(
    slept: list[float],
) -> None:
    responses = [
        *(Response(503), Response(503), events(b"id: a\nretry: 20\n" + NOTE)),
        *(Response(503, pieces=[b"busy"]), events(b"retry: 30\n" + NOTE)),
        *(Response(503), Response(503)),
    ]
    ours, sender, inbox = listener(*responses)
    await ours.read_session_events()
    assert len(await received(inbox, 2)) == 2
    last_ids = [sent.headers.get("last-event-id") for sent in sender.sent]
    assert last_ids == [None] * 3 + ["a"] * 4
    assert slept == [1.0, 1.0, 0.02, 0.02, 0.03, 0.03]
    assert [response.pieces for response in responses] == [[]] * 7
    assert all(response.closed for response in responses)


@dataclass
class Away:
    """A server that cannot be reached."""

    asked: list[HttpRequest] = field(default_factory=list)

    async def send(self, request: HttpRequest) -> Response:
        self.asked.append(request)
        raise Unreachable("away")


async def test_a_stream_of_a_server_that_is_away_is_asked_for_three_times(
    slept: list[float],
) -> None:
    sender = Away()
    await Listener(sender, Session(URL, {}), Inbox()).read_session_events()
    assert (len(sender.asked), slept) == (3, [1.0, 1.0])


async def test_whoever_brings_more_messages_than_wait_waits() -> None:
    inbox = Inbox()
    stream = EventStream(inbox, LoopShare())
    reading = asyncio.ensure_future(stream.relay(events(NOTE * (MAX_WAITING + 1))))
    await anyio.wait_all_tasks_blocked()
    assert (reading.done(), MAX_WAITING) == (False, 64)
    await received(inbox, 1)
    with anyio.fail_after(WAIT_S):
        assert not await reading
    assert len(await received(inbox, MAX_WAITING)) == MAX_WAITING
