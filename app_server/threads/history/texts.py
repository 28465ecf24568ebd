"""Texts of messages: read from lines of a log, stored for full-text search, matched, and excerpted.

Full text has trigrams, so that any part is found. Texts of a thread are kept in pages, whole
messages each; the newest pages are kept. Blocks.
Source: docs/wire.md, "History and search".
"""

import re
import sqlite3
from collections.abc import Iterator
from typing import NamedTuple

from app_server.runtime.files.sqlite import damaged
from protocol.log.rollout import (
    InputQueued,
    ItemCompleted,
    ItemEnded,
    ItemLeftRunning,
    parse_record,
)
from protocol.turns.items import (
    AgentMessageThreadItem,
    ThreadItem,
    UserMessageThreadItem,
    text_of_input,
)


def item_in(line: bytes) -> ThreadItem | None:
    """Return the item that a line holds, as its own or as queued input."""
    match parse_record(line):
        case ItemCompleted(item=item) | ItemLeftRunning(item=item) | ItemEnded(item=item):
            return item
        case InputQueued(message=message):
            return message
    return None


def text_of(item: ThreadItem | None) -> str:
    """Return what was said in an item; empty if it is no message."""
    match item:
        case UserMessageThreadItem(content=content):
            return text_of_input(content)
        case AgentMessageThreadItem(text=text):
            return text
    return ""


def message_text(line: bytes) -> str:
    """Return what was said in the item of a line."""
    return text_of(item_in(line))


PAGE_CHARS = 16_384
"""Characters of a page; a longer message is cut to one page."""
MAX_PAGES = 32
"""Pages of a thread, so that one thread never fills the index: 524,288 characters."""
SLOTS = 64
"""Row ids that each thread has for its pages."""
BETWEEN = "\x1e"
"""Stands between messages, so that nothing is found across two of them."""
END = BETWEEN * 2
"""Behind the last message of a page: so every place in a text begins a trigram."""

TEXT_SCHEMA = """
CREATE VIRTUAL TABLE texts USING fts5 (text, tokenize = 'trigram');
CREATE TABLE pages (key INTEGER PRIMARY KEY, last INTEGER NOT NULL);
"""


class TextPages:
    """The texts of one thread, inside of somebody's transaction."""

    def __init__(self, database: sqlite3.Connection, key: int) -> None:
        self._database = database
        self._key = key
        self._last: int | None = None
        self._stored = False
        self._text = ""

    def add(self, text: str) -> None:
        """Append a message to the newest page, or begin one."""
        text = text.replace(BETWEEN, " ")[:PAGE_CHARS]
        if not text.strip():
            return
        if self._last is None:
            self._open_last()
        if self._text and len(self._text) + len(text) > PAGE_CHARS:
            self._write()
            self._begin((self._last or 0) + 1)
        self._text = f"{self._text}{BETWEEN}{text}" if self._text else text

    def flush(self) -> None:
        """Write what was added."""
        if self._last is not None:
            self._write()
            self._database.execute(
                "INSERT OR REPLACE INTO pages (key, last) VALUES (?, ?)", (self._key, self._last)
            )

    def clear(self) -> None:
        """Forget all texts of the thread."""
        first = self._key * SLOTS
        self._database.execute(
            "DELETE FROM texts WHERE rowid BETWEEN ? AND ?", (first, first + SLOTS - 1)
        )
        self._database.execute("DELETE FROM pages WHERE key = ?", (self._key,))

    def _open_last(self) -> None:
        found = self._database.execute("SELECT last FROM pages WHERE key = ?", (self._key,))
        row = found.fetchone()
        if row is None:
            self._begin(0)
            return
        self._last = row[0]
        found = self._database.execute(
            "SELECT text FROM texts WHERE rowid = ?", (self._row_id(row[0]),)
        )
        kept = found.fetchone()
        if kept is None:
            raise damaged("a page of text is missing")
        self._text = kept[0].removesuffix(END)
        self._stored = True

    def _begin(self, page: int) -> None:
        self._last, self._text, self._stored = page, "", False
        if page >= MAX_PAGES:
            self._database.execute(
                "DELETE FROM texts WHERE rowid = ?", (self._row_id(page - MAX_PAGES),)
            )

    def _write(self) -> None:
        assert self._last is not None
        if self._stored:
            statement = "UPDATE texts SET text = ?2 WHERE rowid = ?1"
        else:
            statement = "INSERT INTO texts (rowid, text) VALUES (?1, ?2)"
        self._database.execute(statement, (self._row_id(self._last), self._text + END))
        self._stored = True

    def _row_id(self, page: int) -> int:
        return self._key * SLOTS + page % SLOTS


BEFORE_CHARS = 48
AFTER_CHARS = 96
_SPACE = re.compile(r"\s+")


class Excerpt(NamedTuple):
    """A piece of text on one line; `start` and `end` say where the match is, in code points."""

    text: str
    start: int
    end: int

    @property
    def utf16_range(self) -> tuple[int, int]:
        """Range of the match, in UTF-16 code units."""
        return _units(self.text[: self.start]), _units(self.text[: self.end])


def matches(text: str, term: str) -> Iterator[tuple[int, int]]:
    """Walk the places of a case-folded term in a text, none overlapping the one before."""
    folded = text.casefold()
    at = folded.find(term)
    if at < 0 or not term:
        return
    origin = range(len(text)) if len(folded) == len(text) else _origins(text)
    while at >= 0:
        end = at + len(term)
        yield origin[at], origin[end - 1] + 1
        at = folded.find(term, end)


def excerpt(text: str, start: int, end: int) -> Excerpt:
    """Cut a text down to what is around a match; white space becomes single spaces."""
    before, after = text[max(0, start - BEFORE_CHARS) : start], text[end : end + AFTER_CHARS]
    before = ("... " if start > BEFORE_CHARS else "") + _SPACE.sub(" ", before)
    match = _SPACE.sub(" ", text[start:end])
    after = _SPACE.sub(" ", after) + (" ..." if end + AFTER_CHARS < len(text) else "")
    before = before.lstrip()
    return Excerpt(f"{before}{match}{after.rstrip()}", len(before), len(before) + len(match))


def _origins(text: str) -> list[int]:
    """Say for each character of the folded text which character it comes from."""
    return [place for place, char in enumerate(text) for _ in char.casefold()]


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
