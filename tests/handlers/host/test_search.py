"""fuzzyFileSearch and its sessions, over real sockets and with real files."""

import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.host.files.work import Stop
from app_server.host.search import service
from app_server.host.search.ranking import rank
from app_server.host.search.service import MAX_ROOTS, MAX_SESSIONS, FileSearch
from tests.support.harness import WAIT_S, WireClient, claim, serve

SESSION = "fuzzyFileSearch/session"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Make a repository with a few files."""
    place = tmp_path / "place"
    for name in ("src/main.py", "src/other.py", "build/main.o", "README.md"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).touch()
    (place / ".gitignore").write_text("build/\n")
    subprocess.run(["git", "init", "-q", str(place)], check=True)
    return place


def main_py(root: Path) -> dict[str, Any]:
    return {
        "root": str(root),
        "path": "src/main.py",
        "match_type": "file",
        "file_name": "main.py",
        "score": 65645,
        "indices": [4, 5, 6, 7],
    }


async def results(client: WireClient, session: str, query: str, until: int) -> list[Any]:
    """Wait until a session has found so many files for a query, and completed."""
    while True:
        params = (
            await client.wait_for(
                f"{SESSION}Updated", lambda p: (p["sessionId"], p["query"]) == (session, query)
            )
        )["params"]
        if len(params["files"]) == until:
            break
    await client.wait_for(f"{SESSION}Completed", lambda p: p == {"sessionId": session})
    files: list[Any] = params["files"]
    return files


@claim("search-files:single", "search-files:never-git")
async def test_files_and_folders_are_found(tmp_path: Path, root: Path) -> None:
    async with serve(tmp_path / "home") as served, served.client() as client:

        async def search(query: str, *roots: Path, **more: Any) -> Any:
            params = {"query": query, "roots": list(map(str, roots)), **more}
            return (await client.call("fuzzyFileSearch", params))["files"]

        assert await search("main", root) == [main_py(root)]
        assert await search("src", root) == [
            {
                "root": str(root),
                "path": "src",
                "match_type": "directory",
                "file_name": "src",
                "score": 131156,
                "indices": [0, 1, 2],
            },
            *(
                {
                    "root": str(root),
                    "path": f"src/{name}",
                    "match_type": "file",
                    "file_name": name,
                    "score": 84,
                    "indices": [0, 1, 2],
                }
                for name in ("main.py", "other.py")
            ),
        ]
        assert await search("HEAD", root) == []
        assert await search("", root) == []
        assert await search("main") == []
        assert await search("main", root / "gone") == []
        assert await search("main", root / "README.md") == []
        assert await search("main", Path("/" + "x" * 300)) == []
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "main.c").touch()
        (elsewhere / ".git").write_text("gitdir: \0")
        assert [file["path"] for file in await search("main", elsewhere)] == ["main.c"]
        (root / "src" / "main.rs").touch()
        found = await search("main", root, cancellationToken="t")
        assert [file["path"] for file in found] == ["src/main.py", "src/main.rs"]
        too_many = await client.refusal(
            "fuzzyFileSearch", {"query": "a", "roots": ["/a"] * (MAX_ROOTS + 1)}
        )
        assert (too_many.code, too_many.message) == (
            -32600,
            f"a search has at most {MAX_ROOTS} roots",
        )


@claim("search-files:token")
async def test_a_later_search_of_a_token_ends_the_earlier_one(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = anyio.Event()

    def wait_for_ever(query: str, listings: Any, stop: Stop) -> Any:
        if query == "first":
            anyio.from_thread.run_sync(begun.set)
            while True:
                stop.check()
        return rank(query, listings, stop)

    monkeypatch.setattr(service, "rank", wait_for_ever)
    first: list[Any] = []
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            search = FileSearch(tasks)

            async def run_first() -> None:
                first.append(await search.search("first", [str(root)], "owner", "token"))

            tasks.start_soon(run_first)
            await begun.wait()
            other = await search.search("main", [str(root)], "other", "token")
            assert first == []
            second = await search.search("main", [str(root)], "owner", "token")
    assert first == [()]
    assert [match.path for match in other] == [match.path for match in second] == ["src/main.py"]


@claim("search-files:session")
async def test_a_session_follows_the_query_and_the_files(tmp_path: Path, root: Path) -> None:
    async with serve(tmp_path / "home") as served, served.client() as client:
        params = {"sessionId": "s", "roots": [str(root)]}
        assert await client.call(f"{SESSION}Start", params) == {}
        assert await results(client, "s", "", 0) == []
        assert await client.call(f"{SESSION}Update", {"sessionId": "s", "query": "main"}) == {}
        assert await results(client, "s", "main", 1) == [main_py(root)]
        (root / "main.rs").touch()
        await client.call(f"{SESSION}Update", {"sessionId": "s", "query": "ma"})
        found = await results(client, "s", "ma", 2)
        assert [file["path"] for file in found] == ["main.rs", "src/main.py"]
        await client.call(f"{SESSION}Update", {"sessionId": "s", "query": ""})
        assert await results(client, "s", "", 0) == []
        for _ in range(2):
            assert await client.call(f"{SESSION}Stop", {"sessionId": "s"}) == {}
        gone = await client.refusal(f"{SESSION}Update", {"sessionId": "s", "query": "a"})
        assert (gone.code, gone.message, gone.data["code"]) == (
            -32600,
            "fuzzy file search session not found: s",
            "sessionNotFound",
        )


@claim("search-files:session")
async def test_only_the_last_query_is_answered(tmp_path: Path, root: Path) -> None:
    async with serve(tmp_path / "home") as served, served.client() as client:
        await client.call(f"{SESSION}Start", {"sessionId": "s", "roots": [str(root)]})
        for end in range(1, 5):
            await client.request(f"{SESSION}Update", {"sessionId": "s", "query": "main"[:end]})
        assert await results(client, "s", "main", 1) == [main_py(root)]


@claim("search-files:refused")
async def test_sessions_have_ids_and_roots_and_are_counted(tmp_path: Path, root: Path) -> None:
    async with serve(tmp_path / "home") as served, served.client() as client:

        async def refusal(session: str, roots: list[str]) -> tuple[int, str]:
            error = await client.refusal(f"{SESSION}Start", {"sessionId": session, "roots": roots})
            return error.code, error.message

        assert await refusal("", [str(root)]) == (-32600, "sessionId must not be empty")
        assert await refusal("s", []) == (
            -32603,
            "failed to start fuzzy file search session: at least one search directory is required",
        )
        for number in (*range(MAX_SESSIONS), 0):
            params = {"sessionId": str(number), "roots": [str(root)]}
            await client.call(f"{SESSION}Start", params)
        assert await refusal("more", [str(root)]) == (
            -32600,
            f"a connection has at most {MAX_SESSIONS} search sessions",
        )
        async with served.client() as other:
            await other.call(f"{SESSION}Start", {"sessionId": "0", "roots": [str(root)]})


@claim("search-files:session")
async def test_sessions_end_with_their_owner(root: Path) -> None:
    told: list[Any] = []
    completed = anyio.Event()
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            search = FileSearch(tasks)
            search.start("owner", "s", [str(root)], lambda *args: told.append(args), completed.set)
            await completed.wait()
            assert search.sessions == 1
            search.stop_all("owner")
            # The task group ends by itself: no session runs any more.
        assert search.sessions == 0
    assert told == [("", ())]


@claim("search-files:session")
async def test_a_connection_that_ends_takes_its_sessions_along(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[Any] = []
    monkeypatch.setattr(FileSearch, "stop_all", lambda search, owner: ended.append(owner))
    async with serve(tmp_path / "home") as served, served.client() as client:
        for session in ("a", "b"):
            await client.call(f"{SESSION}Start", {"sessionId": session, "roots": [str(root)]})
    assert len(ended) == 1


@claim("search-files:session")
async def test_a_search_that_fails_ends_neither_session_nor_server(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(query: str, *arguments: Any) -> Any:
        if query == "broken":
            raise RuntimeError("this must not happen")
        return rank(query, *arguments)

    monkeypatch.setattr(service, "rank", fail)
    async with serve(tmp_path / "home") as served, served.client() as client:
        await client.call(f"{SESSION}Start", {"sessionId": "s", "roots": [str(root)]})
        assert await results(client, "s", "", 0) == []
        await client.call(f"{SESSION}Update", {"sessionId": "s", "query": "broken"})
        await client.wait_for(f"{SESSION}Completed")
        await client.call(f"{SESSION}Update", {"sessionId": "s", "query": "main"})
        assert await results(client, "s", "main", 1) == [main_py(root)]
