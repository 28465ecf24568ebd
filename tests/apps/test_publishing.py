"""What is published of an account: one inventory after the other, and its end."""

import threading
from typing import Any

import anyio
import anyio.to_thread
import pytest

from app_server.apps.account import AppsUnavailable
from app_server.apps.presentation import ApprovalTemplates
from app_server.apps.published import Published, Publishing, prepare, with_known
from app_server.apps.routes.generation import Generation, GenerationPorts
from app_server.apps.upstream.bearer import SIGN_IN_CHANGED
from protocol.model import JsonObject
from tests.support.apps.inventories import listed
from tests.support.apps.peer import FakePool, Guard
from tests.support.harness import WAIT_S


class ClosedPool(FakePool):
    """A pool that says when it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.shut = anyio.Event()

    def shut_down(self) -> None:
        assert not self.shut.is_set()
        self.shut.set()


async def test_the_pool_is_closed_with_the_last_generation_that_somebody_uses() -> None:
    async def refresh() -> None:
        raise AssertionError("nobody signed in")

    pool: Any = ClosedPool()
    served: set[Generation] = set()
    async with anyio.create_task_group() as tasks:
        ports = GenerationPorts(pool, Guard(), None, refresh)
        publishing = Publishing(tasks, ports, ApprovalTemplates.load(), served)
        assert publishing.current is None
        assert await publishing.publish([listed("look")])
        first = publishing.current
        assert first is not None
        assert not await publishing.publish([listed("look")])
        assert publishing.current is first
        lease = first.generation.lease()
        assert await publishing.publish([listed("look"), listed("read")])
        second = publishing.current
        assert second is not None
        assert served == {first.generation, second.generation}
        publishing.end()
        assert publishing.current is None
        with anyio.fail_after(WAIT_S):
            await second.generation.ended()
            assert not pool.shut.is_set()
            lease.release()
            await pool.shut.wait()
        assert served == set()


async def test_only_what_changed_is_made_anew_for_the_next_inventory() -> None:
    def looks(description: str, *ids: str) -> list[JsonObject]:
        return [listed("look", id_, id_.title(), description=description) for id_ in ids]

    async def refresh() -> None:
        raise AssertionError("nobody signed in")

    pool: Any = ClosedPool()
    async with anyio.create_task_group() as tasks:
        ports = GenerationPorts(pool, Guard(), None, refresh)
        publishing = Publishing(tasks, ports, ApprovalTemplates.load(), set())
        assert await publishing.publish(looks("Old.", "mail", "news", "gone"))
        before = publishing.current
        assert await publishing.publish(looks("Old.", "mail") + looks("New.", "news", "more"))
        now = publishing.current
        assert before is not None
        assert now is not None
        old, made = before.made, now.made
        parts = [(old.routes, made.routes), (old.presented, made.presented)]
        parts.append((old.manifests, made.manifests))
        kept = {s: [b.get(s) is n[s] for b, n in parts] for s in made.routes}
        assert kept == {
            "codex_apps__mail": [True, True, True],
            "codex_apps__more": [False, False, False],
            "codex_apps__news": [False, False, False],
        }
        assert made.manifests["codex_apps"] is old.manifests["codex_apps"]
        fresh = prepare(made.inventory.raw_tools, None, ApprovalTemplates.load(), has_files=False)
        assert fresh == made
        publishing.end()


def test_a_tool_that_was_known_is_the_same_object_in_the_next_list() -> None:
    before = [listed("a"), listed("b"), listed("c")]
    now = with_known(
        before, [listed("a"), listed("b", description="New."), listed("c"), listed("d")]
    )
    assert [tool is old for tool, old in zip(now, before, strict=False)] == [True, False, True]
    assert now == [listed("a"), listed("b", description="New."), listed("c"), listed("d")]
    assert with_known(before, before[:1]) == before[:1]
    assert with_known([], before) == before


async def test_what_was_being_made_at_the_end_is_not_published(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, ended = threading.Event(), threading.Event()

    def make_ready(*_: Any) -> None:
        begun.set()
        assert ended.wait(WAIT_S)

    async def refresh() -> None:
        raise AssertionError("nobody signed in")

    monkeypatch.setattr(Published, "make_ready", make_ready)
    pool: Any = ClosedPool()
    served: set[Generation] = set()
    refused: list[str] = []
    async with anyio.create_task_group() as tasks:
        ports = GenerationPorts(pool, Guard(), None, refresh)
        publishing = Publishing(tasks, ports, ApprovalTemplates.load(), served)

        async def publish() -> None:
            try:
                await publishing.publish([listed("look")])
            except AppsUnavailable as exc:
                refused.append(str(exc))

        tasks.start_soon(publish)
        assert await anyio.to_thread.run_sync(begun.wait, WAIT_S)
        publishing.end()
        ended.set()
        with anyio.fail_after(WAIT_S):
            await pool.shut.wait()
        assert (publishing.current, served, refused) == (None, set(), [SIGN_IN_CHANGED])
