"""The lines of a rollout: everything that ever happened to a thread, in order.

A rollout is a file of JSON lines and the only truth about a thread; state is what comes out when
its records are applied in order (app_server/threads/log/state.py). A line whose type or
content this version does not know is kept on disk and skipped when reading.
Source: docs/wire.md, "Rollout lines".
"""

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias, get_args

from pydantic import Field, ValidationError

from protocol.contract.specs import type_adapter
from protocol.log.base import ROLLOUT_VERSION, RecordBase, is_of_newer
from protocol.log.metadata import MetadataRecord
from protocol.model import Int64, Json, JsonObject, WireModel, absent_if_none
from protocol.threads.thread import BudgetLimits, GitInfo
from protocol.turns.items import (
    CommandExecutionThreadItem,
    ThreadItem,
    UserInput,
    UserMessageThreadItem,
)
from protocol.turns.policy import (
    ApprovalsReviewer,
    AskForApproval,
    FileSystemSandboxEntry,
    SandboxPolicy,
)
from protocol.turns.turn import ThreadTokenUsage, TokenUsageBreakdown, TurnError
from protocol.values import Personality, ReasoningSummary


class StoredNetwork(WireModel):
    """Which hosts a profile lets commands reach through the proxy."""

    allowed: list[str]
    """Patterns of domains."""
    denied: list[str]
    limited: bool = False
    local: bool = False
    socks: bool = True


class StoredProfile(WireModel):
    """A permission profile of the configuration, as it was when it was chosen."""

    id: str
    extends: str | None = None
    entries: list[FileSystemSandboxEntry]
    network: bool = False
    """Whether commands reach the network without a proxy."""
    proxied: StoredNetwork | None = absent_if_none()
    """The hosts that they reach through it; None: none."""
    sandbox_policy: SandboxPolicy
    """The policy that stands for it; the profile holds for as long as that is the thread's."""


LOCAL = "local"
"""The id of this machine among environments."""


class StoredEnvironment(WireModel):
    """One of the environments that were chosen for a thread."""

    id: str
    cwd: str | None = absent_if_none()
    """The folder there; None for this machine, whose folder is `cwd` of the settings."""
    workspace_roots: list[str] | None = absent_if_none()
    """Folders that belong to the work there; None means `cwd` alone."""


@dataclass(frozen=True, slots=True)
class WorkingFolder:
    """An environment of a thread, and where its tools run there."""

    environment_id: str
    cwd: str
    roots: list[str]
    """Folders that belong to the work."""


class Settings(WireModel):
    """What a thread's turns run with."""

    model: str
    model_provider: str
    cwd: str
    approval_policy: AskForApproval
    approvals_reviewer: ApprovalsReviewer = "user"
    sandbox_policy: SandboxPolicy
    effort: str | None = None
    summary: ReasoningSummary | None = None
    service_tier: str | None = None
    personality: Personality | None = None
    disabled_plugin_ids: list[str] = []
    workspace_roots: list[str] | None = absent_if_none()
    """Folders that belong to the work; None means `cwd` alone."""
    without_environment: bool | None = absent_if_none()
    """Whether this machine is none of the thread's environments: no folder here is its own."""
    environments: list[StoredEnvironment] | None = absent_if_none()
    """All of them in their order, if there is another one than this machine."""
    mode: Literal["plan"] | None = absent_if_none()
    """The collaboration mode; None is the default one."""
    mode_instructions: str | None = absent_if_none()
    """What the collaboration mode tells the model, in the place of our own words."""
    base_instructions: str | None = absent_if_none()
    """In the place of those that the thread was created with."""
    developer_instructions: str | None = absent_if_none()
    """In the place of those that the thread was created with."""

    profile: StoredProfile | None = absent_if_none()
    """See `profile_in_force`."""

    @property
    def profile_in_force(self) -> StoredProfile | None:
        """The chosen profile, unless another policy was chosen since."""
        profile = self.profile
        return profile if profile and profile.sandbox_policy == self.sandbox_policy else None

    @property
    def roots(self) -> list[str]:
        """The folders that belong to the work."""
        if self.without_environment:
            return []
        return [self.cwd] if self.workspace_roots is None else self.workspace_roots

    @property
    def working_folders(self) -> list[WorkingFolder]:
        """Where tools run, by environment; the first is meant where nothing names another."""
        here = WorkingFolder(LOCAL, self.cwd, self.roots)
        if self.environments is None:
            return [] if self.without_environment else [here]
        return [
            here
            if one.cwd is None
            else WorkingFolder(
                one.id, one.cwd, [one.cwd] if one.workspace_roots is None else one.workspace_roots
            )
            for one in self.environments
        ]

    def working_folder(self, environment_id: str) -> WorkingFolder | None:
        """Return where tools run in an environment; None if it is none of the thread's."""
        folders = self.working_folders
        return next((one for one in folders if one.environment_id == environment_id), None)


class ThreadCreated(RecordBase):
    """The first line: what never changes about a thread, and its first settings."""

    type: Literal["threadCreated"] = "threadCreated"
    thread_id: str
    settings: Settings
    source: Json
    cli_version: str
    originator: str | None = None
    thread_source: str | None = None
    base_instructions: str | None = None
    developer_instructions: str | None = None
    ephemeral: bool = False
    selected_capability_roots: list[JsonObject] | None = absent_if_none()
    """Folders that were chosen for the thread, as `thread/start` had them."""
    budget: BudgetLimits | None = absent_if_none()
    """The budget that the thread was started with."""
    dynamic_tools: list[JsonObject] | None = absent_if_none()
    """Tools that clients run, as `thread/start` had them."""
    forked_from_id: str | None = None
    """The thread whose records follow, up to the first one of this thread's own."""
    git_info: GitInfo | None = None
    project_id: str | None = None
    daybreak_enabled: bool | None = None
    request_digest: str | None = absent_if_none()
    """Of the request, where the client chose the id."""
    imported_from: str | None = absent_if_none()
    """The file of another program that everything up to the first own record was read from."""


class SettingsChanged(RecordBase):
    """The settings from here on."""

    type: Literal["settingsChanged"] = "settingsChanged"
    settings: Settings


class TurnStarted(RecordBase):
    """A turn was accepted."""

    type: Literal["turnStarted"] = "turnStarted"
    turn_id: str


class SignalMark(WireModel):
    """Which signal an item of history is; with it the log knows what has been delivered."""

    source: str
    id: str
    item_id: str
    woke: bool = False
    """Whether the item began a turn."""


class HistoryAppended(RecordBase):
    """Raw Responses items that the model sees from the next request on."""

    type: Literal["historyAppended"] = "historyAppended"
    items: list[JsonObject]
    signals: list[SignalMark] | None = absent_if_none()
    """One for each item, where the items are signals."""


class InputQueued(RecordBase):
    """Input that came while a turn ran; the model sees it from the next boundary on."""

    type: Literal["inputQueued"] = "inputQueued"
    input_id: str
    items: list[JsonObject]
    """Raw Responses items."""
    message: UserMessageThreadItem | None = None
    """The user message that it is, unless it was injected."""
    signal: SignalMark | None = absent_if_none()
    """The signal that it is."""
    steers: bool | None = absent_if_none()
    """Whether the running turn has to go on for it, as it does for a user's message."""
    submission_id: str | None = absent_if_none()
    """Of the entry of the thread's queue that this was; it leaves the queue with this line."""


class InputAccepted(RecordBase):
    """Input that its client named was accepted; sent again, it belongs to the same turn."""

    type: Literal["inputAccepted"] = "inputAccepted"
    client_id: str
    digest: str
    """Of the whole request, without metadata."""
    turn_id: str


class InputTaken(RecordBase):
    """A boundary: all queued input became visible to the model, in its order."""

    type: Literal["inputTaken"] = "inputTaken"


class SignalRecalled(RecordBase):
    """A signal that no model has seen is taken out of history, or out of the queued input."""

    type: Literal["signalRecalled"] = "signalRecalled"
    source: str
    id: str


class ItemCompleted(RecordBase):
    """An item of the running turn will not change any more."""

    type: Literal["itemCompleted"] = "itemCompleted"
    turn_id: str
    item: ThreadItem


class ChangingFile(WireModel):
    """A file that a patch is about to change."""

    path: str
    """Without links."""
    before: str | None
    """What git calls its content; null: there is no file."""
    after: str | None
    """What it will call it; null: the file goes."""
    temporary: str | None = absent_if_none()
    """What the new file is called in the same folder until it takes its place; on this machine."""


class FilesChanging(RecordBase):
    """A patch is about to be written.

    Its item says what became of it. Without an item the process died meanwhile, and each file is
    as it was or as it was to be; the next load looks, and writes the item. At the files of another
    machine it cannot look, and names them all.
    """

    type: Literal["filesChanging"] = "filesChanging"
    turn_id: str
    item_id: str
    environment_id: str | None = absent_if_none()
    """Absent: the machine of the server."""
    machine: str | None = absent_if_none()
    """Machine of the server that wrote this; absent: the one where the log is."""
    files: list[ChangingFile]


class ApprovalDecided(RecordBase):
    """Somebody said whether an action of the running turn may be done."""

    type: Literal["approvalDecided"] = "approvalDecided"
    turn_id: str
    item_id: str
    action: Literal["command", "fileChange", "permissions", "mcpToolCall", "network"]
    subject: str
    """The command line, the files, the permissions, the tool and its server, or the URL of a host;
    cut if long."""
    decision: str
    """`accept`, `acceptForSession`, `acceptWithExecpolicyAmendment`, `decline`, `cancel`; `failed`
    if a client refused or its answer cannot be used, `expired` if none came in time; of a tool
    `acceptAlways` too, and of a host `applyNetworkPolicyAmendment`."""
    by: Literal["user", "reviewer", "server", "hook", "policy"]
    """`server` if the time was over, or the question withdrawn: by an interrupt, or an unload.
    `policy` if settings and rules decided about a host, and nobody was asked."""
    client: str | None = absent_if_none()
    """The name of the client that answered."""
    rule: list[str] | None = absent_if_none()
    """The words of the rule that the user accepted with it; of a host `allow` or `deny`, and it."""


class ItemLeftRunning(RecordBase):
    """An item of the running turn goes on after it, such as a command; `ItemEnded` completes it.

    When the process that ran it has died, the next load of the thread completes it.
    """

    type: Literal["itemLeftRunning"] = "itemLeftRunning"
    turn_id: str
    item: CommandExecutionThreadItem


class ItemEnded(RecordBase):
    """An item that was left running is complete; it takes the place that it had in its turn."""

    type: Literal["itemEnded"] = "itemEnded"
    turn_id: str
    item: CommandExecutionThreadItem


class TokensUsed(RecordBase):
    """The thread's account after a model call."""

    type: Literal["tokensUsed"] = "tokensUsed"
    usage: ThreadTokenUsage


UsageOrigin: TypeAlias = Literal["user", "signal", "wake", "goal", "compaction", "review"]
"""Why a model is asked: what began the turn, or what the request itself is for."""

USAGE_ORIGINS: tuple[UsageOrigin, ...] = get_args(UsageOrigin)


class UsageRecorded(RecordBase):
    """One request to a model is over, however it ended; and the time of tools since the last one.

    No record of a turn: a revert does not drop it, and a fork does not copy it. At the end of a
    turn it may be about the time of tools alone.
    """

    type: Literal["usageRecorded"] = "usageRecorded"
    turn_id: str
    origin: UsageOrigin
    model: str
    model_provider: str
    cwd: str
    request_id: str | None = absent_if_none()
    """None: there was no request."""
    usage: TokenUsageBreakdown | None = absent_if_none()
    """None: the model has not reported it."""
    history_items: Int64 | None = absent_if_none()
    """Items of the thread's history that the request had, if a budget held."""
    model_ms: Int64 = 0
    tool_ms: Int64 = 0


class TurnCompleted(RecordBase):
    """The running turn is over; queued input that is left becomes visible to the model."""

    type: Literal["turnCompleted"] = "turnCompleted"
    turn_id: str
    status: Literal["completed", "interrupted", "failed"]
    error: TurnError | None = None
    duration_ms: Int64 | None = None


class TurnsReverted(RecordBase):
    """A turn and all after it never happened; what they wrote stays in the log and is passed over.

    That means records of the types in TURN_RECORDS, from the start of the turn up to this line.
    """

    type: Literal["turnsReverted"] = "turnsReverted"
    before_turn_id: str
    signals: list[SignalMark] | None = absent_if_none()
    """Signals that went with it before they had been answered; they count as taken back."""


class NameChanged(RecordBase):
    """The thread's name from here on."""

    type: Literal["nameChanged"] = "nameChanged"
    name: str


class ArchivedChanged(RecordBase):
    """Whether the thread is archived from here on."""

    type: Literal["archivedChanged"] = "archivedChanged"
    archived: bool


class SubmissionQueued(RecordBase):
    """Input waits until the thread is idle, and becomes a turn then."""

    type: Literal["submissionQueued"] = "submissionQueued"
    submission_id: str
    client_user_message_id: str
    """Chosen by the client; "" is none."""
    input: list[UserInput]
    responsesapi_client_metadata: dict[str, str] | None = None


class SubmissionChanged(RecordBase):
    """Queued input that was replaced; its place stays."""

    type: Literal["submissionChanged"] = "submissionChanged"
    submission_id: str
    input: list[UserInput]
    responsesapi_client_metadata: dict[str, str] | None = None


class SubmissionRemoved(RecordBase):
    """Queued input that will not become a turn."""

    type: Literal["submissionRemoved"] = "submissionRemoved"
    submission_id: str


class QueueReordered(RecordBase):
    """The queue's order from here on."""

    type: Literal["queueReordered"] = "queueReordered"
    submission_ids: list[str]


class SubmissionTaken(RecordBase):
    """Queued input became a turn, and does not wait any more, whatever becomes of the turn."""

    type: Literal["submissionTaken"] = "submissionTaken"
    submission_id: str


class QueuePaused(RecordBase):
    """The queue waits until another turn is started."""

    type: Literal["queuePaused"] = "queuePaused"


class HistoryCompacted(RecordBase):
    """What the model sees from here on, in the place of everything before."""

    type: Literal["historyCompacted"] = "historyCompacted"
    turn_id: str
    items: list[JsonObject]
    """Raw Responses items."""


QueueRecord: TypeAlias = (
    SubmissionQueued
    | SubmissionChanged
    | SubmissionRemoved
    | QueueReordered
    | SubmissionTaken
    | QueuePaused
)

Record: TypeAlias = Annotated[
    ThreadCreated
    | SettingsChanged
    | TurnStarted
    | HistoryAppended
    | InputQueued
    | InputAccepted
    | InputTaken
    | SignalRecalled
    | ItemCompleted
    | ApprovalDecided
    | FilesChanging
    | ItemLeftRunning
    | ItemEnded
    | TokensUsed
    | UsageRecorded
    | TurnCompleted
    | TurnsReverted
    | NameChanged
    | ArchivedChanged
    | HistoryCompacted
    | QueueRecord
    | MetadataRecord,
    Field(discriminator="type"),
]

TURN_RECORDS = frozenset(
    {
        "approvalDecided",
        "filesChanging",
        "historyAppended",
        "historyCompacted",
        "inputAccepted",
        "inputQueued",
        "inputTaken",
        "itemCompleted",
        "itemLeftRunning",
        "tokensUsed",
        "turnCompleted",
        "turnStarted",
    }
)
"""Types of what turns write: a revert drops them, a fork copies them. All others are about the
thread as such."""


_TYPES = {kind.model_fields["type"].default for kind in get_args(get_args(Record)[0])}


def parse_record(line: bytes | str) -> Record | None:
    """Read one line; None when it is damaged or of a version or kind that is not known here."""
    try:
        record: Record = type_adapter(Record).validate_json(line)
    except ValidationError:
        return None
    return record if record.v <= ROLLOUT_VERSION else None


def is_newer(line: bytes | str) -> bool:
    """Whether a line that cannot be read here is whole, but of a newer version or kind."""
    return is_of_newer(line, _TYPES)


def render_record(record: RecordBase) -> bytes:
    """Write one line, with its line end."""
    return record.__pydantic_serializer__.to_json(record, by_alias=True) + b"\n"
