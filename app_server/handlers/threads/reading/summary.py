"""getConversationSummary: what a stored thread is about, for clients from before thread/read.

Source: docs/threads.md.
"""

import re
from datetime import UTC, datetime
from pathlib import PurePath

from app_server.handlers.errors import thread_failures
from app_server.handlers.services import Services
from app_server.handlers.threads.shown import shown_thread
from app_server.rpc.context import RequestContext, Routes
from app_server.threads.log.state.thread import ThreadState
from protocol.jsonrpc.errors import RpcError, invalid_request
from protocol.older_interface.queries import (
    ConversationGitInfo,
    ConversationIdSummaryParams,
    ConversationSummary,
    GetConversationSummaryParams,
    GetConversationSummaryResponse,
)
from protocol.thread_ids import is_thread_id, usual_form

_ID_AT_END = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


class SummaryHandlers:
    """The method getConversationSummary."""

    def __init__(self, services: Services) -> None:
        self._store = services.store
        self._sessions = services.sessions
        self.routes: Routes = {"getConversationSummary": self.summarize}

    async def summarize(
        self, context: RequestContext, params: GetConversationSummaryParams
    ) -> GetConversationSummaryResponse:
        """Say what a thread is about."""
        if isinstance(params, ConversationIdSummaryParams):
            thread_id = params.conversation_id
            missing = f"no rollout found for conversation id {thread_id}"
            if not is_thread_id(thread_id):
                raise invalid_request(
                    f"invalid thread id: {thread_id}", "invalidThreadId", threadId=thread_id
                )
            thread_id = usual_form(thread_id)
        else:
            path = params.rollout_path
            missing = f"failed to resolve rollout path `{path}`: file does not exist"
            found = _ID_AT_END.search(PurePath(path).stem)
            if found is None or not self._store.is_path_of(found[0], path):
                raise _no_such(missing)
            thread_id = found[0]
        session = self._sessions.find(thread_id)
        if session is not None:
            state = session.thread.state
        else:
            with thread_failures(thread_id, missing):
                state = await self._store.read(thread_id)
        if state.created.ephemeral:
            raise _no_such(missing)
        return GetConversationSummaryResponse(summary=self._summary(state))

    def _summary(self, state: ThreadState) -> ConversationSummary:
        thread = shown_thread(self._store, state, None)
        git = thread.git_info
        return ConversationSummary(
            conversation_id=thread.id,
            path=self._store.shown_path(thread.id),
            preview=thread.preview,
            timestamp=_rfc3339(state.created.at_ms),
            updated_at=_rfc3339(state.updated_at_ms),
            model_provider=thread.model_provider,
            cwd=thread.cwd,
            cli_version=thread.cli_version,
            source=thread.source,
            git_info=None
            if git is None
            else ConversationGitInfo(sha=git.sha, branch=git.branch, origin_url=git.origin_url),
        )


def _rfc3339(at_ms: int) -> str:
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _no_such(missing: str) -> RpcError:
    return invalid_request(missing, "threadNotFound")
