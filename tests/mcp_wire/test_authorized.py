"""mcp: which requests carry a credential, and what follows a refused one."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import httpx2
import pytest

from app_server.mcp_wire.errors import NoCredential
from app_server.mcp_wire.http.authorized import AuthorizedSender
from app_server.mcp_wire.http.exchange import HttpRequest, Unreachable
from app_server.mcp_wire.http.redirects import origin_of
from app_server.mcp_wire.http.refusals import scopes_wanted
from tests.mcp_wire.senders import Response, Sender

URL = "https://a.example/mcp"


@dataclass
class Given:
    """Credentials: the one in force, and the one that follows it."""

    now: str | None = "one"
    later: str | None = "two"
    failure: Exception | None = None
    refused: list[str | None] = field(default_factory=list)
    lacked: list[tuple[str | None, ...]] = field(default_factory=list)

    async def current(self) -> str | None:
        return self.now

    async def replace(self, refused: str | None) -> str | None:
        self.refused.append(refused)
        if self.failure is not None:
            raise self.failure
        return self.later

    async def widen(self, refused: str | None, scopes: Sequence[str]) -> str | None:
        self.lacked.append((refused, *scopes))
        return self.later

    def stored(self) -> str | None:
        return None if self.now is None else f"stored {self.now}"

    def headers(self, credential: str) -> Mapping[str, str]:
        return {"authorization": credential}


def request_to(url: str = URL, method: str = "POST") -> HttpRequest:
    return HttpRequest(method, httpx2.URL(url), {"x": "y"}, b"{}")


def authorized(responses: Sequence[Response], tokens: Given) -> tuple[Sender, AuthorizedSender]:
    sender = Sender(list(responses))
    return sender, AuthorizedSender(sender, origin_of(httpx2.URL(URL)), tokens)


@pytest.mark.parametrize(
    ("method", "now", "headers"),
    [
        ("POST", "one", {"x": "y", "authorization": "one"}),
        ("GET", "one", {"x": "y", "authorization": "one"}),
        ("DELETE", "one", {"x": "y", "authorization": "stored one"}),
        ("POST", None, {"x": "y"}),
        ("DELETE", None, {"x": "y"}),
    ],
)
@pytest.mark.parametrize("status", [200, 202, 400, 403, 404, 500])
async def test_a_request_to_the_origin_carries_the_credential_in_force(
    method: str, now: str | None, headers: Mapping[str, str], status: int
) -> None:
    response, tokens, request = Response(status), Given(now), request_to(method=method)
    sender, ours = authorized([response], tokens)
    assert await ours.send(request) is response
    assert sender.sent == [replace(request, headers=headers)]
    assert (tokens.refused, response.closed) == ([], 0)


@pytest.mark.parametrize(
    "url",
    ["http://a.example/mcp", "https://b.example/mcp", "https://a.example:444/mcp"],
)
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_a_request_to_another_origin_carries_none(url: str, method: str) -> None:
    response, tokens, request = Response(401), Given(), request_to(url, method)
    sender, ours = authorized([response], tokens)
    assert await ours.send(request) is response
    assert (sender.sent, tokens.refused, response.closed) == ([request], [], 0)


@pytest.mark.parametrize("now", ["one", None])
@pytest.mark.parametrize("status", [200, 401])
async def test_a_refused_credential_is_replaced_once(now: str | None, status: int) -> None:
    first, second, tokens = Response(401), Response(status), Given(now)
    sender, ours = authorized([first, second], tokens)
    assert await ours.send(request_to()) is second
    given = {} if now is None else {"authorization": "one"}
    assert [sent.headers for sent in sender.sent] == [
        {"x": "y", **given},
        {"x": "y", "authorization": "two"},
    ]
    assert (tokens.refused, first.closed, second.closed) == ([now], 1, 0)


@pytest.mark.parametrize("later", [None, "one"])
async def test_a_refusal_stands_where_there_is_no_other_credential(later: str | None) -> None:
    response, tokens = Response(401), Given(later=later)
    sender, ours = authorized([response], tokens)
    assert await ours.send(request_to()) is response
    assert (len(sender.sent), tokens.refused, response.closed) == (1, ["one"], 0)


async def test_the_end_of_a_session_asks_for_no_other_credential() -> None:
    response, tokens = Response(401), Given()
    sender, ours = authorized([response], tokens)
    assert await ours.send(request_to(method="DELETE")) is response
    assert (len(sender.sent), tokens.refused, response.closed) == (1, [], 0)


@pytest.mark.parametrize(
    ("failure", "raised"),
    [(NoCredential("sign in first"), Unreachable), (RuntimeError("sign in first"), RuntimeError)],
)
async def test_a_refusal_is_closed_where_no_other_credential_can_be_had(
    failure: Exception, raised: type[Exception]
) -> None:
    response = Response(401)
    _, ours = authorized([response], Given(failure=failure))
    with pytest.raises(raised, match=r"^sign in first$"):
        await ours.send(request_to())
    assert response.closed == 1


def challenged(challenge: str, status: int = 403) -> Response:
    return Response(status, {"www-authenticate": challenge})


@pytest.mark.parametrize("now", ["one", None])
@pytest.mark.parametrize("later", ["two", "one", None])
async def test_a_credential_that_lacks_scopes_is_widened_once(
    now: str | None, later: str | None
) -> None:
    first = challenged('Bearer error="insufficient_scope", scope="a b"')
    second = challenged('Bearer error="insufficient_scope", scope="c"')
    tokens = Given(now, later)
    sender, ours = authorized([first, second], tokens)
    repeated = later not in (None, now)
    assert await ours.send(request_to()) is (second if repeated else first)
    assert (tokens.refused, tokens.lacked) == ([], [(now, "a", "b")])
    assert (len(sender.sent), first.closed) == (2, 1) if repeated else (1, 0)


@pytest.mark.parametrize(
    ("response", "scopes"),
    [
        (challenged('Bearer error="insufficient_scope", scope="a b"'), ("a", "b")),
        (challenged('bearer scope="b a b",Error=insufficient_scope'), ("b", "a")),
        (challenged('Basic realm="x", Bearer scope="a", error="insufficient_scope"'), ("a",)),
        (challenged('Bearer error="insufficient_scope", scope=""'), ()),
        (challenged('Bearer error="insufficient_scope"'), ()),
        (challenged('Bearer error="invalid_token", scope="a"'), ()),
        (challenged('Basic error="insufficient_scope", scope="a"'), ()),
        (challenged('Bearer error="insufficient_scope", scope="a"', 401), ()),
        (challenged('Bearer error="insufficient_scope", scope="\u00e9"'), ()),
        (challenged('Bearer error="insufficient_scope", scope="a\\b"'), ()),
        (
            challenged(
                f'Bearer error="insufficient_scope", scope="{" ".join(map(str, range(64)))}"'
            ),
            tuple(map(str, range(64))),
        ),
        (
            challenged(
                f'Bearer error="insufficient_scope", scope="{" ".join(map(str, range(65)))}"'
            ),
            (),
        ),
        (challenged(f'Bearer error="insufficient_scope", scope="{"x" * 4097}"'), ()),
        (Response(403), ()),
    ],
)
def test_scopes_are_wanted_by_a_challenge_that_names_them(
    response: Response, scopes: tuple[str, ...]
) -> None:
    assert scopes_wanted(response) == scopes


@pytest.mark.parametrize("piece", ["bearer ", 'Bearer error="x ', 'scope="a '])
def test_a_long_challenge_takes_no_long_time(piece: str) -> None:
    response = challenged(piece * (64 * 1024 // len(piece)))
    began = time.thread_time()
    assert scopes_wanted(response) == ()
    assert time.thread_time() - began < 1
