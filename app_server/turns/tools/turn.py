"""What a turn gives its tools."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TypeAlias

import anyio.lowlevel

from app_server.models.catalogue.features import ModelFeatures
from app_server.runtime.pausable_timeouts import PausableTimeouts
from app_server.turns.ports import ClientPort
from app_server.turns.recorder import TurnRecorder
from protocol.log.rollout import Settings
from protocol.model import JsonObject
from protocol.turns.requests import McpMetaByServer

Waiting: TypeAlias = Callable[[], AbstractContextManager[None]]
"""Makes a context; for as long as that lasts, the thread's status says what it waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnContext:
    """One turn, as its tools see it."""

    recorder: TurnRecorder
    clients: ClientPort
    waiting_on_approval: Waiting
    waiting_on_user_input: Waiting
    interrupt: Callable[[], None]
    """Interrupts the turn."""
    features: Callable[[], ModelFeatures]
    """Those of the model in force."""
    mcp_meta: McpMetaByServer
    """The client's `_meta` by server; steering replaces entries while the turn runs."""
    metadata: Callable[[], JsonObject]
    """What MCP servers are sent of the turn."""
    output_limit_bytes: int
    """How much of an output the model reads."""
    timeouts: PausableTimeouts = field(default_factory=PausableTimeouts)
    """For how long commands are waited for."""

    @property
    def settings(self) -> Settings:
        """The settings in force; they may change while the turn runs."""
        return self.recorder.thread.state.in_force

    @property
    def thread_id(self) -> str:
        """The thread's id."""
        return self.recorder.thread.id

    async def interrupt_here(self) -> None:
        """End the turn as interrupted, for a user who cancelled a call; does not return.

        The caller is cancelled: what must be written is written before.
        """
        self.interrupt()
        await anyio.lowlevel.checkpoint()

    @property
    def turn_id(self) -> str:
        """The turn's id."""
        return self.recorder.turn_id
