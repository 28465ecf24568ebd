"""Request to a model: instructions, history, tools, and the body of the call.

Source: the public Responses API reference; docs/wire.md, "What the model is sent".
"""

from collections.abc import Sequence

from app_server.models.catalogue.models import ModelFeatures
from app_server.models.prompt.images import without_images
from app_server.threads.log.state import ThreadState
from protocol.model import Json, JsonObject

BASE_INSTRUCTIONS = """\
You are an agent that works for a user through an app-server. The user reads what you write in \
an editor or a terminal. Be accurate and brief, and say plainly what you do not know. Use the \
tools you are offered when they help; do not invent tools, results or files. Messages with the \
role `developer` inside the conversation are information from the user's environment."""

INTERRUPTED = (
    "The user stopped the turn before it was finished. Work that had begun may be half done."
)

STOPPED_BY_REVIEWER = (
    "The automatic reviewer refused several actions of the turn, so it was stopped before it was "
    "finished. Work that had begun may be half done. Ask the user how to go on."
)

STYLES = {
    "friendly": "Write in a warm and encouraging tone, as a colleague who likes to help.",
    "pragmatic": "Write plainly and to the point, without pleasantries.",
}
"""Instructions for each personality."""

ORDINARY_TIER = "default"
"""The service tier that a request has when it names none."""

OLDER_TIERS = {"fast": "priority"}
"""Names of service tiers that clients used before."""

SHARED_EFFORT = "ultra"
"""The effort that stands for work shared with other agents, of which there are none here."""

ABORTED_OUTPUT = "aborted before there was a result"


def request_body(
    state: ThreadState,
    features: ModelFeatures,
    tools: Sequence[JsonObject],
    output_schema: Json,
    client_metadata: dict[str, str] | None,
    notes: Sequence[str] = (),
    history: Sequence[JsonObject] | None = None,
) -> JsonObject:
    """Assemble the body of one call of the Responses API.

    What nobody chose is asked for as the model's `features` say. `notes` are sent before the
    history, and are not part of it. `history` takes the place of the thread's own.
    """
    settings = state.in_force
    shown = state.history if history is None else history
    if not features.images:
        shown = without_images(shown)
    developer = (
        settings.developer_instructions or state.created.developer_instructions,
        *notes,
        STYLES.get(settings.personality or ""),
    )
    body: JsonObject = {
        "model": settings.model,
        "instructions": settings.base_instructions
        or state.created.base_instructions
        or BASE_INSTRUCTIONS,
        "input": [
            *(message("developer", text) for text in developer if text),
            *shown,
        ],
        "tools": list(tools),
        "tool_choice": "auto",
        "parallel_tool_calls": features.parallel_calls,
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": state.id,
    }
    effort, summary = _effort(settings.effort, features), settings.summary
    reasoning = {"effort": effort, "summary": None if summary == "none" else summary}
    if chosen := {key: value for key, value in reasoning.items() if value is not None}:
        body["reasoning"] = chosen
    tier = settings.service_tier
    if tier not in (None, ORDINARY_TIER):
        body["service_tier"] = OLDER_TIERS.get(tier, tier)
    text: JsonObject = {}
    if features.verbosity is not None:
        text["verbosity"] = features.verbosity
    if output_schema is not None:
        text["format"] = {
            "type": "json_schema",
            "name": "codex_output_schema",
            "strict": True,
            "schema": output_schema,
        }
    if text:
        body["text"] = text
    if client_metadata:
        body["client_metadata"] = client_metadata
    return body


def _effort(chosen: str | None, features: ModelFeatures) -> str | None:
    """Return the effort to ask for; the highest of clients is no word of the API."""
    if chosen != SHARED_EFFORT:
        return chosen or features.default_effort
    return "xhigh" if "xhigh" in features.efforts else "medium"


def message(role: str, text: str) -> JsonObject:
    """Make one input message."""
    return {
        "type": "message",
        "role": role,
        "content": [{"type": "input_text", "text": text}],
    }


def only_text(item: JsonObject) -> str:
    """Return the text of a message that has one part; of any other item nothing."""
    content = item.get("content")
    part = content[0] if isinstance(content, list) and len(content) == 1 else None
    text = part.get("text") if isinstance(part, dict) else None
    return text if isinstance(text, str) else ""


def call_output(call_id: str, output: Json) -> JsonObject:
    """Make the output that answers a function call, or a call of the local shell."""
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def custom_output(call_id: str, output: Json) -> JsonObject:
    """Make the output that answers a call of a custom tool."""
    return {"type": "custom_tool_call_output", "call_id": call_id, "output": output}


def search_output(call_id: str, tools: Sequence[JsonObject]) -> JsonObject:
    """Make the output that answers a search for tools."""
    return {
        "type": "tool_search_output",
        "call_id": call_id,
        "status": "completed",
        "execution": "client",
        "tools": list(tools),
    }


def outputs_for_open_calls(history: Sequence[JsonObject]) -> list[JsonObject]:
    """Make outputs for calls that never got one; a model refuses a history with open calls."""
    open_calls: dict[str, JsonObject] = {}
    for item in history:
        call_id = item.get("call_id")
        if not isinstance(call_id, str):
            continue
        match item.get("type"):
            case "function_call" | "local_shell_call":
                open_calls[call_id] = call_output(call_id, ABORTED_OUTPUT)
            case "custom_tool_call":
                open_calls[call_id] = custom_output(call_id, ABORTED_OUTPUT)
            case "tool_search_call":
                open_calls[call_id] = search_output(call_id, [])
            case "function_call_output" | "custom_tool_call_output" | "tool_search_output":
                open_calls.pop(call_id, None)
    return list(open_calls.values())
