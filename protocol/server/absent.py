"""What this server does not have, for clients that ask before they offer it to users.

A machine without these things answers the same: there is none.
"""

from typing import Literal

from typing_extensions import TypeAliasType

from protocol.model import OpenEnum, WireModel
from protocol.thread_ids import ThreadIdParam


class BedrockCheckGovCloudRequirementsParams(WireModel):
    """Ask whether models are reached in a GovCloud region of Amazon Bedrock."""


class BedrockCheckGovCloudRequirementsResponse(WireModel):
    """Whether they are, and whether the user should be warned."""

    is_gov_cloud: bool
    should_warn: bool
    """Whether what an administrator demands falls short of what GovCloud needs."""


class MemoryResetResponse(WireModel):
    """The store of memories across threads is empty."""


RemoteControlConnectionStatus = TypeAliasType(
    "RemoteControlConnectionStatus",
    OpenEnum[Literal["disabled", "connecting", "connected", "errored"]],
)
"""Whether the server can be used from another machine through its provider."""


class RemoteControlStatusReadResponse(WireModel):
    """How the server is reached from other machines."""

    status: RemoteControlConnectionStatus
    server_name: str
    """Name of the machine."""
    installation_id: str
    """UUID of the home on this machine."""
    environment_id: str | None = None
    """Null unless it is connected."""


RealtimeVoice = TypeAliasType(
    "RealtimeVoice",
    OpenEnum[
        Literal[
            "alloy",
            "arbor",
            "ash",
            "aube",
            "ballad",
            "breeze",
            "bubbie",
            "cedar",
            "coral",
            "cove",
            "echo",
            "ember",
            "haetsal",
            "hanul",
            "himari",
            "juniper",
            "leher",
            "maple",
            "marin",
            "miko",
            "neer",
            "porto",
            "rindo",
            "rio",
            "rivage",
            "sage",
            "selva",
            "shimmer",
            "sol",
            "sonna",
            "spruce",
            "tinta",
            "vale",
            "verse",
            "viola",
        ]
    ],
)
"""A voice of the provider's."""


class RealtimeVoicesList(WireModel):
    """Voices by the version of the provider's interface."""

    v1: list[RealtimeVoice]
    v2: list[RealtimeVoice]
    v3: list[RealtimeVoice] = []
    default_v1: RealtimeVoice
    default_v2: RealtimeVoice


class ThreadRealtimeListVoicesParams(WireModel):
    """Ask for the names of voices."""


class ThreadRealtimeListVoicesResponse(WireModel):
    """The names of voices."""

    voices: RealtimeVoicesList


class ThreadRealtimeStopParams(WireModel):
    """End the voice session of a thread."""

    thread_id: ThreadIdParam


class ThreadRealtimeStopResponse(WireModel):
    """The thread has no voice session."""


UserVerificationUnavailableReason = TypeAliasType(
    "UserVerificationUnavailableReason",
    OpenEnum[Literal["credentialMissing", "biometricsUnavailable", "providerUnavailable"]],
)
"""Why the platform cannot verify its user."""


class UserVerificationStatusParams(WireModel, extra="forbid"):
    """Ask whether the platform can verify its user."""


class UserVerificationStatusResponse(WireModel):
    """Whether it can."""

    credential_id: str | None = None
    unavailable_reason: UserVerificationUnavailableReason | None = None
    unavailable_message: str | None = None
    """For people."""


WindowsSandboxReadiness = TypeAliasType(
    "WindowsSandboxReadiness", OpenEnum[Literal["ready", "notConfigured", "updateRequired"]]
)
"""Whether commands can be confined on Windows."""


class WindowsSandboxReadinessResponse(WireModel):
    """Whether commands can be confined on Windows."""

    status: WindowsSandboxReadiness
