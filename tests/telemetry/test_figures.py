"""What a server counts of itself: bounded, and without a text of anybody."""

from app_server.telemetry.figures import MAX_FAILURE_KINDS, FailureFigures, ServerFigures


def test_answers_and_turns_are_counted_by_how_they_went() -> None:
    now = iter([1000, 2000, 3000, 4000])
    figures = ServerFigures(lambda: next(now))
    figures.answered("thread/list", 0.001, None)
    figures.answered("thread/read", 0.001, "threadNotFound")
    figures.answered("thread/archive", 0.001, "threadNotFound")
    figures.turn_ended("completed", None)
    figures.turn_ended("failed", "usageLimitExceeded")
    assert figures.started_at_ms == 1000
    assert {name: (each.latency.count, each.failed) for name, each in figures.methods.items()} == {
        "thread/list": (1, 0),
        "thread/read": (1, 1),
        "thread/archive": (1, 1),
    }
    assert figures.turns == {"completed": 1, "failed": 1}
    assert figures.failures == [
        FailureFigures("turn", "usageLimitExceeded", 1, 4000, None),
        FailureFigures("request", "threadNotFound", 2, 3000, "thread/archive"),
    ]


def test_the_kind_of_failure_that_is_the_longest_ago_makes_room() -> None:
    figures = ServerFigures(lambda: 0)
    for number in range(MAX_FAILURE_KINDS):
        figures.refused(f"kind{number}")
    figures.refused("kind0")
    figures.refused("new")
    kinds = [failure.kind for failure in figures.failures]
    assert len(kinds) == MAX_FAILURE_KINDS
    assert kinds[:2] == ["new", "kind0"]
    assert "kind1" not in kinds
