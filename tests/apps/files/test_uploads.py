"""One upload: its requests, when they are made again, and how it fails."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import JSONResponse, Response

from app_server.apps.files.upload import (
    FINISH_S,
    MAX_ANSWER_BYTES,
    REQUEST_S,
    RETRY_S,
    Content,
    UploadFailed,
    Uploads,
)
from tests.support.apps.files.calls import TOKEN, target
from tests.support.apps.files.peer import FileStore


class Time:
    """A clock that moves when somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


async def chunks() -> AsyncIterator[bytes]:
    yield b"he"
    yield b"llo"


HELLO = Content("a.txt", 5, chunks)


async def failure(store: FileStore, time: Time | None = None, request_s: float = REQUEST_S) -> str:
    """Return why an upload fails."""
    clock = time or Time()
    with pytest.raises(UploadFailed) as failed:
        await Uploads(target(store.api), clock.sleep, clock.now, request_s).upload(HELLO)
    assert TOKEN not in str(failed.value)
    assert "sig=" not in str(failed.value)
    return str(failed.value)


async def test_a_file_that_is_not_there_yet_is_asked_for_again(tmp_path: Path) -> None:
    time = Time()
    retry = JSONResponse({"status": "retry"})
    async with FileStore(answers={"uploaded": [retry] * 3}).serve() as store:
        await Uploads(target(store.api), time.sleep, time.now).upload(HELLO)
        assert time.slept == [RETRY_S] * 3
    time = Time()
    async with FileStore(finished={"status": "retry"}).serve() as store:
        assert await failure(store, time) == "it was not there after 30 s"
    assert time.slept == [0.25] * int(FINISH_S / RETRY_S)


@pytest.mark.parametrize(
    ("word", "answer", "reason"),
    [
        ("files", Response(status_code=500), "the file store answered with status 500"),
        ("files", Response(status_code=302), "the file store answered with status 302"),
        ("files", Response(b"["), "the file store did not answer with a JSON object"),
        ("files", JSONResponse([]), "the file store did not answer with a JSON object"),
        ("files", JSONResponse({"file_id": "f"}), "the file store gave no upload_url"),
        ("files", JSONResponse({"upload_url": "u"}), "the file store gave no file_id"),
        (
            "files",
            JSONResponse({"file_id": "f", "upload_url": "ftp://a.example"}),
            "the file store gave an address that is not https",
        ),
        (
            "files",
            JSONResponse({"file_id": "f", "upload_url": "https://a\x00"}),
            "the file store gave no address",
        ),
        ("files", Response(b"x" * (MAX_ANSWER_BYTES + 1)), "the file store said too much"),
        ("put", Response(status_code=403), "the file store answered with status 403"),
        ("uploaded", JSONResponse({"status": "success"}), "the file store gave no download_url"),
        (
            "uploaded",
            JSONResponse({"status": "error", "error_message": "a virus"}),
            "a virus",
        ),
        ("uploaded", JSONResponse({"status": 1}), "it was not accepted"),
    ],
)
async def test_an_upload_fails_with_a_reason_and_without_addresses(
    word: str, answer: Response, reason: str
) -> None:
    async with FileStore(answers={word: [answer]}).serve() as store:
        assert await failure(store) == reason


async def test_a_store_that_is_not_there_or_too_slow_fails() -> None:
    async with FileStore().serve() as store:
        pass
    assert await failure(store) == "the file store cannot be reached: ConnectError"
    async with FileStore().serve() as store:
        assert await failure(store, request_s=0) == "the file store did not answer within 0 s"
    assert REQUEST_S == 60.0


async def test_an_address_without_tls_is_for_a_store_on_loopback_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(200, json={"file_id": "f", "upload_url": "http://127.0.0.1:1/x"})

    real = httpx.AsyncClient
    trusting: list[Any] = []

    def client(**options: Any) -> httpx.AsyncClient:
        trusting.append(options["trust_env"])
        return real(**{**options, "transport": httpx.MockTransport(answer)})

    monkeypatch.setattr(httpx, "AsyncClient", client)
    for api in ("https://a.example/api", "http://localhost:1/api"):
        with pytest.raises(UploadFailed, match="an address that is not https"):
            await Uploads(target(api)).upload(HELLO)
    assert asked == ["https://a.example/api/files", "http://localhost:1/api/files"]
    assert trusting == [True, False]


def test_credentials_of_uploads_are_not_shown() -> None:
    assert TOKEN not in repr(target("https://a.example"))
