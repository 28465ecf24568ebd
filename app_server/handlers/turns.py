"""turn/*: starting, steering and stopping."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from app_server.config import Config
from app_server.handlers.configuration import Configuration
from app_server.handlers.failures import (
    config_failures,
    setting_failures,
    thread_failures,
    turn_failures,
)
from app_server.handlers.permission_profiles import chosen_sandbox
from app_server.handlers.sent_again import digest_of
from app_server.handlers.thread_view import started_turn, thread_settings
from app_server.requirements import Requirements
from app_server.rpc.context import Handler, RequestContext
from app_server.rpc.hub import Hub
from app_server.turns.engine import TurnOptions
from app_server.turns.refusals import NoActiveTurn, TurnIdMismatch
from app_server.turns.required import refuse_overrides, with_required
from app_server.turns.session import ThreadSession
from app_server.turns.sessions import Sessions
from app_server.turns.settings import Overrides, with_overrides
from app_server.turns.user_input import TurnInput, user_message
from protocol.errors import invalid_params
from protocol.items import UserInput
from protocol.rollout import Settings
from protocol.threads import ThreadSettingsUpdatedNotification
from protocol.turns import (
    Turn,
    TurnInterruptParams,
    TurnInterruptResponse,
    TurnStartParams,
    TurnStartResponse,
    TurnSteerParams,
    TurnSteerResponse,
)

METADATA = frozenset(
    {"mcp_meta_by_server", "responsesapi_client_metadata", "responsesapi_client_metadata_patch"}
)
"""What may differ when a request is sent again."""

MAX_INPUT_CHARS = 1 << 20
"""Characters of all text of one message; the peers have the same bound."""


@dataclass(frozen=True, slots=True)
class TurnPorts:
    """What these handlers work with."""

    sessions: Sessions
    hub: Hub
    configuration: Configuration


class TurnHandlers:
    """The turn/* methods."""

    def __init__(self, ports: TurnPorts) -> None:
        self._sessions = ports.sessions
        self._hub = ports.hub
        self._configuration = ports.configuration

    @property
    def routes(self) -> Mapping[str, Handler]:
        """Method to handler."""
        return {
            "turn/start": self.start,
            "turn/steer": self.steer,
            "turn/interrupt": self.interrupt,
        }

    async def start(self, context: RequestContext, params: TurnStartParams) -> TurnStartResponse:
        """Give the model something to do; a running turn takes the input over."""
        with (
            thread_failures(params.thread_id, f"thread not found: {params.thread_id}"),
            config_failures(),
            setting_failures(),
        ):
            requirements = await self._configuration.requirements()
            session = await self._sessions.writable(params.thread_id)
            before = session.thread.state.settings
            settings, replaced = self._settings(session, params, requirements)
            turn_id, begin = await session.start_turn(
                await _turn_input(params.input, params.client_user_message_id, _digest(params)),
                settings,
                TurnOptions(
                    output_schema=params.output_schema,
                    client_metadata=params.responsesapi_client_metadata,
                    mcp_meta=dict(params.mcp_meta_by_server or {}),
                ),
            )
        if session.thread.state.settings != before:
            event = ThreadSettingsUpdatedNotification(
                thread_id=params.thread_id,
                thread_settings=thread_settings(session.thread.state.settings),
            )
            context.after_answer(partial(self._hub.emit, params.thread_id, event))
            for warning in replaced:
                context.after_answer(partial(session.announcer.warning, warning))
        context.after_answer(begin)
        return TurnStartResponse(turn=self._taken(session, params, turn_id))

    @staticmethod
    def _taken(session: ThreadSession, params: TurnStartParams, turn_id: str) -> Turn:
        accepted = session.thread.state.accepted.find(params.client_user_message_id)
        turn = started_turn(turn_id)
        return turn if accepted is None else turn.model_copy(update={"status": accepted.status})

    def _settings(
        self, session: ThreadSession, params: TurnStartParams, requirements: Requirements
    ) -> tuple[Settings, Sequence[str]]:
        overrides = Overrides(
            model=params.model,
            cwd=None if params.cwd is None else self._configuration.resolve(params.cwd),
            approval_policy=params.approval_policy,
            approvals_reviewer=params.approvals_reviewer,
            sandbox_mode=chosen_sandbox(params.permissions, params.sandbox_policy, "sandboxPolicy"),
            sandbox_policy=params.sandbox_policy,
            effort=params.effort,
            summary=params.summary,
            service_tier=params.service_tier,
            personality=params.personality,
        )
        chosen = with_overrides(session.thread.state.settings, overrides, Config({}).view())
        refuse_overrides(overrides, chosen, requirements)
        return with_required(chosen, requirements)

    async def steer(self, context: RequestContext, params: TurnSteerParams) -> TurnSteerResponse:
        """Give the running turn more input."""
        with (
            thread_failures(params.thread_id, f"thread not found: {params.thread_id}"),
            turn_failures("steer"),
        ):
            session = await self._sessions.writable(params.thread_id)
            await session.steer(
                params.expected_turn_id,
                await _turn_input(params.input, params.client_user_message_id),
                params.mcp_meta_by_server or {},
            )
        return TurnSteerResponse(turn_id=params.expected_turn_id)

    async def interrupt(
        self, context: RequestContext, params: TurnInterruptParams
    ) -> TurnInterruptResponse:
        """Stop the running turn, or the MCP servers that still start."""
        with thread_failures(params.thread_id, f"thread not found: {params.thread_id}"):
            session = await self._sessions.writable(params.thread_id)
        if params.turn_id == "" and session.active_turn_id is None:
            context.after_answer(session.servers.cancel_starting)
            return TurnInterruptResponse()
        with turn_failures("interrupt"):
            session.require_active(params.turn_id)
        context.after_answer(partial(_interrupt, session, params.turn_id))
        return TurnInterruptResponse()


def _interrupt(session: ThreadSession, turn_id: str) -> None:
    # The turn may have ended while the answer was on its way.
    with contextlib.suppress(NoActiveTurn, TurnIdMismatch):
        session.interrupt(turn_id)


def _digest(params: TurnStartParams) -> str | None:
    if params.client_user_message_id is None:
        return None
    return digest_of(params, without=METADATA)


async def _turn_input(
    content: Sequence[UserInput], client_id: str | None, digest: str | None = None
) -> TurnInput:
    check_length(content)
    return TurnInput(content, await user_message(content), client_id, digest=digest)


def check_length(content: Sequence[UserInput]) -> None:
    """Refuse input with more text than the peers take."""
    size = sum(len(part.text) for part in content if part.type == "text")
    if size > MAX_INPUT_CHARS:
        rule = f"holds more than {MAX_INPUT_CHARS} characters of text"
        raise invalid_params(f"Invalid params: `input` {rule}", field="input", rule=rule)
