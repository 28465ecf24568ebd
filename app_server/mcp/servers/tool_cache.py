"""The lists of tools of lazy servers, on disk, so that threads know them without a start.

Source: docs/mcp.md, "Shared servers".
"""

import hashlib
import json
import logging
import secrets
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TypeGuard

from pydantic_core import from_json, to_json

from app_server.mcp.bounds import MAX_LIST_BYTES
from app_server.mcp.catalog.config import ServerConfig, StdioTransport
from app_server.mcp.tools.listing import Listing
from app_server.runtime.files.disk import atomic_write, make_folder
from protocol.model import Json, JsonObject

logger = logging.getLogger(__name__)

FOLDER = "mcp_tools"

MAX_FILES = 64
"""Lists that are kept; those that were written first are deleted."""

MAX_FILE_BYTES = MAX_LIST_BYTES + 64 * 1024
"""Of one file; a larger one is neither read nor written."""

VERSION = 1


class ToolCache:
    """One file for each server with its settings, `cache/mcp_tools/DIGEST.json`.

    The digest is of what the settings say of the transport and the folder, so no variable of the
    environment is in it. Every method blocks.
    """

    def __init__(
        self, home: Path, *, max_files: int = MAX_FILES, max_file_bytes: int = MAX_FILE_BYTES
    ) -> None:
        """Choose the folder; nothing is opened yet.

        Of more than `max_files` those that were written first are deleted; what has more than
        `max_file_bytes` is neither read nor written.
        """
        self._max_files = max_files
        self._max_file_bytes = max_file_bytes
        self._folder = home / "cache" / FOLDER

    def read(self, config: ServerConfig, cwd: str) -> tuple[Listing, int] | None:
        """Return a server's list, and when it was made in Unix milliseconds; None: none is usable.

        A file that cannot be used is as good as none.
        """
        try:
            with self._file(config, cwd).open("rb") as file:
                content = file.read(self._max_file_bytes + 1)
            stored = from_json(content) if len(content) <= self._max_file_bytes else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as exc:
            logger.warning("a list of tools cannot be read: %s", type(exc).__name__)
            return None
        if not isinstance(stored, dict) or stored.get("version") != VERSION:
            return None
        hello, tools, at_ms = stored.get("hello"), stored.get("tools"), stored.get("listedAtMs")
        meta = stored.get("toolsMeta")
        if not isinstance(hello, dict) or not _are_objects(tools) or not isinstance(at_ms, int):
            return None
        return Listing.of(hello, tools, meta if isinstance(meta, dict) else None), at_ms

    def write(self, config: ServerConfig, cwd: str, listing: Listing, at_ms: int) -> None:
        """Replace a server's list; a disk that refuses is a line in the log."""
        stored = {
            "version": VERSION,
            "listedAtMs": at_ms,
            "hello": {
                "protocolVersion": listing.protocol_version,
                "serverInfo": listing.server_info,
                "capabilities": listing.capabilities,
                "instructions": listing.instructions,
            },
            "tools": list(listing.tools.values()),
            "toolsMeta": listing.tools_meta,
        }
        content = to_json(stored, inf_nan_mode="null")
        if len(content) > self._max_file_bytes:
            return
        path = self._file(config, cwd)
        try:
            make_folder(self._folder)
            with atomic_write(path, path.with_suffix(f".{secrets.token_hex(8)}")) as file:
                file.write(content)
            self._delete_oldest()
        except OSError as exc:
            logger.warning("a list of tools cannot be kept: %s", exc)

    def _delete_oldest(self) -> None:
        dated = []
        for path in self._folder.iterdir():
            with suppress(OSError):
                dated.append((path.stat().st_mtime_ns, path))
        for _, path in sorted(dated)[: -self._max_files]:
            with suppress(OSError):
                path.unlink()

    def _file(self, config: ServerConfig, cwd: str) -> Path:
        transport = asdict(config.transport)
        # Of a registration, and in memory alone.
        transport.pop("bearer", None)
        of_thread = isinstance(config.transport, StdioTransport) and config.transport.cwd is None
        parts = [
            config.name,
            config.environment_id,
            config.protocol,
            transport,
            cwd if of_thread else None,
        ]
        text = json.dumps(parts, sort_keys=True, default=str)
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:40]}.json"


def _are_objects(value: Json) -> TypeGuard[list[JsonObject]]:
    return isinstance(value, list) and all(isinstance(element, dict) for element in value)
