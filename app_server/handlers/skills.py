"""skills/*. There are no skills yet, and the answer says so."""

from collections.abc import Mapping

from app_server.rpc.context import Handler, RequestContext
from protocol.skills import SkillsListEntry, SkillsListParams, SkillsListResponse


class SkillHandlers:
    """The skills/* methods."""

    @property
    def routes(self) -> Mapping[str, Handler]:
        """Method to handler."""
        return {"skills/list": self.list_skills}

    async def list_skills(
        self, context: RequestContext, params: SkillsListParams
    ) -> SkillsListResponse:
        """List no skill for each folder: this server has none."""
        entries = [SkillsListEntry(cwd=cwd, skills=[], errors=[]) for cwd in params.cwds]
        return SkillsListResponse(data=entries)
