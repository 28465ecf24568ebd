"""A tool that takes files, called through a local server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp.shared.exceptions import MCPError
from pydantic import SecretStr

from app_server.apps.files.files import MAX_FILE_BYTES, MEMORY_BYTES, FileSupport
from app_server.apps.files.upload import (
    Uploads,
    UploadTarget,
)
from protocol.model import JsonObject
from tests.support.apps.files.peer import FileStore, FolderEnvironment
from tests.support.apps.peer import LocalClient, Served, listed, serve_tools

TOKEN = "s3cr3t-token"
STATE = "codex/sandbox-state-meta"
FILES = {"openai/fileParams": ["file", "more"]}
SCHEMA = {
    "type": "object",
    "properties": {
        "file": {"type": "object", "description": "A file.", "x": 1},
        "more": {"type": "array", "items": {"type": "object"}, "maxItems": 40, "default": []},
        "note": {"type": "string"},
    },
    "required": ["file"],
}


def target(api: str) -> UploadTarget:
    return UploadTarget(api, {"authorization": SecretStr(f"Bearer {TOKEN}")})


@dataclass
class Desk:
    """A client of a tool that takes files, a folder, and a file store."""

    served: Served
    client: LocalClient
    environment: FolderEnvironment
    store: FileStore

    @property
    def folder(self) -> Path:
        return self.environment.folder

    def state(self, **more: Any) -> JsonObject:
        return {
            "environmentInstanceId": self.environment.instance,
            "permissionProfile": {"type": "managed"},
            "codexLinuxSandboxExe": None,
            "sandboxCwd": self.folder.as_uri(),
            "useLegacyLandlock": False,
            **more,
        }

    async def send(self, arguments: JsonObject, **state: Any) -> Any:
        return await self.client.call("send", arguments, **{STATE: self.state(**state)})

    async def refusal(self, arguments: JsonObject, **state: Any) -> tuple[int, str]:
        """Return why a call was refused, after nothing was uploaded and nothing forwarded."""
        code, message = await self.refusal_later(arguments, **state)
        assert self.store.requests == []
        return code, message

    async def refusal_later(self, arguments: JsonObject, **state: Any) -> tuple[int, str]:
        try:
            answer = await self.send(arguments, **state)
        except MCPError as exc:
            assert self.served.pool.exchanges == []
            assert self.environment.open_pins == 0
            return exc.code, exc.message
        raise AssertionError(f"answered: {answer}")


@asynccontextmanager
async def open_desk(
    tmp_path: Path,
    schema: JsonObject = SCHEMA,
    *,
    max_bytes: int = MAX_FILE_BYTES,
    memory_bytes: int = MEMORY_BYTES,
    **store: Any,
) -> AsyncIterator[Desk]:
    folder = tmp_path / "folder"
    folder.mkdir()
    environment = FolderEnvironment(folder)
    tool = listed("send", meta=FILES, inputSchema=schema)
    async with FileStore(**store).serve() as files_store:
        uploads = Uploads(target(files_store.api))
        support = FileSupport(environment, uploads, max_bytes, memory_bytes)
        async with (
            serve_tools([tool, listed("plain")], files=support) as served,
            served.client() as client,
        ):
            yield Desk(served, client, environment, files_store)
