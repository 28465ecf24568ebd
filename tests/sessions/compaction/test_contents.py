"""What of a history a summary takes the place of."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app_server.models.prompt.context import (
    KEPT_USER_TOKENS,
    MAX_SUMMARY_BYTES,
    MEDIA_TOKENS,
    NOT_KEPT,
    SUMMARY_PREFIX,
    compacted,
    estimated_tokens,
    is_summary,
    kept_tokens,
    split_unseen,
    without_oldest,
    worth_compacting,
)
from app_server.models.prompt.request import message
from app_server.runtime.cut_text import CUT
from tests.support.threads.compaction import (
    items,
)


def test_the_newest_words_of_the_user_are_kept_within_a_bound() -> None:
    long = "l" * (KEPT_USER_TOKENS * 4 - 100)
    image = {"type": "input_image", "image_url": "data:" + "x" * 1000}
    history = [
        message("user", "forgotten"),
        message("user", "cut " * 100),
        message("user", SUMMARY_PREFIX + "older"),
        message("user", long),
        message("developer", "told"),
        {"type": "message", "role": "user", "content": [image]},
        {"type": "reasoning", "summary": []},
    ]
    kept = [item["content"][0]["text"] for item in compacted(history, "new")]
    budget = 100 - len(NOT_KEPT.encode())
    assert kept == [
        ("cut " * 100)[: budget - len(CUT.encode())] + CUT,
        long,
        NOT_KEPT,
        SUMMARY_PREFIX + "new",
    ]
    assert [kept_tokens(limit) for limit in (None, 400, 1_000_000)] == [
        KEPT_USER_TOKENS,
        100,
        KEPT_USER_TOKENS,
    ]
    bound = compacted([message("user", "x" * 1000)], "new", keep=100)[0]["content"][0]["text"]
    assert len(bound.encode()) == 400
    (only,) = compacted([], "s" * (MAX_SUMMARY_BYTES + 1))
    assert len(only["content"][0]["text"]) < MAX_SUMMARY_BYTES + len(SUMMARY_PREFIX)
    assert is_summary(only)


def test_media_count_as_a_fixed_number_of_tokens() -> None:
    image = {"type": "input_image", "image_url": "data:" + "x" * 1_000_000}
    item = {"type": "message", "role": "user", "content": [image]}
    assert MEDIA_TOKENS < estimated_tokens([item, item]) - MEDIA_TOKENS < MEDIA_TOKENS + 100
    assert estimated_tokens([]) == 0


@given(st.lists(items, max_size=12))
def test_what_the_model_has_not_seen_comes_whole_after_the_summary(history: list[Any]) -> None:
    seen, unseen = split_unseen(history)
    assert seen + unseen == history
    after = compacted(seen, "new", unseen)
    assert after[len(after) - len(unseen) :] == unseen
    (summary,) = [item for item in after if is_summary(item)]
    assert after.index(summary) == len(after) - len(unseen) - 1
    # A second compaction finds nothing to do.
    assert not worth_compacting(split_unseen(after)[0])


@given(st.lists(items, min_size=1, max_size=12))
def test_leaving_out_the_oldest_ends_and_leaves_no_output_without_its_call(
    history: list[Any],
) -> None:
    shorter = without_oldest(history)
    assert len(shorter) < len(history)
    called = False
    for item in shorter:
        called = called or item["type"] == "function_call"
        assert called or item["type"] != "function_call_output"
