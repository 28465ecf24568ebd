"""Turns that begin without a message: compaction, a review of code, a command of the user.

Source: docs/compaction.md; docs/tools.md, "Reviews", "Commands of the user".
"""

from app_server.handlers.errors import config_failures, thread_failures
from app_server.handlers.services import Services
from app_server.handlers.views.turns import started_turn
from app_server.rpc.context import RequestContext, Routes
from app_server.sessions.user_commands import DEFAULT_S, UserCommand
from app_server.tools.command_arguments import MAX_LINE_CHARS
from app_server.turns.code_review.texts import hint
from app_server.turns.thread_errors import TurnActive
from protocol.host.terminals import ThreadShellCommandParams, ThreadShellCommandResponse
from protocol.jsonrpc.errors import invalid_member, invalid_request
from protocol.threads.context import ThreadCompactStartParams, ThreadCompactStartResponse
from protocol.turns.code_review import (
    BaseBranchReviewTarget,
    CommitReviewTarget,
    CustomReviewTarget,
    ReviewStartParams,
    ReviewStartResponse,
    ReviewTarget,
)
from protocol.turns.items import TextUserInput, UserMessageThreadItem

MAX_NAME_CHARS = 1_024
"""Of a branch, a commit and its title."""
MAX_INSTRUCTIONS_CHARS = 256 * 1024


class SpecialTurnHandlers:
    """The methods that begin a turn of a kind of its own."""

    def __init__(self, services: Services) -> None:
        self._sessions = services.sessions
        self.routes: Routes = {
            "review/start": self.review,
            "thread/compact/start": self.compact,
            "thread/shellCommand": self.run_command,
        }

    async def review(
        self, context: RequestContext, params: ReviewStartParams
    ) -> ReviewStartResponse:
        """Have code reviewed in a turn of its own."""
        _check(params.target)
        thread_id = params.thread_id
        with config_failures(), thread_failures(thread_id):
            session = await self._sessions.writable(thread_id)
            try:
                running = await session.turns.start_review(params.target)
            except TurnActive as exc:
                text = "thread already has an active or pending turn"
                raise invalid_request(text, "turnActive") from exc
        context.after_answer(running.run_soon)
        # Not an item of the thread: it says what the turn is for.
        asked = UserMessageThreadItem(
            id=running.id, content=[TextUserInput(text=hint(params.target), text_elements=[])]
        )
        turn = started_turn(running.id).model_copy(update={"items": [asked]})
        return ReviewStartResponse(turn=turn, review_thread_id=session.thread.id)

    async def compact(
        self, context: RequestContext, params: ThreadCompactStartParams
    ) -> ThreadCompactStartResponse:
        """Sum a thread up in a turn of its own, in the place of one that runs."""
        with thread_failures(params.thread_id):
            begin = await self._sessions.get(params.thread_id).turns.start_compaction()
        context.after_answer(begin)
        return ThreadCompactStartResponse()

    async def run_command(
        self, context: RequestContext, params: ThreadShellCommandParams
    ) -> ThreadShellCommandResponse:
        """Run a line, unconfined, in the turn that runs or in one of its own."""
        line, timeout_ms = params.command.strip(), params.timeout_ms
        if not line:
            raise invalid_request("command must not be empty", "invalidCommand")
        if len(line) > MAX_LINE_CHARS or "\0" in line:
            raise invalid_request(
                f"command must have at most {MAX_LINE_CHARS} characters, and no NUL",
                "invalidCommand",
            )
        if timeout_ms is not None and timeout_ms < 0:
            raise invalid_request("timeoutMs must not be negative", "invalidTimeout")
        with thread_failures(params.thread_id):
            session = self._sessions.get(params.thread_id)
            command = UserCommand(
                line=line,
                timeout_s=DEFAULT_S if timeout_ms is None else timeout_ms / 1000,
                output_limit_bytes=session.output_limit_bytes,
            )
            begin = await session.user_commands.start(command)
        context.after_answer(begin)
        return ThreadShellCommandResponse()


def _check(target: ReviewTarget) -> None:
    """Refuse what names nothing.

    Raises:
        RpcError: it names the member and the rule.
    """
    match target:
        case BaseBranchReviewTarget():
            _check_text("branch", target.branch, MAX_NAME_CHARS)
        case CommitReviewTarget():
            _check_text("sha", target.sha, MAX_NAME_CHARS)
            _check_length("title", target.title or "", MAX_NAME_CHARS)
        case CustomReviewTarget():
            _check_text("instructions", target.instructions, MAX_INSTRUCTIONS_CHARS)


def _check_text(name: str, text: str, max_chars: int) -> None:
    if not text.strip():
        raise invalid_request(f"{name} must not be empty", "emptyReviewTarget", field=name)
    _check_length(name, text, max_chars)


def _check_length(name: str, text: str, max_chars: int) -> None:
    if len(text) > max_chars:
        raise invalid_member(f"target.{name}", f"has more than {max_chars} characters")
