"""transport: who shows a right token is let in, and nobody else learns why not."""

import hashlib
import hmac
import logging
from pathlib import Path
from typing import Any

import pytest

from app_server.transport.address import Address, TcpAddress, UnixAddress
from app_server.transport.guards import CapabilityAuth, ListenerGuards, SignedAuth
from app_server.transport.signed_tokens import SignedToken
from app_server.transport.tokens import CapabilityToken, digest_of
from tests.support.harness import WireClient, claim, serve
from tests.support.wire.handshakes import SECRET, Answer, bearer, handshake, in_seconds, signed
from tests.support.wire.pipes import SocketPipe

TOKEN = "right-token"
CAPABILITY = ListenerGuards(auth=CapabilityAuth(digest_of(TOKEN)))
SIGNED = ListenerGuards(auth=SignedAuth(SECRET, issuer="issuer", audience="here"))

LET_IN = Answer(101, "", {})
REFUSED = Answer(401, "A bearer token is needed.\n", {})

AUTHORIZATION = "Authorization"
SUBPROTOCOLS = "Sec-WebSocket-Protocol"


@claim("listener:capability-token")
async def test_one_right_token_lets_a_client_in_and_every_refusal_is_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cases: dict[str, list[tuple[str, str]]] = {
        "as usual": [bearer(TOKEN)],
        "other letter case": [("authorization", f"bEaReR {TOKEN}")],
        "spaces": [(AUTHORIZATION, f"Bearer   {TOKEN}  ")],
        "a page's way": [(SUBPROTOCOLS, f"app-server, bearer.{TOKEN}")],
        "none": [],
        "wrong": [bearer("wrong-token")],
        "longer": [bearer(f"{TOKEN}s")],
        "its digest": [bearer(hashlib.sha256(TOKEN.encode()).hexdigest())],
        "empty": [bearer("")],
        "no scheme": [(AUTHORIZATION, TOKEN)],
        "other scheme": [(AUTHORIZATION, f"Basic {TOKEN}")],
        "a tab": [(AUTHORIZATION, f"Bearer\t{TOKEN}")],
        "not ASCII": [bearer("\xe9")],
        "two headers, both right": [bearer(TOKEN), bearer(TOKEN)],
        "two headers, the first right": [bearer(TOKEN), bearer("wrong-token")],
        "two headers, the second right": [bearer("wrong-token"), bearer(TOKEN)],
        "two headers, one of another scheme": [bearer(TOKEN), (AUTHORIZATION, "Basic x")],
        "both ways": [bearer(TOKEN), (SUBPROTOCOLS, f"app-server, bearer.{TOKEN}")],
        "an empty subprotocol": [(SUBPROTOCOLS, "app-server, bearer.")],
    }
    async with serve(tmp_path, guards=CAPABILITY) as served:
        answers = {name: await handshake(served.urls[0], *each) for name, each in cases.items()}
        query = await handshake(served.urls[0], path=f"/?token={TOKEN}")
    accepted = ["as usual", "other letter case", "spaces", "a page's way"]
    assert {name for name, answer in answers.items() if answer == LET_IN} == set(accepted)
    assert [answer for answer in [*answers.values(), query] if answer != LET_IN] == [REFUSED] * (
        len(cases) - len(accepted) + 1
    )
    assert {answer.headers.get("www-authenticate") for answer in answers.values()} == {
        None,
        "Bearer",
    }
    assert "token" in caplog.text
    assert TOKEN not in caplog.text
    assert "wrong-token" not in caplog.text


@claim("listener:capability-token")
async def test_a_client_with_the_token_is_served_and_a_socket_needs_none(tmp_path: Path) -> None:
    listen: list[Address] = [TcpAddress("127.0.0.1", 0), UnixAddress(tmp_path / "socket")]
    async with serve(tmp_path, listen=listen, guards=CAPABILITY) as served:
        headers = {AUTHORIZATION: f"Bearer {TOKEN}"}
        async with served.pipe(additional_headers=headers) as pipe:
            await _is_served(pipe)
        async with served.pipe(served.urls[1]) as pipe:
            await _is_served(pipe)


async def _is_served(pipe: SocketPipe) -> None:
    client = WireClient(pipe)
    await client.initialize()
    assert await client.call("thread/loaded/list", {}) == {"data": [], "nextCursor": None}


@claim("listener:capability-token", "listener:health")
async def test_health_is_answered_without_a_token(tmp_path: Path) -> None:
    async with serve(tmp_path, guards=CAPABILITY) as served:
        for path in ("/readyz", "/healthz"):
            assert await handshake(served.urls[0], path=path, upgrade=()) == Answer(200, "ok\n", {})


@claim("listener:subprotocol")
async def test_a_token_is_never_chosen_as_a_subprotocol(tmp_path: Path) -> None:
    async with serve(tmp_path, guards=CAPABILITY) as served:
        offers = {
            f"app-server, bearer.{TOKEN}": "app-server",
            f"bearer.{TOKEN},chat,app-server": "app-server",
            f"bearer.{TOKEN}": None,
            f"chat, bearer.{TOKEN}": None,
        }
        chosen = {
            offer: (await handshake(served.urls[0], (SUBPROTOCOLS, offer))).headers.get(
                "sec-websocket-protocol"
            )
            for offer in offers
        }
    assert chosen == offers


def test_digests_are_compared_in_a_time_that_does_not_depend_on_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[tuple[Any, Any]] = []

    def compare(one: Any, other: Any) -> bool:
        compared.append((one, other))
        return bool(one == other)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    check = CapabilityToken(digest_of(TOKEN))
    assert [check.accepts(each) for each in (TOKEN, "x", "\udce9")] == [True, False, False]
    assert [(len(one), other) for one, other in compared] == [(32, digest_of(TOKEN))] * 3


# Signed tokens.

FULL = {"iss": "issuer", "aud": "here"}
HOUR = 3600


def refused_and_accepted() -> dict[str, tuple[str, bool]]:
    later, earlier = in_seconds(HOUR), in_seconds(-HOUR)
    good = {**FULL, "exp": later}
    return {
        "right": (signed(good), True),
        "several audiences": (signed({**good, "aud": ["there", "here"]}), True),
        "valid since a while": (signed({**good, "nbf": earlier}), True),
        "issued elsewhere, later": (signed({**good, "iat": later}), True),
        "expired within the skew": (signed({**good, "exp": in_seconds(-10)}), True),
        "valid soon, within the skew": (signed({**good, "nbf": in_seconds(20)}), True),
        "far in the future": (signed({**good, "exp": 2**62}), True),
        "expired": (signed({**good, "exp": earlier}), False),
        "expired before the skew": (signed({**good, "exp": in_seconds(-40)}), False),
        "without expiry": (signed(FULL), False),
        "not valid yet": (signed({**good, "nbf": later}), False),
        "not valid within the skew": (signed({**good, "nbf": in_seconds(60)}), False),
        "other issuer": (signed({**good, "iss": "other"}), False),
        "no issuer": (signed({"aud": "here", "exp": later}), False),
        "other audience": (signed({**good, "aud": "there"}), False),
        "other audiences": (signed({**good, "aud": ["there"]}), False),
        "no audience": (signed({"iss": "issuer", "exp": later}), False),
        "other secret": (signed(good, b"x" * 40), False),
        "the secret with a line end": (signed(good, SECRET + b"\n"), False),
        "unsigned": (signed(good, algorithm="none"), False),
        "longer digest": (signed(good, algorithm="HS512"), False),
        "half longer digest": (signed(good, algorithm="HS384"), False),
        "changed claims": (_changed(signed(good)), False),
        "padded": (f"{signed(good)}=", False),
        "padded in the middle": (signed(good).replace(".", "=.", 1), False),
        "a character that is passed over": (f"{signed(good)}!", False),
        "a space within": (signed(good).replace(".", ". ", 1), False),
        "a line end within": (signed(good).replace(".", "\n.", 1), False),
        "of the other alphabet": (f"{signed(good)[:-1]}+", False),
        "two parts": (signed(good).rpartition(".")[0], False),
        "no token": ("a.b.c", False),
        "empty": ("", False),
        "not ASCII": ("\udce9", False),
        "a list": (signed([]), False),
        "expiry is null": (signed({**good, "exp": None}), False),
        "expiry is a list": (signed({**good, "exp": []}), False),
        "expiry is text": (signed({**good, "exp": "soon"}), False),
        "expiry has no end": (signed({**good, "exp": float("inf")}), False),
        "expiry is no number": (signed({**good, "exp": float("nan")}), False),
        "start is null": (signed({**good, "nbf": None}), False),
        "issuer is a number": (signed({**good, "iss": 5}), False),
        "audience is a number": (signed({**good, "aud": 5}), False),
        "audiences are numbers": (signed({**good, "aud": [5]}), False),
    }


def _changed(token: str) -> str:
    head, _, signature = token.split(".")
    other = signed({**FULL, "exp": in_seconds(HOUR), "sub": "admin"}).split(".")[1]
    return f"{head}.{other}.{signature}"


@claim("listener:signed-token")
def test_a_signed_token_holds_for_its_time_issuer_and_audience(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    assert isinstance(SIGNED.auth, SignedAuth)
    check = SignedToken(SIGNED.auth)
    cases = refused_and_accepted()
    assert {name: check.accepts(token) for name, (token, _) in cases.items()} == {
        name: accepted for name, (_, accepted) in cases.items()
    }
    assert "ExpiredSignatureError" in caplog.text
    assert "issuer" not in caplog.text.lower().replace("invalidissuererror", "")
    assert SECRET.decode() not in caplog.text


@claim("listener:signed-token")
def test_issuer_and_audience_are_asked_for_where_they_are_set_alone() -> None:
    check = SignedToken(SignedAuth(SECRET))
    claims: list[dict[str, Any]] = [{}, FULL, {"iss": "other", "aud": ["there"]}, {"aud": []}]
    assert [check.accepts(signed({**each, "exp": in_seconds(HOUR)})) for each in claims] == [
        True
    ] * len(claims)


@claim("listener:signed-token")
def test_the_skew_of_clocks_can_be_set() -> None:
    exact, wide = (
        SignedToken(SignedAuth(SECRET, clock_skew_s=seconds)) for seconds in (0, 2 * HOUR)
    )
    expired, early = signed({"exp": in_seconds(-10)}), in_seconds(HOUR)
    assert (exact.accepts(expired), wide.accepts(expired)) == (False, True)
    unripe = signed({"exp": in_seconds(2 * HOUR), "nbf": early})
    assert (exact.accepts(unripe), wide.accepts(unripe)) == (False, True)


@claim("listener:signed-token")
async def test_a_server_lets_signed_tokens_in_and_says_nothing_of_others(tmp_path: Path) -> None:
    async with serve(tmp_path, guards=SIGNED) as served:
        right = signed({**FULL, "exp": in_seconds(HOUR)})
        expired = signed({**FULL, "exp": in_seconds(-HOUR)})
        unsigned = signed({**FULL, "exp": in_seconds(HOUR)}, algorithm="none")
        shown = [[bearer(right)], [bearer(expired)], [bearer(unsigned)], [bearer(right)] * 2, []]
        answers = [await handshake(served.urls[0], *headers) for headers in shown]
    assert answers == [LET_IN, REFUSED, REFUSED, REFUSED, REFUSED]


# Addresses that other machines can reach.


@claim("listener:loopback-only")
async def test_every_address_can_be_listened_on_with_a_token(tmp_path: Path) -> None:
    async with serve(tmp_path, listen=[TcpAddress("0.0.0.0", 0)], guards=CAPABILITY) as served:
        url = served.urls[0].replace("0.0.0.0", "127.0.0.1")
        # Names of such an address are for whoever runs it to choose.
        assert await handshake(url, bearer(TOKEN), host="build.example.com") == LET_IN
        assert await handshake(url, host="build.example.com") == REFUSED


@claim("listener:loopback-only")
async def test_no_such_address_is_listened_on_without_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"refusing to listen on 0\.0\.0\.0 without a token"):
        async with serve(tmp_path, listen=[TcpAddress("0.0.0.0", 0)]):
            pass
