"""Uploading one file to where the endpoint finds it: three requests.

Source: docs/apps.md, "Files".
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

import anyio
import httpx
from pydantic import SecretStr
from pydantic_core import from_json

from app_server.apps.upstream.bearer import send_signed
from app_server.apps.upstream.outbound import open_web
from app_server.mcp_wire.errors import NoCredential
from app_server.mcp_wire.http.authorized import CredentialSource
from app_server.runtime.http.bounded_body import read_bounded
from app_server.runtime.http.loopback_address import is_loopback_address
from protocol.model import JsonObject

REQUEST_S = 60.0
"""For one request, its answer included."""

RETRY_S = 0.25
"""Between two questions whether the file is there."""

FINISH_S = 30.0
"""For all of these questions."""

MAX_ANSWER_BYTES = 64 * 1024

_USE_CASE = "codex"


class UploadFailed(Exception):
    """A file was not uploaded; the text is the reason, without any address."""


@dataclass(frozen=True, slots=True)
class UploadTarget:
    """The file store of an account."""

    api: str
    """Its address, without a slash at the end."""
    headers: Mapping[str, SecretStr] = field(repr=False)
    """Sent to `api` and nowhere else."""
    tokens: CredentialSource | None = field(default=None, repr=False)
    """The source of bearer tokens, unless the headers hold one; sent to `api` alone."""


@dataclass(frozen=True, slots=True)
class Content:
    """A file that has been read."""

    name: str
    size: int
    """In bytes."""
    chunks: Callable[[], AsyncIterator[bytes]] = field(repr=False)
    """Its bytes, from the beginning, each time."""


class Uploads:
    """Uploads to one file store."""

    def __init__(
        self,
        target: UploadTarget,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        now: Callable[[], float] = anyio.current_time,
        request_s: float = REQUEST_S,
    ) -> None:
        """Bound each request by `request_s`."""
        self._target = target
        self._request_s = request_s
        self._is_local = is_loopback_address(urlsplit(target.api).hostname)
        self._sleep = sleep
        self._now = now

    async def upload(self, content: Content) -> JsonObject:
        """Upload a file and return its replacement in the arguments.

        Raises:
            UploadFailed
        """
        async with open_web(self._target.api, self._request_s) as http:
            created = await self._create(http, content)
            file_id = _text(created, "file_id")
            await self._put(http, _text(created, "upload_url"), content)
            finished = await self._finish(http, file_id)
        mime_type, name = finished.get("mime_type"), finished.get("file_name")
        return {
            "download_url": _text(finished, "download_url"),
            "file_id": file_id,
            "mime_type": mime_type if isinstance(mime_type, str) else None,
            "file_name": name if isinstance(name, str) else content.name,
            "uri": f"sediment://{file_id}",
            "file_size_bytes": content.size,
        }

    async def _create(self, http: httpx.AsyncClient, content: Content) -> JsonObject:
        body = {"file_name": content.name, "file_size": content.size, "use_case": _USE_CASE}
        return await self._ask(http, "files", body)

    async def _put(self, http: httpx.AsyncClient, url: str, content: Content) -> None:
        try:
            address = httpx.URL(url)
        except httpx.InvalidURL:
            raise UploadFailed("the file store gave no address") from None
        if address.scheme != "https" and not (self._is_local and address.scheme == "http"):
            raise UploadFailed("the file store gave an address that is not https")
        request = http.build_request(
            "PUT",
            address,
            headers={"x-ms-blob-type": "BlockBlob", "content-length": str(content.size)},
            content=content.chunks(),
        )
        async with self._answer(http.send(request, stream=True)):
            pass

    async def _finish(self, http: httpx.AsyncClient, file_id: str) -> JsonObject:
        deadline = self._now() + FINISH_S
        while True:
            answer = await self._ask(http, f"files/{quote(file_id, safe='')}/uploaded", {})
            status = answer.get("status")
            if status == "success":
                return answer
            if status != "retry":
                reason = answer.get("error_message")
                raise UploadFailed(
                    reason[:300] if isinstance(reason, str) and reason else "it was not accepted"
                )
            if self._now() + RETRY_S > deadline:
                raise UploadFailed(f"it was not there after {FINISH_S:g} s")
            await self._sleep(RETRY_S)

    async def _ask(self, http: httpx.AsyncClient, path: str, body: JsonObject) -> JsonObject:
        shared = {key: value.get_secret_value() for key, value in self._target.headers.items()}

        async def send(signed: Mapping[str, str]) -> httpx.Response:
            url, headers = f"{self._target.api}/{path}", {**shared, **signed}
            return await http.send(
                http.build_request("POST", url, headers=headers, json=body), stream=True
            )

        async with self._answer(send_signed(self._target.tokens, send)) as response:
            too_large = UploadFailed("the file store said too much")
            content = await read_bounded(response.aiter_bytes(), MAX_ANSWER_BYTES, too_large)
        try:
            answer: Any = from_json(content)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise UploadFailed("the file store did not answer with a JSON object")
        return answer

    @asynccontextmanager
    async def _answer(self, sending: Awaitable[httpx.Response]) -> AsyncIterator[httpx.Response]:
        """Wait for an answer; the context has `request_s`, and a 2xx answer that was not read."""
        try:
            with anyio.fail_after(self._request_s):
                response = await sending
                try:
                    if not response.is_success:
                        raise UploadFailed(
                            f"the file store answered with status {response.status_code}"
                        )
                    yield response
                finally:
                    await response.aclose()
        except TimeoutError:
            raise UploadFailed(
                f"the file store did not answer within {self._request_s:g} s"
            ) from None
        except NoCredential as exc:
            raise UploadFailed(str(exc)) from None
        except (httpx.TransportError, httpx.StreamError, httpx.DecodingError) as exc:
            # What it says may have the address in it, and that may be signed.
            raise UploadFailed(f"the file store cannot be reached: {type(exc).__name__}") from None


def _text(answer: JsonObject, member: str) -> str:
    value = answer.get(member)
    if not isinstance(value, str) or not value:
        raise UploadFailed(f"the file store gave no {member}")
    return value
