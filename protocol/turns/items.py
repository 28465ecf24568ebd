"""item/*: the items of a turn, and how they come about.

`item/started` and `item/completed` carry the whole item; what comes between adds to it.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

from pydantic import Field
from typing_extensions import TypeAliasType

from protocol.model import (
    Int32,
    Int64,
    Json,
    OneOf,
    OpenEnum,
    OpenUnion,
    SnakeVariant,
    Sparse,
    UInt,
    UInt32,
    UInt64,
    Variant,
    WireModel,
    absent_if_none,
    absent_if_unset,
)
from protocol.turns.response_items import FunctionCallOutputBody, MessagePhase
from protocol.values import AbsolutePathBuf, ImageDetail, LegacyAppPathString, ReasoningEffort


class AgentMessageDeltaNotification(WireModel):
    """More text of an agent message."""

    thread_id: str
    turn_id: str
    item_id: str
    delta: str
    """To be appended to the item's `text`."""


class CommandExecutionOutputDeltaNotification(WireModel):
    """More output of a command."""

    thread_id: str
    turn_id: str
    item_id: str
    delta: str
    """To be appended to the item's `aggregatedOutput`."""


class TerminalInteractionNotification(WireModel):
    """The model sent input to a running command."""

    thread_id: str
    turn_id: str
    item_id: str
    process_id: str
    """The `processId` of the command's item."""
    stdin: str


AgentMessageDelivery = TypeAliasType("AgentMessageDelivery", OpenEnum[Literal["async"]])
"""How an agent message reaches the user."""


class AgentMessageDisplay(WireModel):
    """How a moderated message is to be shown."""

    action: str
    """What to do; leave a word that you do not know to others."""
    block_type: str | None = None
    cyber_trusted_access: bool | None = None
    check_trusted_contacts: bool | None = None


class AgentMessageModeration(WireModel):
    """What moderation made of an agent message."""

    moderated: bool
    display: AgentMessageDisplay | None = None
    """Null asks for nothing special."""


class AsyncUserInputQuestion(WireModel, extra="forbid"):
    """A question to the user that comes with an agent message."""

    title: str
    options: list[str] | None = None
    """Answers to choose from; null leaves the answer open."""


class MemoryCitationEntry(WireModel):
    """Lines of a memory file that an answer relies on."""

    path: str
    line_start: UInt32
    line_end: UInt32
    note: str
    """What they were used for."""


class MemoryCitation(WireModel):
    """The memories that an answer relies on."""

    entries: list[MemoryCitationEntry]
    thread_ids: list[str]
    """The threads that those memories come from."""


class ThreadItemBase(Variant):
    """When an item began and ended, as far as it is recorded."""

    started_at_ms: Int64 | None = None
    """Unix milliseconds."""
    completed_at_ms: Int64 | None = None
    """Unix milliseconds."""


class AgentMessageThreadItem(ThreadItemBase):
    """What the model says to the user."""

    type: Literal["agentMessage"] = "agentMessage"
    moderation: AgentMessageModeration | None = None
    id: str
    text: str
    phase: MessagePhase | None = None
    """Null means unknown: not every model tells."""
    memory_citation: MemoryCitation | None = None
    delivery: AgentMessageDelivery | None = None
    questions: list[AsyncUserInputQuestion] | None = None
    """Questions to the user; null if there are none."""


CollabAgentStatus = TypeAliasType(
    "CollabAgentStatus",
    OpenEnum[
        Literal[
            "pendingInit", "running", "interrupted", "completed", "errored", "shutdown", "notFound"
        ]
    ],
)
"""What an agent is doing, as far as its caller knows."""


class CollabAgentState(WireModel):
    """What is known of one agent."""

    status: CollabAgentStatus
    message: str | None = None
    """A text that goes with the status; null if there is none."""


CollabAgentTool = TypeAliasType(
    "CollabAgentTool",
    OpenEnum[
        Literal[
            "spawnAgent",
            "sendInput",
            "resumeAgent",
            "wait",
            "closeAgent",
            "sendMessage",
            "followupTask",
            "interruptAgent",
            "listAgents",
        ]
    ],
)
"""The tools by which agents work together."""


CollabAgentToolCallStatus = TypeAliasType(
    "CollabAgentToolCallStatus",
    OpenEnum[Literal["inProgress", "completed", "failed", "interrupted"]],
)
"""How far such a call has come."""


class CollabAgentToolCallThreadItem(ThreadItemBase):
    """An agent starts, instructs or asks about other agents."""

    type: Literal["collabAgentToolCall"] = "collabAgentToolCall"
    id: str
    tool: CollabAgentTool
    status: CollabAgentToolCallStatus
    sender_thread_id: str
    """The thread that makes the call."""
    receiver_thread_ids: list[str]
    """The threads it is for; for `spawnAgent` the new one."""
    prompt: str | None = None
    """The text for the other agents; null if the call has none."""
    model: str | None = None
    """The model asked for when an agent is started."""
    reasoning_effort: ReasoningEffort | None = None
    agents_states: dict[str, CollabAgentState]
    """The last known state of the other agents, by thread id."""


class ListFilesCommandAction(Variant):
    """The command lists files."""

    type: Literal["listFiles"] = "listFiles"
    command: str
    path: str | None = None
    """Null if the command names none."""


class ReadCommandAction(Variant):
    """The command reads a file."""

    type: Literal["read"] = "read"
    command: str
    name: str
    """The file's name, short enough to show."""
    path: LegacyAppPathString


class SearchCommandAction(Variant):
    """The command searches in files."""

    type: Literal["search"] = "search"
    command: str
    query: str | None = None
    """Null if it could not be made out."""
    path: str | None = None


class UnknownCommandAction(Variant):
    """The command does something else."""

    type: Literal["unknown"] = "unknown"
    command: str
    """The part of the command line that this is about."""


CommandAction = TypeAliasType(
    "CommandAction",
    OpenUnion[
        Annotated[
            ReadCommandAction | ListFilesCommandAction | SearchCommandAction | UnknownCommandAction,
            Field(discriminator="type"),
        ]
    ],
)
"""What one part of a command does, as far as its text tells."""


CommandExecutionSource = TypeAliasType(
    "CommandExecutionSource",
    OpenEnum[Literal["agent", "userShell", "unifiedExecStartup", "unifiedExecInteraction"]],
)
"""Who ran a command: the model, the user, or a terminal that the model keeps open."""


CommandExecutionStatus = TypeAliasType(
    "CommandExecutionStatus", OpenEnum[Literal["inProgress", "completed", "failed", "declined"]]
)
"""How far a command has come; `declined` means that it was not allowed."""


class CommandExecutionThreadItem(ThreadItemBase):
    """A command that is run on the machine."""

    type: Literal["commandExecution"] = "commandExecution"
    id: str
    plugin_id: str | None = None
    """The plugin whose script this runs; null if none is known."""
    script_path: str | None = None
    """That script, relative to the plugin's folder."""
    command: str
    cwd: LegacyAppPathString
    process_id: str | None = None
    """Names the running process; null if there is none to name."""
    source: CommandExecutionSource = "agent"
    status: CommandExecutionStatus
    command_actions: list[CommandAction]
    """A guess at what the command does, in one or more steps, for display."""
    aggregated_output: str | None = None
    """Standard output and standard error together; null if there is none yet."""
    exit_code: Int32 | None = None
    """Null until the command has ended."""
    duration_ms: Int64 | None = None
    """Milliseconds."""


class ContextCompactionThreadItem(ThreadItemBase):
    """The point at which the history was condensed to make room."""

    type: Literal["contextCompaction"] = "contextCompaction"
    id: str


class InputAudioDynamicToolCallOutputContentItem(Variant):
    """Audio that a tool returned."""

    type: Literal["inputAudio"] = "inputAudio"
    audio_url: str


class InputImageDynamicToolCallOutputContentItem(Variant):
    """An image that a tool returned."""

    type: Literal["inputImage"] = "inputImage"
    image_url: str
    """May be a `data:` URL that holds the image."""


class InputTextDynamicToolCallOutputContentItem(Variant):
    """Text that a tool returned."""

    type: Literal["inputText"] = "inputText"
    text: str


DynamicToolCallOutputContentItem = TypeAliasType(
    "DynamicToolCallOutputContentItem",
    Annotated[
        InputTextDynamicToolCallOutputContentItem
        | InputImageDynamicToolCallOutputContentItem
        | InputAudioDynamicToolCallOutputContentItem,
        Field(discriminator="type"),
    ],
)
"""One part of what a client's tool returned."""


DynamicToolCallStatus = TypeAliasType(
    "DynamicToolCallStatus", OpenEnum[Literal["inProgress", "completed", "failed"]]
)
"""How far a call of a client's tool has come."""


class DynamicToolCallThreadItem(ThreadItemBase):
    """A call of a tool that the client provides."""

    type: Literal["dynamicToolCall"] = "dynamicToolCall"
    id: str
    namespace: str | None = None
    tool: str
    arguments: Json
    status: DynamicToolCallStatus
    content_items: list[DynamicToolCallOutputContentItem] | None = None
    """What the tool returned; null until then."""
    success: bool | None = None
    """What the client said of it; null until then."""
    duration_ms: Int64 | None = None
    """Milliseconds."""


class EnteredReviewModeThreadItem(ThreadItemBase):
    """A code review begins."""

    type: Literal["enteredReviewMode"] = "enteredReviewMode"
    id: str
    review: str
    """What is reviewed, for people to read."""


class ExitedReviewModeThreadItem(ThreadItemBase):
    """A code review has ended."""

    type: Literal["exitedReviewMode"] = "exitedReviewMode"
    id: str
    review: str
    """What the review found, for people to read."""


class AddPatchChangeKind(Variant):
    """The file is new."""

    type: Literal["add"] = "add"


class DeletePatchChangeKind(Variant):
    """The file goes away."""

    type: Literal["delete"] = "delete"


class UpdatePatchChangeKind(SnakeVariant):
    """The file's text changes."""

    type: Literal["update"] = "update"
    move_path: str | None = None
    """Where the file moves to; null if it stays."""


PatchChangeKind = TypeAliasType(
    "PatchChangeKind",
    OpenUnion[
        Annotated[
            AddPatchChangeKind | DeletePatchChangeKind | UpdatePatchChangeKind,
            Field(discriminator="type"),
        ]
    ],
)
"""What happens to a file."""


class FileUpdateChange(WireModel):
    """A change to one file."""

    path: str
    kind: PatchChangeKind
    diff: str
    """A unified diff for an update; the file's text if it is added or deleted."""


PatchApplyStatus = TypeAliasType(
    "PatchApplyStatus", OpenEnum[Literal["inProgress", "completed", "failed", "declined"]]
)
"""How far a file change has come; `declined` means that it was not allowed."""


class FileChangeThreadItem(ThreadItemBase):
    """Changes that the model makes to files."""

    type: Literal["fileChange"] = "fileChange"
    id: str
    changes: list[FileUpdateChange]
    status: PatchApplyStatus


class FunctionCallOutputThreadItem(ThreadItemBase):
    """What a function returned to the model."""

    type: Literal["functionCallOutput"] = "functionCallOutput"
    id: str
    name: str
    namespace: str | None = None
    """The group that the function belongs to; null if none."""
    output: FunctionCallOutputBody


class HookPromptFragment(WireModel):
    """Text from one run of a hook."""

    text: str
    hook_run_id: str


class HookPromptThreadItem(ThreadItemBase):
    """Text that hooks added for the model to read."""

    type: Literal["hookPrompt"] = "hookPrompt"
    id: str
    fragments: list[HookPromptFragment]


class UsageLimitExceededImageGenerationFailure(Variant):
    """The account has reached its limit for making images."""

    type: Literal["usageLimitExceeded"] = "usageLimitExceeded"
    limit_id: str
    resets_at: Int64 | None = None
    """When the limit starts over, Unix seconds; null if unknown."""


ImageGenerationFailure = TypeAliasType(
    "ImageGenerationFailure", OpenUnion[UsageLimitExceededImageGenerationFailure]
)
"""Why no image was made."""


class ImageGenerationInputImage(WireModel):
    """An image file that went into making another."""

    path: AbsolutePathBuf
    sha256: str
    """Of the file as it was read, in lower-case hex."""


class ImageGenerationThreadItem(ThreadItemBase, OneOf):
    """An image that the model made."""

    one_of = ("fileId", "result")
    type: Literal["imageGeneration"] = "imageGeneration"
    failure: ImageGenerationFailure | None = None
    """Null if nothing went wrong."""
    file_id: str | None = absent_if_unset()
    """Where the image is stored, instead of `result`."""
    generation_id: str | None = None
    """The image backend's own id for the image."""
    id: str
    input_images: list[ImageGenerationInputImage] = []
    result: str | None = absent_if_unset()
    """The image in base64."""
    revised_prompt: str | None = None
    """The prompt as the provider rewrote it."""
    saved_path: AbsolutePathBuf | None = None
    """Where the server put the image; null if nowhere."""
    status: str
    """In the provider's words."""
    transparent_background: bool | None = None


class ImageViewThreadItem(ThreadItemBase):
    """The model looks at an image file."""

    type: Literal["imageView"] = "imageView"
    id: str
    path: LegacyAppPathString


McpAppDisplayMode = TypeAliasType("McpAppDisplayMode", OpenEnum[Literal["inline", "fullscreen"]])
"""How much room the user interface of a tool gets."""


class McpAppUi(WireModel):
    """The user interface that an MCP tool brings along."""

    resource_uri: str
    """The resource of the MCP server that holds it."""
    preferred_model_display_mode: McpAppDisplayMode


class McpToolCallAppContext(WireModel):
    """The app behind a tool call."""

    connector_id: str
    link_id: str | None = None
    """The user's link to the app."""
    resource_uri: str | None = None
    """The user interface of the tool; null if it has none."""
    app_name: str | None = None
    action_name: str | None = None
    """The tool's name within the app."""


class McpToolCallError(WireModel):
    """Why there is no result."""

    message: str


class McpToolCallResult(WireModel):
    """What an MCP tool returned, as it returned it."""

    content: list[Json]
    structured_content: Json = None
    """Null if the tool gave none."""
    meta: Json = Field(default=None, alias="_meta")


McpToolCallStatus = TypeAliasType(
    "McpToolCallStatus", OpenEnum[Literal["inProgress", "completed", "failed"]]
)
"""How far an MCP tool call has come."""


class McpToolCallThreadItem(ThreadItemBase):
    """A call of a tool of an MCP server."""

    type: Literal["mcpToolCall"] = "mcpToolCall"
    id: str
    server: str
    tool: str
    status: McpToolCallStatus
    arguments: Json
    app_context: McpToolCallAppContext | None = None
    """Null if the tool belongs to no app."""
    mcp_app_resource_uri: str | None = absent_if_none()
    """Older form of `mcpAppUi.resourceUri`."""
    mcp_app_ui: McpAppUi | None = None
    plugin_id: str | None = None
    """The plugin that the server comes from; null if none."""
    read_only_hint: bool | None = None
    """What the server says about the tool; null if it says nothing."""
    result: McpToolCallResult | None = None
    """Null until the tool has answered."""
    error: McpToolCallError | None = None
    """Null unless the call failed without an answer of the tool."""
    duration_ms: Int64 | None = None
    """Milliseconds, without the wait for approval."""


class PlanThreadItem(ThreadItemBase):
    """A plan that the model proposes."""

    type: Literal["plan"] = "plan"
    id: str
    text: str
    """On completion this counts, not the deltas that came before."""


class ReasoningThreadItem(ThreadItemBase):
    """What the model thinks before it goes on."""

    type: Literal["reasoning"] = "reasoning"
    id: str
    summary: list[str] = []
    """One text for each paragraph of the summary."""
    content: list[str] = []
    """The raw reasoning, if the model gives it out."""


class SleepThreadItem(ThreadItemBase):
    """The model waits for a while."""

    type: Literal["sleep"] = "sleep"
    duration_ms: UInt64
    """Milliseconds."""
    id: str


SubAgentActivityKind = TypeAliasType(
    "SubAgentActivityKind", OpenEnum[Literal["started", "interacted", "interrupted", "completed"]]
)
"""What happened with another agent."""


class SubAgentActivityThreadItem(ThreadItemBase):
    """Another agent was started, spoken to or stopped, or is done."""

    type: Literal["subAgentActivity"] = "subAgentActivity"
    model: str | None = None
    """What the agent runs with, if it was started here; else null."""
    reasoning_effort: ReasoningEffort | None = None
    id: str
    kind: SubAgentActivityKind
    agent_thread_id: str
    agent_path: str
    """The agent's place in the tree of agents."""


class AudioUserInput(OneOf):
    """Audio by URL, or an uploaded file."""

    one_of = ("url", "fileId")
    type: Literal["audio"] = "audio"
    file_id: str | None = absent_if_unset()
    """Id of a file uploaded to the model provider."""
    url: str | None = absent_if_unset()


class ImageUserInput(OneOf):
    """An image by URL; `data:` URLs carry it inline."""

    one_of = ("url", "fileId")
    type: Literal["image"] = "image"
    detail: ImageDetail | None = absent_if_unset()
    file_id: str | None = absent_if_unset()
    """Id of a file uploaded to the model provider."""
    url: str | None = absent_if_unset()


class LocalAudioUserInput(Variant):
    """An audio file on the server's machine."""

    type: Literal["localAudio"] = "localAudio"
    path: str


class LocalImageUserInput(Variant, Sparse):
    """An image file on the server's machine."""

    type: Literal["localImage"] = "localImage"
    detail: ImageDetail | None = absent_if_unset()
    path: str


class MentionUserInput(Variant):
    """A file, app or plugin the user named."""

    type: Literal["mention"] = "mention"
    name: str
    path: str
    """What it points to: a path, or a URI such as `app://<id>`."""


class SkillUserInput(Variant):
    """A skill the user picked."""

    type: Literal["skill"] = "skill"
    name: str
    path: str
    """The `path` that `skills/list` gives."""


class ByteRange(WireModel):
    """Half-open range of UTF-8 bytes."""

    start: UInt
    """The first byte."""
    end: UInt
    """The byte after the last."""


class TextElement(WireModel):
    """A stretch of the text that the client shows in its own way."""

    byte_range: ByteRange
    """Where it is in `text`."""
    placeholder: str | None = None
    """What to show in its place; null leaves that to the client."""


class TextUserInput(SnakeVariant):
    """Plain text from the user."""

    type: Literal["text"] = "text"
    text: str
    text_elements: list[TextElement] = []
    """Stretches of `text` to show in a special way; empty means none."""


UserInput = TypeAliasType(
    "UserInput",
    Annotated[
        TextUserInput
        | ImageUserInput
        | LocalImageUserInput
        | AudioUserInput
        | LocalAudioUserInput
        | SkillUserInput
        | MentionUserInput,
        Field(discriminator="type"),
    ],
)
"""One part of what the user gives to a turn."""


def text_of_input(content: Sequence[UserInput]) -> str:
    """Return the texts among the parts of an input, one below the other."""
    return "\n".join(part.text for part in content if isinstance(part, TextUserInput))


class UserMessageThreadItem(ThreadItemBase):
    """What the user said."""

    type: Literal["userMessage"] = "userMessage"
    id: str
    client_id: str | None = None
    """The `clientUserMessageId` that the client sent along; null if none."""
    content: list[UserInput]


class FindInPageWebSearchAction(Variant):
    """Look for a text in a web page."""

    type: Literal["findInPage"] = "findInPage"
    url: str | None = None
    pattern: str | None = None


class OpenPageWebSearchAction(Variant):
    """Open a web page."""

    type: Literal["openPage"] = "openPage"
    url: str | None = None


class OtherWebSearchAction(Variant):
    """Something else."""

    type: Literal["other"] = "other"


class SearchWebSearchAction(Variant):
    """Search the web."""

    type: Literal["search"] = "search"
    query: str | None = None
    queries: list[str] | None = None
    """All queries, if there are several."""


WebSearchAction = TypeAliasType(
    "WebSearchAction",
    OpenUnion[
        Annotated[
            SearchWebSearchAction
            | OpenPageWebSearchAction
            | FindInPageWebSearchAction
            | OtherWebSearchAction,
            Field(discriminator="type"),
        ]
    ],
)
"""One step of a web search."""


class WebSearchThreadItem(ThreadItemBase):
    """A search of the web."""

    type: Literal["webSearch"] = "webSearch"
    action: WebSearchAction | None = None
    """Null until it is known."""
    id: str
    query: str
    results: list[Json] | None = None
    """What was found, in the search's own format; null if it was not passed on."""


KnownThreadItem: TypeAlias = Annotated[
    UserMessageThreadItem
    | HookPromptThreadItem
    | AgentMessageThreadItem
    | FunctionCallOutputThreadItem
    | PlanThreadItem
    | ReasoningThreadItem
    | CommandExecutionThreadItem
    | FileChangeThreadItem
    | McpToolCallThreadItem
    | DynamicToolCallThreadItem
    | CollabAgentToolCallThreadItem
    | SubAgentActivityThreadItem
    | WebSearchThreadItem
    | ImageViewThreadItem
    | SleepThreadItem
    | ImageGenerationThreadItem
    | EnteredReviewModeThreadItem
    | ExitedReviewModeThreadItem
    | ContextCompactionThreadItem,
    Field(discriminator="type"),
]
"""Every kind of item that this version has."""


ThreadItem = TypeAliasType("ThreadItem", OpenUnion[KnownThreadItem])
"""One thing that happened in a turn: a message, a tool call, a change of files."""


class ItemCompletedNotification(WireModel):
    """An item will not change any more, and is in the log."""

    item: ThreadItem
    thread_id: str
    turn_id: str
    content_token_count: UInt64 | None = None
    """Tokens of a finished agent message, as the model counts; absent if unknown. It is not stored.
    """
    completed_at_ms: Int64
    """Unix milliseconds."""


class FileChangeOutputDeltaNotification(WireModel):
    """Text output of a file change; an older form that is no longer sent."""

    thread_id: str
    turn_id: str
    item_id: str
    delta: str


class FileChangePatchUpdatedNotification(WireModel):
    """The changes of a file change item, as they are now."""

    thread_id: str
    turn_id: str
    item_id: str
    changes: list[FileUpdateChange]
    """All of them, in place of those sent before."""


class McpToolCallProgressNotification(WireModel):
    """An MCP server said how far a call has come."""

    thread_id: str
    turn_id: str
    item_id: str
    message: str


class PlanDeltaNotification(WireModel):
    """More text of a plan."""

    thread_id: str
    turn_id: str
    item_id: str
    delta: str
    """For display meanwhile: the finished item may read differently."""


class ReasoningSummaryPartAddedNotification(WireModel):
    """A new paragraph of the reasoning summary begins."""

    thread_id: str
    turn_id: str
    item_id: str
    summary_index: Int64
    """Its place in the item's `summary`."""


class ReasoningSummaryTextDeltaNotification(WireModel):
    """More text of one paragraph of the reasoning summary."""

    thread_id: str
    turn_id: str
    item_id: str
    delta: str
    summary_index: Int64
    """The entry of the item's `summary` to append to."""


class ReasoningTextDeltaNotification(WireModel):
    """More raw reasoning text."""

    thread_id: str
    turn_id: str
    item_id: str
    delta: str
    content_index: Int64
    """The entry of the item's `content` to append to."""


class ItemStartedNotification(WireModel):
    """An item exists from now on."""

    item: ThreadItem
    thread_id: str
    turn_id: str
    started_at_ms: Int64
    """Unix milliseconds."""
