"""Ranks of what clients put in order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.threads.organization import rank_between


@given(st.lists(st.integers(0, 2**16), max_size=80))
def test_there_is_always_room_between_two_ranks(places: list[int]) -> None:
    ranks: list[str] = []
    for place in places:
        index = place % (len(ranks) + 1)
        low = ranks[index - 1] if index > 0 else None
        high = ranks[index] if index < len(ranks) else None
        ranks.insert(index, rank_between(low, high))
        assert ranks == sorted(set(ranks))
        assert not ranks[index].endswith("0")


def test_ranks_stay_short_at_the_ends_and_grow_slowly_in_between() -> None:
    first = last = high = rank_between(None, None)
    low = rank_between(None, high)
    for _ in range(1000):
        first, last = rank_between(None, first), rank_between(last, None)
        high = rank_between(low, high)
    assert (len(first), len(last)) == (6, 6)
    assert len(high) < 210
    assert rank_between("zzzzzz", None) > "zzzzzz"
    assert rank_between(None, "000001") < "000001"
    with pytest.raises(ValueError, match="b is not below a"):
        rank_between("b", "a")
