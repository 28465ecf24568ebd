"""What is acknowledged about threads survives: kill -9, and an index that is made anew."""

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from app_server.threads.files.store import FileStore
from app_server.threads.files.writers import FileLog
from app_server.threads.log.reading import load_state
from app_server.threads.log.state import begin
from app_server.threads.organization import PINNED
from app_server.threads.rows import ThreadQuery, Within
from protocol.log.metadata import (
    AttachmentAdded,
    AttachmentRemoved,
    DaybreakChanged,
    GitInfoChanged,
    ProjectChanged,
    ReadStateChanged,
    SectionChanged,
)
from protocol.log.rollout import ArchivedChanged, HistoryAppended, NameChanged, Record
from protocol.threads.thread import GitInfo, ThreadAttachment, ThreadStartThreadUnreadPosition
from tests.support.harness import WireClient, claim, write_config
from tests.support.model import ScriptedModel
from tests.support.processes import running
from tests.support.threads.stores import created, open_store, raw

QUERY = ThreadQuery(limit=100)


def any_change(random: Random) -> Record:
    """Make up one change of a thread."""
    pick, at_ms = random.choice, random.randrange(10_000)
    attachment = ThreadAttachment(
        id=pick("abc"),
        attachment_type=pick("tu"),
        identity_key=pick("kl"),
        payload=None,
        created_at=at_ms,
    )
    changes: list[Record] = [
        GitInfoChanged(at_ms=at_ms, git_info=pick([None, GitInfo(branch=pick("bc"))])),
        DaybreakChanged(at_ms=at_ms, enabled=pick([True, False])),
        ProjectChanged(at_ms=at_ms, project_id=pick([None, "p", "q"])),
        SectionChanged(
            at_ms=at_ms, section_id=pick([None, PINNED.id, PINNED.id, "s"]), rank=pick("123")
        ),
        ReadStateChanged(
            at_ms=at_ms,
            first_unread=pick([None, ThreadStartThreadUnreadPosition()]),
            revision=pick("xy"),
        ),
        AttachmentAdded(at_ms=at_ms, attachment=attachment),
        AttachmentRemoved(at_ms=at_ms, attachment_id=pick("abc")),
        NameChanged(at_ms=at_ms, name=pick(["n", "m"])),
        ArchivedChanged(at_ms=at_ms, archived=pick([True, False])),
        HistoryAppended(at_ms=at_ms, items=[raw("x")]),
    ]
    return pick(changes)


async def everything(store: FileStore) -> list[Any]:
    """Ask an index what lists can ask it."""
    pages = [
        replace(QUERY, archived=archived, section=section, project=project)
        for archived in (False, True)
        for section in (None, Within(None, [PINNED.id]), Within(PINNED.id, [PINNED.id]))
        for project in (None, Within(None, ["p"]), Within("p", ["p"]))
    ]
    found: list[Any] = [(await store.lists.page(query)).rows for query in pages]
    found.append(await store.organization.project_recency())
    found += [
        await store.organization.owners((kind, key), archived, "", 100)
        for kind in "tu"
        for key in "kl"
        for archived in (None, True, False)
    ]
    by_rank = replace(
        QUERY, section=Within(PINNED.id, [PINNED.id]), sort_key="section_rank", ascending=True
    )
    found.append((await store.lists.page(by_rank)).rows)
    return found


@claim("metadata:index")
@pytest.mark.parametrize("seed", range(12))
async def test_an_index_equals_the_one_that_is_made_from_the_logs(
    tmp_path: Path, seed: int
) -> None:
    random, home = Random(seed), tmp_path
    async with open_store(home) as store:
        threads = [await store.create(created(number)) for number in range(4)]
        for _ in range(40):
            which = random.randrange(4)
            await threads[which].append(any_change(random))
            if random.random() < 0.1:
                await store.unload(threads[which])
                threads[which] = await store.load(threads[which].id)
        kept = await everything(store)
        states = {thread.id: thread.state for thread in threads}
        for thread in threads:
            await store.unload(thread)
    shutil.rmtree(home / "index")
    async with open_store(home) as store:
        assert await everything(store) == kept
        for thread_id, state in states.items():
            assert load_state(FileLog(Path(store.shown_path(thread_id)))) == state


def test_metadata_is_no_work() -> None:
    state = begin(created(1000))
    state.apply(DaybreakChanged(at_ms=5000, enabled=True))
    assert (state.updated_at_ms, state.has_content) == (1000, False)
    state.apply(SectionChanged(at_ms=6000, section_id="s", rank="1"))
    assert (state.updated_at_ms, state.has_content) == (1000, True)
    state.apply(SectionChanged(at_ms=7000, section_id="s", rank="2"))
    assert state.metadata.section_entered_at_ms == 6000


@pytest.mark.process
@claim("metadata:kill")
@pytest.mark.slow
async def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    async with ScriptedModel().serve() as model:
        write_config(tmp_path, model.url)
        async with running(tmp_path) as server, server.client() as client:
            thread_id = await client.start_thread()
            await client.turn(thread_id, "hi")
            project = await client.call(
                "project/create", {"name": "P", "roots": [], "idempotencyKey": "k"}
            )
            section = await client.call("threadSection/create", {"name": "S"})
            here = {"threadId": thread_id}
            update = {"projectId": project["project"]["id"], "gitInfo": {"branch": "b"}}
            await client.call("thread/metadata/update", here | update)
            await client.call("thread/settings/update", here | {"model": "other"})
            await client.call("thread/memoryMode/set", here | {"mode": "disabled"})
            attached = {"attachmentType": "t", "identityKey": "k", "payload": 1}
            await client.call("thread/attachment/add", here | attached)
            await client.call("thread/goal/set", here | {"objective": "o", "status": "paused"})
            revision = (await client.call("thread/read", here))["readState"]["revision"]
            read = {"operation": {"type": "read"}, "expectedRevision": revision}
            await client.call("thread/readState/update", here | read)
            await client.call("thread/section/move", here | {"sectionId": section["section"]["id"]})
            before = await all_of(client, thread_id)
            assert before["list"]["data"][0]["section"]["name"] == "S"
            os.kill(server.process.pid, signal.SIGKILL)
            await server.ended()
        async with running(tmp_path) as server, server.client() as client:
            after = await all_of(client, thread_id)
            assert after == json.loads(json.dumps(before).replace('"idle"', '"notLoaded"'))
            resumed = await client.call("thread/resume", {"threadId": thread_id})
            shown = {key: resumed["thread"][key] for key in ("section", "projectId", "gitInfo")}
            assert shown == {key: before["list"]["data"][0][key] for key in shown}
            assert resumed["model"] == "other"


async def all_of(client: WireClient, thread_id: str) -> dict[str, Any]:
    """Return what a client can see of a thread and of what there is to file it in."""
    here = {"threadId": thread_id}
    read = await client.call("thread/read", here)
    for member in ("environments", "canAcceptDirectInput"):
        del read["thread"][member]
    return {
        "read": read,
        "list": await client.call("thread/list", {}),
        "goal": await client.call("thread/goal/get", here),
        "attachments": await client.call("thread/attachment/list", here),
        "projects": await client.call("project/list", {}),
        "sections": await client.call("threadSection/list", {}),
    }
