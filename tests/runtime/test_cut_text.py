"""Texts that are cut say what is missing."""

from app_server.runtime.cut_text import CUT, cut_middle, cut_text


def test_text_is_cut_in_the_middle() -> None:
    assert cut_middle("short", 10) == "short"
    assert cut_middle("a" * 50 + "b" * 50, 20) == "a" * 10 + "…20 tokens truncated…" + "b" * 10
    assert cut_middle("ü" * 50, 21).startswith("ü" * 5 + "…")
    assert cut_middle("x" * 10, 0) == "…3 tokens truncated…"


def test_text_is_cut_at_its_end() -> None:
    limit = len(CUT.encode()) + 3
    assert cut_text("a" * limit, limit) == "a" * limit
    assert cut_text("a" * (limit + 1), limit) == "aaa" + CUT
    assert cut_text("ü" * limit, limit) == "ü" + CUT
    assert cut_text("abc", 2) == CUT
