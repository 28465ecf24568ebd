"""feedback/save: a report of a problem, as a ZIP file on this machine. Nothing is sent anywhere.

Source: docs/config.md, "Reports".
"""

import json
import os
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio.to_thread

from app_server.handlers.services import Services
from app_server.rpc.context import RequestContext, Routes
from protocol.jsonrpc.errors import internal_error, invalid_params
from protocol.server.lifecycle import FeedbackSaveParams, FeedbackSaveResponse

MAX_FILES = 32
"""Of a client's, in one report."""

MAX_FILE_BYTES = 64 * 1024 * 1024
MAX_REPORT_BYTES = 256 * 1024 * 1024
"""Of all files together, as they are before they are compressed."""

MAX_TEXT_CHARS = 64 * 1024
"""Of the classification, the reason and the tags, together."""


class NotSaved(Exception):
    """A report cannot be saved; the text says why."""


class FeedbackHandlers:
    """The method feedback/save."""

    def __init__(self, services: Services) -> None:
        self._store = services.store
        self._clock = services.clock
        self._version = services.version
        self.routes: Routes = {"feedback/save": self.save}

    async def save(
        self, context: RequestContext, params: FeedbackSaveParams
    ) -> FeedbackSaveResponse:
        """Write a report; the file must not be there yet, and appears whole or not at all."""
        target = Path(params.save_path)
        if not target.is_absolute() or "\0" in params.save_path:
            raise _refusal("savePath", "must be an absolute path")
        extra = params.extra_log_files or []
        if len(extra) > MAX_FILES:
            raise _refusal("extraLogFiles", f"accepts at most {MAX_FILES} entries")
        tags = params.tags or {}
        texts = [params.classification, params.reason or "", *tags, *tags.values()]
        if sum(map(len, texts)) > MAX_TEXT_CHARS:
            raise _refusal("reason", f"holds, with the tags, over {MAX_TEXT_CHARS} characters")
        thread_id = params.thread_id or f"no-active-thread-{self._clock.new_id()}"
        attachments = [
            (f"files/{number}-{Path(name).name}", Path(name))
            for number, name in enumerate(extra, start=1)
        ]
        if params.include_logs and params.thread_id is not None:
            log = Path(self._store.shown_path(params.thread_id))
            if await self._store.exists(params.thread_id):
                attachments.append(("thread.jsonl", log))
        report = {
            "message": params.reason,
            "timestampMs": self._clock.now_ms(),
            "tags": {
                **tags,
                "classification": params.classification,
                "server_version": self._version,
                "thread_id": thread_id,
            },
        }
        try:
            await anyio.to_thread.run_sync(_save, target, report, attachments)
        except NotSaved as exc:
            raise internal_error(f"failed to save feedback: {exc}", "storageFailed") from exc
        return FeedbackSaveResponse(saved_path=params.save_path, thread_id=thread_id)


def _save(target: Path, report: Mapping[str, Any], attachments: Sequence[tuple[str, Path]]) -> None:
    """Write a report; attachments are names in it, and files."""
    try:
        # For its owner alone: it may hold a conversation.
        number, name = tempfile.mkstemp(dir=target.parent, prefix=".feedback-")
    except OSError as exc:
        raise NotSaved(f"{target.parent}: {exc.strerror}") from exc
    try:
        with (
            os.fdopen(number, "wb") as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as out,
        ):
            out.writestr("report.json", json.dumps(report))
            out.writestr("manifest.json", json.dumps([shown for shown, _ in attachments]))
            left = MAX_REPORT_BYTES
            for shown, path in attachments:
                content = _read(path, min(left, MAX_FILE_BYTES))
                left -= len(content)
                out.writestr(shown, content)
        os.link(name, target)
    except FileExistsError as exc:
        raise NotSaved(f"{target} is there already") from exc
    except OSError as exc:
        raise NotSaved(f"{target}: {exc.strerror}") from exc
    finally:
        Path(name).unlink(missing_ok=True)


def _read(path: Path, limit: int) -> bytes:
    try:
        if not path.is_file():
            raise NotSaved(f"{path} is not a file")
        with path.open("rb") as file:
            content = file.read(limit + 1)
    except OSError as exc:
        raise NotSaved(f"{path}: {exc.strerror}") from exc
    if len(content) > limit:
        raise NotSaved(f"{path}: a report takes {limit} bytes more, and no more")
    return content


def _refusal(field: str, rule: str) -> Exception:
    return invalid_params(f"feedback {field} {rule}", field=field, rule=rule)
