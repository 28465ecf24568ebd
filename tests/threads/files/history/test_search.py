"""threads: finding threads, and places in one, by what was said; and thread/search* on the wire."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app_server.threads.files.history.history import ThreadSearch
from app_server.threads.files.history.index import SLOTS, HistoryIndex
from app_server.threads.files.index.index import ThreadIndex
from app_server.threads.files.writers import FileLog
from app_server.threads.history.outlining import MAX_PAGES, PAGE_CHARS
from app_server.threads.history.search import SearchQuery
from app_server.threads.history.texts import excerpt, matches
from app_server.threads.log.reading import load_state
from app_server.threads.rows import ThreadRow
from protocol.cursors import InvalidCursor
from protocol.log.rollout import ArchivedChanged, Record, TurnsReverted
from tests.support.harness import WAIT_S, claim, serve
from tests.support.model import Gate, says
from tests.support.threads.histories import turn, write
from tests.support.threads.stores import CLOCK, created, open_store

# Matching.


@settings(max_examples=200)
@given(st.text(max_size=30), st.text(min_size=1, max_size=3))
def test_every_match_is_where_it_is_said_to_be(text: str, term: str) -> None:
    folded = term.casefold()
    found = list(matches(text, folded))
    assert len(found) == text.casefold().count(folded)
    for start, end in found:
        assert folded in text[start:end].casefold()
        shown = excerpt(text, start, end)
        assert 0 <= shown.start <= shown.end <= len(shown.text)


@pytest.mark.parametrize(
    ("text", "term", "expected"),
    [
        ("aaaa", "AA", [("aaaa", 0, 2), ("aaaa", 2, 4)]),
        ("hello Straße", "STRASSE", [("hello Straße", 6, 12)]),
        ("a 😀 target ﬁ x", "fi X", [("a 😀 target ﬁ x", 11, 14)]),
        ("one\n\n two  FINDME\tthree ", "findme", [("one two FINDME three", 8, 14)]),
        (
            "x" * 60 + "needle" + "y" * 200,
            "needle",
            [("... " + "x" * 48 + "needle" + "y" * 96 + " ...", 52, 58)],
        ),
        ("nothing", "else", []),
        ("nothing", "", []),
    ],
)
def test_matches_ignore_case_and_show_what_is_around_them(
    text: str, term: str, expected: list[Any]
) -> None:
    excerpts = [excerpt(text, *place) for place in matches(text, term.casefold())]
    assert [(one.text, one.start, one.end) for one in excerpts] == expected


def test_ranges_count_utf_16_code_units() -> None:
    ((start, end),) = matches("a 😀 target", "target")
    assert excerpt("a 😀 target", start, end).utf16_range == (5, 11)


# The index of texts.


class Shelf:
    """Threads on disk with both indexes."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.history = HistoryIndex(home / "history")
        self.rows = ThreadIndex(home / "threads")
        self.search = ThreadSearch(home / "history", home / "threads")

    def put(self, name: str, at_ms: int, *records: Record) -> None:
        """Write a thread, or more of it, and let both indexes follow."""
        path = self.home / name
        if not path.exists():
            write(path, created(at_ms, name))
        write(path, *records)
        self.history.catch_up([(name, path)])
        self.rows.put([ThreadRow.of(load_state(FileLog(path)))], is_open=False)

    def found(self, term: str, **choices: Any) -> list[tuple[str, str]]:
        """Walk all pages, two threads each."""
        query = replace(SearchQuery(term, limit=2), **choices)
        found: list[tuple[str, str]] = []
        while True:
            page = self.search.page(query)
            found.extend((one.thread_id, one.snippet) for one in page.found)
            if page.next_cursor is None:
                return found
            query = replace(query, cursor=page.next_cursor)

    def ids(self, term: str, **choices: Any) -> list[str]:
        """Return the threads of all pages."""
        return [thread_id for thread_id, _ in self.found(term, **choices)]

    def close(self) -> None:
        self.search.close()
        self.rows.close()
        self.history.close()


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    opened = Shelf(tmp_path)
    yield opened
    opened.close()


@claim("search:parts")
@pytest.mark.parametrize(("few_hits", "some_hits"), [(0, 0), (0, 10000), (400, 10000)])
def test_any_part_of_what_was_said_is_found_however_often_it_was_said(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, few_hits: int, some_hits: int
) -> None:
    monkeypatch.setattr("app_server.threads.files.history.history.FEW_HITS", few_hits)
    monkeypatch.setattr("app_server.threads.files.history.history.SOME_HITS", some_hits)
    for number, name in enumerate("abcde", start=1):
        shelf.put(name, number, *turn(number, f"the answer {name * 3}", "and 100% of Grüße"))
    everything = list("edcba")
    for term in ("answer", "SWER", "question", "grÜß", "0% of", "a", "w", "ü"):
        assert shelf.ids(term) == everything, term
        assert shelf.ids(term, ascending=True) == everything[::-1]
    assert shelf.found("ccc") == [("c", "the answer ccc")]
    assert shelf.found("question 2") == [("b", "question 2")]
    for term in ("nowhere", '"', "zz", "answer*", "OR", "question 1 OR question 2", "_"):
        assert shelf.ids(term) == [], term
    # Nothing is found across two messages.
    assert shelf.ids("question 1the") == shelf.ids("1\x1ethe") == []


@claim("search:parts")
@pytest.mark.parametrize("first", [0, 1, 400])
@pytest.mark.parametrize("trigrams", [0, 2, 300])
def test_terms_too_short_for_trigrams_are_found_wherever_they_stand(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, first: int, trigrams: int
) -> None:
    monkeypatch.setattr("app_server.threads.files.history.history.FIRST_THREADS", first)
    monkeypatch.setattr("app_server.threads.files.history.history.MAX_TRIGRAMS", trigrams)
    texts = {
        "a": "Xyz stands first",
        "b": "in the mxydle",
        "c": "at the end xY",
        "d": "x",
        "e": "İy",
    }
    for number, (name, text) in enumerate(texts.items(), start=1):
        shelf.put(name, number, *turn(number, text, "no"))
    assert shelf.ids("xy") == shelf.ids("XY") == ["c", "b", "a"]
    assert shelf.ids("x") == ["d", "c", "b", "a"]
    assert shelf.ids("x", ascending=True) == ["a", "b", "c", "d"]
    assert (shelf.ids("qq"), shelf.ids("yx"), shelf.ids('"x'), shelf.ids("x*")) == ([], [], [], [])
    assert shelf.ids("İ") == ["e"]
    # A page that grew is still found at its end.
    shelf.put("a", 1, *turn(9, "later xy", "no"))
    assert shelf.ids("xy") == ["c", "b", "a"]


@claim("search:order")
def test_what_is_found_is_ordered_filtered_and_paged_like_lists(shelf: Shelf) -> None:
    for number, name in enumerate("abcd", start=1):
        shelf.put(name, number, *turn(number, "needle"))
    shelf.put("b", 2, *turn(50, "later"))
    shelf.put("d", 4, ArchivedChanged(at_ms=60, archived=True))
    assert shelf.ids("needle") == ["c", "b", "a"]
    assert shelf.ids("needle", sort_key="updated_at_ms") == ["b", "c", "a"]
    assert shelf.ids("needle", sort_key="recency_at_ms", ascending=True) == ["a", "c", "b"]
    assert shelf.ids("needle", archived=True) == ["d"]
    assert shelf.ids("needle", source_kinds=["cli"]) == []
    assert shelf.ids("needle", source_kinds=["cli", "vscode"]) == ["c", "b", "a"]
    page = shelf.search.page(SearchQuery("needle", 1, ascending=True))
    back = SearchQuery("needle", 9, page.backwards_cursor)
    assert shelf.search.page(back).found == []
    after = SearchQuery("needle", 9, page.next_cursor, ascending=True)
    assert [one.thread_id for one in shelf.search.page(after).found] == ["b", "c"]
    for cursor in (
        "zz",
        "[]",
        '["search","updated_at_ms",1,"a"]',
        '["search","created_at_ms",1e99,"a"]',
    ):
        with pytest.raises(InvalidCursor):
            shelf.search.page(SearchQuery("needle", 1, cursor))


@claim("search:bounded")
def test_a_thread_keeps_its_newest_texts_up_to_a_bound(shelf: Shelf) -> None:
    pages = MAX_PAGES + 3
    said = [f"begin{number}x " + "pad " * (PAGE_CHARS // 5) for number in range(pages)]
    for number, text in enumerate(said):
        shelf.put("a", 1, *turn(number, text))
    assert [bool(shelf.ids(f"begin{number}x")) for number in range(pages)] == [
        number >= 3 for number in range(pages)
    ]
    shelf.put("a", 1, *turn(99, "word " * PAGE_CHARS + "behind the bound"))
    assert (shelf.ids("word word"), shelf.ids("behind the bound")) == (["a"], [])
    with closing(sqlite3.connect(shelf.home / "history")) as database:
        (rows,) = database.execute("SELECT count(*) FROM texts").fetchone()
    assert rows <= MAX_PAGES < SLOTS


def texts_of(home: Path) -> Sequence[Any]:
    with closing(sqlite3.connect(home / "history")) as database:
        return database.execute("SELECT rowid, text FROM texts ORDER BY rowid").fetchall()


@claim("search:rebuilt")
@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.text(max_size=9)), max_size=8), st.integers(0, 9))
def test_texts_that_were_kept_up_equal_those_that_are_made_again(
    tmp_path_factory: pytest.TempPathFactory, appended: list[tuple[int, str]], cut: int
) -> None:
    home = tmp_path_factory.mktemp("kept")
    kept = HistoryIndex(home / "history")
    path = home / "log"
    write(path, created())
    for number, (which, text) in enumerate(appended):
        records: list[Record] = turn(number, text, text * 2000)
        if which == 0:
            records = [TurnsReverted(at_ms=1, before_turn_id=f"t{cut}")]
        write(path, *records)
        if which < 4:
            kept.catch_up([("a", path)])
    kept.catch_up([("a", path)])
    kept.close()
    again = home / "again"
    again.mkdir()
    anew = HistoryIndex(again / "history")
    anew.catch_up([("a", path)])
    anew.close()
    assert texts_of(home) == texts_of(again)


async def test_a_search_finds_what_was_there_before_it_was_asked_also_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(tmp_path) as store:
        thread = await store.create(created())
        await thread.append(*turn(1, "a first word"))
        page, rows = await store.history.search(SearchQuery("first", 9))
        assert [one.thread_id for one in page.found] == [thread.id] == list(rows)
        # As a crash would: nobody hears of the turn any more.
        thread.changed = lambda _: None
        await thread.append(*turn(2, "a second word"))
        await thread.aclose()
        store.follower.behind.clear()
        store.history.behind.clear()
    async with open_store(tmp_path) as store:
        page, _ = await store.history.search(SearchQuery("second", 9))
        assert [one.thread_id for one in page.found] == [thread.id]


async def test_a_search_waits_for_a_history_index_that_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.threads.files.history.history.FOLLOW_STEP", 2)
    made = []
    async with open_store(tmp_path) as store:
        for number in range(5):
            thread = await store.create(created())
            await thread.append(*turn(number, f"word {number}"))
            await store.unload(thread)
            made.append(thread.id)
    (tmp_path / "threads" / "stray.jsonl").write_text("nothing\n")
    (tmp_path / "threads" / "folder.jsonl").mkdir()
    for file in (tmp_path / "index").glob("history*"):
        file.unlink()
    async with open_store(tmp_path) as store:
        with anyio.fail_after(WAIT_S):
            page, _ = await store.history.search(SearchQuery("word", 9, ascending=True))
        assert [one.thread_id for one in page.found] == made
        await store.delete(made[0])
        page, _ = await store.history.search(SearchQuery("word", 9, ascending=True))
        assert [one.thread_id for one in page.found] == made[1:]


async def test_the_history_index_follows_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.threads.files.index.follower.FLUSH_S", 0)
    async with open_store(tmp_path) as store:
        thread = await store.create(created())
        await thread.append(*turn(1, "by itself"))
        with anyio.fail_after(WAIT_S):
            while store.history.behind:
                await anyio.lowlevel.checkpoint()
            async with store.history._following:
                pass
        found = store.history._find(SearchQuery("by itself", 9))
        assert [one.thread_id for one in found.found] == [thread.id]
        await store.unload(thread)


# As clients use it.


@claim("search:threads")
async def test_threads_are_found_by_what_was_said_in_them(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        served.model.scripts.extend([says("In the GARDEN, by the river."), says("No.")])
        first = await client.start_thread()
        await client.turn(first, "Where is the cat?")
        second = await client.start_thread()
        await client.turn(second, "Is it in the garden?")

        async def found(**params: Any) -> list[tuple[str, str]]:
            result = await client.call("thread/search", params)
            return [(one["thread"]["id"], one["snippet"]) for one in result["data"]]

        assert await found(searchTerm="garden") == [
            (second, "Is it in the garden?"),
            (first, "In the GARDEN, by the river."),
        ]
        assert await found(searchTerm="river") == [(first, "In the GARDEN, by the river.")]
        assert await found(searchTerm="nowhere") == []
        page = await client.call("thread/search", {"searchTerm": "garden", "limit": 1})
        listed = (await client.call("thread/list", {}))["data"]
        assert [one["thread"] for one in page["data"]] == listed[:1]
        rest = await found(searchTerm="garden", cursor=page["nextCursor"])
        assert [thread_id for thread_id, _ in rest] == [first]
        await client.call("thread/archive", {"threadId": first})
        assert [name for name, _ in await found(searchTerm="garden")] == [second]
        assert [name for name, _ in await found(searchTerm="garden", archived=True)] == [first]
        await client.call("thread/delete", {"threadId": second})
        assert await found(searchTerm="garden") == []
        for params, code, text in (
            ({"searchTerm": " "}, -32600, "thread/search requires a non-empty searchTerm"),
            ({"searchTerm": "x", "cursor": "junk"}, -32600, "invalid cursor: junk"),
            (
                {"searchTerm": "x" * 1001},
                -32602,
                "Invalid params: `searchTerm` holds more than 1000 characters",
            ),
        ):
            refused = await client.refusal("thread/search", params)
            assert (refused.code, refused.message) == (code, text)


@claim("search:occurrences")
async def test_places_in_a_thread_are_found_paged_and_lead_to_their_turns(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        here = {"threadId": thread_id}
        turns = []
        for number in range(3):
            served.model.scripts.append(
                says(f"answer {number}: hello, hello", item_id=f"m{number}")
            )
            turns.append((await client.turn(thread_id, f"hello 😀 number {number}"))["id"])
        asked = {**here, "searchTerm": "HELLO", "limit": 4}
        page = await client.call("thread/searchOccurrences", asked)
        places = [(turns.index(one["turnId"]), one["snippet"]) for one in page["data"]]
        assert places == [
            (0, "hello 😀 number 0"),
            (0, "answer 0: hello, hello"),
            (0, "answer 0: hello, hello"),
            (1, "hello 😀 number 1"),
        ]
        assert [one["snippetMatchRange"] for one in page["data"]] == [
            {"start": 0, "end": 5},
            {"start": 10, "end": 15},
            {"start": 17, "end": 22},
            {"start": 0, "end": 5},
        ]
        assert page["data"][1]["itemId"] == "m0"
        rest = await client.call(
            "thread/searchOccurrences", {**asked, "cursor": page["nextCursor"], "limit": None}
        )
        assert [turns.index(one["turnId"]) for one in rest["data"]] == [1, 1, 2, 2, 2]
        assert rest["nextCursor"] is None
        one_by_one: list[Any] = []
        cursor = None
        while len(one_by_one) < 10:
            step = await client.call(
                "thread/searchOccurrences", {**asked, "limit": 1, "cursor": cursor}
            )
            one_by_one.extend(step["data"])
            cursor = step["nextCursor"]
            if cursor is None:
                break
        assert one_by_one == [*page["data"], *rest["data"]]
        (number,) = (
            await client.call("thread/searchOccurrences", {**here, "searchTerm": "number 2"})
        )["data"]
        assert number["snippetMatchRange"] == {"start": 9, "end": 17}
        opened = await client.call(
            "thread/turns/list", {**here, "cursor": number["turnCursor"], "limit": 1}
        )
        assert [one["id"] for one in opened["data"]] == turns[2:]
        gate = Gate()
        served.model.scripts.append([gate])
        await client.call(
            "turn/start", {**here, "input": [{"type": "text", "text": "Hello again"}]}
        )
        await gate.wait_until_reached()
        again = await client.call("thread/searchOccurrences", {**here, "searchTerm": "hello a"})
        assert [one["snippet"] for one in again["data"]] == ["Hello again"]
        gate.opened.set()
        await client.wait_for("turn/completed")
        await client.call("thread/revert", {**here, "beforeTurnId": turns[1]})
        left = await client.call("thread/searchOccurrences", {**here, "searchTerm": "hello"})
        assert {one["turnId"] for one in left["data"]} == {turns[0]}
        unknown, ephemeral = CLOCK.new_id(), await client.start_thread(ephemeral=True)
        for params, text in (
            ({"searchTerm": ""}, "thread/searchOccurrences requires a non-empty searchTerm"),
            ({"searchTerm": "other", "cursor": page["nextCursor"]}, None),
            ({"threadId": unknown}, f"thread not loaded: {unknown}"),
            ({"threadId": ephemeral}, "ephemeral threads do not support thread/searchOccurrences"),
        ):
            refused = await client.refusal("thread/searchOccurrences", {**asked, **params})
            assert refused.code == -32600
            assert refused.message == (text or f"invalid cursor: {page['nextCursor']}")
