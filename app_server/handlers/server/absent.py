"""Methods about what this server does not have: they say that there is none, as Codex does.

They are served because clients ask before they show a menu. None has an effect; methods that would
need one are not served (protocol/contract/unserved.py).
Source: docs/wire.md, "What there is none of".
"""

import platform
import uuid
from collections.abc import Sequence

from app_server.handlers.errors import loaded_thread
from app_server.handlers.services import Services
from app_server.rpc.context import RequestContext, Routes
from protocol.contract.specs import NoParams
from protocol.integrations.external_agents import (
    ExternalAgentConfigDetectParams,
    ExternalAgentConfigDetectResponse,
    ExternalAgentConfigImportHistoriesReadResponse,
)
from protocol.integrations.plugins import PluginReconcileParams, PluginReconcileResponse
from protocol.server.absent import (
    BedrockCheckGovCloudRequirementsParams,
    BedrockCheckGovCloudRequirementsResponse,
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


class AbsentHandlers:
    """The methods that say that there is none."""

    def __init__(self, services: Services) -> None:
        self._home = services.home
        self._sessions = services.sessions
        self.routes: Routes = {
            "account/bedrock/checkGovCloudRequirements": self.check_gov_cloud,
            "externalAgentConfig/detect": self.detect_agents,
            "externalAgentConfig/import/readHistories": self.read_imports,
            "memory/reset": self.reset_memory,
            "plugin/reconcile": self.reconcile_plugins,
            "remoteControl/status/read": self.read_remote_control,
            "thread/realtime/listVoices": self.list_voices,
            "thread/realtime/stop": self.stop_voice,
            "userVerification/status": self.read_verification,
            "windowsSandbox/readiness": self.read_windows_sandbox,
        }

    async def check_gov_cloud(
        self, context: RequestContext, params: BedrockCheckGovCloudRequirementsParams
    ) -> BedrockCheckGovCloudRequirementsResponse:
        """Say that no model is reached in GovCloud: no provider here is Bedrock."""
        return BedrockCheckGovCloudRequirementsResponse(is_gov_cloud=False, should_warn=False)

    async def detect_agents(
        self, context: RequestContext, params: ExternalAgentConfigDetectParams
    ) -> ExternalAgentConfigDetectResponse:
        """Find nothing to take over: nothing can be."""
        return ExternalAgentConfigDetectResponse(items=[], connectors=[])

    async def read_imports(
        self, context: RequestContext, params: NoParams
    ) -> ExternalAgentConfigImportHistoriesReadResponse:
        """List no import."""
        return ExternalAgentConfigImportHistoriesReadResponse(data=[], connectors=[])

    async def reset_memory(self, context: RequestContext, params: NoParams) -> MemoryResetResponse:
        """Leave no memory across threads: none is ever kept."""
        return MemoryResetResponse()

    async def reconcile_plugins(
        self, context: RequestContext, params: PluginReconcileParams
    ) -> PluginReconcileResponse:
        """Change nothing: no installed plugin is of a hosted catalog."""
        return PluginReconcileResponse(
            changed_plugins=[],
            failed_remote_plugin_ids=[],
            failed_materialization_remote_plugin_ids=[],
        )

    async def read_remote_control(
        self, context: RequestContext, params: NoParams
    ) -> RemoteControlStatusReadResponse:
        """Say that the server cannot be used through its provider."""
        machine = platform.node()
        home = uuid.uuid5(uuid.NAMESPACE_URL, f"file://{machine}{self._home.absolute()}")
        return RemoteControlStatusReadResponse(
            status="disabled", server_name=machine, installation_id=str(home)
        )

    async def list_voices(
        self, context: RequestContext, params: ThreadRealtimeListVoicesParams
    ) -> ThreadRealtimeListVoicesResponse:
        """List the names of voices."""
        return ThreadRealtimeListVoicesResponse(voices=VOICES)

    async def stop_voice(
        self, context: RequestContext, params: ThreadRealtimeStopParams
    ) -> ThreadRealtimeStopResponse:
        """Leave a loaded thread without a voice session: it has none."""
        loaded_thread(self._sessions, params.thread_id)
        return ThreadRealtimeStopResponse()

    async def read_verification(
        self, context: RequestContext, params: UserVerificationStatusParams
    ) -> UserVerificationStatusResponse:
        """Say that the platform's verification of users is not used."""
        return UserVerificationStatusResponse(
            unavailable_reason="providerUnavailable",
            unavailable_message="User verification is not available in this build or account.",
        )

    async def read_windows_sandbox(
        self, context: RequestContext, params: NoParams
    ) -> WindowsSandboxReadinessResponse:
        """Say that there is no sandbox of Windows."""
        return WindowsSandboxReadinessResponse(status="notConfigured")
