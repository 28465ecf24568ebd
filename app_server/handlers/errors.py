"""Domain failures to wire errors, each translated once."""

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from app_server.config.values import ConfigError
from app_server.host.files.work import PathRefused
from app_server.mcp.errors import (
    BadArguments,
    ClientUnavailable,
    RequiredServersFailed,
    ToolDisabled,
    UnknownServer,
)
from app_server.mcp_wire.errors import McpError, PeerError, RequestTimedOut, TransportClosed
from app_server.models.catalogue.providers import ProviderNotFound
from app_server.rpc.dispatch import storage_failed
from app_server.sessions.registry import Sessions
from app_server.sessions.session import ThreadSession
from app_server.sessions.settings import SettingNotAllowed
from app_server.threads.failures import (
    InvalidThreadId,
    StoreUnavailable,
    ThreadArchived,
    ThreadBusy,
    ThreadDamaged,
    ThreadNotFound,
    ThreadOfCodex,
    ThreadTooNew,
)
from app_server.threads.log.live import LogClosed
from app_server.threads.organization import FilingState
from app_server.threads.store import Organization
from app_server.turns.slot import (
    MAX_META_BYTES,
    EmptyInput,
    InputIdTaken,
    McpMetaTooLarge,
    NoActiveTurn,
    NotLoaded,
    OutputSchemaDiffers,
    SessionClosed,
    SessionUnloading,
    ThreadIdTaken,
    TurnIdMismatch,
    TurnNotSteerable,
)
from protocol.cursors import InvalidCursor
from protocol.jsonrpc.errors import (
    INVALID_REQUEST,
    RpcError,
    internal_error,
    invalid_member,
    invalid_params,
    invalid_request,
)
from protocol.model import JsonObject

_OF_THREADS: Mapping[type[Exception], tuple[str, str]] = {
    InvalidThreadId: ("invalid thread id: {}", "invalidThreadId"),
    SessionClosed: ("the server is stopping; resume the thread when it is back", "stopping"),
    ThreadArchived: (
        "session {0} is archived. Run `codex unarchive {0}` to unarchive it first.",
        "threadArchived",
    ),
    ThreadDamaged: (
        "the log of thread {} is damaged in its first line; app-server doctor says which file "
        "it is",
        "threadDamaged",
    ),
    ThreadIdTaken: (
        "thread id {} is taken by a thread that another request has started",
        "threadIdTaken",
    ),
    ThreadOfCodex: ("thread {} is kept by Codex, whose files are left alone", "threadOfCodex"),
    ThreadTooNew: ("thread {} was written by a newer version of this server", "threadTooNew"),
}
"""By error: the message, with the thread's id in the place of `{}`, and its stable word."""


@contextmanager
def thread_failures(thread_id: str, missing: str | None = None) -> Iterator[None]:
    """Translate failures around one thread.

    `missing` is the text when it is not there; None: that the thread was not found.
    """
    try:
        yield
    except (NotLoaded, ThreadNotFound, SessionUnloading, LogClosed) as exc:
        text = f"thread not found: {thread_id}" if missing is None else missing
        raise invalid_request(text, "threadNotFound", threadId=thread_id) from exc
    except tuple(_OF_THREADS) as exc:
        text, word = _OF_THREADS[type(exc)]
        facts: JsonObject = {"retriable": True} if isinstance(exc, SessionClosed) else {}
        raise invalid_request(text.format(thread_id), word, threadId=thread_id, **facts) from exc
    except InputIdTaken as exc:
        raise invalid_request(
            f"clientUserMessageId {exc.client_id} is taken by another input",
            "clientUserMessageIdTaken",
            threadId=thread_id,
            clientUserMessageId=exc.client_id,
            **exc.facts,
        ) from exc
    except ThreadBusy as exc:
        holder = exc.holder
        raise invalid_request(
            f"thread {thread_id} already has an active writer",
            "threadBusy",
            threadId=thread_id,
            holder={"pid": holder.pid, "startedAt": holder.started_at, "address": holder.address},
        ) from exc
    except OSError as exc:
        raise _storage_failure(exc, thread_id) from exc


def no_rollout(thread_id: str) -> str:
    """Say that a thread is not there, as methods do that work on stored ones."""
    return f"no rollout found for thread id {thread_id}"


def not_loaded(thread_id: str) -> str:
    """Say that a thread is not there, as methods do that look at its history."""
    return f"thread not loaded: {thread_id}"


def unknown_thread(thread_id: str) -> RpcError:
    """Refuse a thread that is not there, as methods do that file threads (-32602)."""
    return invalid_params(f"thread not found: {thread_id}", "threadNotFound", threadId=thread_id)


def turn_not_found(turn_id: str) -> RpcError:
    """Refuse a turn that a thread does not have."""
    return invalid_request(f"turn not found: {turn_id}", "turnNotFound", turnId=turn_id)


def loaded_thread(sessions: Sessions, thread_id: str) -> ThreadSession:
    """Return a thread that is in memory.

    Raises:
        RpcError: it is not.
    """
    with thread_failures(thread_id):
        return sessions.get(thread_id)


def _storage_failure(error: OSError, thread_id: str) -> RpcError:
    return storage_failed(error, "the thread cannot be stored", threadId=thread_id)


@contextmanager
def filing_failures(doing: Literal["stored", "read"] = "stored") -> Iterator[None]:
    """Translate failures of the log of projects and sections."""
    try:
        yield
    except StoreUnavailable as exc:
        raise storage_failed(exc, f"projects and sections cannot be {doing}") from exc
    except OSError as exc:
        raise internal_error(
            f"projects and sections cannot be {doing}: {exc.strerror}; they are in filing.jsonl in "
            "the home folder",
            "storageFailed",
        ) from exc


async def known_filing(organization: Organization, *, is_asked_for: bool) -> FilingState:
    """Return the projects and sections; as they were last read, unless they are asked for.

    Raises:
        RpcError: they are asked for, and cannot be read.
    """
    if not is_asked_for:
        return await organization.latest()
    with filing_failures("read"):
        return await organization.refresh()


@contextmanager
def turn_failures(doing: str) -> Iterator[None]:
    """Translate failures around the running turn, and of input for it; `doing` was asked of it."""
    try:
        yield
    except McpMetaTooLarge as exc:
        rule = f"must be at most {MAX_META_BYTES} bytes for one turn"
        raise invalid_member("mcpMetaByServer", rule) from exc
    except OutputSchemaDiffers as exc:
        rule = "must be that of the running turn, or absent"
        raise invalid_member("outputSchema", rule) from exc
    except EmptyInput as exc:
        raise invalid_request("input must not be empty", "emptyInput", field="input") from exc
    except NoActiveTurn as exc:
        raise invalid_request(f"no active turn to {doing}", "noActiveTurn") from exc
    except TurnIdMismatch as exc:
        raise invalid_request(
            str(exc), "turnIdMismatch", expected=exc.expected, found=exc.found
        ) from exc
    except TurnNotSteerable as exc:
        facts: JsonObject = {
            "message": str(exc),
            "codexErrorInfo": {"activeTurnNotSteerable": {"turnKind": exc.kind}},
            "additionalDetails": None,
        }
        raise RpcError(
            INVALID_REQUEST, str(exc), data={"code": "activeTurnNotSteerable", **facts}
        ) from exc


@contextmanager
def config_failures() -> Iterator[None]:
    """Translate failures of the configuration, and settings that an administrator forbids."""
    try:
        yield
    except SettingNotAllowed as exc:
        raise invalid_request(
            f"invalid thread settings override: {exc}", "settingNotAllowed", detail=str(exc)
        ) from exc
    except ConfigError as exc:
        raise _config_error(str(exc)) from exc
    except ProviderNotFound as exc:
        raise _config_error(f"Model provider `{exc}` not found") from exc
    except RequiredServersFailed as exc:
        raise internal_error(
            f"error creating thread: Fatal error: Failed to initialize session: {exc}",
            "requiredMcpServersFailed",
        ) from exc


@contextmanager
def settings_failures(doing: str) -> Iterator[None]:
    """Translate that what is `doing` cannot be done, as settings cannot be used."""
    try:
        yield
    except ConfigError as exc:
        raise internal_error(f"{doing}: {exc}", "configInvalid", detail=str(exc)) from exc


def _config_error(detail: str) -> RpcError:
    return invalid_request(
        f"failed to load configuration: {detail}", "configInvalid", detail=detail
    )


@contextmanager
def cursor_failures() -> Iterator[None]:
    """Translate a cursor that is none of ours."""
    try:
        yield
    except InvalidCursor as exc:
        raise invalid_request(f"invalid cursor: {exc}", "invalidCursor", cursor=str(exc)) from exc


_MCP_WORDS: dict[type[McpError], str] = {
    UnknownServer: "unknownMcpServer",
    ClientUnavailable: "mcpServerUnavailable",
    TransportClosed: "mcpTransportClosed",
    RequestTimedOut: "mcpRequestTimedOut",
    ToolDisabled: "mcpToolDisabled",
    BadArguments: "mcpBadArguments",
}


@contextmanager
def mcp_failures(doing: str) -> Iterator[None]:
    """Translate failures of a direct MCP call; a peer's own error passes as it is."""
    try:
        yield
    except PeerError as exc:
        raise RpcError(exc.code, exc.message, data=exc.data) from exc
    except (UnknownServer, ClientUnavailable, ToolDisabled) as exc:
        raise internal_error(str(exc), _MCP_WORDS[type(exc)]) from exc
    except McpError as exc:
        word = _MCP_WORDS.get(type(exc), "mcpFailed")
        raise internal_error(f"{doing}: {exc}", word) from exc


@contextmanager
def file_failures() -> Iterator[None]:
    """Translate what the system says of a path, and what makes no sense for it."""
    try:
        yield
    except PathRefused as exc:
        raise invalid_request(str(exc), "fileRefused") from exc
    except OSError as exc:
        number = exc.errno or 0
        raise internal_error(
            f"{os.strerror(number)} (os error {number})",
            "fileFailed",
            reason=errno.errorcode.get(number, "unknown"),
        ) from exc


def as_path(path: str) -> Path:
    """Take a path of a client: `.` and `..` go by the text, links are left alone.

    Raises:
        RpcError: no file can have it.
    """
    if "\0" in path:
        raise invalid_request("file name contained an unexpected NUL byte", "fileRefused")
    return Path(os.path.normpath(path))
