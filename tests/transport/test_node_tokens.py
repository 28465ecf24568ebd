"""Tokens of nodes: for one node, once, for a minute by a clock that all share."""

from contextlib import AsyncExitStack
from dataclasses import dataclass

import anyio
import jwt
import pytest
from websockets.asyncio.client import connect
from websockets.datastructures import Headers
from websockets.exceptions import InvalidStatus

from app_server.transport.address import TcpAddress
from app_server.transport.node_tokens import ISSUER, LEEWAY_S, LIFE_S, NodeTokens
from app_server.transport.websocket import (
    NODE_SUBPROTOCOL,
    NodeEntrance,
    WebSocketLimits,
    listen_tcp,
)
from tests.support.harness import WAIT_S

SECRET = b"a secret of thirty-two bytes, or more"
ME = "01a2203f-860d-7120-b637-669d9cbe38b5"
OTHER = "01a2203f-860d-7120-b637-000000000000"


@dataclass
class Clock:
    """A node whose time stands still."""

    id: str | None = ME
    at_s: float = 1000.0

    def now_s(self) -> float:
        return self.at_s


def shown(token: str) -> Headers:
    return Headers({"Authorization": f"Bearer {token}"})


def signed(secret: bytes = SECRET, **claims: object) -> str:
    known = {"iss": ISSUER, "sub": OTHER, "aud": ME, "exp": 1060, "jti": "one"}
    given = {name: value for name, value in {**known, **claims}.items() if value is not None}
    return jwt.encode(given, secret, algorithm="HS256")


async def test_a_token_lets_its_node_in_once_and_within_a_minute() -> None:
    mine, others = Clock(), Clock(OTHER)
    here, there = NodeTokens(SECRET, mine), NodeTokens(SECRET, others)
    token = there.issue(ME)
    assert here.lets_in(shown(token))
    assert not here.lets_in(shown(token))
    late = there.issue(ME)
    mine.at_s = 1000.0 + LIFE_S + LEEWAY_S
    assert not here.lets_in(shown(late))
    others.at_s = mine.at_s
    assert here.lets_in(shown(there.issue(ME)))


@pytest.mark.parametrize("ahead_s", [-LEEWAY_S, LEEWAY_S])
async def test_nodes_may_differ_a_little_in_the_time(ahead_s: int) -> None:
    others = Clock(OTHER, 1000.0 + ahead_s)
    here, there = NodeTokens(SECRET, Clock()), NodeTokens(SECRET, others)
    token = there.issue(ME)
    assert [here.lets_in(shown(token)) for _ in range(2)] == [True, False]


async def test_refusals_are_counted_and_not_logged_each(caplog: pytest.LogCaptureFixture) -> None:
    tokens = NodeTokens(SECRET, Clock())
    assert not any(tokens.lets_in(Headers()) for _ in range(3))
    assert caplog.messages == ["a connection of a node was refused: it has none"]


@pytest.mark.parametrize(
    "token",
    [
        "",
        "no.token",
        signed(b"another secret of thirty-two bytes or more"),
        signed(iss="somebody"),
        signed(iss=None),
        signed(sub=ME),
        signed(aud=OTHER),
        signed(aud=[ME]),
        signed(aud=None),
        signed(exp=1000 - LEEWAY_S),
        signed(exp=1001 + LIFE_S + LEEWAY_S),
        signed(exp=None),
        signed(exp="soon"),
        signed(jti=None),
        jwt.encode({"iss": ISSUER, "sub": OTHER, "aud": ME, "exp": 1060, "jti": "x"}, "", "none"),
    ],
)
async def test_others_are_refused(token: str) -> None:
    assert not NodeTokens(SECRET, Clock()).lets_in(shown(token))


async def test_the_form_that_others_are_made_of_is_accepted() -> None:
    assert NodeTokens(SECRET, Clock()).lets_in(shown(signed()))
    assert not NodeTokens(SECRET, Clock(None)).lets_in(shown(signed()))
    assert not NodeTokens(SECRET, Clock()).lets_in(Headers())


async def test_no_more_are_remembered_than_are_bounded() -> None:
    clock, sender = Clock(), NodeTokens(SECRET, Clock(OTHER))
    tokens = NodeTokens(SECRET, clock, max_remembered=2)
    assert [tokens.lets_in(shown(sender.issue(ME))) for _ in range(3)] == [True, True, False]
    clock.at_s += LIFE_S + LEEWAY_S
    assert tokens.lets_in(shown(signed(exp=clock.at_s + 1)))


async def test_connections_of_nodes_have_a_bound_beside_those_of_clients() -> None:
    here, there = NodeTokens(SECRET, Clock()), NodeTokens(SECRET, Clock(OTHER))
    left = anyio.Event()

    async def converse(stream: object) -> None:
        await left.wait()

    def as_client(url: str) -> connect:
        return connect(url, proxy=None, open_timeout=WAIT_S)

    def as_node(url: str) -> connect:
        return connect(
            url,
            proxy=None,
            open_timeout=WAIT_S,
            additional_headers=shown(there.issue(ME)),
            subprotocols=[NODE_SUBPROTOCOL],
        )

    limits = WebSocketLimits(max_connections=1, max_of_nodes=1)
    async with AsyncExitStack() as stack:
        address, nodes = TcpAddress("127.0.0.1", 0), NodeEntrance(here, converse)
        listening = listen_tcp(address, converse, limits, nodes=nodes)
        url = (await stack.enter_async_context(listening)).url
        for one in (as_node, as_client):
            await stack.enter_async_context(one(url))
        for one in (as_node, as_client):
            with pytest.raises(InvalidStatus) as caught:
                async with one(url):
                    pass
            assert caught.value.response.status_code == 503
        left.set()
