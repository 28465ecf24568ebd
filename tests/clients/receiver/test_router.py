"""The demo router: keys, what it keeps, who takes over."""

from pathlib import Path

import anyio
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from app_server.clients.receiver.demo_router.server import MAX_WAITING, RouterStore, open_store
from app_server.clients.receiver.router.wire import (
    KEY_VARIABLE,
    RouterAddress,
    check_router_url,
)
from app_server.peer.token_file import take_token
from tests.support.harness import WAIT_S
from tests.support.receiver.peer import KEY, signal
from tests.support.receiver.routers import post, raw, receive_frame, router, send_frame


def test_a_key_is_in_no_url_and_in_no_repr() -> None:
    address = RouterAddress("wss://router.example.com/v1/", "Te xi/7", KEY)

    assert address.stream_url("e.1&x") == (
        "wss://router.example.com/v1/sessions/Te%20xi%2F7/stream?since=e.1%26x"
    )
    assert KEY not in repr(address)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ws://router.example.com", "in the clear"),
        ("https://router.example.com", "wss://HOST/PATH"),
        ("wss://", "wss://HOST/PATH"),
        ("wss://[", "wss://HOST/PATH"),
        ("wss://router.example.com:65536", "wss://HOST/PATH"),
        ("wss://me:word@router.example.com", "holds no names, keys"),
        ("wss://router.example.com/?key=1", "holds no names, keys"),
    ],
)
def test_a_router_url_that_would_give_the_key_away_is_refused(url: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_router_url(url)

    assert check_router_url("ws://127.0.0.1:4700") == "ws://127.0.0.1:4700"


def test_a_key_is_one_line_of_text(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"  word\n")

    assert take_token("key", KEY_VARIABLE, file) == "word"
    for text in ("", " \n", "two\nlines", "grüße", "x" * 4097):
        file.write_text(text)
        with pytest.raises(ValueError, match=r"^the key must be 1 to 4096 printable") as caught:
            take_token("key", KEY_VARIABLE, file)
        assert not text.strip() or text not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/sessions/Texi/stream", {}, 401),
        ("/sessions/Texi/stream", {"Authorization": "Bearer other"}, 401),
        ("/sessions/Texi/stream?key=" + KEY, {}, 401),
        ("/sessions//stream", {"Authorization": f"Bearer {KEY}"}, 404),
        ("/", {"Authorization": f"Bearer {KEY}"}, 404),
        (
            "/sessions/Texi/stream",
            {"Authorization": f"Bearer {KEY}", "Origin": "http://x.example"},
            403,
        ),
    ],
)
async def test_the_router_lets_in_who_has_the_key(
    tmp_path: Path, path: str, headers: dict[str, str], status: int
) -> None:
    async with router(tmp_path) as url:
        with pytest.raises(InvalidStatus) as caught:
            await connect(url + path, additional_headers=headers, proxy=None, open_timeout=WAIT_S)

    assert caught.value.response.status_code == status


async def test_what_was_not_acknowledged_comes_again_and_what_was_does_not(
    tmp_path: Path,
) -> None:
    async with router(tmp_path) as url:
        await post(url, signal("s1"), signal("s2"), signal("s3"))
        async with raw(url) as socket:
            frames = [await receive_frame(socket) for _ in range(3)]
            await send_frame(socket, "ack", cursor=frames[0]["cursor"])
            # Answers are in order: the ack was taken.
            await send_frame(socket, "send", signal=signal("x", to="Nobody"))
            await receive_frame(socket)
        async with raw(url) as socket:
            again = [await receive_frame(socket) for _ in range(2)]
        async with raw(url, since=frames[1]["cursor"]) as socket:
            rest = await receive_frame(socket)

    assert [frame["signal"]["signal_id"] for frame in frames] == ["s1", "s2", "s3"]
    assert again == frames[1:]
    assert rest == frames[2]


async def test_the_router_keeps_signals_over_a_restart_and_takes_each_once(tmp_path: Path) -> None:
    async with router(tmp_path) as url:
        assert await post(url, signal("s1"), signal("s1")) == ["accepted", "accepted"]
    async with router(tmp_path) as url:
        assert await post(url, signal("s1"), signal("s2")) == ["accepted", "accepted"]
        async with raw(url) as socket:
            frames = [await receive_frame(socket) for _ in range(2)]

    assert [frame["signal"] for frame in frames] == [
        {**signal("s1"), "delivery_class": "async"},
        {**signal("s2"), "delivery_class": "async"},
    ]


async def test_the_router_says_who_sends_and_refuses_what_is_no_signal(tmp_path: Path) -> None:
    async with router(tmp_path) as url:
        async with raw(url, "Mallory") as socket:
            await send_frame(socket, "send", signal={"signal_id": "bad"})
            refusal = await receive_frame(socket)
        await post(url, signal("s1", **{"from": "the boss"}), sender="Mallory")
        async with raw(url) as socket:
            frame = await receive_frame(socket)

    assert refusal == {
        "type": "refused",
        "signal_id": "bad",
        "reason": "`signal_type` must be 1 to 200 printable characters",
    }
    assert frame["signal"]["from"] == "Mallory"


async def test_the_queue_of_a_session_is_bounded(tmp_path: Path) -> None:
    def fill(store: RouterStore) -> None:
        for number in range(MAX_WAITING):
            store.add("Texi", f"s{number}", b"{}")

    with open_store(tmp_path / "router.sqlite3") as store:
        await anyio.to_thread.run_sync(fill, store)
    async with router(tmp_path) as url:
        assert await post(url, signal("more"), signal("other", to="Desiree")) == [
            "refused",
            "accepted",
        ]


async def test_a_second_receiver_of_a_session_takes_over(tmp_path: Path) -> None:
    async with router(tmp_path) as url, raw(url) as first, raw(url) as second:
        with pytest.raises(ConnectionClosed) as caught, anyio.fail_after(WAIT_S):
            await first.recv()
        await post(url, signal("s1"))
        frame = await receive_frame(second)

    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 4001
    assert frame["signal"]["signal_id"] == "s1"
