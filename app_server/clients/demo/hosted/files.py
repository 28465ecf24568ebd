"""The file store of the hosted endpoint: a file is announced, sent, and confirmed.

What was sent is hashed and not kept.
"""

import hashlib
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app_server.runtime.http.bounded_body import TooManyBytes, read_bounded

MAX_FILES = 100
"""Bound on files that are known; the oldest are forgotten."""

MAX_FILE_BYTES = 512 * 1024 * 1024
MAX_BODY_BYTES = 64 * 1024


@dataclass(slots=True)
class StoredFile:
    """One file."""

    id: str
    name: str
    size: int
    sha256: str | None = None
    """Of what was sent; None before that."""


class FileStore:
    """The files of one account."""

    def __init__(self) -> None:
        self.base_url = ""
        """Address of the endpoint, without a slash, once it is served."""
        self._files: dict[str, StoredFile] = {}
        self.retries = 0
        """So many confirmations are answered with `retry`."""

    def find(self, id_: Any) -> StoredFile | None:
        """Return a file by its id; None if there is none."""
        return self._files.get(id_) if isinstance(id_, str) else None

    def routes(self, api: str) -> list[Route]:
        """Return the routes; the first two are below a path, the bytes at `/upload/ID`."""
        return [
            Route(f"{api}/files", self._create, methods=["POST"]),
            Route(f"{api}/files/{{id}}/uploaded", self._finish, methods=["POST"]),
            Route("/upload/{id}", self._put, methods=["PUT"]),
        ]

    async def _create(self, request: Request) -> Response:
        body = await read_json(request)
        match body:
            case {"file_name": str() as name, "file_size": int() as size, "use_case": "codex"}:
                pass
            case _:
                return JSONResponse({"detail": "not a file"}, 400)
        if not 0 <= size <= MAX_FILE_BYTES:
            return JSONResponse({"detail": "too large"}, 413)
        while len(self._files) >= MAX_FILES:
            del self._files[next(iter(self._files))]
        file = StoredFile(f"file_{uuid4().hex}", name, size)
        self._files[file.id] = file
        url = f"{self.base_url}/upload/{file.id}"
        return JSONResponse({"file_id": file.id, "upload_url": url})

    async def _put(self, request: Request) -> Response:
        file = self.find(request.path_params["id"])
        if file is None:
            return Response(status_code=404)
        # Who may upload is in the address: credentials have no business here.
        if "authorization" in request.headers or "chatgpt-account-id" in request.headers:
            return Response(status_code=403)
        if request.headers.get("x-ms-blob-type") != "BlockBlob":
            return Response(status_code=400)
        digest, size = hashlib.sha256(), 0
        async for chunk in request.stream():
            digest.update(chunk)
            size += len(chunk)
            if size > file.size:
                return Response(status_code=400)
        if size != file.size:
            return Response(status_code=400)
        file.sha256 = digest.hexdigest()
        return Response(status_code=201)

    async def _finish(self, request: Request) -> Response:
        file = self.find(request.path_params["id"])
        if file is None or file.sha256 is None:
            return JSONResponse({"status": "error", "error_message": "nothing was uploaded"})
        if self.retries > 0:
            self.retries -= 1
            return JSONResponse({"status": "retry"})
        found = {
            "status": "success",
            "download_url": f"{self.base_url}/download/{file.id}",
            "file_name": file.name,
            "mime_type": "application/octet-stream",
            "error_message": None,
        }
        return JSONResponse(found)


async def read_json(request: Request) -> Any:
    """Read a JSON body; None if it is not JSON, or larger than MAX_BODY_BYTES."""
    try:
        return from_json(await read_bounded(request.stream(), MAX_BODY_BYTES))
    except (ValueError, TooManyBytes):
        return None
