"""Methods about what this server does not have: they say that there is none, as Codex does.

They are served because clients ask before they show a menu. None has an effect; methods that would
need one are not served (protocol/contract/unserved.py).
Source: docs/wire.md, "What there is none of".
"""

import platform
import uuid
from collections.abc import Sequence

from app_server.handlers.errors import loaded_thread
from app_server.handlers.serving import RequestContext, serves
from protocol.contract.specs import NoParams
from protocol.server.absent import (
    BedrockCheckGovCloudRequirementsParams,
    BedrockCheckGovCloudRequirementsResponse,
    ExternalAgentConfigDetectParams,
    ExternalAgentConfigDetectResponse,
    ExternalAgentConfigImportHistoriesReadResponse,
    MemoryResetResponse,
    RealtimeVoice,
    RealtimeVoicesList,
    RemoteControlStatusReadResponse,
    ThreadRealtimeListVoicesParams,
    ThreadRealtimeListVoicesResponse,
    ThreadRealtimeStopParams,
    ThreadRealtimeStopResponse,
    UserVerificationStatusParams,
    UserVerificationStatusResponse,
    WindowsSandboxReadinessResponse,
)

_OLDER: Sequence[RealtimeVoice] = (
    "juniper",
    "maple",
    "spruce",
    "ember",
    "vale",
    "breeze",
    "arbor",
    "sol",
    "cove",
)

VOICES = RealtimeVoicesList(
    v1=[*_OLDER],
    v2=["alloy", "ash", "ballad", "coral", "echo", "sage", "shimmer", "verse", "marin", "cedar"],
    v3=[
        *_OLDER,
        "aube",
        "bubbie",
        "haetsal",
        "hanul",
        "himari",
        "leher",
        "miko",
        "neer",
        "porto",
        "rindo",
        "rio",
        "rivage",
        "selva",
        "sonna",
        "tinta",
        "viola",
    ],
    default_v1="cove",
    default_v2="marin",
)
"""The names that the wire has, in the order of Codex 0.169.0; no session speaks with them here."""


@serves("account/bedrock/checkGovCloudRequirements")
async def check_gov_cloud(
    context: RequestContext, params: BedrockCheckGovCloudRequirementsParams
) -> BedrockCheckGovCloudRequirementsResponse:
    """Say that no model is reached in GovCloud: no provider here is Bedrock."""
    return BedrockCheckGovCloudRequirementsResponse(is_gov_cloud=False, should_warn=False)


@serves("memory/reset")
async def reset_memory(context: RequestContext, params: NoParams) -> MemoryResetResponse:
    """Leave no memory across threads: none is ever kept."""
    return MemoryResetResponse()


@serves("remoteControl/status/read")
async def read_remote_control(
    context: RequestContext, params: NoParams
) -> RemoteControlStatusReadResponse:
    """Say that the server cannot be used through its provider."""
    machine = platform.node()
    home = uuid.uuid5(uuid.NAMESPACE_URL, f"file://{machine}{context.services.home.absolute()}")
    return RemoteControlStatusReadResponse(
        status="disabled", server_name=machine, installation_id=str(home)
    )


@serves("thread/realtime/listVoices")
async def list_voices(
    context: RequestContext, params: ThreadRealtimeListVoicesParams
) -> ThreadRealtimeListVoicesResponse:
    """List the names of voices."""
    return ThreadRealtimeListVoicesResponse(voices=VOICES)


@serves("thread/realtime/stop")
async def stop_voice(
    context: RequestContext, params: ThreadRealtimeStopParams
) -> ThreadRealtimeStopResponse:
    """Leave a loaded thread without a voice session: it has none."""
    loaded_thread(context.services.sessions, params.thread_id)
    return ThreadRealtimeStopResponse()


@serves("userVerification/status")
async def read_user_verification(
    context: RequestContext, params: UserVerificationStatusParams
) -> UserVerificationStatusResponse:
    """Say that the platform's verification of users is not used."""
    return UserVerificationStatusResponse(
        unavailable_reason="providerUnavailable",
        unavailable_message="User verification is not available in this build or account.",
    )


@serves("windowsSandbox/readiness")
async def read_windows_sandbox(
    context: RequestContext, params: NoParams
) -> WindowsSandboxReadinessResponse:
    """Say that there is no sandbox of Windows."""
    return WindowsSandboxReadinessResponse(status="notConfigured")


@serves("externalAgentConfig/detect")
async def detect_external_agents(
    context: RequestContext, params: ExternalAgentConfigDetectParams
) -> ExternalAgentConfigDetectResponse:
    """Find nothing to take over: nothing can be."""
    return ExternalAgentConfigDetectResponse(items=[], connectors=[])


@serves("externalAgentConfig/import/readHistories")
async def read_import_histories(
    context: RequestContext, params: NoParams
) -> ExternalAgentConfigImportHistoriesReadResponse:
    """List no import."""
    return ExternalAgentConfigImportHistoriesReadResponse(data=[], connectors=[])
