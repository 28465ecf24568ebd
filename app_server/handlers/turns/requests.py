"""turn/*: starting, steering and stopping turns, and changing the settings of the next.

Source: docs/threads.md, "Settings".
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from app_server.handlers.errors import (
    config_failures,
    loaded_thread,
    thread_failures,
    turn_failures,
)
from app_server.handlers.serving import RequestContext, serves
from app_server.handlers.threads.overrides import (
    chosen_environments,
    chosen_settings,
    model_name,
    pin_roots,
    turn_overrides,
)
from app_server.handlers.threads.settings import clears_tier
from app_server.handlers.threads.shown import announce_settings
from app_server.handlers.views.turns import started_turn
from app_server.models.prompt.user_input import (
    TurnInput,
    context_chars,
    context_items,
    user_message,
)
from app_server.sessions.input import ClientMetadata
from app_server.sessions.session import ThreadSession
from app_server.threads.log.state import digest_of, digest_of_words
from app_server.turns.slot import NoActiveTurn, TurnIdMismatch, TurnOptions
from protocol.jsonrpc.errors import invalid_member
from protocol.model import JsonObject
from protocol.turns.items import UserInput
from protocol.turns.requests import (
    AdditionalContextEntry,
    TurnInterruptParams,
    TurnInterruptResponse,
    TurnSettingsUpdateParams,
    TurnSettingsUpdateResponse,
    TurnStartParams,
    TurnStartResponse,
    TurnSteerParams,
    TurnSteerResponse,
)
from protocol.turns.turn import Turn

METADATA = frozenset(
    {"mcp_meta_by_server", "responsesapi_client_metadata", "responsesapi_client_metadata_patch"}
)
"""Members that may differ when a request is sent again."""

MAX_INPUT_CHARS = 1 << 20
"""Characters of all text of one message; the peers have the same bound."""

MAX_CONTEXT_ENTRIES = 100

NOTHING_ADDED: Mapping[str, AdditionalContextEntry] = {}


@serves("turn/start")
async def start_turn(context: RequestContext, params: TurnStartParams) -> TurnStartResponse:
    """Begin a turn with the input, or give the input to the running turn."""
    with thread_failures(params.thread_id), config_failures(), turn_failures("start"):
        requirements = await context.services.configuration.requirements()
        overrides = await turn_overrides(context.services, params)
        session = await context.services.sessions.writable(params.thread_id)
        before = session.log.state.settings
        settings, replaced = chosen_settings(before, overrides, requirements, without_tier=False)
        await pin_roots(context.services, overrides, settings)
        accepted = await session.input.start(
            await _turn_input(session, params, _digest(params)),
            settings,
            TurnOptions(
                output_schema=params.output_schema,
                mcp_meta=dict(params.mcp_meta_by_server or {}),
                service_tier=params.service_tier_for_turn,
                trigger=params.turn_trigger,
                parent_turn_id=params.parent_turn_id,
            ),
            _client_metadata(params),
        )
    if session.log.state.settings != before:
        announce_settings(context.services.hub, context, session, replaced)
    context.after_answer(accepted.run_soon)
    return TurnStartResponse(turn=_accepted_turn(session, params, accepted.turn_id))


def _accepted_turn(session: ThreadSession, params: TurnStartParams, turn_id: str) -> Turn:
    turn = started_turn(turn_id)
    if params.client_user_message_id is None:
        return turn
    accepted = session.log.state.accepted.find(params.client_user_message_id)
    return turn if accepted is None else turn.model_copy(update={"status": accepted.status})


@serves("turn/steer")
async def steer_turn(context: RequestContext, params: TurnSteerParams) -> TurnSteerResponse:
    """Give the running turn more input."""
    with thread_failures(params.thread_id), turn_failures("steer"):
        session = await context.services.sessions.writable(params.thread_id)
        client_id, context_ = params.client_user_message_id, params.additional_context
        digest = digest_of_words(params.thread_id, client_id, params.input, context_)
        accepted = await session.input.steer(
            params.expected_turn_id,
            await _turn_input(session, params, digest),
            params.mcp_meta_by_server or {},
            _client_metadata(params),
        )
    context.after_answer(accepted.run_soon)
    return TurnSteerResponse(turn_id=accepted.turn_id)


@serves("turn/interrupt")
async def interrupt_turn(
    context: RequestContext, params: TurnInterruptParams
) -> TurnInterruptResponse:
    """Stop the running turn, or the MCP servers that still start."""
    with thread_failures(params.thread_id):
        session = await context.services.sessions.writable(params.thread_id)
    if params.turn_id == "" and session.slot.active_turn_id is None:
        context.after_answer(session.servers.live().cancel_starting)
        return TurnInterruptResponse()
    with turn_failures("interrupt"):
        session.slot.require_active(params.turn_id)
    context.after_answer(_interrupt, session, params.turn_id)
    return TurnInterruptResponse()


@serves("turn/settings/update")
async def update_turn_settings(
    context: RequestContext, params: TurnSettingsUpdateParams
) -> TurnSettingsUpdateResponse:
    """Change settings of the running turn alone, from its next model request on."""
    session = loaded_thread(context.services.sessions, params.thread_id)
    if session.slot.active_turn_id != params.turn_id:
        return TurnSettingsUpdateResponse(status="targetUnavailable")
    overrides = replace(
        chosen_environments(context.services, params.environments),
        model=model_name(params.model),
        approvals_reviewer=params.approvals_reviewer,
        effort=params.effort,
        summary=params.summary,
        service_tier=params.service_tier,
    )

    applied = session.override_turn_settings(
        params.turn_id, overrides, clears_tier=clears_tier(params)
    )
    return TurnSettingsUpdateResponse(status="applied" if applied else "targetUnavailable")


def _interrupt(session: ThreadSession, turn_id: str) -> None:
    # The turn may have ended while the answer was on its way.
    with contextlib.suppress(NoActiveTurn, TurnIdMismatch):
        session.slot.interrupt(turn_id)


def _digest(params: TurnStartParams) -> str | None:
    if params.client_user_message_id is None:
        return None
    return digest_of(params, without=METADATA)


def _client_metadata(params: TurnStartParams | TurnSteerParams) -> ClientMetadata:
    return ClientMetadata(
        params.responsesapi_client_metadata, params.responsesapi_client_metadata_patch
    )


async def _turn_input(
    session: ThreadSession, params: TurnStartParams | TurnSteerParams, digest: str | None = None
) -> TurnInput:
    context = params.additional_context or {}
    check_length(params.input, context)
    added: Sequence[JsonObject] = ()
    if context:
        state = session.log.state
        waiting = [item for entry in state.pending_input for item in entry.items]
        added = context_items(context, [*state.history, *waiting])
    said = await user_message(params.input)
    return TurnInput(params.input, [*added, *said], params.client_user_message_id, digest=digest)


def check_length(
    content: Sequence[UserInput], context: Mapping[str, AdditionalContextEntry] = NOTHING_ADDED
) -> None:
    """Refuse input with more text than the peers take."""
    size = sum(len(part.text) for part in content if part.type == "text")
    if size > MAX_INPUT_CHARS:
        raise invalid_member("input", f"holds more than {MAX_INPUT_CHARS} characters of text")
    if context and size + context_chars(context) > MAX_INPUT_CHARS:
        rule = f"holds, with `input`, more than {MAX_INPUT_CHARS} characters of text"
        raise invalid_member("additionalContext", rule)
    if len(context) > MAX_CONTEXT_ENTRIES:
        raise invalid_member("additionalContext", f"has more than {MAX_CONTEXT_ENTRIES} entries")
