"""getAuthStatus, getConversationSummary, gitDiffToRemote: requests from before threads and turns.

Source: docs/accounts.md; docs/threads.md; docs/tools.md, "Host methods".
"""

import json
import re
from datetime import UTC, datetime
from pathlib import PurePath

import anyio.to_thread

from app_server.handlers.errors import config_failures, thread_failures
from app_server.handlers.server.account import look_at_account
from app_server.handlers.services import Services
from app_server.handlers.serving import RequestContext, serves
from app_server.handlers.threads.shown import shown_thread
from app_server.host.repository import NoDifference, diff_to_remote, shown_folders
from app_server.host.sandbox.wrapped_command import SandboxUnavailable
from app_server.permissions.sandbox.policy import effective_policy_for
from app_server.permissions.sandbox.roots import with_hidden_paths
from app_server.threads.log.state import ThreadState
from protocol.jsonrpc.errors import RpcError, internal_error, invalid_request
from protocol.older_interface.queries import (
    ConversationGitInfo,
    ConversationIdSummaryParams,
    ConversationSummary,
    GetAuthStatusParams,
    GetAuthStatusResponse,
    GetConversationSummaryParams,
    GetConversationSummaryResponse,
    GitDiffToRemoteParams,
    GitDiffToRemoteResponse,
)
from protocol.thread_ids import is_thread_id, usual_form
from protocol.turns.policy import ReadOnlySandboxPolicy

_ID_AT_END = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


@serves("getConversationSummary")
async def summarize_conversation(
    context: RequestContext, params: GetConversationSummaryParams
) -> GetConversationSummaryResponse:
    """Return the summary of a thread."""
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
        if found is None or not context.services.store.is_path_of(found[0], path):
            raise _no_such(missing)
        thread_id = found[0]
    session = context.services.sessions.find(thread_id)
    if session is not None:
        state = session.log.state
    else:
        with thread_failures(thread_id, missing):
            state = await context.services.store.read(thread_id)
    if state.created.ephemeral:
        raise _no_such(missing)
    return GetConversationSummaryResponse(summary=_summary(context.services, state))


def _summary(services: Services, state: ThreadState) -> ConversationSummary:
    thread = shown_thread(services.store, state, None)
    git = thread.git_info
    return ConversationSummary(
        conversation_id=thread.id,
        path=services.store.shown_path(thread.id) or "",
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


@serves("gitDiffToRemote")
async def diff_git_to_remote(
    context: RequestContext, params: GitDiffToRemoteParams
) -> GitDiffToRemoteResponse:
    """Compare a checkout with the nearest commit that a remote has."""
    cwd = context.services.configuration.resolve(params.cwd)
    with config_failures():
        machine_paths = with_hidden_paths(
            await context.services.configuration.read(), context.services.machine_paths
        )
    folders = await anyio.to_thread.run_sync(shown_folders, cwd)
    sandbox_policy = effective_policy_for(ReadOnlySandboxPolicy(), folders, machine_paths)
    try:
        sha, difference = await diff_to_remote(context.services.commands, sandbox_policy, cwd)
    except (NoDifference, OSError) as exc:
        raise invalid_request(
            f"failed to compute git diff to remote for cwd: {json.dumps(params.cwd)}",
            "noGitDiff",
            cwd=params.cwd,
        ) from exc
    except SandboxUnavailable as exc:
        raise internal_error(str(exc), "sandboxUnavailable") from exc
    return GitDiffToRemoteResponse(sha=sha, diff=difference)


@serves("getAuthStatus")
async def read_auth_status(
    context: RequestContext, params: GetAuthStatusParams
) -> GetAuthStatusResponse:
    """Return the server's sign-in method; the token only if the client asks for it."""
    provider, credentials = await look_at_account(
        context.services, refreshed=bool(params.refresh_token)
    )
    if provider is None or not provider.requires_openai_auth:
        return GetAuthStatusResponse(requires_openai_auth=False)
    if credentials is None:
        return GetAuthStatusResponse(requires_openai_auth=True)
    return GetAuthStatusResponse(
        auth_method=credentials.kind,
        auth_token=credentials.token if params.include_token else None,
        requires_openai_auth=True,
    )
