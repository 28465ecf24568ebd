"""Reviews of code: a turn whose model sees a history of its own, and what it found.

From top to bottom: the prompts, and the text shown of the response; the review that a turn does,
its requests and calls, and the two items that frame it. However it ends, clients are notified; only
cancelling, a model that failed for good and a disk that refuses come through. The automatic
reviewer of actions is in `turns/approval/reviewer.py`.
Source: docs/tools.md, "Reviews".
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import anyio
from pydantic_core import from_json

from app_server.models.interface import ModelFailure
from app_server.models.prompt.request import message
from app_server.turns.model_exchange import ModelExchange, run_calls
from app_server.turns.recorder import TurnRecorder
from app_server.turns.usage.recorder import UsageRecorder
from protocol.model import Json, JsonObject
from protocol.turns.code_review import (
    BaseBranchReviewTarget,
    CommitReviewTarget,
    CustomReviewTarget,
    ReviewTarget,
    UncommittedChangesReviewTarget,
)
from protocol.turns.items import (
    AgentMessageThreadItem,
    EnteredReviewModeThreadItem,
    ExitedReviewModeThreadItem,
)
from protocol.turns.turn import TokenUsageBreakdown

MAX_REVIEW_CHARS = 256 * 1024
"""Of a response; what is beyond is cut."""
SHORT_SHA = 7

STOPPED = "The review was stopped before it was finished."
FAILED = "The review failed: {}"
SILENT = "The reviewer wrote nothing."

INSTRUCTIONS = """\
You review code that somebody else has changed. Your answer is shown to the author, who decides \
what to do with it. You change nothing yourself.

Report a finding only if all of this holds:
- the change under review introduced it, and the author would want to fix it once it is known;
- it has an effect that you can name: wrong results, a crash, lost data, a hole in security, a \
slowdown that matters, or code that the next reader will misunderstand;
- you have looked at the code that proves it, and at what calls it; you do not guess at intentions;
- it is one thing, at lines that the change touches.
Leave out style, praise and what a formatter would do. Do not stop at the first finding; none is \
a good answer too.

Write a finding so that it can be read at a glance: a title that begins with its priority ([P0] \
stops everything, [P1] fix it next, [P2] fix it some time, [P3] nice to have) and says what is \
wrong; then a paragraph that says why, and when it happens. Code of more than three lines does not \
belong into it. Name the smallest range of lines that shows it.

Answer with one JSON object and nothing around it:
{
  "findings": [
    {
      "title": "[P1] at most 80 characters",
      "body": "Markdown: why it is wrong, and when",
      "confidence_score": 0.0 to 1.0,
      "priority": 0 to 3,
      "code_location": {
        "absolute_file_path": "/absolute/path",
        "line_range": {"start": 1, "end": 2}
      }
    }
  ],
  "overall_correctness": "patch is correct" or "patch is incorrect",
  "overall_explanation": "one to three sentences",
  "overall_confidence_score": 0.0 to 1.0
}
The change is correct if existing code and tests go on to work and nothing in it is broken; \
findings of low priority do not make it incorrect."""


def hint(target: ReviewTarget) -> str:
    """Name in a few words what is reviewed, for people to read."""
    match target:
        case UncommittedChangesReviewTarget():
            return "current changes"
        case BaseBranchReviewTarget():
            return f"changes against '{target.branch.strip()}'"
        case CommitReviewTarget():
            title = (target.title or "").strip()
            named = f"commit {target.sha.strip()[:SHORT_SHA]}"
            return f"{named}: {title}" if title else named
        case CustomReviewTarget():
            return target.instructions.strip()


def request(target: ReviewTarget) -> str:
    """Ask the model for a review."""
    match target:
        case UncommittedChangesReviewTarget():
            return (
                "Review what is not committed yet in this repository: `git status`, `git diff` and "
                "`git diff --staged` show it; read files that Git does not track yet."
            )
        case BaseBranchReviewTarget():
            branch = shlex.quote(target.branch.strip())
            return (
                f"Review what this branch changes against `{target.branch.strip()}`. "
                f"`git merge-base HEAD {branch}` names the commit where they part (try the "
                "branch's upstream if there is no such local branch); `git diff` from that commit "
                "shows the change."
            )
        case CommitReviewTarget():
            title = (target.title or "").strip()
            named = f" ({title})" if title else ""
            sha = shlex.quote(target.sha.strip())
            return (
                f"Review the commit {target.sha.strip()}{named}: `git show {sha}` shows what it "
                "changed."
            )
        case CustomReviewTarget():
            return target.instructions.strip()


def shown_review(response: str) -> str:
    """Render a response for people: the explanation, then the findings; other texts as they are."""
    response = response[:MAX_REVIEW_CHARS].strip()
    parsed = _parsed(response)
    if parsed is None:
        return response or SILENT
    explanation, findings = parsed
    parts = [explanation.strip()]
    if findings:
        parts.append("Review comment:" if len(findings) == 1 else "Review comments:")
        parts.extend(map(_shown, findings))
    return "\n\n".join(filter(None, parts))


def review_for_model(shown: str) -> str:
    """Render for the thread's own model what a review has found."""
    return (
        "<code_review>\nThe user had a review done, by a model that did not see this conversation. "
        "Its result is below: information, and no request to act on it yet. The user may ask to "
        f"deal with some of it.\n\n{shown}\n</code_review>"
    )


def _shown(finding: JsonObject) -> str:
    head = f"- {finding.get('title') or 'Untitled'}"
    location = finding.get("code_location")
    match location:
        case {
            "absolute_file_path": str(path),
            "line_range": {"start": int(start), "end": int(end)},
        }:
            head = f"{head} — {path}:{start}-{end}"
        case {"absolute_file_path": str(path)}:
            head = f"{head} — {path}"
    body = finding.get("body")
    texts = body.splitlines() if isinstance(body, str) else []
    return "\n".join((head, *(f"  {text}".rstrip() for text in texts)))


def _parsed(response: str) -> tuple[str, list[JsonObject]] | None:
    """Read explanation and findings of a response, also where something stands around its JSON."""
    start, end = response.find("{"), response.rfind("}")
    if start < 0 or end < start:
        return None
    try:
        review: Json = from_json(response[start : end + 1])
    except ValueError:
        return None
    if not isinstance(review, dict):
        return None
    explanation, findings = review.get("overall_explanation"), review.get("findings")
    kept = findings if isinstance(findings, list) else []
    found = [finding for finding in kept if isinstance(finding, dict)]
    text = explanation if isinstance(explanation, str) else ""
    return (text, found) if text.strip() or found else None


MAX_REQUESTS = 200
"""Requests to the model of one review."""


@dataclass(frozen=True, slots=True)
class CodeReview:
    """One review, in a turn of its own."""

    target: ReviewTarget
    recorder: TurnRecorder
    """Of the turn, and of `reviewer`."""
    reviewer: ModelExchange
    environment: Sequence[JsonObject]
    """Are sent to the reviewer first."""
    usage: UsageRecorder

    async def run(self) -> AgentMessageThreadItem:
        """Do the review; returns the message that the thread keeps of it.

        Raises:
            ModelFailure: the model failed for good; it was announced.
            OSError: the disk refused.
        """
        recorder = self.recorder
        entered = EnteredReviewModeThreadItem(id=recorder.clock.new_id(), review=hint(self.target))
        used = recorder.log.state.usage
        last = None if used is None else used.last
        recorder.started(entered)
        try:
            await recorder.completed(entered)
            review = await self._review()
        except ModelFailure as failure:
            await self._exit(FAILED.format(failure.message), last)
            raise
        except BaseException:
            await self._exit(STOPPED, last)
            raise
        return await self._exit(shown_review(review), last)

    async def _review(self) -> str:
        """Ask the reviewer until it calls no more tools; returns its last message."""
        reviewer, asked = self.reviewer, message("user", request(self.target))
        with self.recorder.own_history([*self.environment, asked]):
            for _ in range(MAX_REQUESTS):
                response = await reviewer.respond()
                if not response.calls:
                    said = reviewer.last_message
                    return "" if said is None else said.text
                with self.usage.tools():
                    await run_calls(response.calls, reviewer.tools, self.recorder)
            raise reviewer.requests.announced(
                ModelFailure(f"the model made {MAX_REQUESTS} requests in one review")
            )

    async def _exit(self, text: str, last: TokenUsageBreakdown | None) -> AgentMessageThreadItem:
        """Leave the review mode, also where the turn is cut off meanwhile."""
        recorder = self.recorder
        with anyio.CancelScope(shield=True):
            await self.reviewer.requests.recount(last)
            exited = ExitedReviewModeThreadItem(id=recorder.clock.new_id(), review=text)
            recorder.started(exited)
            outcome = message("user", review_for_model(text))
            await recorder.completed(exited, [outcome])
            said = AgentMessageThreadItem(id=f"msg_{recorder.clock.new_id()}", text=text)
            recorder.started(said)
            item: JsonObject = {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": text}],
            }
            await recorder.completed(said, [item])
        return said
