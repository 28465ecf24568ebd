"""One run: a thread, a turn of it, and its end, over a connection to an app-server.

Source: docs/exec.md.
"""

import signal
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

import anyio
import anyio.to_thread

from app_server.peer.connection import Client, introduced
from app_server.rpc.in_process import open_pipe
from app_server.runtime.exception_groups import only_member
from app_server.server.app import AppServer
from app_server.server.settings import Settings
from protocol.jsonrpc.errors import RpcError
from protocol.model import Json, JsonObject

ANSWER_S = 600.0
"""For an answer: MCP servers that a thread requires start before it has one."""
INTERRUPT_S = 10.0
"""For the end of a turn after a signal; a second signal does not wait for it."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MAX_PAGE = 100

CAPABILITIES: JsonObject = {
    "experimentalApi": True,
    "optOutNotificationMethods": [
        "item/agentMessage/delta",
        "item/commandExecution/outputDelta",
        "item/fileChange/outputDelta",
        "item/reasoning/summaryPartAdded",
        "item/reasoning/summaryTextDelta",
        "item/reasoning/textDelta",
        "turn/diff/updated",
    ],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The thread of a run."""

    method: Literal["thread/start", "thread/resume", "thread/fork"]
    settings: JsonObject
    """Parameters of the method."""
    thread: str | None = None
    """Id or name of the thread that is resumed or forked; None: the one that was last active."""
    folder: str | None = None
    """Where that one works; None: anywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecRequest:
    """A run."""

    opening: Opening
    method: Literal["turn/start", "review/start"] = "turn/start"
    params: JsonObject = field(default_factory=dict)
    """Parameters of the method, without the thread."""


class NoThread(Exception):
    """There is no thread to go on with; the text says which was looked for."""


class Presenter(Protocol):
    """What is written of a run, as lines."""

    def begin(self, opened: JsonObject) -> Iterator[str]:
        """Render the answer to the opening."""

    def take(self, method: str, params: JsonObject) -> Iterator[str]:
        """Render a notification of the run."""

    def asked(self, method: str, params: JsonObject) -> Iterator[str]:
        """Render a question, which is left to other clients."""

    def lost(self, reason: str) -> Iterator[str]:
        """Render that the run has no end that could be seen."""


Write: TypeAlias = Callable[[str], bool]
"""Writes a line and returns whether somebody reads them; may block."""


@dataclass(slots=True)
class Outcome:
    """How a run ended."""

    status: Literal["completed", "failed", "interrupted"] = "interrupted"
    message: str = ""
    """The last message of the model; empty if there was none."""
    signals: list[int] = field(default_factory=list)
    """Signals that came."""

    @property
    def exit_status(self) -> int:
        """Exit status of the command: 128 + N after signal N."""
        if self.signals and self.status != "completed":
            return 128 + self.signals[0]
        return 0 if self.status == "completed" else 1


class Run:
    """A run, from the opening of its thread to the end of its turn."""

    def __init__(
        self, client: Client, request: ExecRequest, presenter: Presenter, write: Write
    ) -> None:
        self._client = client
        self._request = request
        self._presenter = presenter
        self._write = write
        self._thread_id = ""
        self._turn_id = ""
        self._ended = False
        self._reader_gone = False
        self._step: anyio.CancelScope | None = None
        """What a signal cuts off."""
        self.outcome = Outcome()

    async def carry_out(self) -> Outcome:
        """Run to the end. A signal interrupts the turn.

        Raises:
            RpcError: the server refuses the thread.
            NoThread: there is none to go on with.
            anyio.EndOfStream, TimeoutError: the server went before there was a thread.
        """
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch_signals)
                await self._converse()
                tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise only_member(group) from None
        return self.outcome

    async def _watch_signals(self) -> None:
        with anyio.open_signal_receiver(*SIGNALS) as signals:
            async for number in signals:
                self.outcome.signals.append(number)
                if self._step is not None:
                    self._step.cancel()

    async def _converse(self) -> None:
        with anyio.CancelScope() as self._step:
            opened = await self._open()
        self._step = None
        if not self._thread_id:
            return
        try:
            await self._show(self._presenter.begin(opened))
            params = {"threadId": self._thread_id, **self._request.params}
            answer = await self._client.call(self._request.method, params)
            self._turn_id = answer["turn"]["id"]
            await self._follow()
        except RpcError as exc:
            await self._lose(exc.message)
        except TimeoutError as exc:
            await self._lose(str(exc))
        except anyio.EndOfStream:
            await self._lose("the server has gone")

    async def _open(self) -> JsonObject:
        opening = self._request.opening
        settings = opening.settings
        if opening.method != "thread/start":
            settings = {**settings, "threadId": await self._named(opening), "excludeTurns": True}
        opened: JsonObject = await self._client.call(opening.method, settings)
        self._thread_id = opened["thread"]["id"]
        return opened

    async def _named(self, opening: Opening) -> str:
        """Find the thread that is resumed or forked."""
        name = opening.thread
        with suppress(ValueError, TypeError):
            return str(uuid.UUID(name))
        asked: JsonObject = {"sortKey": "updated_at", "limit": 1 if name is None else MAX_PAGE}
        if name is not None:
            asked["searchTerm"] = name
        if opening.folder is not None:
            asked["cwd"] = opening.folder
        while True:
            page = await self._client.call("thread/list", asked)
            for thread in page["data"]:
                if name in (None, thread.get("name")):
                    return str(thread["id"])
            asked["cursor"] = page["nextCursor"]
            if asked["cursor"] is None:
                break
        where = "" if opening.folder is None else f" of {opening.folder}"
        which = "no thread" if name is None else f"no thread with the id or name {name!r}"
        raise NoThread(f"there is {which}{where} to go on with")

    async def _follow(self) -> None:
        """Show the turn to its end."""
        give_up_at = float("inf")
        handled = 0
        while not self._ended:
            signals = len(self.outcome.signals) + self._reader_gone
            if signals > handled:
                if handled:
                    return
                handled, give_up_at = signals, anyio.current_time() + INTERRUPT_S
                turn: JsonObject = {"threadId": self._thread_id, "turnId": self._turn_id}
                with suppress(RpcError):
                    # It may have ended meanwhile.
                    await self._client.call("turn/interrupt", turn)
            event = None
            with anyio.CancelScope(deadline=give_up_at) as self._step:
                event = await self._client.next_event()
            if event is not None:
                await self._take(event["method"], event["params"], event.get("id"))
            elif anyio.current_time() >= give_up_at:
                return

    async def _take(self, method: str, params: JsonObject, question: Json) -> None:
        turn: JsonObject = params.get("turn") or {}
        turn_id = turn.get("id") or params.get("turnId") or self._turn_id
        if params.get("threadId") not in (None, self._thread_id) or turn_id != self._turn_id:
            return
        if question is not None:
            await self._show(self._presenter.asked(method, params))
            await self._client.leave_to_others(question)
            return
        if method == "item/completed" and params["item"]["type"] == "agentMessage":
            self.outcome.message = params["item"]["text"]
        await self._show(self._presenter.take(method, params))
        if method == "turn/completed":
            self.outcome.status = turn["status"]
            self._ended = True

    async def _lose(self, reason: str) -> None:
        self.outcome.status = "failed"
        await self._show(self._presenter.lost(reason))

    async def _show(self, lines: Iterator[str]) -> None:
        for line in lines:
            # The reader may be slow, and a server of this process shares the event loop.
            if not await anyio.to_thread.run_sync(self._write, line):
                self._reader_gone = True


@asynccontextmanager
async def own_server(settings: Settings, name: str) -> AsyncIterator[Client]:
    """Run a server in this process and connect to it as a client of this name.

    Raises:
        ConfigError, LoadFailed, OSError: it cannot start.
    """
    server = AppServer(settings)
    near, far = open_pipe()
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.run, _unreported)
            tasks.start_soon(server.serve_client, far)
            try:
                yield await introduced(near, name, ANSWER_S, CAPABILITIES)
            finally:
                server.stop()
                # Nobody waits for its turns.
                server.stop()
                await near.aclose()
    except BaseExceptionGroup as group:
        raise only_member(group) from None


def _unreported(urls: Sequence[str]) -> None:
    """Do nothing: it listens nowhere."""
