"""What a server counts of itself: bounded, and without a text of anybody."""

from app_server.observability.telemetry.metrics import (
    MAX_FAILURE_KINDS,
    FailureMetrics,
    ServerMetrics,
)


def test_answers_and_turns_are_counted_by_how_they_went() -> None:
    now = iter([1000, 2000, 3000, 4000])
    metrics = ServerMetrics(lambda: next(now))
    metrics.answered("thread/list", 0.001, None)
    metrics.answered("thread/read", 0.001, "threadNotFound")
    metrics.answered("thread/archive", 0.001, "threadNotFound")
    metrics.turn_ended("completed", None)
    metrics.turn_ended("failed", "usageLimitExceeded")
    assert metrics.started_at_ms == 1000
    assert {name: (each.latency.count, each.failed) for name, each in metrics.methods.items()} == {
        "thread/list": (1, 0),
        "thread/read": (1, 1),
        "thread/archive": (1, 1),
    }
    assert metrics.turns == {"completed": 1, "failed": 1}
    assert metrics.failures == [
        FailureMetrics("turn", "usageLimitExceeded", 1, 4000, None),
        FailureMetrics("request", "threadNotFound", 2, 3000, "thread/archive"),
    ]


def test_the_kind_of_failure_that_is_the_longest_ago_makes_room() -> None:
    metrics = ServerMetrics(lambda: 0)
    for number in range(MAX_FAILURE_KINDS):
        metrics.refused(f"kind{number}")
    metrics.refused("kind0")
    metrics.refused("new")
    kinds = [failure.kind for failure in metrics.failures]
    assert len(kinds) == MAX_FAILURE_KINDS
    assert kinds[:2] == ["new", "kind0"]
    assert "kind1" not in kinds
