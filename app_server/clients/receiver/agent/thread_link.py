"""Requests of the bridge to an app-server: find a thread, read it, inject into it.

Source: docs/receiver.md, "The app-server".
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread

from app_server.clients.app_connection import AppConnection
from app_server.clients.receiver.agent.item import render_item
from app_server.clients.receiver.router.envelope import SOURCE, Envelope
from protocol.jsonrpc.errors import INTERNAL_ERROR, RpcError
from protocol.model import Json, JsonObject

MAX_LOADED = 200
"""Loaded threads that are looked at, the last ones of the server's list."""

ACCEPTED = "accepted"
"""The stage of a signal that the server has, and that is not in the thread yet."""

IN_THREAD = ("inHistory", "seen", "answered")
"""Stages of a signal that is in the thread."""

LOST = "lost"
"""Stands for the stage of a signal that a server no longer has."""


class SignalRefused(Exception):
    """The server says that it did not put a signal into the thread, and will not."""


class Unclear(Exception):
    """The server failed, and does not say whether the signal is in the thread."""


@dataclass(frozen=True, slots=True)
class Recipient:
    """The thread that signals go to."""

    thread_id: str
    log_path: str | None = None
    """Its log on this machine; None if the server does not say, or for a thread without one."""


class ThreadLink:
    """An app-server that has shaken hands."""

    def __init__(self, connection: AppConnection) -> None:
        self._connection = connection
        self.takes_signals = False
        """Whether it has `signal/deliver`; `ask_what_it_can` finds out."""

    @property
    def is_open(self) -> bool:
        """Whether it can be asked."""
        return self._connection.is_open

    async def aclose(self) -> None:
        """Close the connection; twice is harmless."""
        await self._connection.aclose()

    async def ask_what_it_can(self) -> None:
        """Find out whether the server has a method for signals.

        Raises:
            ConnectionLost
        """
        try:
            await self._connection.call("signal/list", {"limit": 1})
        except RpcError:
            # -32601 here, -32600 "unknown variant" from the reference.
            self.takes_signals = False
        else:
            self.takes_signals = True

    async def find(self, thread_id: str | None, cwd: Path) -> Recipient | None:
        """Find the thread with an id, else the newest loaded one of a person in a folder.

        Raises:
            ConnectionLost
        """
        if thread_id is not None:
            thread = await self._read(thread_id)
            # One that the server does not know may still be resumed.
            return Recipient(thread_id) if thread is None else _recipient(thread)
        newest: JsonObject | None = None
        is_here: dict[str, bool] = {}
        for loaded_id in (await self._loaded())[-MAX_LOADED:]:
            thread = await self._read(loaded_id)
            folder = None if thread is None else _folder_of_person(thread)
            if thread is None or folder is None:
                continue
            if folder not in is_here:
                is_here[folder] = await anyio.to_thread.run_sync(_is_same, folder, cwd)
            if not is_here[folder]:
                continue
            if newest is None or _age(thread) >= _age(newest):
                newest = thread
        return None if newest is None else _recipient(newest)

    async def wait_for_earlier(self, thread_id: str) -> None:
        """Wait until the server has answered earlier requests about a thread.

        Raises:
            ConnectionLost
        """
        # Requests of one thread are answered in their order, whoever makes them.
        await self._read(thread_id)

    async def stage(self, signal_id: str, thread_id: str | None) -> str | None:
        """Ask a server how far a signal has come that went to a thread of it.

        LOST: the server has the thread, and no such signal. None: it does not say.

        Raises:
            ConnectionLost
        """
        if not self.takes_signals:
            return None
        try:
            asked = {"source": SOURCE, "id": signal_id}
            result = await self._connection.call("signal/read", asked)
        except RpcError as exc:
            if _member(exc.data, "code") != "signalNotFound" or thread_id is None:
                return None
            # A server of another home may answer here now.
            return None if await self._read(thread_id) is None else LOST
        return _stage(result)

    async def put(
        self,
        envelope: Envelope,
        payload_tool: str | None,
        thread_id: str,
        when_sent: Callable[[], None],
    ) -> bool:
        """Put a signal into a thread; one that is not loaded is resumed, once.

        Returns whether it is in the history; if not, the server has it in a ledger of its own, and
        `stage` says what becomes of it. `payload_tool` is the tool of the agent that gives the
        whole signal, if it has one.

        Raises:
            SignalRefused, Unclear, ConnectionLost
        """
        method, params = "signal/deliver", _delivery(envelope, payload_tool, thread_id)
        if not self.takes_signals:
            item = render_item(envelope, payload_tool)
            method, params = "thread/inject_items", {"threadId": thread_id, "items": [item]}
        try:
            try:
                result = await self._connection.call(method, params, when_sent)
            except RpcError as exc:
                if self.takes_signals or not _says_unknown_thread(exc):
                    raise
                await self._resume(thread_id)
                result = await self._connection.call(method, params, when_sent)
        except RpcError as exc:
            # An internal error may have come after the item was written.
            unclear = exc.code == INTERNAL_ERROR
            raise (Unclear if unclear else SignalRefused)(str(exc)) from exc
        return not self.takes_signals or _is_in_history(result)

    async def _resume(self, thread_id: str) -> None:
        try:
            params = {"threadId": thread_id, "excludeTurns": True}
            await self._connection.call("thread/resume", params)
            # Its events are for others.
            await self._connection.call("thread/unsubscribe", {"threadId": thread_id})
        except RpcError as exc:
            raise SignalRefused(str(exc)) from exc

    async def _loaded(self) -> list[str]:
        ids: list[str] = []
        cursor: Json = None
        while True:
            page = await self._connection.call(
                "thread/loaded/list", {} if cursor is None else {"cursor": cursor}
            )
            data, cursor = _member(page, "data"), _member(page, "nextCursor")
            ids += [found for found in data or () if isinstance(found, str)]
            if cursor is None or len(ids) > 10 * MAX_LOADED:
                return ids

    async def _read(self, thread_id: str) -> JsonObject | None:
        try:
            result = await self._connection.call("thread/read", {"threadId": thread_id})
        except RpcError:
            return None
        thread = _member(result, "thread")
        return thread if isinstance(thread, dict) and isinstance(thread.get("id"), str) else None


def _is_in_history(result: Json) -> bool:
    stage = _stage(result)
    if stage != ACCEPTED and stage not in IN_THREAD:
        raise SignalRefused(f"the signal is {stage}")
    return stage in IN_THREAD


def _stage(result: Json) -> str | None:
    stage = _member(_member(result, "receipt"), "stage")
    return stage if isinstance(stage, str) else None


def _says_unknown_thread(exc: RpcError) -> bool:
    return "thread not found" in str(exc)


def _delivery(envelope: Envelope, payload_tool: str | None, thread_id: str) -> JsonObject:
    return {
        "signal": _signal(envelope),
        "target": {"threadId": thread_id},
        "mode": envelope.mode,
        "payloadTool": payload_tool,
    }


def _signal(envelope: Envelope) -> JsonObject:
    return {
        "id": envelope.id,
        "source": SOURCE,
        "type": envelope.type,
        "sender": envelope.sender,
        "summary": envelope.summary,
        "payload": envelope.payload,
        "createdAt": envelope.created_at,
        # What is longer than the server can say is as good as always.
        "ttlSeconds": envelope.ttl_s if (envelope.ttl_s or 0) < 2**32 else None,
    }


def _recipient(thread: JsonObject) -> Recipient:
    path = thread.get("path")
    return Recipient(str(thread["id"]), path if isinstance(path, str) else None)


def _folder_of_person(thread: JsonObject) -> str | None:
    """Return the folder of a user's thread; None for threads that other threads began."""
    found = thread.get("cwd")
    if thread.get("ephemeral") or thread.get("parentThreadId") or not isinstance(found, str):
        return None
    return found


def _is_same(folder: str, cwd: Path) -> bool:
    # A process is told its folder without links; a thread keeps what it was given.
    return Path(folder) == cwd or os.path.realpath(folder) == os.path.realpath(cwd)


def _age(thread: JsonObject) -> tuple[int, str]:
    created = thread.get("createdAt")
    return (created if isinstance(created, int) else 0, str(thread.get("id")))


def _member(value: Json, name: str) -> Json:
    return value.get(name) if isinstance(value, dict) else None
