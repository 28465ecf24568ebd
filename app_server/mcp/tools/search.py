"""Finding tools by words, for models that are not shown them all.

The ranking is BM25 as SQLite's full-text search has it, over names and descriptions.
Source: https://www.sqlite.org/fts5.html; docs/mcp.md, "Deferred tools".
"""

import re
import sqlite3
from collections.abc import Iterable
from contextlib import closing

from app_server.mcp.tools.table import Tool

DEFAULT_LIMIT = 8
MAX_LIMIT = 64
"""Tools of one search; a model that wants more gets these."""
MAX_QUERY_WORDS = 64

_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORDS = re.compile(r"\w+")


def best(texts: Iterable[str], query: str, limit: int) -> list[int]:
    """Return the indexes of the texts that match, best first, at most `limit`.

    Any word of the query counts; word endings do not.
    """
    words = _WORDS.findall(_spaced(query))[:MAX_QUERY_WORDS]
    if not words:
        return []
    terms = " OR ".join(f'"{word}"' for word in words)
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE VIRTUAL TABLE tools USING fts5(text, tokenize = 'porter')")
        database.executemany(
            "INSERT INTO tools (rowid, text) VALUES (?, ?)",
            enumerate(texts),
        )
        found = database.execute(
            "SELECT rowid FROM tools WHERE tools MATCH ? ORDER BY bm25(tools), rowid LIMIT ?",
            (terms, limit),
        )
        return [row for (row,) in found]


def text_of(tool: Tool) -> str:
    """Return what a search looks through: names and descriptions."""
    names = tool.raw.server, tool.raw.tool, *tool.metadata.search_aliases
    described = tool.definition.get("title"), tool.definition.get("description")
    return spaced(*(text for text in (*names, *described) if isinstance(text, str)))


def spaced(*texts: str) -> str:
    """Join texts, and take names in them apart: `createIssue` and `create_issue` are two words."""
    return " ".join(_spaced(text) for text in texts)


def _spaced(text: str) -> str:
    return _HUMPS.sub(" ", text).replace("_", " ")
