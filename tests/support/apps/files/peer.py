"""What arguments with files need, for tests: an environment with a folder, and a file store."""

import json
import os
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app_server.apps.files.files import FileMetadata, FileRefused, SandboxState
from app_server.runtime.http.listening import HOST
from app_server.runtime.http.loopback_server import serve_on_loopback
from protocol.model import JsonObject

CHUNK_BYTES = 64 * 1024


@dataclass
class FolderEnvironment:
    """One instance of an environment that may be read in one folder.

    Opens step by step from the folder down, and follows no link and no `..`: what it opened is
    what it reads.
    """

    folder: Path
    instance: str = "instance-1"
    is_replaced: bool = False
    """Another one has its id now; this one is leased no more."""
    pinned: list[SandboxState] = field(default_factory=list)
    open_pins: int = 0
    looked_at: list[str] = field(default_factory=list)
    """Paths, in order."""
    content_at_read: bytes | None = None
    """What a file has when it is read, whatever it had when it was looked at."""

    @asynccontextmanager
    async def pin(self, state: SandboxState) -> AsyncIterator["FolderEnvironment"]:
        if state.environment_id != "local" or state.environment_instance_id != self.instance:
            raise FileRefused("the environment is another one now")
        if self.is_replaced:
            raise FileRefused("the environment is another one now")
        self.pinned.append(state)
        self.open_pins += 1
        try:
            yield self
        finally:
            self.open_pins -= 1

    async def metadata(self, path: str) -> FileMetadata:
        self.looked_at.append(path)
        descriptor = await anyio.to_thread.run_sync(self._open, path)
        try:
            found = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        return FileMetadata(stat.S_ISREG(found.st_mode), found.st_size)

    async def read(self, path: str) -> AsyncGenerator[bytes, None]:
        if self.content_at_read is not None:
            Path(path).write_bytes(self.content_at_read)
        descriptor = await anyio.to_thread.run_sync(self._open, path)
        try:
            while chunk := await anyio.to_thread.run_sync(os.read, descriptor, CHUNK_BYTES):
                yield chunk
        finally:
            os.close(descriptor)

    def _open(self, path: str) -> int:
        try:
            inside = Path(path).relative_to(self.folder)
        except ValueError:
            raise FileRefused("the sandbox does not allow it") from None
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        for part in inside.parts:
            above = descriptor
            try:
                if part == "..":
                    raise FileRefused("the sandbox does not allow it")
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
                descriptor = os.open(part, flags, dir_fd=above)
            except FileNotFoundError:
                raise FileRefused("there is no such file") from None
            except OSError:
                raise FileRefused("the sandbox does not allow it") from None
            finally:
                os.close(above)
        return descriptor


@dataclass(frozen=True)
class Sent:
    """One request to the file store."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, read."""
        return json.loads(self.body)


Answered: TypeAlias = Response | Callable[[Request], Awaitable[Response]]


@dataclass
class FileStore:
    """The three requests of an upload, recorded; `answers` go before what it would say."""

    api: str = ""
    requests: list[Sent] = field(default_factory=list)
    answers: dict[str, list[Answered]] = field(default_factory=dict)
    """By the last word of the path: `files`, `put`, `uploaded`."""
    upload_url: str | None = None
    """Where files are to be put; None: here."""
    finished: JsonObject = field(
        default_factory=lambda: {"status": "success", "mime_type": "text/plain"}
    )

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["FileStore"]:
        """Listen while the context lasts."""
        async with serve_on_loopback(self._answer) as port:
            self.api = f"http://{HOST}:{port}/api"
            yield self

    def steps(self) -> list[str]:
        """Return what came, in order."""
        return [f"{sent.method} {sent.path}" for sent in self.requests]

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        word = request.url.path.rpartition("/")[2]
        waiting = self.answers.get(word)
        answer = waiting.pop(0) if waiting else None
        headers = dict(request.headers)
        sent = Sent(request.method, request.url.path, headers, await request.body())
        self.requests.append(sent)
        if callable(answer) and not isinstance(answer, Response):
            answer = await answer(request)
        response = answer or self._usual(word, sent)
        assert isinstance(response, Response)
        await response(scope, receive, send)

    def _usual(self, word: str, sent: Sent) -> Response:
        number = len([path for path in self.steps() if path.endswith("/files")])
        if word == "files":
            url = self.upload_url or f"{self.api}/put?sig=s3cr3t"
            return JSONResponse({"file_id": f"file/{number}", "upload_url": url})
        if word == "put":
            return Response(status_code=201)
        name = next(s.json["file_name"] for s in reversed(self.requests) if "files" in s.path[-5:])
        link = f"https://files.example/{number}"
        return JSONResponse({"file_name": name, "download_url": link, **self.finished})
