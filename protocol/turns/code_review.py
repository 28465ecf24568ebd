"""review/start: a turn that reviews changes."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from protocol.model import Variant, WireModel
from protocol.thread_ids import ThreadIdParam
from protocol.turns.turn import Turn

ReviewDelivery = TypeAliasType("ReviewDelivery", Literal["inline"])
"""Where a review runs: on the thread that asked for it."""


class BaseBranchReviewTarget(Variant):
    """What the current branch changed since it left another one."""

    type: Literal["baseBranch"] = "baseBranch"
    branch: str


class CommitReviewTarget(Variant):
    """What one commit changed."""

    type: Literal["commit"] = "commit"
    sha: str
    title: str | None = None
    """What to call the commit on screen, such as its subject."""


class CustomReviewTarget(Variant):
    """Whatever the user's own words say."""

    type: Literal["custom"] = "custom"
    instructions: str


class UncommittedChangesReviewTarget(Variant):
    """What is not committed: staged, unstaged and untracked files."""

    type: Literal["uncommittedChanges"] = "uncommittedChanges"


ReviewTarget = TypeAliasType(
    "ReviewTarget",
    Annotated[
        UncommittedChangesReviewTarget
        | BaseBranchReviewTarget
        | CommitReviewTarget
        | CustomReviewTarget,
        Field(discriminator="type"),
    ],
)
"""What a review looks at."""


class ReviewStartParams(WireModel):
    """Have the model review code, in a turn of its own."""

    thread_id: ThreadIdParam
    target: ReviewTarget
    delivery: ReviewDelivery | None = None
    """Null means `inline`."""


class ReviewStartResponse(WireModel):
    """The turn in which the review runs."""

    turn: Turn
    review_thread_id: str
    """The thread that was named in the request."""
