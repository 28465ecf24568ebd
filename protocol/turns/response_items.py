"""Responses API items: what the model reads and writes, as a thread's history keeps it.

They follow the model provider's own format, so their members are snake_case.
"""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from protocol.model import (
    Json,
    SnakeModel,
    SnakeOneOf,
    SnakeVariant,
    UInt64,
    Variant,
    WireModel,
    absent_if_unset,
)
from protocol.values import ImageDetail, ReasoningEffort


class AdditionalToolsResponseItem(Variant):
    """More tools, offered to the model from this point of the history on."""

    type: Literal["additional_tools"] = "additional_tools"
    id: str | None = None
    role: str
    tools: list[Json]
    """Tool definitions in the provider's format."""


class EncryptedContentAgentMessageInputContent(SnakeVariant):
    """Content that only the model provider can read."""

    type: Literal["encrypted_content"] = "encrypted_content"
    encrypted_content: str


class InputTextAgentMessageInputContent(Variant):
    """Plain text in a message between agents."""

    type: Literal["input_text"] = "input_text"
    text: str


AgentMessageInputContent = TypeAliasType(
    "AgentMessageInputContent",
    Annotated[
        InputTextAgentMessageInputContent | EncryptedContentAgentMessageInputContent,
        Field(discriminator="type"),
    ],
)
"""One part of a message between agents."""


class InternalChatMessageMetadataPassthrough(SnakeModel):
    """Notes on an item that the model provider carries along."""

    turn_id: str | None = None


class AgentMessageResponseItem(SnakeVariant):
    """A message from one agent to another."""

    type: Literal["agent_message"] = "agent_message"
    id: str | None = None
    author: str
    recipient: str
    content: list[AgentMessageInputContent]
    internal_chat_message_metadata_passthrough: InternalChatMessageMetadataPassthrough | None = None


class CompactionResponseItem(SnakeVariant):
    """Earlier history in condensed form."""

    type: Literal["compaction"] = "compaction"
    id: str | None = None
    encrypted_content: str
    """Opaque; only the model provider can read it."""
    internal_chat_message_metadata_passthrough: InternalChatMessageMetadataPassthrough | None = None


class CompactionTriggerResponseItem(Variant):
    """Asks for the history before it to be compacted."""

    type: Literal["compaction_trigger"] = "compaction_trigger"


class ConfigurationReasoning(WireModel):
    """Reasoning settings for the model."""

    effort: ReasoningEffort


class ConfigurationUpdateResponseItem(Variant):
    """A change of model settings that holds from this point of the history on."""

    type: Literal["configuration_update"] = "configuration_update"
    reasoning: ConfigurationReasoning


class InputAudioContentItem(SnakeOneOf):
    """Audio for the model: inline, or an uploaded file."""

    one_of = ("audio_url", "file_id")
    type: Literal["input_audio"] = "input_audio"
    audio_url: str | None = absent_if_unset()
    file_id: str | None = absent_if_unset()
    """Id of a file uploaded to the model provider."""


class InputImageContentItem(SnakeOneOf):
    """An image for the model: by URL, or an uploaded file."""

    one_of = ("image_url", "file_id")
    type: Literal["input_image"] = "input_image"
    detail: ImageDetail | None = None
    file_id: str | None = absent_if_unset()
    """Id of a file uploaded to the model provider."""
    image_url: str | None = absent_if_unset()
    """May be a `data:` URL that holds the image."""


class InputTextContentItem(Variant):
    """Text that the model reads."""

    type: Literal["input_text"] = "input_text"
    text: str


class OutputTextContentItem(Variant):
    """Text that the model wrote."""

    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[Json] | None = None
    """The provider's notes on the text, citations for example."""
    logprobs: list[Json] | None = None
    """Log probabilities of the tokens."""


ContentItem = TypeAliasType(
    "ContentItem",
    Annotated[
        InputTextContentItem
        | InputImageContentItem
        | InputAudioContentItem
        | OutputTextContentItem,
        Field(discriminator="type"),
    ],
)
"""One part of a message."""


class ContextCompactionResponseItem(SnakeVariant):
    """The point at which the thread's context was compacted."""

    type: Literal["context_compaction"] = "context_compaction"
    id: str | None = None
    encrypted_content: str | None = None
    """Opaque; only the model provider can read it."""
    internal_chat_message_metadata_passthrough: InternalChatMessageMetadataPassthrough | None = None


class EncryptedContentFunctionCallOutputContentItem(SnakeVariant):
    """Tool output that only the model provider can read."""

    type: Literal["encrypted_content"] = "encrypted_content"
    encrypted_content: str


class InputAudioFunctionCallOutputContentItem(SnakeOneOf):
    """Audio that a tool returned: inline, or an uploaded file."""

    one_of = ("audio_url", "file_id")
    type: Literal["input_audio"] = "input_audio"
    audio_url: str | None = absent_if_unset()
    file_id: str | None = absent_if_unset()
    """Id of a file uploaded to the model provider."""


class InputImageFunctionCallOutputContentItem(SnakeOneOf):
    """An image that a tool returned: by URL, or an uploaded file."""

    one_of = ("image_url", "file_id")
    type: Literal["input_image"] = "input_image"
    detail: ImageDetail | None = absent_if_unset()
    file_id: str | None = absent_if_unset()
    """Id of a file uploaded to the model provider."""
    image_url: str | None = absent_if_unset()
    """May be a `data:` URL that holds the image."""


class InputTextFunctionCallOutputContentItem(Variant):
    """Text that a tool returned."""

    type: Literal["input_text"] = "input_text"
    text: str


FunctionCallOutputContentItem = TypeAliasType(
    "FunctionCallOutputContentItem",
    Annotated[
        InputTextFunctionCallOutputContentItem
        | InputImageFunctionCallOutputContentItem
        | InputAudioFunctionCallOutputContentItem
        | EncryptedContentFunctionCallOutputContentItem,
        Field(discriminator="type"),
    ],
)
"""One part of what a tool returned."""


FunctionCallOutputBody = TypeAliasType(
    "FunctionCallOutputBody", str | list[FunctionCallOutputContentItem]
)
"""What a tool returned: one text, or a list of parts."""


class CustomToolCallOutputResponseItem(SnakeVariant):
    """What a custom tool returned."""

    type: Literal["custom_tool_call_output"] = "custom_tool_call_output"
    id: str | None = None
    call_id: str
    """The `call_id` of the call that this answers."""
    name: str | None = None
    output: FunctionCallOutputBody
    internal_chat_message_metadata_passthrough: InternalChatMessageMetadataPassthrough | None = None


class CustomToolCallResponseItem(SnakeVariant):
    """The model calls a tool that takes free text."""

    type: Literal["custom_tool_call"] = "custom_tool_call"
    encrypted_content: str | None = None
    """Opaque; only the model provider can read it."""
    id: str | None = None
    status: str | None = None
    call_id: str
    name: str
    namespace: str | None = None
    """The group that the tool belongs to; null if none."""
    input: str
    """Free text, not JSON."""
    internal_chat_message_metadata_passthrough: InternalChatMessageMetadataPassthrough | None = None


class ExecLocalShellAction(SnakeVariant):
    """Run a program."""

    type: Literal["exec"] = "exec"
    command: list[str]
    """The program and its arguments."""
    env: dict[str, str] | None = None
    timeout_ms: UInt64 | None = None
    """Milliseconds."""
    user: str | None = None
    """The system user to run it as; null names none."""
    working_directory: str | None = None


class FindInPageResponsesApiWebSearchAction(Variant):
    """Look for a text in a web page."""

    type: Literal["find_in_page"] = "find_in_page"
    pattern: str | None = None
    url: str | None = None


class FunctionCallOutputResponseItem(SnakeVariant):
    """What a function returned."""

    type: Literal["function_call_output"] = "function_call_output"
    id: str | None = None
    call_id: str | None = None
    """The `call_id` of the call that this answers."""
    name: str | None = None
    namespace: str | None = None
    output: FunctionCallOutputBody
    internal_chat_message_metadata_passthrough: InternalChatMessageMetadataPassthrough | None = None


class FunctionCallResponseItem(SnakeVariant):
    """The model calls a function."""

    type: Literal["function_call"] = "function_call"
    encrypted_content: str | None = None
    """Opaque; only the model provider can read it."""
    status: str | None = None
    id: str | None = None
    name: str
    namespace: str | None = None
    """The group that the function belongs to; null if none."""
    arguments: str
    """JSON, as text."""
    encrypted_function_args: list[str] | None = None
    call_id: str
    """The output names it to say which call it answers."""
    internal_chat_message_metadata_passthrough: InternalChatMessageMetadataPassthrough | None = None


class ImageGenerationCallResponseItem(SnakeVariant):
    """The model provider made an image."""

    type: Literal["image_generation_call"] = "image_generation_call"
    encrypted_content: str | None = None
    id: str | None = None
    status: str
    revised_prompt: str | None = None
    """The prompt as the provider rewrote it."""
    result: str
    """The image in base64."""
    internal_chat_message_metadata_passthrough: InternalChatMessageMetadataPassthrough | None = None


LocalShellAction = TypeAliasType("LocalShellAction", ExecLocalShellAction)
"""What a local shell call does."""


LocalShellStatus = TypeAliasType(
    "LocalShellStatus", Literal["completed", "in_progress", "incomplete"]
)
"""How far a local shell call has come."""


class LocalShellCallResponseItem(SnakeVariant):
    """The model calls the provider's local shell tool."""

    type: Literal["local_shell_call"] = "local_shell_call"
    encrypted_content: str | None = None
    id: str | None = None
    """The id in older items; newer ones have `call_id`."""
    call_id: str | None = None
    """The output names it to say which call it answers."""
    status: LocalShellStatus
    action: LocalShellAction
    internal_chat_message_metadata_passthrough: InternalChatMessageMetadataPassthrough | None = None


MessagePhase = TypeAliasType(
    "MessagePhase", Literal["commentary", "partial_answer", "final_answer"]
)
"""What a text of the model is to its turn: a remark on the way, a part of the answer, or the end of
it.
"""


class MessageResponseItem(SnakeVariant):
    """A message of the user, the model or the developer."""

    type: Literal["message"] = "message"
    encrypted_content: str | None = None
    status: str | None = None
    id: str | None = None
    role: str
    """Who speaks, `user` or `assistant` for example."""
    content: list[ContentItem]
    phase: MessagePhase | None = None
    """Null means unknown: not every model tells."""
    internal_chat_message_metadata_passthrough: InternalChatMessageMetadataPassthrough | None = None


class OpenPageResponsesApiWebSearchAction(Variant):
    """Open a web page."""

    type: Literal["open_page"] = "open_page"
    url: str | None = None


class OtherResponseItem(Variant):
    """An item of a type that this version does not know."""

    type: Literal["other"] = "other"


class OtherResponsesApiWebSearchAction(Variant):
    """A web search step that this version does not know."""

    type: Literal["other"] = "other"


class ReasoningTextReasoningItemContent(Variant):
    """Raw reasoning text, marked as such."""

    type: Literal["reasoning_text"] = "reasoning_text"
    text: str


class TextReasoningItemContent(Variant):
    """Raw reasoning as plain text."""

    type: Literal["text"] = "text"
    text: str


ReasoningItemContent = TypeAliasType(
    "ReasoningItemContent",
    Annotated[
        ReasoningTextReasoningItemContent | TextReasoningItemContent, Field(discriminator="type")
    ],
)
"""One part of the raw reasoning."""


class SummaryTextReasoningItemReasoningSummary(Variant):
    """Text of one part of a reasoning summary."""

    type: Literal["summary_text"] = "summary_text"
    text: str


ReasoningItemReasoningSummary = TypeAliasType(
    "ReasoningItemReasoningSummary", SummaryTextReasoningItemReasoningSummary
)
"""One part of a reasoning summary."""


class ReasoningResponseItem(SnakeVariant):
    """What the model thought before it went on."""

    type: Literal["reasoning"] = "reasoning"
    id: str | None = None
    summary: list[ReasoningItemReasoningSummary]
    content: list[ReasoningItemContent] | None = None
    """The raw reasoning; null if the provider keeps it to itself."""
    encrypted_content: str | None = None
    """The reasoning in a form that only the model provider can read."""
    internal_chat_message_metadata_passthrough: InternalChatMessageMetadataPassthrough | None = None


class ToolSearchCallResponseItem(SnakeVariant):
    """The model looks for tools that it has not been shown."""

    type: Literal["tool_search_call"] = "tool_search_call"
    encrypted_content: str | None = None
    id: str | None = None
    call_id: str | None = None
    status: str | None = None
    execution: str
    """Which side runs the search, `client` or `server`."""
    arguments: Json
    internal_chat_message_metadata_passthrough: InternalChatMessageMetadataPassthrough | None = None


class ToolSearchOutputResponseItem(SnakeVariant):
    """The tools that a search found."""

    type: Literal["tool_search_output"] = "tool_search_output"
    id: str | None = None
    call_id: str | None = None
    """The `call_id` of the search that this answers."""
    status: str
    execution: str
    tools: list[Json]
    """Tool definitions in the provider's format."""
    internal_chat_message_metadata_passthrough: InternalChatMessageMetadataPassthrough | None = None


class SearchResponsesApiWebSearchAction(Variant):
    """Search the web."""

    type: Literal["search"] = "search"
    queries: list[str] | None = None
    """All queries, if there are several."""
    query: str | None = None


ResponsesApiWebSearchAction = TypeAliasType(
    "ResponsesApiWebSearchAction",
    Annotated[
        SearchResponsesApiWebSearchAction
        | OpenPageResponsesApiWebSearchAction
        | FindInPageResponsesApiWebSearchAction
        | OtherResponsesApiWebSearchAction,
        Field(discriminator="type"),
    ],
)
"""One step of a web search, in the provider's words."""


class WebSearchCallResponseItem(SnakeVariant):
    """The model provider searched the web for the model."""

    type: Literal["web_search_call"] = "web_search_call"
    encrypted_content: str | None = None
    id: str | None = None
    status: str | None = None
    action: ResponsesApiWebSearchAction | None = None
    """Null if the provider did not say what it did."""
    internal_chat_message_metadata_passthrough: InternalChatMessageMetadataPassthrough | None = None


ResponseItem = TypeAliasType(
    "ResponseItem",
    Annotated[
        AdditionalToolsResponseItem
        | MessageResponseItem
        | AgentMessageResponseItem
        | ReasoningResponseItem
        | LocalShellCallResponseItem
        | FunctionCallResponseItem
        | ToolSearchCallResponseItem
        | FunctionCallOutputResponseItem
        | CustomToolCallResponseItem
        | CustomToolCallOutputResponseItem
        | ToolSearchOutputResponseItem
        | WebSearchCallResponseItem
        | ImageGenerationCallResponseItem
        | CompactionResponseItem
        | ConfigurationUpdateResponseItem
        | CompactionTriggerResponseItem
        | ContextCompactionResponseItem
        | OtherResponseItem,
        Field(discriminator="type"),
    ],
)
"""One item of the history that the model sees."""
