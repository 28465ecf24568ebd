"""gitDiffToRemote: what a checkout has that no remote has.

Source: docs/tools.md, "Host methods".
"""

import json

import anyio.to_thread

from app_server.handlers.errors import config_failures
from app_server.handlers.services import Services
from app_server.host.git_diff import NoDifference, diff_to_remote, shown_folders
from app_server.host.sandbox.errors import SandboxUnavailable
from app_server.permissions.confinement.confining import confinement_for
from app_server.permissions.confinement.places import configured_places
from app_server.rpc.context import RequestContext, Routes
from protocol.jsonrpc.errors import internal_error, invalid_request
from protocol.older_interface.queries import GitDiffToRemoteParams, GitDiffToRemoteResponse
from protocol.turns.policy import ReadOnlySandboxPolicy


class GitDiffHandlers:
    """The method gitDiffToRemote."""

    def __init__(self, services: Services) -> None:
        self._places = services.places
        self._configuration = services.configuration
        self._commands = services.commands
        self.routes: Routes = {"gitDiffToRemote": self.diff}

    async def diff(
        self, context: RequestContext, params: GitDiffToRemoteParams
    ) -> GitDiffToRemoteResponse:
        """Compare a checkout with the nearest commit that a remote has."""
        cwd = self._configuration.resolve(params.cwd)
        with config_failures():
            places = configured_places(await self._configuration.read(), self._places)
        folders = await anyio.to_thread.run_sync(shown_folders, cwd)
        confinement = confinement_for(ReadOnlySandboxPolicy(), folders, places)
        try:
            sha, difference = await diff_to_remote(self._commands, confinement, cwd)
        except (NoDifference, OSError) as exc:
            raise invalid_request(
                f"failed to compute git diff to remote for cwd: {json.dumps(params.cwd)}",
                "noGitDiff",
                cwd=params.cwd,
            ) from exc
        except SandboxUnavailable as exc:
            raise internal_error(str(exc), "sandboxUnavailable") from exc
        return GitDiffToRemoteResponse(sha=sha, diff=difference)
