"""The wire `chat`: a body of the Responses API as one of Chat Completions.

Only members that servers for local models know are sent, as some refuse others.
Source: the public Chat Completions reference.
"""

from app_server.models.chat.messages import chat_messages
from app_server.models.chat.stream import ChatReader
from app_server.models.chat.tools import chat_tools
from app_server.models.wire import EventReader
from protocol.model import JsonObject


class ChatCompletions:
    """The wire `chat`."""

    path = "chat/completions"

    def begin(self, body: JsonObject) -> tuple[JsonObject, EventReader]:
        """Translate a body, and read what answers it."""
        history = body["input"]
        tools, names = chat_tools(body.get("tools") or (), history)
        translated: JsonObject = {
            "model": body["model"],
            "messages": chat_messages(body.get("instructions") or "", history, names),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if tools:
            translated |= {
                "tools": tools,
                "tool_choice": body.get("tool_choice", "auto"),
                "parallel_tool_calls": body.get("parallel_tool_calls", True),
            }
        if effort := (body.get("reasoning") or {}).get("effort"):
            translated["reasoning_effort"] = effort
        if form := (body.get("text") or {}).get("format"):
            described = {key: form[key] for key in ("name", "strict", "schema") if key in form}
            translated["response_format"] = {"type": form["type"], "json_schema": described}
        if tier := body.get("service_tier"):
            translated["service_tier"] = tier
        return translated, ChatReader(names)
