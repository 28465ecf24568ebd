"""Finding tools by words, for models that are not shown them all.

The ranking is BM25 as SQLite's full-text search has it, over names and descriptions.
Source: https://www.sqlite.org/fts5.html; docs/mcp.md, "Deferred tools".
"""

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing

from app_server.mcp.connections import Tool, ToolTable

DEFAULT_LIMIT = 8
MAX_LIMIT = 64
"""Tools of one search; a model that wants more gets these."""
MAX_QUERY_WORDS = 64

_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORDS = re.compile(r"\w+")


def search_tools(table: ToolTable, query: str, limit: int) -> Sequence[Tool]:
    """Find the tools that fit best, best first; blocks for some ms with thousands of tools.

    Any word of the query counts; word endings do not. At most `limit` tools come back.
    """
    words = _WORDS.findall(_spaced(query))[:MAX_QUERY_WORDS]
    if not words:
        return []
    terms = " OR ".join(f'"{word}"' for word in words)
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE VIRTUAL TABLE tools USING fts5(text, tokenize = 'porter')")
        database.executemany(
            "INSERT INTO tools (rowid, text) VALUES (?, ?)",
            ((row, _text_of(tool)) for row, tool in enumerate(table.tools)),
        )
        found = database.execute(
            "SELECT rowid FROM tools WHERE tools MATCH ? ORDER BY bm25(tools), rowid LIMIT ?",
            (terms, limit),
        )
        return [table.tools[row] for (row,) in found]


def _text_of(tool: Tool) -> str:
    names = tool.raw.server, tool.raw.tool, *tool.metadata.search_aliases
    described = tool.definition.get("title"), tool.definition.get("description")
    return " ".join(_spaced(text) for text in (*names, *described) if isinstance(text, str))


def _spaced(text: str) -> str:
    """Take names apart: `createIssue` and `create_issue` are two words each."""
    return _HUMPS.sub(" ", text).replace("_", " ")
