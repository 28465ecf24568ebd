"""What a turn is made of: inputs, items, and the deltas that build items up."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from protocol.model import Json, JsonObject, WireModel, absent_if_none


class ByteRange(WireModel):
    """Half-open range of UTF-8 bytes."""

    start: int
    end: int


class TextElement(WireModel):
    """A stretch of the text that the client shows in its own way."""

    byte_range: ByteRange
    placeholder: str | None = None


class TextUserInput(WireModel):
    """Plain text from the user."""

    type: Literal["text"]
    text: str
    text_elements: list[TextElement] = Field(default=[], alias="text_elements")


class ImageUserInput(WireModel):
    """An image by URL; `data:` URLs carry it inline."""

    type: Literal["image"]
    url: str
    detail: Literal["auto", "low", "high", "original"] | None = absent_if_none()


class LocalImageUserInput(WireModel):
    """An image file on the server's machine."""

    type: Literal["localImage"]
    path: str
    detail: Literal["auto", "low", "high", "original"] | None = absent_if_none()


class SkillUserInput(WireModel):
    """A skill the user picked."""

    type: Literal["skill"]
    name: str
    path: str


class MentionUserInput(WireModel):
    """A file, app or plugin the user named."""

    type: Literal["mention"]
    name: str
    path: str


UserInput: TypeAlias = Annotated[
    TextUserInput | ImageUserInput | LocalImageUserInput | SkillUserInput | MentionUserInput,
    Field(discriminator="type"),
]


class ItemBase(WireModel):
    """What every item has. Times are Unix milliseconds; null until known."""

    id: str
    started_at_ms: int | None = None
    completed_at_ms: int | None = None


class UserMessageItem(ItemBase):
    """What the user said."""

    type: Literal["userMessage"] = "userMessage"
    client_id: str | None = None
    """`clientUserMessageId` of the request that brought it."""
    content: list[UserInput]


class AgentMessageItem(ItemBase):
    """What the model said."""

    type: Literal["agentMessage"] = "agentMessage"
    text: str
    phase: str | None = None
    """`commentary`, `partial_answer`, `final_answer`, or null when the model does not say."""
    moderation: JsonObject | None = None
    memory_citation: JsonObject | None = None
    delivery: Json = None
    questions: list[JsonObject] | None = None


class ReasoningItem(ItemBase):
    """What the model lets us see of its thinking."""

    type: Literal["reasoning"] = "reasoning"
    summary: list[str] = []
    content: list[str] = []


class McpToolCallResult(WireModel):
    """What an MCP tool returned, as it returned it."""

    content: list[Json]
    structured_content: Json = None
    meta: Json = Field(default=None, alias="_meta")


class McpToolCallError(WireModel):
    """Why there is no result."""

    message: str


class McpToolCallItem(ItemBase):
    """A call of an MCP tool; `server` and `tool` are raw names."""

    type: Literal["mcpToolCall"] = "mcpToolCall"
    server: str
    tool: str
    status: Literal["inProgress", "completed", "failed"]
    arguments: Json = None
    app_context: JsonObject | None = None
    mcp_app_ui: JsonObject | None = None
    plugin_id: str | None = None
    read_only_hint: bool | None = None
    result: McpToolCallResult | None = None
    error: McpToolCallError | None = None
    duration_ms: int | None = None


ThreadItem: TypeAlias = Annotated[
    UserMessageItem | AgentMessageItem | ReasoningItem | McpToolCallItem,
    Field(discriminator="type"),
]


class ItemStartedNotification(WireModel):
    """An item exists from now on."""

    item: ThreadItem
    thread_id: str
    turn_id: str
    started_at_ms: int


class ItemCompletedNotification(WireModel):
    """An item will not change any more, and is in the log."""

    item: ThreadItem
    thread_id: str
    turn_id: str
    content_token_count: int | None = None
    completed_at_ms: int


class AgentMessageDeltaNotification(WireModel):
    """More text of an agent message."""

    thread_id: str
    turn_id: str
    item_id: str
    delta: str


class ReasoningSummaryPartAddedNotification(WireModel):
    """A new paragraph of the reasoning summary begins."""

    thread_id: str
    turn_id: str
    item_id: str
    summary_index: int


class ReasoningSummaryTextDeltaNotification(WireModel):
    """More text of one paragraph of the reasoning summary."""

    thread_id: str
    turn_id: str
    item_id: str
    delta: str
    summary_index: int


class ReasoningTextDeltaNotification(WireModel):
    """More raw reasoning text."""

    thread_id: str
    turn_id: str
    item_id: str
    delta: str
    content_index: int


class McpToolCallProgressNotification(WireModel):
    """An MCP server said how far a call has come."""

    thread_id: str
    turn_id: str
    item_id: str
    message: str
