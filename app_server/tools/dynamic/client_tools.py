"""Calls of tools that a client declared when it started the thread; a client runs them.

Source: docs/tools.md, "Tools of clients".
"""

import time
from collections.abc import Sequence

from pydantic_core import to_json

from app_server.mcp.tools.call_contents import cut_middle
from app_server.models.catalogue.features import ModelFeatures
from app_server.tools.dynamic.specs import DynamicTools
from app_server.turns.calls import BadCall, RequestedCall
from app_server.turns.context import ThreadContext
from app_server.turns.slot import RunningTurn
from app_server.turns.tools import TurnTool
from protocol.model import Json, JsonObject
from protocol.turns.approvals import DynamicToolCallParams, DynamicToolCallResponse
from protocol.turns.items import (
    DynamicToolCallOutputContentItem,
    DynamicToolCallThreadItem,
    InputAudioDynamicToolCallOutputContentItem,
    InputImageDynamicToolCallOutputContentItem,
    InputTextDynamicToolCallOutputContentItem,
)

METHOD = "item/tool/call"
FAILED = "the client that offers this tool refused the call, or its answer makes no sense"
NOBODY = "no client is connected that could run this tool"
MAX_CONTENT_BYTES = 512 * 1024
"""Of what a call returned, as clients are shown it and the log has it."""
LEFT_OUT = "[left out: it is larger than what a call may return]"


class ClientTools(TurnTool):
    """The tools of clients, in one turn."""

    def __init__(self, context: ThreadContext, turn: RunningTurn, tools: DynamicTools) -> None:
        self._context = context
        self._turn = turn
        self._tools = tools

    def declarations(self, model: ModelFeatures) -> Sequence[JsonObject]:
        """Declare what is not deferred."""
        return self._tools.declarations()

    def offers(self, call: RequestedCall) -> bool:
        """Whether it is one of the tools, deferred ones too."""
        found = self._tools.find(call.namespace, call.name)
        return call.kind == "function" and found is not None

    # Calls do not overlap: what a client's tool does is not known.

    async def run(self, call: RequestedCall) -> Json:
        """Have a client run it, and wait without limit; returns what the client gave.

        Raises:
            BadCall: the arguments are no JSON.
            OSError: the log cannot be written.
        """
        try:
            arguments = call.arguments()
        except BadCall as exc:
            raise BadCall(f"failed to parse function arguments: {exc}") from exc
        recorder = self._turn.recorder
        item = DynamicToolCallThreadItem(
            id=call.call_id,
            namespace=call.namespace,
            tool=call.name,
            arguments=arguments,
            status="inProgress",
        )
        recorder.started(item)
        started = time.perf_counter()
        answer = await self._ask(call, arguments)
        item.status = "completed" if answer.success else "failed"
        item.content_items = bounded_content(answer.content_items)
        item.success = answer.success
        item.duration_ms = round((time.perf_counter() - started) * 1000)
        await recorder.completed(item)
        return _output(item.content_items, self._context.settings.output_limit_bytes)

    async def _ask(self, call: RequestedCall, arguments: Json) -> DynamicToolCallResponse:
        turn = self._turn
        params = DynamicToolCallParams(
            thread_id=self._context.log.id,
            turn_id=turn.id,
            call_id=call.call_id,
            namespace=call.namespace,
            tool=call.name,
            arguments=arguments,
        )
        if not self._context.clients.can_ask(METHOD, params):
            return _failure(NOBODY)
        answer, _ = await self._context.clients.ask(METHOD, params)
        return answer if isinstance(answer, DynamicToolCallResponse) else _failure(FAILED)


def _failure(text: str) -> DynamicToolCallResponse:
    part = InputTextDynamicToolCallOutputContentItem(text=text)
    return DynamicToolCallResponse(content_items=[part], success=False)


def bounded_content(
    parts: Sequence[DynamicToolCallOutputContentItem],
) -> list[DynamicToolCallOutputContentItem]:
    """Return parts that fit into a message to a client: texts are cut, media left out."""
    if len(to_json([part.model_dump(mode="json") for part in parts])) <= MAX_CONTENT_BYTES:
        return list(parts)
    left = MAX_CONTENT_BYTES
    fitting: list[DynamicToolCallOutputContentItem] = []
    for part in parts:
        # A text may take twice its bytes as JSON.
        if isinstance(part, InputTextDynamicToolCallOutputContentItem):
            kept: DynamicToolCallOutputContentItem = InputTextDynamicToolCallOutputContentItem(
                text=cut_middle(part.text, left // 2)
            )
        else:
            kept = part
        size = len(kept.model_dump_json())
        if size > left:
            fitting.append(InputTextDynamicToolCallOutputContentItem(text=LEFT_OUT))
            continue
        left -= size
        fitting.append(kept)
    return fitting


def _output(parts: Sequence[DynamicToolCallOutputContentItem], limit_bytes: int) -> Json:
    """Make what the model reads: a text if there is nothing else, or a list of parts."""
    content: list[Json] = []
    for part in parts:
        match part:
            case InputTextDynamicToolCallOutputContentItem():
                text = cut_middle(part.text, limit_bytes)
                limit_bytes = max(0, limit_bytes - len(text.encode()))
                content.append({"type": "input_text", "text": text})
            case InputImageDynamicToolCallOutputContentItem():
                content.append({"type": "input_image", "image_url": part.image_url})
            case InputAudioDynamicToolCallOutputContentItem():
                content.append({"type": "input_audio", "audio_url": part.audio_url})
    match content:
        case [{"type": "input_text", "text": text}]:
            return text
    return content
