"""How many reviews a turn may have, and how many denials."""

from pathlib import Path

import pytest

from app_server.models.prompt.environment_context import kind_of
from app_server.models.prompt.request import STOPPED_BY_REVIEWER
from app_server.turns.approval.reviewer import TurnReviews
from tests.support.harness import claim
from tests.support.model import calls, says
from tests.support.turn_tools.reviews import (
    ALLOW,
    COMPLETED,
    DENY,
    STARTED,
    WIPE,
    of_review,
    review,
    undecided,
    verdict,
    with_peer,
)


@claim("review:denials")
async def test_three_denials_in_a_row_end_the_turn(tmp_path: Path) -> None:
    async with with_peer(tmp_path) as place:
        told = of_review(await place.run(*[calls(WIPE), verdict(DENY)] * 3, says("no")))
        assert [entry for entry in told if entry[0] == COMPLETED] == [
            (COMPLETED, "call_1", review("denied", DENY))
        ] * 3
        assert told[-2:] == [
            (
                "guardianWarning",
                "Automatic approval review rejected too many approval requests for this turn "
                "(3 consecutive, 3 in the last 50 reviews); interrupting the turn.",
            ),
            ("turn/completed", "interrupted"),
        ]
        place.served.model.scripts.clear()
        told = of_review(await place.run(calls(WIPE), verdict(DENY), says("done")))
        # Another turn begins without what the last one was denied.
        assert told[-1] == ("turn/completed", "completed")
        asked, _ = place.model_requests
        said = [i for i in asked[-1]["input"] if i["type"] == "message" and kind_of(i) is None]
        assert [(item["role"], item["content"][0]["text"]) for item in said] == [
            ("user", "go"),
            ("developer", STOPPED_BY_REVIEWER),
            ("user", "go"),
        ]


def test_denials_are_counted_in_a_row_and_among_the_last_fifty() -> None:
    turn = TurnReviews("t")
    assert [turn.end(denied=d) for d in (True, True, False, True, True)] == [False] * 5
    assert turn.end(denied=True)
    assert (turn.in_a_row, turn.recent_denials) == (3, 5)
    # Calls side by side may be denied after that; the turn is stopped once.
    assert not turn.end(denied=True)
    spread = TurnReviews("t")
    ends = [spread.end(denied=n % 3 != 0) for n in range(15)]
    assert ends == [False] * 14 + [True]
    assert (spread.in_a_row, spread.recent_denials) == (2, 10)
    forgetful = TurnReviews("t")
    assert not any(forgetful.end(denied=n % 6 == 0) for n in range(200))


@claim("review:bounds")
async def test_a_turn_has_a_limited_number_of_reviews(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.turns.approval.reviewer.MAX_REVIEWS", 1)
    async with with_peer(tmp_path) as place:
        scripts = [calls(WIPE), verdict(ALLOW), calls(WIPE), says("done")]
        told = of_review(await place.run(*scripts))
        failure = "Automatic approval review failed: this turn has had 1 reviews"
        assert told[5:] == [
            ("item/started", "call_1", "inProgress", None),
            (STARTED, "call_1", review("inProgress")),
            ("guardianWarning", failure),
            (COMPLETED, "call_1", review("denied", rationale=failure)),
            ("item/completed", "call_1", "failed", {"message": undecided(failure)}),
            ("turn/completed", "completed"),
        ]
        _, reviews = place.model_requests
        assert len(reviews) == 1
