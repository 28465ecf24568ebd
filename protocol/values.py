"""Values that several parts of the protocol share: paths, ids, modes, model settings."""

from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Annotated, Literal

from pydantic import AfterValidator, ValidationInfo
from typing_extensions import TypeAliasType

from protocol.model import REQUEST, NonEmptyStr, OpenEnum, SnakeModel, Variant, WireModel


def _absolute(path: str, info: ValidationInfo) -> str:
    # What was stored is read as it is.
    if info.context is REQUEST and not Path(path).is_absolute():
        raise ValueError("must be an absolute path")
    return path


def _absolute_somewhere(path: str, info: ValidationInfo) -> str:
    kinds = (PurePosixPath, PureWindowsPath)
    if info.context is REQUEST and not any(kind(path).is_absolute() for kind in kinds):
        raise ValueError("must be an absolute path")
    return path


AbsolutePathBuf = TypeAliasType("AbsolutePathBuf", Annotated[str, AfterValidator(_absolute)])
"""An absolute path on the server's machine; nothing need exist there."""


AgentPath = TypeAliasType("AgentPath", str)
"""Where an agent stands in the tree of agents that work together."""


ModeKind = TypeAliasType("ModeKind", Literal["plan", "default"])
"""How a thread works: `plan` proposes before it acts, `default` just works."""


ReasoningEffort = TypeAliasType("ReasoningEffort", NonEmptyStr)
"""How much a model reasons: one of the words that the model itself offers."""


class Settings(SnakeModel):
    """What a collaboration mode sets."""

    model: str
    reasoning_effort: ReasoningEffort | None = None
    """Null leaves the choice to the model."""
    developer_instructions: str | None = None
    """Null takes the instructions that come with the mode."""


class CollaborationMode(WireModel):
    """A mode of work, and the model settings that go with it."""

    mode: ModeKind
    settings: Settings


class CustomMultiAgentMode(Variant, extra="forbid"):
    """Delegation by the rules of a text of one's own."""

    custom: str
    """The text that tells the model when to delegate."""


CyberAccessProgram = TypeAliasType(
    "CyberAccessProgram", Literal["standard", "daybreakBlue", "daybreakRed"]
)
"""How a turn asks to be treated in cyber security work; the provider decides."""


HookEventName = TypeAliasType(
    "HookEventName",
    OpenEnum[
        Literal[
            "preModelRequest",
            "postModelRequest",
            "preToolUse",
            "permissionRequest",
            "postToolUse",
            "preCompact",
            "postCompact",
            "sessionStart",
            "sessionEnd",
            "userPromptSubmit",
            "subagentStart",
            "subagentStop",
            "stop",
            "interrupt",
        ]
    ],
)
"""The moments at which hooks run."""


ImageDetail = TypeAliasType("ImageDetail", Literal["auto", "low", "high", "original"])
"""How closely the model looks at an image; `original` does not shrink it."""


LegacyAppPathString = TypeAliasType("LegacyAppPathString", str)
"""A path as plain text, in the form of the machine that it is on."""

AbsoluteAppPath = Annotated[LegacyAppPathString, AfterValidator(_absolute_somewhere)]
"""Such a path where a client has to give an absolute one."""

EnvironmentPath = Annotated[str, AfterValidator(_absolute_somewhere)]
"""An absolute path of POSIX or Windows, on a machine that may be another one."""


MultiAgentMode = TypeAliasType(
    "MultiAgentMode", Literal["explicitRequestOnly", "proactive"] | CustomMultiAgentMode
)
"""When the model may give work to other agents: if told to, of its own accord, or by a text."""


PathUri = TypeAliasType("PathUri", str)
"""A path as a `file:` URI, the same form on every platform."""


Personality = TypeAliasType("Personality", Literal["none", "friendly", "pragmatic"])
"""Tone of the answers; the model is told of `friendly` and `pragmatic`."""


ReasoningSummary = TypeAliasType("ReasoningSummary", Literal["auto", "concise", "detailed", "none"])
"""How long a summary of its reasoning the model writes; `none` turns it off."""


SortDirection = TypeAliasType("SortDirection", Literal["asc", "desc"])
"""Which end of a list comes first."""


ThreadId = TypeAliasType("ThreadId", str)
"""Id of a thread: a UUID."""


Verbosity = TypeAliasType("Verbosity", OpenEnum[Literal["low", "medium", "high"]])
"""How long the model's answers are."""


class RequestMeta(WireModel):
    """About a request that changes something. Source: docs/sending_again.md, "Operations"."""

    operation_id: str | None = None
    """Names the request for sending it again: 1 to 128 printable characters, chosen by the client,
    for 24 hours or the 10,000 newest of a home."""
