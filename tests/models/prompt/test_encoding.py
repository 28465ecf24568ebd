"""Bodies of model calls, written in pieces."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import to_json

from app_server.models.client import PIECE_BYTES, encode
from tests.support.event_loop.turns import counted_turns

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), VALUES, max_size=6), st.integers(1, 100))
@settings(deadline=None)
async def test_pieces_are_what_the_whole_is(body: Any, piece_bytes: int) -> None:
    assert await encode(body, piece_bytes) == to_json(body, inf_nan_mode="null")


async def test_others_run_between_two_pieces() -> None:
    body: Any = {"model": "m", "tools": [{"name": "n" * 1_000} for _ in range(1_000)]}
    async with counted_turns() as turns:
        content = await encode(body)
    assert turns.count >= len(content) // (PIECE_BYTES + 2_000)
