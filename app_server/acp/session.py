"""One session: its prompts and their turns, its options, and what its thread tells.

Invariant: the answer of a prompt comes behind all updates of its turn.
Source: https://agentclientprotocol.com/protocol/v1/prompt-turn; docs/acp.md, "Prompts".
"""

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import anyio

from app_server.acp.conversation import AcpConversation
from app_server.acp.options import SessionSettings
from app_server.acp.questions import acp_question
from app_server.acp.requests import ContentBlock, command_of, user_input
from app_server.acp.sign_in import AUTH_REQUIRED
from app_server.acp.updates import ThreadUpdates, title_of
from app_server.rpc.in_process import AppClient
from protocol.jsonrpc.envelope import Request
from protocol.jsonrpc.errors import INTERNAL_ERROR, METHOD_NOT_FOUND, RpcError
from protocol.model import Json, JsonObject

END_S = 10.0
"""For the turn of a session that is closed to end."""

COMMANDS: Mapping[str, tuple[str, str | None]] = {
    "plan": ("Plan before anything is changed.", "what to plan"),
    "review": ("Review what is not committed, or what you say.", "what to look at"),
    "review-branch": ("Review what changed since another branch.", "branch"),
    "review-commit": ("Review a commit.", "commit"),
    "compact": ("Sum up the conversation, so that it takes less context.", None),
    "goal": ("Set a goal to work towards, or clear it.", "the goal, or clear"),
    "rename": ("Name the session.", "name"),
    "mcp": ("List the MCP servers.", None),
    "skills": ("List the skills.", None),
    "status": ("Show model, folder and settings of the session.", None),
}
"""By name: what it does, and what may stand behind it."""

_STOP_REASONS: Mapping[str, str] = {
    "contextWindowExceeded": "max_tokens",
    "cyberPolicy": "refusal",
    "misalignmentPolicyViolation": "refusal",
}
"""Of turns that failed for a reason that ACP has a word for."""


class Session:
    """A thread that the client has open."""

    def __init__(
        self,
        answer: JsonObject,
        models: Sequence[JsonObject],
        updates: ThreadUpdates,
        conversation: AcpConversation,
        app: AppClient,
    ) -> None:
        """`answer` is what started, resumed or forked the thread; `models` can be chosen."""
        thread = answer["thread"]
        self.id: str = thread["id"]
        self.updates = updates
        self._conversation = conversation
        self._app = app
        self._models = models
        self._settings = SessionSettings.of_answer(answer)
        self._title = thread.get("name") or title_of(thread["preview"])
        self._order = anyio.Lock()
        """Held while a request is passed on: they begin in their order."""
        self._running: str | None = None
        """Id of the turn that runs."""
        self._is_cancelling = False
        self._ends: dict[str, asyncio.Future[JsonObject]] = {}
        """By their ids, of turns that prompts wait for."""
        self._next_turn: asyncio.Future[str] | None = None
        """Id of a turn that no answer tells."""
        self._usage: JsonObject = {}
        """Tokens of the thread so far."""

    # The client's side.

    def state(self) -> JsonObject:
        """Return modes and options, for the answer that opens the session."""
        return {"modes": self._settings.modes(), "configOptions": self.options()}

    def options(self) -> list[JsonObject]:
        """Return all options with their values."""
        return self._settings.options(self._models)

    def offer_commands(self) -> None:
        """Tell the client which commands there are."""
        commands = [
            {"name": name, "description": about, "input": hint and {"hint": hint}}
            for name, (about, hint) in COMMANDS.items()
        ]
        self.tell({"sessionUpdate": "available_commands_update", "availableCommands": commands})

    def tell(self, update: JsonObject) -> None:
        """Send an update."""
        self._conversation.notify("session/update", {"sessionId": self.id, "update": update})

    async def choose(self, option: str, value: str) -> None:
        """Set an option.

        Raises:
            RpcError: there is no such option or value, or the app-server refuses it.
        """
        async with self._order:
            if change := self._settings.change(option, value, self._models):
                await self._app.call("thread/settings/update", {"threadId": self.id, **change})
            # The event may come behind the answer; it brings what else the change has changed.
            member = {"reasoning_effort": "effort", "collaboration_mode": "collaboration"}
            chosen: Any = {member.get(option, option): value}
            self._settings = replace(self._settings, **chosen)

    async def prompt(self, prompt: Sequence[ContentBlock]) -> JsonObject:
        """Run a turn, or a command, and return the answer. Cancelling interrupts the turn.

        Raises:
            RpcError: it cannot begin, or has failed.
        """
        before = self._usage
        async with self._order:
            command = command_of(prompt)
            if command is not None and command[0] in COMMANDS:
                begun = await self._run_command(*command)
            else:
                begun = await self._start_turn(user_input(prompt))
        if isinstance(begun, str):
            self._say(begun)
            return {"stopReason": "end_turn"}
        turn = await self._end_of(begun)
        return {"stopReason": self._stop_reason(turn), **_used(before, self._usage)}

    async def cancel(self) -> None:
        """Interrupt the turn that runs, or that a prompt which came before is about to begin."""
        if self._is_cancelling:
            return
        self._is_cancelling = True
        try:
            async with self._order:
                if self._running is not None:
                    await self._interrupt(self._running)
        finally:
            self._is_cancelling = False

    async def leave(self) -> None:
        """End the turns that prompts wait for, and follow the thread no more."""
        with anyio.move_on_after(END_S):
            for turn_id, end in list(self._ends.items()):
                await self._interrupt(turn_id)
                await asyncio.shield(end)
        self.lose()
        await self._app.call("thread/unsubscribe", {"threadId": self.id})

    def lose(self) -> None:
        """End all prompts: the thread tells nothing any more."""
        for end in self._ends.values():
            end.cancel()

    def _say(self, text: str) -> None:
        content = {"type": "text", "text": text}
        self.tell({"sessionUpdate": "agent_message_chunk", "content": content})

    # Turns.

    def joined(self, turns: Sequence[JsonObject]) -> None:
        """Tell the title of a stored thread, and note which of its newest turns runs."""
        if self._title:
            self.tell({"sessionUpdate": "session_info_update", "title": self._title})
        running = [turn["id"] for turn in turns if turn["status"] == "inProgress"]
        self._running = running[-1] if running else None

    async def _start_turn(self, parts: Sequence[JsonObject]) -> asyncio.Future[JsonObject]:
        message_id = str(uuid.uuid4())
        self.updates.expect_message(message_id)
        asked = {"threadId": self.id, "input": parts, "clientUserMessageId": message_id}
        end = await self._begin("turn/start", asked)
        text = next((part["text"] for part in parts if part["type"] == "text"), "")
        if not self._title and (title := title_of(text)):
            self._title = title
            self.tell({"sessionUpdate": "session_info_update", "title": title})
        return end

    async def _begin(self, method: str, asked: JsonObject) -> asyncio.Future[JsonObject]:
        """Have a turn begun; returns what will be the turn once it has ended."""
        ends: list[asyncio.Future[JsonObject]] = []

        def follow(answer: Json) -> None:
            # Before the first event of the turn is read.
            ends.append(self._follow(answer["turn"]["id"]))

        await self._app.call(method, asked, follow)
        return ends[0]

    def _follow(self, turn_id: str) -> asyncio.Future[JsonObject]:
        self._running = turn_id
        if turn_id not in self._ends:
            self._ends[turn_id] = asyncio.get_running_loop().create_future()
        return self._ends[turn_id]

    async def _end_of(self, end: asyncio.Future[JsonObject]) -> JsonObject:
        try:
            return await asyncio.shield(end)
        except asyncio.CancelledError:
            if end.cancelled():
                return {"status": "interrupted"}
            if self._conversation.has_gone:
                # The turn goes on, as that of every client that leaves.
                raise
            with anyio.CancelScope(shield=True):
                for turn_id in [name for name, one in self._ends.items() if one is end]:
                    await self._interrupt(turn_id)
            raise

    def _stop_reason(self, turn: JsonObject) -> str:
        """Return how a turn ended.

        Raises:
            RpcError: it failed.
        """
        if turn["status"] == "completed":
            return "end_turn"
        error = turn.get("error")
        if turn["status"] == "interrupted" or error is None:
            return "cancelled"
        kind = error.get("codexErrorInfo")
        if isinstance(kind, str) and kind in _STOP_REASONS:
            self._say(error["message"])
            return _STOP_REASONS[kind]
        code = AUTH_REQUIRED if kind == "unauthorized" else INTERNAL_ERROR
        raise RpcError(code, error["message"], "turnFailed", codexErrorInfo=kind)

    async def _interrupt(self, turn_id: str) -> None:
        # It may have ended meanwhile.
        with suppress(RpcError):
            await self._app.call("turn/interrupt", {"threadId": self.id, "turnId": turn_id})

    # Commands.

    async def _run_command(self, name: str, words: str) -> asyncio.Future[JsonObject] | str:
        """Run a command; returns the end of its turn, or what to say at once."""
        thread: JsonObject = {"threadId": self.id}
        match name:
            case "compact":
                self._next_turn = begun = asyncio.get_running_loop().create_future()
                await self._app.call("thread/compact/start", thread)
                return self._follow(await begun)
            case "review" | "review-branch" | "review-commit":
                return await self._begin(
                    "review/start", {**thread, "target": _review_target(name, words)}
                )
            case "plan":
                change = self._settings.change("collaboration_mode", "plan", self._models)
                await self._app.call("thread/settings/update", {**thread, **change})
                if words:
                    return await self._start_turn([{"type": "text", "text": words}])
                return "Plan mode is on: nothing is changed before you agree."
            case "goal":
                return await self._goal(thread, words)
            case "rename":
                await self._app.call("thread/name/set", {**thread, "name": words})
                return f"The session is named {words!r}."
            case "mcp":
                asked = {**thread, "detail": "toolsAndAuthOnly"}
                found = await self._app.call("mcpServerStatus/list", asked)
                lines = [f"- {one['name']}: {len(one['tools'])} tools" for one in found["data"]]
                return "\n".join(lines) or "There are no MCP servers."
            case "skills":
                found = await self._app.call("skills/list", {"cwds": [self.updates.cwd]})
                skills = [one for entry in found["data"] for one in entry["skills"]]
                lines = [f"- ${one['name']}: {one['description']}" for one in skills]
                return "\n".join(lines) or "There are no skills."
        lines = [
            f"- Model: {self._settings.model}",
            f"- Reasoning: {self._settings.effort or 'as the model has it'}",
            f"- Folder: {self.updates.cwd}",
            f"- Mode: {self._settings.mode}",
            f"- Session: {self.id}",
            f"- Tokens: {self._usage.get('totalTokens', 0)}",
        ]
        return "\n".join(lines)

    async def _goal(self, thread: JsonObject, words: str) -> str:
        if words == "clear":
            await self._app.call("thread/goal/clear", thread)
            return "The goal is cleared."
        if words:
            await self._app.call("thread/goal/set", {**thread, "objective": words})
            return f"The goal is set: {words}"
        goal = (await self._app.call("thread/goal/get", thread))["goal"]
        return "There is no goal." if goal is None else f"The goal: {goal['objective']}"

    # The thread's side.

    def take_event(self, method: str, params: JsonObject) -> None:
        """Tell the client of an event, and keep what it says of turns and settings."""
        for update in self.updates.of_event(method, params):
            self.tell(update)
        match method:
            case "turn/started":
                turn_id = self._running = params["turn"]["id"]
                if self._next_turn is not None and not self._next_turn.done():
                    self._follow(turn_id)
                    self._next_turn.set_result(turn_id)
            case "turn/completed":
                turn = params["turn"]
                if self._running == turn["id"]:
                    self._running = None
                end = self._ends.pop(turn["id"], None)
                if end is not None and not end.done():
                    end.set_result(turn)
            case "thread/tokenUsage/updated":
                self._usage = params["tokenUsage"]["total"]
            case "thread/name/updated":
                self._title = params["threadName"]
            case "thread/settings/updated":
                self._take_settings(SessionSettings.of_update(params["threadSettings"]))

    async def put(self, question: Request, capabilities: JsonObject) -> JsonObject | None:
        """Put a question of the thread to the client; cancelling withdraws it.

        Returns what the app-server is answered; None if this client cannot be asked.
        """
        shown = acp_question(question.method, question.params, self.updates, capabilities)
        if shown is None:
            return None
        answer = await self._conversation.ask(shown.method, shown.params)
        if not isinstance(answer.error, dict):
            return shown.result(answer.result)
        return None if answer.error.get("code") == METHOD_NOT_FOUND else shown.refusal

    def _take_settings(self, settings: SessionSettings) -> None:
        before, self._settings = self._settings, settings
        if settings == before:
            return
        self.tell({"sessionUpdate": "config_option_update", "configOptions": self.options()})
        if settings.mode != before.mode:
            self.tell({"sessionUpdate": "current_mode_update", "currentModeId": settings.mode})


def _review_target(name: str, words: str) -> JsonObject:
    match name, words:
        case "review-branch", _:
            return {"type": "baseBranch", "branch": words}
        case "review-commit", _:
            return {"type": "commit", "sha": words}
        case _, "":
            return {"type": "uncommittedChanges"}
    return {"type": "custom", "instructions": words}


def _used(before: JsonObject, after: JsonObject) -> JsonObject:
    """Return what a turn used, from the tokens of its thread before and after."""
    if not after:
        return {}

    def used(name: str) -> int:
        count: int = after[name] - before.get(name, 0)
        return count

    cached = used("cachedInputTokens")
    usage = {
        "totalTokens": used("totalTokens"),
        "inputTokens": used("inputTokens") - cached,
        "cachedReadTokens": cached,
        "cachedWriteTokens": used("cacheWriteInputTokens"),
        "outputTokens": used("outputTokens"),
        "thoughtTokens": used("reasoningOutputTokens"),
    }
    return {"usage": usage}
