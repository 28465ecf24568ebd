"""Where threads are filed: projects, sections, their shared log, and lists that go by them."""

import errno
import os
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.threads.log.file.locks import WriterLock
from app_server.threads.organization import shared_log
from app_server.threads.organization.filing import PINNED, Filing, FilingState
from app_server.threads.organization.fractional_index import rank_between
from app_server.threads.organization.shared_log import LogLocked, SharedLog
from protocol.filing_records import FiledProject, ProjectDeleted, ProjectMoved, ProjectPut
from tests.support.harness import WAIT_S, Served, WireClient, WireError, claim, serve

NOBODY = "01990000-0000-7000-8000-000000000000"


# Ranks.


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


# The shared log.


def test_a_torn_line_of_a_shared_log_is_nobodys(tmp_path: Path) -> None:
    path = tmp_path / "log"
    first, second = SharedLog(path), SharedLog(path)
    assert first.read_new() == []
    first.append(lambda _: [b"1\n"])
    with path.open("ab") as file:
        file.write(b"torn")
    assert second.read_new() == [b"1\n"]
    seen: list[bytes] = []

    def decide(added: Any) -> list[bytes]:
        seen.extend(added)
        return [b"2\n", b"3\n"]

    second.append(decide)
    assert seen == []
    assert path.read_bytes() == b"1\n2\n3\n"
    assert first.read_new() == [b"2\n", b"3\n"]


def test_a_shared_log_that_the_disk_refuses_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    log = SharedLog(path)
    log.append(lambda _: [b"1\n"])
    real_write = os.write

    def full_disk(file: int, content: bytes) -> int:
        if len(content) > 2:
            return real_write(file, content[:2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full_disk)
    with pytest.raises(OSError, match="No space left"):
        log.append(lambda _: [b"22\n"])
    monkeypatch.undo()
    assert path.read_bytes() == b"1\n"
    log.append(lambda _: [b"3\n"])
    assert path.read_bytes() == b"1\n3\n"


def test_lines_that_are_taken_back_are_read_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    first, second = SharedLog(path), SharedLog(path)
    first.append(lambda _: [b"1\n"])
    assert second.read_new() == [b"1\n"]
    monkeypatch.setattr(shared_log, "LOCK_WAIT_S", 0)

    def broken_disk(_: int) -> None:
        assert path.read_bytes() == b"1\n22\n33\n"
        with pytest.raises(LogLocked):
            second.read_new()
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", broken_disk)
        with pytest.raises(OSError, match="Input/output error"):
            first.append(lambda _: [b"22\n", b"33\n"])
    assert second.read_new() == []
    first.append(lambda _: [b"4\n"])
    assert second.read_new() == [b"4\n"]
    second.append(lambda added: [*added, b"5\n"])
    assert path.read_bytes() == b"1\n4\n5\n"


def test_a_shared_log_that_others_hold_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    log, other = SharedLog(path), SharedLog(path)
    held, release = threading.Event(), threading.Event()

    def hold(_: Any) -> list[bytes]:
        held.set()
        assert release.wait(WAIT_S)
        return [b"held\n"]

    holder = threading.Thread(target=other.append, args=(hold,))
    holder.start()
    assert held.wait(WAIT_S)
    monkeypatch.setattr(shared_log, "LOCK_WAIT_S", 0)
    with pytest.raises(LogLocked):
        log.append(lambda _: [b"mine\n"])
    release.set()
    monkeypatch.undo()
    log.append(lambda added: [*added, b"mine\n"])
    holder.join()
    assert path.read_bytes() == b"held\nheld\nmine\n"


def project(name: str) -> FiledProject:
    return FiledProject(id=name, name=name, roots=[], metadata={}, created_at=1, updated_at=1)


async def test_changes_of_two_servers_meet_in_one_order(tmp_path: Path) -> None:
    path = tmp_path / "filing.jsonl"
    one, two = Filing(path), Filing(path)
    async with anyio.create_task_group() as tasks:
        for number in range(10):
            for filing, name in ((one, "a"), (two, "b")):
                record = ProjectPut(at_ms=1, project=project(f"{name}{number}"), key=f"{number}")
                tasks.start_soon(filing.change, lambda _, record=record: [record])
    states = [await filing.refresh() for filing in (one, two, Filing(path))]
    assert list(states[0].projects) == list(states[1].projects) == list(states[2].projects)
    assert len(states[0].projects) == 20
    assert states[0] == states[1] == states[2]


async def test_what_a_decision_raises_changes_nothing_and_keeps_what_others_did(
    tmp_path: Path,
) -> None:
    path = tmp_path / "filing.jsonl"
    one, two = Filing(path), Filing(path)
    await two.change(lambda _: [ProjectPut(at_ms=1, project=project("a"))])

    def refuse(state: FilingState) -> list[Any]:
        assert list(state.projects) == ["a"]
        raise KeyError("refused")

    with pytest.raises(KeyError, match="refused"):
        await one.change(refuse)
    assert list(one.state.projects) == ["a"]
    assert (await Filing(path).refresh()) == one.state
    path.write_bytes(path.read_bytes() + b"no record\n")
    assert (await one.refresh()) == two.state


def test_moves_of_projects_that_are_gone_change_nothing() -> None:
    state = FilingState().after([ProjectPut(at_ms=1, project=project(name)) for name in "abc"])
    assert list(state.after([ProjectMoved(at_ms=2, project_id="c", before_id="a")]).projects) == [
        "c",
        "a",
        "b",
    ]
    gone = state.after([ProjectDeleted(at_ms=2, project_id="a")])
    assert gone.after([ProjectMoved(at_ms=3, project_id="a", before_id=None)]) == gone
    moved = gone.after([ProjectMoved(at_ms=3, project_id="b", before_id="a")])
    assert list(moved.projects) == ["c", "b"]


# Sections, as clients use them.


async def threads_of(client: WireClient, count: int) -> list[str]:
    made = []
    for number in range(count):
        made.append(await client.start_thread())
        await client.turn(made[-1], f"about {number}")
    return made


async def listed(client: WireClient, **params: Any) -> list[str]:
    result = await client.call("thread/list", params)
    return [thread["id"] for thread in result["data"]]


@claim("sections:edit")
async def test_sections_are_made_renamed_listed_and_deleted(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client(experimental=False) as client:
        look = {"icon": "star", "color": None}
        made = [
            (await client.call("threadSection/create", params))["section"]
            for params in ({"name": " One "}, {"name": "Two", "appearance": look})
        ]
        assert [(each["name"], each["appearance"]) for each in made] == [
            ("One", None),
            ("Two", look),
        ]
        pinned = PINNED.model_dump(mode="json")
        everything = {"data": [pinned, *made], "nextCursor": None}
        assert await client.call("threadSection/list", {}) == everything
        page = await client.call("threadSection/list", {"limit": 2})
        assert page == {"data": [pinned, made[0]], "nextCursor": made[0]["id"]}
        rest = await client.call("threadSection/list", {"cursor": page["nextCursor"], "limit": 0})
        assert rest == {"data": made[1:], "nextCursor": None}
        renamed = await client.call(
            "threadSection/update", {"sectionId": made[1]["id"], "name": "Zwei"}
        )
        assert renamed == {"section": made[1] | {"name": "Zwei"}}
        plain = {"sectionId": made[1]["id"], "name": "Zwei", "appearance": None}
        assert (await client.call("threadSection/update", plain))["section"]["appearance"] is None
        assert await client.call("threadSection/delete", {"sectionId": made[0]["id"]}) == {}
        left = await client.call("threadSection/list", {})
        assert [section["name"] for section in left["data"]] == ["Pinned", "Zwei"]


@claim("sections:refused")
async def test_what_makes_no_sense_of_sections_is_refused(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        (thread_id,) = await threads_of(client, 1)
        ephemeral = await client.start_thread(ephemeral=True)
        for method, params, code, message in (
            ("threadSection/create", {"name": " "}, -32602, "section name must not be empty"),
            (
                "threadSection/create",
                {"name": "x" * 4097},
                -32602,
                "a section's name and look must have at most 4096 characters",
            ),
            (
                "threadSection/update",
                {"sectionId": "nope", "name": "x"},
                -32602,
                "thread section not found: nope",
            ),
            (
                "threadSection/update",
                {"sectionId": PINNED.id, "name": "x"},
                -32602,
                "the built-in pinned section cannot be renamed",
            ),
            (
                "threadSection/delete",
                {"sectionId": PINNED.id},
                -32602,
                "the built-in pinned section cannot be deleted",
            ),
            (
                "threadSection/delete",
                {"sectionId": "nope"},
                -32602,
                "thread section not found: nope",
            ),
            (
                "thread/section/move",
                {"threadId": thread_id, "sectionId": "nope"},
                -32600,
                "section nope does not exist",
            ),
            (
                "thread/section/move",
                {"threadId": NOBODY, "sectionId": PINNED.id},
                -32600,
                f"thread not found: {NOBODY}",
            ),
            (
                "thread/section/move",
                {"threadId": ephemeral, "sectionId": PINNED.id},
                -32600,
                f"ephemeral thread does not support section moves: {ephemeral}",
            ),
            (
                "thread/section/move",
                {"threadId": thread_id, "sectionId": None, "beforeThreadId": NOBODY},
                -32600,
                "beforeThreadId requires a non-null sectionId",
            ),
            (
                "thread/section/move",
                {"threadId": thread_id, "sectionId": PINNED.id, "beforeThreadId": thread_id},
                -32600,
                f"thread {thread_id} cannot be moved before itself",
            ),
            (
                "thread/section/move",
                {"threadId": thread_id, "sectionId": PINNED.id, "beforeThreadId": NOBODY},
                -32600,
                f"before thread {NOBODY} is not in section {PINNED.id}",
            ),
            (
                "thread/list",
                {"sortKey": "section_position"},
                -32600,
                "section-position sorting requires a section filter",
            ),
        ):
            error = await client.refusal(method, params)
            assert (error.code, error.message) == (code, message)


@claim("sections:move")
async def test_threads_keep_the_places_that_they_are_moved_to(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        a, b, c = await threads_of(client, 3)
        unused = await client.start_thread()

        async def move(thread_id: str, **params: Any) -> None:
            params = {"threadId": thread_id, "sectionId": PINNED.id, **params}
            assert await client.call("thread/section/move", params) == {}
            told = await client.wait_for("thread/section/changed")
            assert told["params"] == {"threadId": thread_id, "sectionId": params["sectionId"]}

        async def in_order(**params: Any) -> list[str]:
            return await listed(client, sectionId=PINNED.id, sortKey="section_position", **params)

        await move(a)
        await move(b)
        await move(c, beforeThreadId=b)
        await move(unused)
        assert await in_order() == [a, c, b, unused]
        assert await in_order(sortDirection="desc") == [unused, b, c, a]
        await move(b, beforeThreadId=a)
        await move(a)
        assert await in_order() == [b, c, unused, a]
        assert await listed(client, sectionId=PINNED.id) == [unused, c, b, a]
        await move(c, sectionId=None)
        assert await listed(client, sectionId=None) == [c]
        assert await listed(client, sectionId="nope") == []
        shown = (await client.call("thread/read", {"threadId": b}))["thread"]
        assert shown["section"] == PINNED.model_dump(mode="json")
        row = (await client.call("thread/list", {"searchTerm": "about 1"}))["data"][0]
        assert shown["sectionEnteredAt"] == row["sectionEnteredAt"] >= shown["createdAt"]
        page = await client.call(
            "thread/list", {"sectionId": PINNED.id, "sortKey": "section_position", "limit": 1}
        )
        await move(c, beforeThreadId=b)
        assert await in_order(cursor=page["nextCursor"]) == [unused, a]
        error = await client.refusal("thread/list", {"cursor": page["nextCursor"]})
        assert error.data["code"] == "invalidCursor"


@claim("sections:deleted")
async def test_threads_of_a_deleted_section_are_in_none(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        (thread_id,) = await threads_of(client, 1)
        made = await client.call("threadSection/create", {"name": "x"})
        section_id = made["section"]["id"]
        await client.call("thread/section/move", {"threadId": thread_id, "sectionId": section_id})
        assert await listed(client, sectionId=section_id) == [thread_id]
        await client.call("threadSection/delete", {"sectionId": section_id})
        assert await listed(client, sectionId=section_id) == []
        assert await listed(client, sectionId=None) == [thread_id]
        for shown in (
            (await client.call("thread/read", {"threadId": thread_id}))["thread"],
            (await client.call("thread/list", {}))["data"][0],
            (await client.call("thread/resume", {"threadId": thread_id}))["thread"],
        ):
            assert (shown["section"], shown["sectionEnteredAt"]) == (None, None)


# Projects.


async def create(client: WireClient, name: str, key: str = "", **params: Any) -> Any:
    params = {"name": name, "roots": [], "idempotencyKey": key or name, **params}
    return (await client.call("project/create", params))["project"]


@claim("projects:edit", "projects:told")
async def test_projects_are_made_changed_moved_and_deleted(tmp_path: Path) -> None:
    async with (
        serve(tmp_path) as served,
        served.client() as client,
        served.client() as other,
        served.client(experimental=False) as stable,
    ):
        roots = [{"path": "/tmp/a/../b"}]
        one = await create(client, " One ", roots=roots, metadata={"x": "y"})
        assert one == {
            "id": one["id"],
            "name": "One",
            "roots": [{"path": "/tmp/b"}],
            "metadata": {"x": "y"},
            "position": 0,
            "createdAt": one["createdAt"],
            "updatedAt": one["createdAt"],
            "recencyAt": None,
        }
        assert await create(client, "Other", key=" One ") == one
        two = await create(client, "Two")
        assert await client.call("project/read", {"projectId": two["id"]}) == {"project": two}
        assert await client.call("project/update", {"projectId": one["id"]}) == {"project": one}
        changed = await client.call(
            "project/update", {"projectId": one["id"], "name": "Eins", "roots": [], "metadata": {}}
        )
        assert changed["project"] == one | {
            "name": "Eins",
            "roots": [],
            "metadata": {},
            "updatedAt": changed["project"]["updatedAt"],
        }
        move = {"projectId": two["id"], "beforeProjectId": one["id"]}
        assert await client.call("project/move", move) == {}
        order = (await client.call("project/list", {}))["data"]
        assert [(each["id"], each["position"]) for each in order] == [
            (two["id"], 0),
            (one["id"], 1),
        ]
        await client.call("project/move", {"projectId": two["id"]})
        assert await client.call("project/delete", {"projectId": two["id"]}) == {}
        told = []
        for _ in range(6):
            params = (await other.wait_for("project/changed"))["params"]
            told.append((params["projectId"], params["changeType"]))
        assert told == [
            (one["id"], "created"),
            (two["id"], "created"),
            (one["id"], "updated"),
            (two["id"], "updated"),
            (two["id"], "updated"),
            (two["id"], "deleted"),
        ]
        gone = await client.refusal(
            "project/create", {"name": "Two", "roots": [], "idempotencyKey": "Two"}
        )
        assert (gone.code, gone.message) == (
            -32602,
            "idempotency key refers to deleted project: Two",
        )
        # Clients without the opt-in hear of threads alone.
        thread_id = await client.start_thread()
        heard = await stable.until("thread/started")
        assert [message["method"] for message in heard] == ["thread/started"]
        assert heard[0]["params"]["thread"]["id"] == thread_id


@claim("projects:refused")
async def test_what_makes_no_sense_of_projects_is_refused(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        one = await create(client, "One")
        new = {"name": "x", "roots": [], "idempotencyKey": "new"}
        same = [{"path": "/a"}, {"path": "/a/"}]
        for method, params, message in (
            ("create", new | {"name": " "}, "project name must not be empty"),
            ("create", new | {"idempotencyKey": ""}, "idempotencyKey must not be empty"),
            ("create", new | {"roots": same}, "duplicate project root: /a"),
            (
                "create",
                new | {"roots": [{"path": "a"}]},
                "Invalid params: `roots.0.path`: must be an absolute path",
            ),
            (
                "create",
                new | {"name": "x" * 65_536},
                "a project must have at most 65536 characters",
            ),
            ("read", {"projectId": "nope"}, "project not found: nope"),
            ("update", {"projectId": "nope"}, "project not found: nope"),
            (
                "update",
                {"projectId": one["id"], "metadata": {"a": "x" * 65_536}},
                "a project must have at most 65536 characters",
            ),
            ("delete", {"projectId": "nope"}, "project not found: nope"),
            ("move", {"projectId": "nope"}, "project not found: nope"),
            (
                "move",
                {"projectId": one["id"], "beforeProjectId": "nope"},
                "before project not found: nope",
            ),
            (
                "move",
                {"projectId": one["id"], "beforeProjectId": one["id"]},
                f"project {one['id']} cannot be moved before itself",
            ),
            ("list", {"sortDirection": "asc"}, "sortDirection requires sortKey"),
            (
                "list",
                {"cursor": "x"},
                "invalid project cursor: malformed or mismatched sort anchor",
            ),
            ("import", new | {"threads": [NOBODY]}, f"thread not found: {NOBODY}"),
            ("import", new | {"threads": ["x"]}, "thread not found: x"),
            ("import", new | {"threads": ["x", "x"]}, "duplicate thread id: x"),
        ):
            error = await client.refusal(f"project/{method}", params)
            assert (error.code, error.message) == (-32602, message)
        assert (await client.call("project/list", {}))["data"] == [one]


@claim("projects:threads")
async def test_threads_belong_to_projects_until_these_are_deleted(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client, served.client() as other:
        one = await create(client, "One")
        started = await client.start_thread(projectId=one["id"])
        await client.turn(started, "hi")
        (loose,) = await threads_of(client, 1)
        error = await client.refusal("thread/start", {"projectId": "nope"})
        assert (error.code, error.message) == (-32600, "project not found: nope")
        moved = {"threadId": loose, "projectId": one["id"]}
        for _ in range(2):
            answer = await client.call("thread/metadata/update", moved)
            assert answer["thread"]["projectId"] == one["id"]
        told = await other.wait_for("thread/project/updated")
        assert told["params"] == moved
        assert await listed(client, projectId=one["id"]) == [loose, started]
        assert await listed(client, projectId=None) == []
        recency = (await client.call("project/read", {"projectId": one["id"]}))["project"]
        thread = (await client.call("thread/read", {"threadId": loose}))["thread"]
        assert recency["recencyAt"] == thread["recencyAt"]
        await client.call("thread/metadata/update", {"threadId": loose, "projectId": ""})
        # The second assignment of the same project was not told: this one follows the first.
        told = await other.wait_for("thread/project/updated")
        assert told["params"] == {"threadId": loose, "projectId": None}
        assert await listed(client, projectId=None) == [loose]
        await client.call("project/delete", {"projectId": one["id"]})
        assert await listed(client, projectId=None) == [loose, started]
        thread = (await client.call("thread/read", {"threadId": started}))["thread"]
        assert thread["projectId"] is None
        for project_id, message in (
            ("", "projectId must not be empty"),
            (one["id"], f"project not found: {one['id']}"),
        ):
            error = await client.refusal("thread/list", {"projectId": project_id})
            assert (error.code, error.message) == (-32602, message)


@claim("projects:import")
async def test_an_import_takes_threads_in_and_is_made_once(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        a, b = await threads_of(client, 2)
        await client.call("thread/archive", {"threadId": a})
        ask = {"name": "Imp", "roots": [], "threads": [a, b], "idempotencyKey": "i"}
        made = (await client.call("project/import", ask))["project"]
        told = await client.until("thread/project/updated")
        told.append(await client.wait_for("thread/project/updated"))
        told = [each["params"] for each in told if "project" in each["method"]]
        assert told == [
            {"projectId": made["id"], "changeType": "created"},
            {"threadId": a, "projectId": made["id"]},
            {"threadId": b, "projectId": made["id"]},
        ]
        assert await listed(client, projectId=made["id"]) == [b]
        assert await listed(client, projectId=made["id"], archived=True) == [a]
        await client.call("thread/metadata/update", {"threadId": b, "projectId": ""})
        again = await client.call("project/import", ask | {"name": "Other"})
        assert again["project"]["id"] == made["id"]
        assert await listed(client, projectId=made["id"]) == []
        ask = {"name": "Both", "roots": [], "threads": [b], "idempotencyKey": "j"}
        async with served.client() as other:
            asked = [(each, await each.request("project/import", ask)) for each in (client, other)]
            both = [(await each.answer(number))["result"]["project"] for each, number in asked]
        assert both[0] == both[1]
        assert await listed(client, projectId=both[0]["id"]) == [b]


async def test_an_import_that_fails_leaves_threads_where_they_were(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        a, b = await threads_of(client, 2)
        one = await create(client, "One")
        await client.call("thread/metadata/update", {"threadId": a, "projectId": one["id"]})
    lock = WriterLock(tmp_path / "locks" / f"{b}.lock")
    async with serve(tmp_path) as served, served.client() as client:
        ask = {"name": "Imp", "roots": [], "threads": [a, b], "idempotencyKey": "i"}
        error = await client.refusal("project/import", ask)
        assert error.data["code"] == "threadBusy"
        assert await listed(client, projectId=one["id"]) == [a]
        assert [each["id"] for each in (await client.call("project/list", {}))["data"]] == [
            one["id"]
        ]
        lock.release()
        made = (await client.call("project/import", ask))["project"]
        assert await listed(client, projectId=made["id"]) == [b, a]


@claim("projects:pages")
async def test_pages_of_projects_stay_valid_while_projects_come_and_go(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        made = [await create(client, name) for name in "abcd"]
        ids = [each["id"] for each in made]
        for project_id in (ids[2], ids[0]):
            thread_id = await client.start_thread(projectId=project_id)
            await client.turn(thread_id, "hi")

        async def pages(**params: Any) -> list[str]:
            found: list[str] = []
            cursor = None
            while True:
                page = await client.call("project/list", {"limit": 1, "cursor": cursor, **params})
                found.extend(each["id"] for each in page["data"])
                cursor = page["nextCursor"]
                if cursor is None:
                    return found

        assert await pages() == ids
        assert await pages(sortKey="position", sortDirection="desc") == ids[::-1]
        assert await pages(sortKey="recencyAt") == [ids[0], ids[2], ids[3], ids[1]]
        assert await pages(sortKey="recencyAt", sortDirection="asc") == [
            ids[2],
            ids[0],
            ids[1],
            ids[3],
        ]
        page = await client.call("project/list", {"limit": 2})
        await client.call("project/delete", {"projectId": ids[1]})
        rest = await client.call("project/list", {"cursor": page["nextCursor"]})
        assert [each["id"] for each in rest["data"]] == ids[2:]
        error = await client.refusal(
            "project/list", {"cursor": page["nextCursor"], "sortKey": "recencyAt"}
        )
        assert error.data["code"] == "invalidCursor"


# Attachments.


@claim("attachments:add", "attachments:owners")
async def test_attachments_are_added_once_and_their_owners_found(tmp_path: Path) -> None:
    async with (
        serve(tmp_path) as served,
        served.client() as client,
        served.client(experimental=False) as other,
    ):
        a, b = await threads_of(client, 2)
        ask = {"threadId": a, "attachmentType": "pr", "identityKey": "k", "payload": {"n": 1}}
        made = await client.call("thread/attachment/add", ask)
        attachment = made["attachment"]
        assert made == {
            "outcome": "created",
            "attachment": {
                "id": attachment["id"],
                "attachmentType": "pr",
                "identityKey": "k",
                "payload": {"n": 1},
                "createdAt": attachment["createdAt"],
            },
        }
        again = await client.call("thread/attachment/add", ask | {"payload": 2})
        assert again == {"outcome": "existing", "attachment": attachment}
        more = await client.call("thread/attachment/add", ask | {"identityKey": "l"})
        await client.call("thread/attachment/add", ask | {"threadId": b, "payload": None})
        first = await client.call("thread/attachment/list", {"threadId": a, "limit": 1})
        assert first["data"] == [attachment]
        rest = await client.call(
            "thread/attachment/list", {"threadId": a, "cursor": first["nextCursor"]}
        )
        assert rest == {"data": [more["attachment"]], "nextCursor": None}
        assert await client.call("thread/attachment/list", {"threadId": NOBODY}) == {
            "data": [],
            "nextCursor": None,
        }
        names = {"attachmentType": "pr", "identityKey": "k"}
        await client.call("thread/archive", {"threadId": a})
        page = await client.call("thread/attachmentOwner/list", names | {"limit": 1})
        assert page["data"] == [{"threadId": a, "archived": True}]
        rest = await client.call(
            "thread/attachmentOwner/list", names | {"cursor": page["nextCursor"]}
        )
        assert rest == {"data": [{"threadId": b, "archived": False}], "nextCursor": None}
        active = await client.call("thread/attachmentOwner/list", names | {"archived": False})
        assert active == rest
        for _ in range(2):
            assert await client.call("thread/attachment/remove", names | {"threadId": a}) == {}
        left = await client.call("thread/attachmentOwner/list", names)
        assert left == rest
        stored = await client.call("thread/attachment/list", {"threadId": a})
        assert stored["data"] == [more["attachment"]]
        told = [(await other.wait_for("thread/attachment/updated"))["params"] for _ in range(4)]
        assert [(each["threadId"], each["identityKey"], each["operation"]) for each in told] == [
            (a, "k", "created"),
            (a, "l", "created"),
            (b, "k", "created"),
            (a, "k", "deleted"),
        ]


@claim("attachments:bounds")
async def test_attachments_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app_server.handlers.organization.attachments.MAX_ATTACHMENTS", 3)
    async with serve(tmp_path) as served, served.client() as client:
        (thread_id,) = await threads_of(client, 1)
        ephemeral = await client.start_thread(ephemeral=True)
        ask = {"threadId": thread_id, "attachmentType": "t", "identityKey": "k", "payload": 1}
        for change, message in (
            ({"attachmentType": ""}, "attachmentType must not be empty"),
            ({"identityKey": ""}, "identityKey must not be empty"),
            ({"identityKey": "x" * 1025}, "identityKey must have at most 1024 characters"),
            ({"payload": "x" * 65_536}, "attachment payload must not exceed 65536 bytes"),
            ({"threadId": NOBODY}, f"thread not found: {NOBODY}"),
            ({"threadId": ephemeral}, f"thread not found: {ephemeral}"),
        ):
            error = await client.refusal("thread/attachment/add", ask | change)
            assert (error.code, error.message) == (-32602, message)
        for number in range(3):
            big = {"identityKey": str(number), "payload": "x" * 60_000}
            await client.call("thread/attachment/add", ask | big)
        error = await client.refusal("thread/attachment/add", ask)
        assert error.message == "the thread has 3 attachments already"
        monkeypatch.setattr("app_server.handlers.organization.attachments.MAX_LIST_BYTES", 100_000)
        page = await client.call("thread/attachment/list", {"threadId": thread_id})
        assert [each["identityKey"] for each in page["data"]] == ["0"]
        error = await client.refusal(
            "thread/attachment/list", {"threadId": thread_id, "cursor": "zz"}
        )
        assert error.message == "invalid cursor: zz"


# Lists.


@claim("threads:list-refused")
async def test_filters_that_make_no_sense_together_are_refused(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        for params, code, message in (
            (
                {"parentThreadId": NOBODY, "ancestorThreadId": NOBODY},
                -32600,
                "parentThreadId and ancestorThreadId are mutually exclusive",
            ),
            (
                {"parentThreadId": NOBODY, "attachedToThreadId": NOBODY},
                -32600,
                "attachedToThreadId cannot be combined with parentThreadId or ancestorThreadId",
            ),
            ({"parentThreadId": "x"}, -32600, "invalid parent thread id: x"),
            (
                {"includeAttachedThreads": True},
                -32600,
                "includeAttachedThreads requires a non-empty searchTerm",
            ),
            (
                {"excludedThreadIds": [NOBODY] * 101},
                -32602,
                "excludedThreadIds accepts at most 100 entries",
            ),
            ({"excludedThreadIds": ["x"]}, -32602, "invalid excluded thread id: x"),
        ):
            error = await client.refusal("thread/list", params)
            assert (error.code, error.message) == (code, message)
        assert await listed(client, attachedToThreadId=NOBODY) == []
        assert await listed(client, sourceKinds=["subAgent"]) == []


async def test_a_log_of_projects_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        with pytest.raises(WireError, match="cannot be stored: Is a directory"):
            await _create_on_a_folder(served, client)


async def _create_on_a_folder(served: Served, client: WireClient) -> None:
    (served.home / "filing.jsonl").mkdir()
    await client.call("threadSection/create", {"name": "x"})
