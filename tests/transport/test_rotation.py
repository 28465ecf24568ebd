"""transport: a token or a secret that is replaced in its file while the server runs."""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from app_server.transport import tokens
from app_server.transport.guards import (
    CapabilityAuth,
    ListenerGuards,
    SignedAuth,
    read_token_digest,
)
from app_server.transport.tokens import (
    CapabilityToken,
    RotatedCheck,
    TokenCheck,
    TokenGate,
    digest_of,
)
from tests.support.harness import WireClient, claim, serve
from tests.support.processes import running
from tests.support.wire.handshakes import SECRET, bearer, handshake, in_seconds, signed

OTHER_SECRET = b"another secret of more than thirty-two bytes"


def capability(file: Path) -> ListenerGuards:
    file.write_text("old\n")
    return ListenerGuards(auth=CapabilityAuth(digest_of("old"), file))


async def status(url: str, token: str) -> int:
    return (await handshake(url, bearer(token))).status


def write_in_place(file: Path, token: str) -> None:
    file.write_text(token)


def rename_over(file: Path, token: str) -> None:
    draft = file.with_name("draft")
    draft.write_text(token)
    draft.rename(file)


@claim("listener:rotation")
@pytest.mark.parametrize("replace", [write_in_place, rename_over])
async def test_a_new_token_holds_at_once_and_clients_stay(
    tmp_path: Path, replace: Callable[[Path, str], None]
) -> None:
    file = tmp_path / "token"
    async with serve(tmp_path / "home", guards=capability(file)) as served:
        url = served.urls[0]
        headers = {"Authorization": "Bearer old"}
        async with served.pipe(additional_headers=headers) as pipe:
            client = WireClient(pipe)
            await client.initialize()
            # Of the same length, as tokens are.
            replace(file, "new\n")
            assert [await status(url, token) for token in ("old", "new")] == [401, 101]
            assert await client.call("thread/loaded/list", {}) == {"data": [], "nextCursor": None}


@claim("listener:rotation")
async def test_a_new_secret_of_an_issuer_holds_at_once(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(SECRET)
    auth = SignedAuth(SECRET, issuer="me", file=file)
    claims = {"iss": "me", "exp": in_seconds(3600)}
    tokens = [signed(claims), signed(claims, OTHER_SECRET), signed({**claims, "iss": "you"})]
    async with serve(tmp_path / "home", guards=ListenerGuards(auth=auth)) as served:
        before = [await status(served.urls[0], token) for token in tokens]
        file.write_bytes(OTHER_SECRET)
        after = [await status(served.urls[0], token) for token in tokens]
    assert (before, after) == ([101, 401, 401], [401, 101, 401])


@claim("listener:rotation")
async def test_a_file_that_makes_no_sense_changes_nothing_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "token"
    logged = []
    async with serve(tmp_path / "home", guards=capability(file)) as served:

        async def still_old() -> None:
            caplog.clear()
            for _ in range(2):
                assert await status(served.urls[0], "old") == 101
            logged.append([r.getMessage() for r in caplog.records if r.name == tokens.__name__])

        file.unlink()
        await still_old()
        file.mkdir()
        await still_old()
        file.rmdir()
        file.write_text("hunter2 é")
        await still_old()
        file.write_text("x" * 5000)
        await still_old()
        file.write_text("new")
        assert [await status(served.urls[0], token) for token in ("old", "new")] == [401, 101]
        file.unlink()
        assert await status(served.urls[0], "new") == 101
    holds = "what was read from it last still holds"
    assert logged == [
        [f"{file}: {os.strerror(errno.ENOENT)}; {holds}"],
        [f"{file}: it is no file any more; {holds}"],
        [f"{file}: a token is printable ASCII characters on one line; {holds}"],
        [f"{file}: the file must hold 1 to 4096 bytes of UTF-8 text; {holds}"],
    ]


@pytest.mark.process
@claim("listener:rotation")
async def test_the_command_reads_a_file_anew_and_a_pipe_once(tmp_path: Path) -> None:
    file, pipe = tmp_path / "token", tmp_path / "pipe"
    file.write_text("old")
    os.mkfifo(pipe)
    listen = "ws://127.0.0.1:0"
    words = ("--ws-auth", "capability-token", "--ws-token-file")
    async with running(tmp_path, listen, options=(*words, str(file))) as server:
        rename_over(file, "new")
        assert [await status(server.urls[0], token) for token in ("old", "new")] == [401, 101]
    threading.Thread(target=pipe.write_text, args=("piped",), daemon=True).start()
    async with running(tmp_path, listen, options=(*words, str(pipe))) as server:
        assert [await status(server.urls[0], token) for token in ("piped", "x")] == [101, 401]


async def test_a_request_without_a_token_does_not_read_the_token_file(tmp_path: Path) -> None:
    looks: list[Path] = []

    def make(file: Path) -> TokenCheck:
        looks.append(file)
        return CapabilityToken(read_token_digest(file))

    file = tmp_path / "token"
    file.write_text("right")
    gate = TokenGate([], [RotatedCheck(file, CapabilityToken(digest_of("first")), make)])
    shown = [None, "right", "wrong", "right", "first"]
    assert [await gate.lets_in(Shown(token)) for token in shown] == [
        *(False, True, False, True, False)
    ]
    assert looks == [file]


class Shown:
    """The headers of a request with at most one token."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    def get_all(self, key: str) -> list[str]:
        """Return the values of a header."""
        return [f"Bearer {self._token}"] if self._token and key == "Authorization" else []
