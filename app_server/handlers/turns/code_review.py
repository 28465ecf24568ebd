"""review/start: a turn that reviews code.

Source: docs/tools.md, "Reviews".
"""

from app_server.handlers.errors import config_failures, thread_failures
from app_server.handlers.serving import RequestContext, serves
from app_server.handlers.views.turns import started_turn
from app_server.sessions.code_review import hint
from app_server.turns.slot import TurnActive
from protocol.jsonrpc.errors import invalid_member, invalid_request
from protocol.turns.code_review import (
    BaseBranchReviewTarget,
    CommitReviewTarget,
    CustomReviewTarget,
    ReviewStartParams,
    ReviewStartResponse,
    ReviewTarget,
)
from protocol.turns.items import TextUserInput, UserMessageThreadItem
from protocol.turns.turn import Turn

MAX_NAME_CHARS = 1_024
"""Of a branch, a commit and its title."""

MAX_INSTRUCTIONS_CHARS = 256 * 1024


@serves("review/start")
async def start_review(context: RequestContext, params: ReviewStartParams) -> ReviewStartResponse:
    """Begin a code review in a turn of its own."""
    _check(params.target)
    thread_id = params.thread_id
    with config_failures(), thread_failures(thread_id):
        session = await context.services.sessions.writable(thread_id)
        try:
            running = await session.turns.start_review(params.target)
        except TurnActive as exc:
            text = "thread already has an active or pending turn"
            raise invalid_request(text, "turnActive") from exc
    context.after_answer(running.run_soon)
    turn = review_turn(running.id, params.target)
    return ReviewStartResponse(turn=turn, review_thread_id=session.log.id)


def review_turn(turn_id: str, target: ReviewTarget) -> Turn:
    """Show the turn of a review that has just begun."""
    # Not an item of the thread: it says what the turn is for.
    asked = UserMessageThreadItem(
        id=turn_id, content=[TextUserInput(text=hint(target), text_elements=[])]
    )
    return started_turn(turn_id).model_copy(update={"items": [asked]})


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
