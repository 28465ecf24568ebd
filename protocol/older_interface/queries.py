"""getAuthStatus, gitDiffToRemote, getConversationSummary: what older clients ask.

Methods without a slash, from before threads had their present form; newer clients use others.
"""

from typing_extensions import TypeAliasType

from protocol.model import SnakeModel, Variant, WireModel
from protocol.server.account import AuthMode
from protocol.threads.thread import SessionSource
from protocol.values import ThreadId


class GetAuthStatusParams(WireModel):
    """Ask how the server signs in; newer clients use `account/read`."""

    include_token: bool | None = None
    """Also return the token itself."""
    refresh_token: bool | None = None
    """Renew the token first."""


class GetAuthStatusResponse(WireModel):
    """How the server signs in; all null when nobody is."""

    auth_method: AuthMode | None = None
    auth_token: str | None = None
    """Only when `includeToken` asked for it."""
    requires_openai_auth: bool | None = None
    """Whether the provider in use needs an OpenAI login."""


GitSha = TypeAliasType("GitSha", str)
"""A commit id: 40 or 64 hexadecimal digits."""


class GitDiffToRemoteParams(WireModel):
    """Compare a checkout with the nearest commit that a remote has."""

    cwd: str


class GitDiffToRemoteResponse(WireModel):
    """The commit that the remote has, and what lies between it and the working tree."""

    sha: GitSha
    diff: str
    """Unified diff, untracked files included."""


class RolloutPathSummaryParams(Variant):
    """Name a conversation by its file."""

    rollout_path: str
    """File of the stored conversation, on the server's machine."""


class ConversationIdSummaryParams(Variant):
    """Name a conversation by its id."""

    conversation_id: ThreadId


GetConversationSummaryParams = TypeAliasType(
    "GetConversationSummaryParams", RolloutPathSummaryParams | ConversationIdSummaryParams
)
"""Ask what a stored conversation is about; newer clients use `thread/read`."""


class ConversationGitInfo(SnakeModel):
    """Where the conversation's directory stood in its repository."""

    sha: str | None = None
    branch: str | None = None
    origin_url: str | None = None


class ConversationSummary(WireModel):
    """A stored conversation, without what was said."""

    conversation_id: ThreadId
    path: str
    """The conversation's file."""
    preview: str
    """The first user message."""
    timestamp: str | None = None
    """When it began, RFC 3339."""
    updated_at: str | None = None
    """When it last changed, RFC 3339."""
    model_provider: str
    cwd: str
    cli_version: str
    """Version of the program that began it."""
    source: SessionSource
    git_info: ConversationGitInfo | None = None


class GetConversationSummaryResponse(WireModel):
    """The conversation."""

    summary: ConversationSummary
