"""mcp: how responses are read and left, and the bound on whole ones."""

import httpx2
import pytest

from app_server.mcp_wire.http.exchange import (
    LINGER_BYTES,
    BodyTooLarge,
    HttpRequest,
    LimitedSender,
    leave,
    media_type,
    read_body,
)
from tests.mcp_wire.senders import Response, Sender


@pytest.mark.parametrize(
    ("pieces", "left"),
    [
        ([], []),
        ([b"rest", b"more"], []),
        ([b"x" * LINGER_BYTES], []),
        # What is not read is closed with its connection.
        ([b"x" * (LINGER_BYTES + 1), b"more"], [b"more"]),
    ],
    ids=["nothing", "short", "at the bound", "above the bound"],
)
async def test_a_response_that_is_left_is_read_to_a_bound_and_closed(
    pieces: list[bytes], left: list[bytes]
) -> None:
    assert LINGER_BYTES == 65_536
    response = Response(pieces=list(pieces))
    await leave(response)
    assert (response.pieces, response.closed) == (left, 1)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("application/json", "application/json"),
        (" Text/HTML ; charset=utf-8; a=b", "text/html"),
        ("", ""),
    ],
)
def test_a_media_type_has_no_parameters_and_small_letters(value: str, kind: str) -> None:
    assert media_type(Response(headers={"content-type": value})) == kind
    assert media_type(Response()) == ""


def limited(method: str, response: Response) -> tuple[LimitedSender, HttpRequest]:
    request = HttpRequest(method, httpx2.URL("http://a.example/"), {})
    return LimitedSender(Sender([response]), 10), request


@pytest.mark.parametrize("length", ["10", "x", "", "-11", "\u0661\u0661"])
async def test_a_response_within_the_bound_is_read_whole(length: str) -> None:
    sent = Response(headers={"content-length": length}, pieces=[b"12345", b"67890"])
    sender, request = limited("POST", sent)
    response = await sender.send(request)
    assert (response.status, response.headers, response.at_end) == (200, sent.headers, False)
    assert await read_body(response, 100) == b"1234567890"
    assert response.at_end
    await response.aclose()
    assert sent.closed == 1


async def test_a_response_is_cut_off_behind_the_bound() -> None:
    sent = Response(pieces=[b"12345", b"67890", b"1", b"more"])
    sender, request = limited("POST", sent)
    response = await sender.send(request)
    assert [await response.receive(), await response.receive()] == [b"12345", b"67890"]
    for _ in range(2):
        with pytest.raises(BodyTooLarge, match=r"^the response is larger than 10 bytes$"):
            await response.receive()
    assert sent.pieces == [b"more"]


@pytest.mark.parametrize("length", ["11", "99999999999999999999999999"])
async def test_a_response_that_says_it_is_above_the_bound_is_not_read(length: str) -> None:
    sent = Response(headers={"content-length": length}, pieces=[b"1"])
    sender, request = limited("POST", sent)
    response = await sender.send(request)
    with pytest.raises(BodyTooLarge, match=r"^the response is larger than 10 bytes$"):
        await response.receive()
    assert sent.pieces == [b"1"]


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_only_responses_to_posts_have_the_bound(method: str) -> None:
    sent = Response(headers={"content-length": "11"}, pieces=[b"12345678901"])
    sender, request = limited(method, sent)
    assert await sender.send(request) is sent
