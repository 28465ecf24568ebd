"""initialize, the first request of every connection; feedback/save, a report as a ZIP file here.

Nothing is sent anywhere.
Source: docs/config.md, "Reports".
"""

import json
import os
import platform
import re
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import anyio.to_thread

from app_server.handlers.services import Services
from app_server.handlers.serving import RequestContext, serves
from app_server.handlers.views.rules import rules_warning
from app_server.rpc.context import ConnectionId, InitializedClient
from app_server.runtime.loader import LoadFailed
from app_server.threads.failures import ThreadNotFound
from protocol.jsonrpc.errors import internal_error, invalid_params, invalid_request
from protocol.server.lifecycle import (
    PROTOCOL_VERSION,
    ConfigWarningNotification,
    FeedbackSaveParams,
    FeedbackSaveResponse,
    InitializeCapabilities,
    InitializeParams,
    InitializeResponse,
)


class Warnings:
    """Warns clients of rules and settings that are wrong, when they come and when files change."""

    def __init__(self, services: Services) -> None:
        self._hub = services.hub
        self._tasks = services.tasks
        self._rules = services.rules
        self._problems = services.config_problems
        self._warned: set[ConnectionId] = set()
        """The clients that were warned of what is wrong, as far as they are still there."""
        services.configuration.on_change(self._files_have_changed)

    def begin(self, connection_id: ConnectionId) -> None:
        """Warn a client that has come, beside its first requests; another node warns its own."""
        if connection_id in self._hub.connections.of_nodes:
            return
        self._tasks.start_soon(self._warn_of_rules, connection_id)
        self._tasks.start_soon(self._warn_of_configuration, connection_id)

    async def _warn_of_rules(self, connection_id: ConnectionId) -> None:
        """Warn a client that has come of files of rules that are broken."""
        for broken in await self._rules.broken_before():
            self._hub.notify(connection_id, rules_warning(broken))

    async def _warn_of_configuration(self, connection_id: ConnectionId) -> None:
        """Warn a client that has come of wrong settings, and those before it of new ones."""
        for problem in await self._warn_of_news():
            self._hub.notify(connection_id, problem)
        self._warned.add(connection_id)
        self._hub.connections.when_gone(connection_id, self._warned.discard)

    async def _warn_of_news(self) -> Sequence[ConfigWarningNotification]:
        """Warn those who know of the others of faults that were not there before; returns all."""
        try:
            problems = await self._problems.get()
        except LoadFailed:
            # It was logged; requests that need the settings still say what is wrong with them.
            return ()
        found = await problems.find()
        for problem in found.new:
            for connection_id in self._warned:
                self._hub.notify(connection_id, problem)
        return found.all

    def _files_have_changed(self) -> None:
        if self._problems.value is not None:
            # Before that nobody was warned, and who comes is warned of all.
            self._tasks.start_soon(self._warn_of_news)


@serves("initialize")
async def initialize(context: RequestContext, params: InitializeParams) -> InitializeResponse:
    """Negotiate client info and capabilities; everything else comes after this."""
    if context.initialized is not None:
        raise invalid_request("Already initialized", "alreadyInitialized")
    info = params.client_info
    if not info.name.strip() or not info.name.isprintable():
        rule = "must be printable and not empty"
        raise invalid_params(
            f"Invalid params: `clientInfo.name` {rule}", field="clientInfo.name", rule=rule
        )
    capabilities = params.capabilities or InitializeCapabilities()
    context.initialized = InitializedClient(
        info=info,
        capabilities=capabilities,
        jsonrpc=context.jsonrpc,
        opted_out=frozenset(capabilities.opt_out_notification_methods or ()),
    )
    context.after_answer(context.services.part(Warnings).begin, context.connection_id)
    system = f"{platform.system()} {platform.release()}; {platform.machine()}"
    return InitializeResponse(
        user_agent=(
            f"{info.name}/{PROTOCOL_VERSION} ({system}) app-server/{context.services.version} "
            f"({info.name}; {info.version})"
        ),
        codex_home=str(context.services.home),
        platform_family="windows" if sys.platform == "win32" else "unix",
        platform_os={"darwin": "macos", "win32": "windows"}.get(sys.platform, "linux"),
    )


MAX_FILES = 32
"""Of a client's, in one report."""

MAX_FILE_BYTES = 64 * 1024 * 1024

MAX_REPORT_BYTES = 256 * 1024 * 1024
"""Of all files together, as they are before they are compressed."""

MAX_TEXT_CHARS = 64 * 1024
"""Of the classification, the reason and the tags, together."""


DRAFT = re.compile(r"\.feedback-\w{8}\.draft")
"""Name of a report that is not whole yet."""

DRAFT_S = 3600.0
"""After which a draft is one of a server that was killed."""

MAX_LOOKED_AT = 10_000
"""Names of a folder that are looked at for drafts."""


class NotSaved(Exception):
    """A report cannot be saved; the text says why."""


@serves("feedback/save")
async def save_feedback(
    context: RequestContext, params: FeedbackSaveParams
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
    thread_id = params.thread_id or f"no-active-thread-{context.services.clock.new_id()}"
    attachments: list[tuple[str, Path | bytes]] = [
        (f"files/{number}-{Path(name).name}", Path(name))
        for number, name in enumerate(extra, start=1)
    ]
    report = {
        "message": params.reason,
        "timestampMs": context.services.clock.now_ms(),
        "tags": {
            **tags,
            "classification": params.classification,
            "server_version": context.services.version,
            "thread_id": thread_id,
        },
    }
    try:
        if params.include_logs and params.thread_id is not None:
            attachments += await _log_of(context, params.thread_id)
        await anyio.to_thread.run_sync(_save, target, report, attachments)
    except NotSaved as exc:
        raise internal_error(f"failed to save feedback: {exc}", "storageFailed") from exc
    return FeedbackSaveResponse(saved_path=params.save_path, thread_id=thread_id)


async def _log_of(context: RequestContext, thread_id: str) -> Sequence[tuple[str, bytes]]:
    """Return the log of a thread that is stored, as an attachment."""
    try:
        log = await context.services.store.exported(thread_id, MAX_FILE_BYTES)
    except ThreadNotFound:
        return []
    except OSError as exc:
        raise NotSaved(f"the log of {thread_id}: {exc.strerror}") from exc
    if log is None:
        raise NotSaved(f"the log of {thread_id} has more than {MAX_FILE_BYTES} bytes")
    return [("thread.jsonl", log)]


def _save(
    target: Path, report: Mapping[str, Any], attachments: Sequence[tuple[str, Path | bytes]]
) -> None:
    """Write a report; attachments are names in it, and files or what they have."""
    try:
        _remove_stale_drafts(target.parent)
        # For its owner alone: it may hold a conversation.
        number, name = tempfile.mkstemp(dir=target.parent, prefix=".feedback-", suffix=".draft")
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
            for shown, kept in attachments:
                content = _content(kept, min(left, MAX_FILE_BYTES))
                left -= len(content)
                out.writestr(shown, content)
        os.link(name, target)
    except FileExistsError as exc:
        raise NotSaved(f"{target} is there already") from exc
    except OSError as exc:
        raise NotSaved(f"{target}: {exc.strerror}") from exc
    finally:
        Path(name).unlink(missing_ok=True)


def _remove_stale_drafts(folder: Path) -> None:
    """Remove what servers that were killed have left in a folder.

    Raises:
        OSError: it cannot be read.
    """
    before_s = time.time() - DRAFT_S
    with os.scandir(folder) as found:
        for entry in islice(found, MAX_LOOKED_AT):
            if DRAFT.fullmatch(entry.name):
                with suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_mtime < before_s:
                        Path(entry).unlink()


def _content(kept: Path | bytes, limit: int) -> bytes:
    """Return what an attachment has."""
    content = kept if isinstance(kept, bytes) else _read(kept, limit)
    if len(content) > limit:
        shown = "the log of the thread" if isinstance(kept, bytes) else kept
        raise NotSaved(f"{shown}: a report takes {limit} bytes more, and no more")
    return content


def _read(path: Path, limit: int) -> bytes:
    """Read a file, or one byte more of it than fits."""
    try:
        if not path.is_file():
            raise NotSaved(f"{path} is not a file")
        with path.open("rb") as file:
            return file.read(limit + 1)
    except OSError as exc:
        raise NotSaved(f"{path}: {exc.strerror}") from exc


def _refusal(field: str, rule: str) -> Exception:
    return invalid_params(f"feedback {field} {rule}", field=field, rule=rule)
