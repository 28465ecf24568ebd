"""externalAgentConfig/*: what could be taken over of other agents; here, nothing."""

from app_server.handlers.serving import RequestContext, serves
from protocol.contract.specs import NoParams
from protocol.integrations.external_agents import (
    ExternalAgentConfigDetectParams,
    ExternalAgentConfigDetectResponse,
    ExternalAgentConfigImportHistoriesReadResponse,
)


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
